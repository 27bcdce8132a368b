import { base64BytesOf, isText, required } from "./field-values.js";
import { JsonField } from "./json-field.js";
import { isMalformed, orMalformed } from "./malformed.js";
import { sourceText } from "./source-text.js";

/**
 * What a driver's envelope carries: JSON as it is, or its bytes in base64. A fault in the latter is told with the place
 * of the base64 text in the source; the place within it is told in words.
 */
export function decodeEmbedded<Decoded extends object>(
  field: JsonField,
  decode: (value: JsonField) => Decoded,
): Decoded {
  const payload = required(field);
  if (!isText(payload)) return decode(payload);
  const bytes = base64BytesOf(payload) ?? payload.fail("is empty");
  const decoded = orMalformed(() => decode(JsonField.parse(sourceText(bytes))));
  if (!isMalformed(decoded)) return decoded;
  const { path, malformed, offsetBytes } = decoded;
  return payload.fail(`decoded from base64, at byte ${offsetBytes}, ${path}: ${malformed}`);
}
