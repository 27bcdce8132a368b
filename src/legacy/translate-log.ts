import { LegacyEvidenceKind } from "../../gen/toolmark/v1/legacy_pb.js";
import { isOfChild } from "./child-ids.js";
import { isBookkeeping } from "./event-types.js";
import type { LogAccount } from "./log-account.js";
import {
  addApprovalEvidence,
  addArchiveEvidence,
  addAuthorizationEvidence,
  addRetractionEvidence,
} from "./log-evidence.js";
import { LogHooks } from "./log-hooks.js";
import type { OldEvent, OldLog, OldLogRecord } from "./old-session.js";
import { openAskLine } from "./open-ask.js";
import type { Place, TranslationDraft } from "./translation-draft.js";

/** Translates an event log. Its calls and texts go to an account; the rest is the same for each. */
export function translateLog(draft: TranslationDraft, log: OldLog, account: LogAccount): void {
  const walk = new LogWalk(draft, account, openAskLine(log));
  for (const record of log.records) walk.add(record);
  walk.finish();
}

class LogWalk {
  readonly #draft: TranslationDraft;
  readonly #account: LogAccount;
  readonly #openAskLine: number | undefined;
  readonly #hooks: LogHooks;
  /** Where the turn that goes on was last told of. */
  #turn: Pick<OldEvent, "runId" | "turn"> | undefined;
  /** What the model said so far, since its first piece. */
  #said: { readonly place: Place; readonly pieces: string[] } | undefined;

  constructor(draft: TranslationDraft, account: LogAccount, askLine: number | undefined) {
    this.#draft = draft;
    this.#account = account;
    this.#openAskLine = askLine;
    this.#hooks = new LogHooks(draft);
  }

  add({ line, entry }: OldLogRecord): void {
    const occurrence = `log/${line}`;
    if (entry.kind === "event") {
      this.#addEvent(entry, { occurrence, runId: entry.runId }, line === this.#openAskLine);
      return;
    }
    this.#endText();
    this.#draft.addEvidence(occurrence, LegacyEvidenceKind.GAP, { label: entry.reason });
    this.#account.changeTurn("isLost");
  }

  finish(): void {
    this.#endText();
    this.#account.finish();
  }

  #addEvent(event: OldEvent, place: Place, isOpen: boolean): void {
    const { payload, seq, text } = event;
    switch (payload.of) {
      case "text":
        this.#addText(event, place);
        break;
      case "call":
        this.#enterTurn(event);
        this.#endText();
        this.#hooks.addCall(
          payload.call.providerCallId,
          this.#account.addCall(place, payload.call),
        );
        break;
      case "result":
        this.#enterTurn(event);
        this.#endText();
        this.#account.addResult(place, payload.result);
        break;
      case "ask":
        this.#enterTurn(event);
        this.#endText();
        this.#account.addAsk(place, payload.ask, isOpen);
        break;
      case "hook":
        this.#endText();
        this.#hooks.add({ place, seq, hook: payload.hook, text });
        break;
      case "prompt":
        this.#endText();
        this.#account.addSaid(place, "user", payload);
        break;
      case "end":
        this.#endText();
        this.#account.changeTurn("ends");
        break;
      case "title":
        break;
      default:
        this.#addEvidence(event, place);
    }
  }

  /** What is kept as evidence, whichever account there is, or not at all. */
  #addEvidence(event: OldEvent, { occurrence }: Place): void {
    const { type, text, payload } = event;
    const draft = this.#draft;
    // A model that is tried again says it again.
    if (!isBookkeeping(type) || type === "model.retry") this.#endText();
    switch (payload.of) {
      case "approval": {
        const { approval } = payload;
        const ofChild = isOfChild(draft.sessionId, approval.askId);
        const toolCallId = ofChild ? undefined : this.#callNamed(event, approval);
        addApprovalEvidence(draft, occurrence, approval, toolCallId);
        break;
      }
      case "authorization": {
        const { authorization } = payload;
        const toolCallId = this.#callNamed(event, authorization);
        addAuthorizationEvidence(draft, occurrence, authorization, toolCallId);
        break;
      }
      case "retraction":
        addRetractionEvidence(draft, occurrence, payload.askId);
        break;
      case "archive":
        addArchiveEvidence(draft, occurrence, payload.replaced);
        break;
      case "other":
        if (isBookkeeping(type)) return;
        draft.addEvidence(occurrence, LegacyEvidenceKind.EVENT, { label: type, text });
        break;
      default:
    }
  }

  #addText(event: OldEvent, place: Place): void {
    if (event.type === "turn.start") {
      this.#beginTurn(event);
      return;
    }
    this.#enterTurn(event);
    this.#said ??= { place, pieces: [] };
    this.#said.pieces.push(event.text);
  }

  /** An event that tells of a turn: of the one that goes on, or of one whose begin was not told. */
  #enterTurn(event: OldEvent): void {
    if (!this.#isOfTurn(event)) this.#beginTurn(event);
  }

  #beginTurn({ runId, turn }: OldEvent): void {
    this.#endText();
    this.#turn = { runId, turn };
    this.#account.changeTurn("begins");
  }

  #isOfTurn({ runId, turn }: OldEvent): boolean {
    return this.#turn?.runId === runId && this.#turn.turn === turn;
  }

  #callNamed(event: OldEvent, named: { readonly providerCallId: string }): string | undefined {
    const isNamed = named.providerCallId !== "" && this.#isOfTurn(event);
    return isNamed ? this.#account.callNamed(named.providerCallId) : undefined;
  }

  #endText(): void {
    const said = this.#said;
    this.#said = undefined;
    if (said === undefined) return;
    const text = said.pieces.join("");
    this.#account.addSaid(said.place, "assistant", { text, parts: [] });
  }
}
