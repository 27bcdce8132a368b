import type { Content } from "../domain/history.js";
import { isJsonText } from "../domain/json-object.js";
import { strictJson } from "./strict-json.js";
import { lossyUtf8Text, utf8Text } from "../domain/utf8-text.js";

/** None at all, or one of those that are written as text. */
const TEXT_LIKE = /^$|^text\/|\+(?:json|xml|yaml)$/;
const TEXT_APPLICATIONS: ReadonlySet<string> = new Set(
  [
    ...["json", "xml", "yaml", "x-yaml", "toml", "x-ndjson", "jsonl", "json-seq"],
    ...["javascript", "ecmascript", "sql", "graphql", "x-sh", "x-www-form-urlencoded"],
  ].map((name) => `application/${name}`),
);

/** Content as text for a model. What is not text is told of, not shown. */
export function contentText({ data, mediaType }: Content): string {
  if (isText(mediaType)) return lossyUtf8Text(data);
  return utf8Text(data) ?? `[${mediaType}, ${data.length} bytes, not shown as text]`;
}

function isText(mediaType: string): boolean {
  const essence = (mediaType.split(";", 1)[0] ?? "").trim().toLowerCase();
  return TEXT_LIKE.test(essence) || TEXT_APPLICATIONS.has(essence);
}

/** Content that is JSON of a wire's own, as JSON text; nothing if it has another media type or is no JSON. */
export function nativeJson({ data, mediaType }: Content, native: string): string | undefined {
  if (mediaType !== native) return undefined;
  const text = utf8Text(data);
  return text === undefined || !isJsonText(text) ? undefined : strictJson(text);
}
