import { lossyUtf8Text, utf8Text } from "../domain/utf8-text.js";
import { MalformedError } from "./malformed.js";

const toUtf8 = new TextEncoder();

const BYTE_ORDER_MARK = toUtf8.encode("\uFEFF");
const REPLACEMENT = "\uFFFD";
const REPLACEMENT_BYTES = toUtf8.encode(REPLACEMENT);

/** The text that bytes of a source are, exactly. `path` and `offsetBytes` say where they stand in it. */
export function sourceText(bytes: Uint8Array, path = "$", offsetBytes = 0): string {
  refuseByteOrderMark(bytes, path, offsetBytes);
  const text = utf8Text(bytes);
  if (text === undefined) {
    const offset = offsetBytes + firstFaultOffsetBytes(bytes);
    throw new MalformedError({ malformed: "not UTF-8", path, offsetBytes: offset });
  }
  return text;
}

/** JSON has none, and what writes one is no writer of the old system. */
export function refuseByteOrderMark(bytes: Uint8Array, path: string, offsetBytes: number): void {
  if (!isAt(bytes, 0, BYTE_ORDER_MARK)) return;
  throw new MalformedError({ malformed: "begins with a byte order mark", path, offsetBytes });
}

function isAt(bytes: Uint8Array, offset: number, sought: Uint8Array): boolean {
  return sought.every((byte, index) => bytes[offset + index] === byte);
}

/** Where the first sequence begins that is not UTF-8: what is read as a replacement without being written as one. */
function firstFaultOffsetBytes(bytes: Uint8Array): number {
  let offset = 0;
  for (const piece of lossyUtf8Text(bytes).split(REPLACEMENT)) {
    offset += toUtf8.encode(piece).length;
    if (!isAt(bytes, offset, REPLACEMENT_BYTES)) break;
    offset += REPLACEMENT_BYTES.length;
  }
  return offset;
}
