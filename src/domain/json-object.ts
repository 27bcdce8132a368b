const OPENING_BRACE = 0x7b;
const JSON_WHITESPACE = new Set([0x20, 0x09, 0x0a, 0x0d]);

function firstSignificantByte(bytes: Uint8Array): number | undefined {
  return bytes.find((byte) => !JSON_WHITESPACE.has(byte));
}

/** Whether the bytes are one well-formed JSON object in UTF-8. They are only looked at, never written again. */
export function isJsonObject(bytes: Uint8Array): boolean {
  if (firstSignificantByte(bytes) !== OPENING_BRACE) return false;
  try {
    JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
    return true;
  } catch (error) {
    // SyntaxError: not JSON. TypeError: not UTF-8. RangeError: too deep or too long to be parsed here.
    if (error instanceof SyntaxError || error instanceof TypeError || error instanceof RangeError) {
      return false;
    }
    throw error;
  }
}
