import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { isOfChild } from "./child-ids.js";
import type { LogAccount, Said, Speaker, TurnChange } from "./log-account.js";
import type { OldAsk, OldCall, OldResult } from "./old-session.js";
import { OldTurn, takeResult } from "./old-turn.js";
import type { DraftCall, Place, TranslationDraft } from "./translation-draft.js";
import { addAskEvidence, addPendingAsk, askedCall, endTurn } from "./waiting.js";

const ROLES: Readonly<Record<Speaker, MessageRole>> = {
  user: MessageRole.USER,
  assistant: MessageRole.ASSISTANT,
};

/** An event log that is the only account of its session: its calls are records. */
export class LogHistory implements LogAccount {
  readonly #draft: TranslationDraft;
  /** The turn that goes on, once it has a call. */
  #current: OldTurn | undefined;
  /** The last turn that has a call, while nothing says what became of its calls. */
  #last: OldTurn | undefined;

  constructor(draft: TranslationDraft) {
    this.#draft = draft;
  }

  changeTurn(change: TurnChange): void {
    this.#current = undefined;
    if (change !== "isLost") this.#endLast();
  }

  addSaid(place: Place, speaker: Speaker, said: Said): void {
    this.#draft.addMessage(place, ROLES[speaker], said);
  }

  addCall(place: Place, old: OldCall): DraftCall {
    const turn = this.#current ?? this.#addTurn(place);
    const call = this.#draft.addCall(place, turn.turn, old);
    turn.add(call);
    return call;
  }

  addResult(place: Place, result: OldResult): void {
    takeResult(this.#draft, this.#current, place, result);
  }

  addAsk(place: Place, ask: OldAsk, isOpen: boolean): void {
    const draft = this.#draft;
    const turn = isOfChild(draft.sessionId, ask.askId) ? undefined : this.#current;
    if (isOpen && turn !== undefined) {
      addPendingAsk(draft, place, turn, ask);
      // Its calls wait or have ended; an open ask is followed by nothing that could change them.
      this.#last = undefined;
      return;
    }
    const asked = turn && askedCall(turn, ask);
    addAskEvidence(draft, place.occurrence, ask, asked?.call.toolCallId);
  }

  callNamed(providerCallId: string): string | undefined {
    return this.#current?.callOf(providerCallId)?.call.toolCallId;
  }

  finish(): void {
    endTurn(this.#draft, this.#last);
  }

  #addTurn(place: Place): OldTurn {
    this.#endLast();
    const turn = new OldTurn(this.#draft.addTurn(place, {}));
    this.#current = turn;
    this.#last = turn;
    return turn;
  }

  /** Ends the calls of a turn after which the session went on, or its run ended. */
  #endLast(): void {
    for (const call of this.#last?.unanswered ?? []) {
      this.#draft.end(call, ToolCallState.RESULT_MISSING);
    }
    this.#last = undefined;
  }
}
