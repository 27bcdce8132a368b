import { utf8Text } from "./utf8-text.js";

const OPENING_BRACE = 0x7b;
const JSON_WHITESPACE = new Set([0x20, 0x09, 0x0a, 0x0d]);

/** Whether a text is one well-formed JSON value. It is only looked at, never written again. */
export function isJsonText(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch (error) {
    // SyntaxError: not JSON. RangeError: too deep or too long to be parsed here.
    if (error instanceof SyntaxError || error instanceof RangeError) return false;
    throw error;
  }
}

/** Whether a text is one well-formed JSON object. */
export function isJsonObjectText(text: string): boolean {
  return /^[ \t\n\r]*\{/.test(text) && isJsonText(text);
}

/** Whether the bytes are one well-formed JSON object in UTF-8. */
export function isJsonObject(bytes: Uint8Array): boolean {
  if (bytes.find((byte) => !JSON_WHITESPACE.has(byte)) !== OPENING_BRACE) return false;
  const text = utf8Text(bytes);
  return text !== undefined && isJsonText(text);
}
