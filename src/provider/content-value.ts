import type { Content } from "../domain/history.js";
import { contentText, nativeJson } from "./content-text.js";
import { jsonString } from "./strict-json.js";

/** Content as a JSON text or a list of parts: the wire's own JSON as it is, anything else as text. */
export function contentValue(content: Content, nativeMediaType: string): string {
  const native = nativeJson(content, nativeMediaType)?.trim();
  return native !== undefined && /^["[]/.test(native) ? native : jsonString(contentText(content));
}

/** Whether there is nothing in a content value. */
export function isEmptyValue(json: string): boolean {
  return json === `""` || /^\[\s*\]$/.test(json);
}
