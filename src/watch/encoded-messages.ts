import type { Message } from "@bufbuild/protobuf";

const encoded = new WeakMap<Message, Uint8Array>();

/** Notes the binary form of a message of a stream, which is never changed: whoever sends it need not encode it. */
export function noteEncoded(message: Message, bytes: Uint8Array): void {
  encoded.set(message, bytes);
}

export function knownEncoding(message: Message): Uint8Array | undefined {
  return encoded.get(message);
}
