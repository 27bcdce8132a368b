import { toBinary, type DescMessage, type Message } from "@bufbuild/protobuf";
import { knownEncoding, noteEncoded } from "../watch/encoded-messages.js";

/** A message of a stream in its binary form. Encoded once, however many calls it is sent to: it is never changed. */
export function streamedBytes(desc: DescMessage, message: Message): Uint8Array {
  const known = knownEncoding(message);
  if (known !== undefined) return known;
  const bytes = toBinary(desc, message);
  noteEncoded(message, bytes);
  return bytes;
}
