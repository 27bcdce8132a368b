import type { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";

/** A call as a provider's response has it. */
export interface ReadCall {
  readonly toolName: string;
  /** The arguments as the model wrote them. */
  readonly arguments: Uint8Array;
  /** Absent if the provider gave none. */
  readonly providerCallId: string | undefined;
  readonly providerItemId: string | undefined;
}

/** What a provider's response says. */
export interface ReadTurn {
  /** The items of the response: the bytes as the provider wrote them. */
  readonly items: Uint8Array;
  /** What the model said to the user. Empty if nothing. */
  readonly text: string;
  readonly calls: readonly ReadCall[];
}

/** Why a response is none of its wire. */
export interface PayloadFault {
  /** Where the first wrong value is, for example `output[2].call_id`. Empty for the whole response. */
  readonly path: string;
  /** What the value would have to be, for example "must be a string". */
  readonly rule: string;
}

/** Reads the final response of a provider, its JSON text in UTF-8. */
export type ReadProviderTurn = (wire: ProviderWire, payload: Uint8Array) => ReadTurn | PayloadFault;

export function isPayloadFault(read: object): read is PayloadFault {
  return "rule" in read;
}
