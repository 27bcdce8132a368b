import { isJsonObjectText } from "../domain/json-object.js";
import { jsonString, strictJson } from "./strict-json.js";
import { lossyUtf8Text, utf8Text } from "../domain/utf8-text.js";

/** The member that holds arguments which are no JSON object, so that the model sees what it wrote. */
export const INVALID_ARGUMENTS = "invalid_arguments";

/** Arguments that any provider takes: as written if they are a JSON object, else an object that tells of them. */
export function validArguments(args: Uint8Array | string): string {
  const text = typeof args === "string" ? args : utf8Text(args);
  if (text !== undefined) {
    if (isJsonObjectText(text)) return strictJson(text);
    if (text.trim() === "") return "{}";
  }
  const shown = text ?? (typeof args === "string" ? args : lossyUtf8Text(args));
  return `{${jsonString(INVALID_ARGUMENTS)}:${jsonString(shown)}}`;
}
