import { LegacyEvidenceKind } from "../../gen/toolmark/v1/legacy_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import type { OldMessage, OldSnapshot } from "./old-session.js";
import { isUnanswered, OldTurn, takeResult } from "./old-turn.js";
import { messageRole } from "./old-words.js";
import type { Place, TranslationDraft } from "./translation-draft.js";
import { addAskEvidence, addPendingAsk, addPendingAuthorization, endTurn } from "./waiting.js";

/** Names the places of a snapshot: its messages by their number, and what it waits for. */
function placeOf(part: number | "pending" | "authorization", runId = ""): Place {
  return { occurrence: `snapshot/${part}`, runId };
}

/** Translates the history of a snapshot, and what its last turn waits for. */
export function translateSnapshot(draft: TranslationDraft, snapshot: OldSnapshot): void {
  const history = new SnapshotHistory(draft, snapshot);
  for (const [index, message] of snapshot.messages.entries()) history.add(message, placeOf(index));
  history.finish();
}

class SnapshotHistory {
  readonly #draft: TranslationDraft;
  readonly #snapshot: OldSnapshot;
  readonly #turns: OldTurn[] = [];
  /** The turn that the history ends with, with nothing but results after it. */
  #last: OldTurn | undefined;

  constructor(draft: TranslationDraft, snapshot: OldSnapshot) {
    this.#draft = draft;
    this.#snapshot = snapshot;
  }

  add(message: OldMessage, place: Place): void {
    const { role, text, parts, calls, result, replay } = message;
    if (role === "tool" && result !== undefined) {
      takeResult(this.#draft, this.#last, place, result);
      return;
    }
    this.#last = undefined;
    const speaker = messageRole(role);
    if (speaker !== undefined) this.#draft.addMessage(place, speaker, { text, parts, replay });
    else this.#addUnknown(message, place);
    if (calls.length > 0) this.#addTurn(message, place);
    if (result !== undefined) takeResult(this.#draft, this.#last, place, result);
  }

  /** Gives every call an end, or what it waits for. */
  finish(): void {
    for (const turn of this.#turns.filter((each) => each !== this.#last)) {
      for (const call of turn.calls.filter(isUnanswered)) {
        this.#draft.end(call, ToolCallState.RESULT_MISSING);
      }
    }
    this.#finishLast();
  }

  #finishLast(): void {
    const { state, pending, authorization, runId } = this.#snapshot;
    const draft = this.#draft;
    const last = this.#last;
    const asking = placeOf("pending", runId);
    const parked = placeOf("authorization", runId);
    if (state === "awaiting" && pending !== undefined && authorization === undefined) {
      addPendingAsk(draft, asking, last, pending);
      return;
    }
    if (state === "authorizing" && authorization !== undefined && pending === undefined) {
      addPendingAuthorization(draft, parked, last, authorization);
      return;
    }
    // A session in any other state waits for nothing: what says that it does contradicts it.
    if (pending !== undefined) addAskEvidence(draft, asking.occurrence, pending, undefined);
    if (authorization !== undefined) {
      addPendingAuthorization(draft, parked, undefined, authorization);
    }
    if (!SETTLED.has(state)) {
      endTurn(draft, last);
      return;
    }
    for (const call of last?.unanswered ?? []) draft.end(call, ToolCallState.RESULT_MISSING);
  }

  #addTurn({ calls, replay }: OldMessage, { occurrence, runId }: Place): void {
    const { provider, model } = this.#snapshot;
    const turn = this.#draft.addTurn(
      { occurrence, runId },
      {
        ...(provider === undefined ? {} : { provider }),
        ...(model === undefined ? {} : { model }),
      },
    );
    this.#draft.keepTurnReplay(turn, replay);
    this.#last = new OldTurn(turn);
    this.#turns.push(this.#last);
    for (const [index, call] of calls.entries()) {
      const place = { occurrence: `${occurrence}/${index}`, runId };
      this.#last.add(this.#draft.addCall(place, turn, call));
    }
  }

  #addUnknown({ role, text }: OldMessage, { occurrence }: Place): void {
    const { MESSAGE } = LegacyEvidenceKind;
    this.#draft.addEvidence(occurrence, MESSAGE, { label: role, content: this.#draft.text(text) });
  }
}

/** States in which nothing of a session goes on. */
const SETTLED: ReadonlySet<string> = new Set(["idle", "completed", "failed", "cancelled"]);
