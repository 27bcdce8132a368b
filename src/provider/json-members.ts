import { jsonMember, type JsonNode } from "../domain/json-text.js";

/** The string that an object has under a key; nothing if it has none or something else. */
export function stringMember(object: JsonNode, key: string): string | undefined {
  const value: unknown = jsonMember(object, key)?.value;
  return typeof value === "string" ? value : undefined;
}

/** The member of an object with its key, to remove it. */
export function memberWithKey(object: JsonNode, key: string): JsonNode | undefined {
  return object.children?.findLast(({ children }) => children?.[0]?.value === key);
}
