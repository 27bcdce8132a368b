import type { ProviderPairing, ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import type { MessageRole } from "../../gen/toolmark/v1/run_pb.js";

/** The bytes of a body and what they are. */
export interface Content {
  readonly data: Uint8Array;
  readonly mediaType: string;
}

/** What the model is told that a call gave. */
export interface HistoryResult extends Content {
  readonly isError: boolean;
}

/** What a provider calls a call that can no longer be replayed: its id stays taken. */
export interface ArchivedCall {
  readonly toolCallId: string;
  readonly turn: TurnSource;
  readonly pairing: ProviderPairing | undefined;
}

export interface HistoryCall {
  readonly toolCallId: string;
  readonly toolName: string;
  /** As the model wrote them. */
  readonly arguments: Uint8Array;
  readonly pairing: ProviderPairing | undefined;
  readonly result: HistoryResult;
}

/** Where a turn came from. */
export interface TurnSource {
  /** The wire of a turn that was accepted as its provider gave it. Absent if the harness gave the calls alone. */
  readonly wire: ProviderWire | undefined;
  /** The provider's name, if the harness told it. */
  readonly provider: string | undefined;
}

export interface HistoryTurn extends TurnSource {
  /** The items of the provider's response. Absent if the harness gave the calls alone. */
  readonly items: Uint8Array | undefined;
  /** In the order of the response. */
  readonly calls: readonly HistoryCall[];
}

/** One entry of what a session has to tell a model. */
export type HistoryEntry =
  | { readonly kind: "archivedCall"; readonly call: ArchivedCall }
  | { readonly kind: "summary"; readonly content: Content }
  | { readonly kind: "message"; readonly role: MessageRole; readonly content: Content }
  | { readonly kind: "turn"; readonly turn: HistoryTurn };
