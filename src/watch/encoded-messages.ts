import type { Message } from "@bufbuild/protobuf";

const ENCODED = Symbol("encoded");

/**
 * A message of a stream with its binary form: whoever sends it need not encode it. It is never changed, and never
 * copied to be changed: the copy would be sent as the message is.
 */
export interface EncodedMessage extends Message {
  [ENCODED]?: Uint8Array;
}

export function noteEncoded(message: EncodedMessage, bytes: Uint8Array): void {
  message[ENCODED] = bytes;
}

export function knownEncoding(message: EncodedMessage): Uint8Array | undefined {
  return message[ENCODED];
}
