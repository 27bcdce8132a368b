import { toBinary, type DescMessage, type Message } from "@bufbuild/protobuf";

const encoded = new WeakMap<Message, Uint8Array>();

/** A message of a stream in its binary form. Encoded once, however many calls it is sent to: it is never changed. */
export function streamedBytes(desc: DescMessage, message: Message): Uint8Array {
  const known = encoded.get(message);
  if (known !== undefined) return known;
  const bytes = toBinary(desc, message);
  encoded.set(message, bytes);
  return bytes;
}
