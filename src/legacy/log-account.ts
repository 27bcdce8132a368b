import type { OldAsk, OldCall, OldPart, OldResult } from "./old-session.js";
import type { DraftCall, Place } from "./translation-draft.js";

/** Who speaks in an event log. */
export type Speaker = "user" | "assistant";

/** What was said, and what was attached to it. */
export interface Said {
  readonly text: string;
  readonly parts: readonly OldPart[];
}

/** What becomes of the turn that goes on: a new one begins, its run ends, or what follows may be missing. */
export type TurnChange = "begins" | "ends" | "isLost";

/** Where the calls, results, asks and texts of an event log go while it is read from its beginning. */
export interface LogAccount {
  changeTurn(change: TurnChange): void;
  addSaid(place: Place, speaker: Speaker, said: Said): void;
  /** The call, if hooks can be attached to it. */
  addCall(place: Place, call: OldCall): DraftCall | undefined;
  addResult(place: Place, result: OldResult): void;
  /** `isOpen`: nothing in the log took it away. */
  addAsk(place: Place, ask: OldAsk, isOpen: boolean): void;
  /** The tool_call_id of the only call of the turn that goes on with this provider's id. */
  callNamed(providerCallId: string): string | undefined;
  /** The log is over. */
  finish(): void;
}
