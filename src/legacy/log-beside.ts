import { LegacyEvidenceKind } from "../../gen/toolmark/v1/legacy_pb.js";
import type { LogAccount, Said, Speaker } from "./log-account.js";
import type { OldAsk, OldCall, OldResult } from "./old-session.js";
import type { Place, TranslationDraft } from "./translation-draft.js";
import { addAskEvidence } from "./waiting.js";

/**
 * An event log beside a snapshot, which has its own account of the calls. Places in the two cannot be compared, so what
 * the log says stands alone and is joined with nothing.
 */
export class LogBeside implements LogAccount {
  readonly #draft: TranslationDraft;

  constructor(draft: TranslationDraft) {
    this.#draft = draft;
  }

  changeTurn(): void {
    // The snapshot says which turns there are.
  }

  addSaid(place: Place, speaker: Speaker, said: Said): void {
    this.#draft.addLooseMessage(place, speaker, said);
  }

  addCall({ occurrence }: Place, { toolName, arguments: proposed }: OldCall): undefined {
    this.#draft.addEvidence(occurrence, LegacyEvidenceKind.CALL, {
      toolName,
      ...(proposed === undefined ? {} : { content: this.#draft.json(proposed) }),
    });
  }

  addResult(place: Place, result: OldResult): void {
    this.#draft.addLooseResult(place, result);
  }

  addAsk({ occurrence }: Place, ask: OldAsk): void {
    addAskEvidence(this.#draft, occurrence, ask, undefined);
  }

  callNamed(): undefined {
    // What is named is a call of the log, and the calls of the session are those of the snapshot.
  }

  finish(): void {
    // The snapshot says what its last turn waits for.
  }
}
