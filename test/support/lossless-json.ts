import { isJsonFault, parseJsonText, type JsonNode } from "../../src/domain/json-text.js";

/** A JSON value whose numbers are kept as they were written. */
export type Lossless =
  | string
  | boolean
  | null
  | { readonly number: string; readonly isNumber: true }
  | Lossless[]
  | LosslessObject;
export type LosslessObject = Map<string, Lossless>;

export function parseLossless(text: string): Lossless {
  const node = parseJsonText(text);
  if (isJsonFault(node)) throw new Error(`no JSON: ${node.fault} at ${node.offset}`);
  return valueOf(text, node);
}

function valueOf(text: string, node: JsonNode): Lossless {
  switch (node.type) {
    case "object":
      return new Map(
        (node.children ?? []).flatMap(({ children }) => {
          const [key, value] = children ?? [];
          return value === undefined ? [] : [[String(key?.value), valueOf(text, value)] as const];
        }),
      );
    case "array":
      return (node.children ?? []).map((child) => valueOf(text, child));
    case "number":
      return { number: text.slice(node.offset, node.offset + node.length), isNumber: true };
    case "string":
      return String(node.value);
    case "boolean":
      return node.value === true;
    default:
      return null;
  }
}

/** The value as JSON text again, its numbers as they were. */
export function writeLossless(value: Lossless): string {
  if (value instanceof Map) {
    const members = [...value].map(
      ([key, each]) => `${JSON.stringify(key)}:${writeLossless(each)}`,
    );
    return `{${members.join(",")}}`;
  }
  if (Array.isArray(value)) return `[${value.map(writeLossless).join(",")}]`;
  if (typeof value === "object" && value !== null) return value.number;
  return JSON.stringify(value);
}

export function isObject(value: Lossless | undefined): value is LosslessObject {
  return value instanceof Map;
}

export function listOf(value: Lossless | undefined): Lossless[] {
  return Array.isArray(value) ? value : [];
}

export function member(
  value: Lossless | undefined,
  ...path: readonly string[]
): Lossless | undefined {
  let at = value;
  for (const key of path) at = isObject(at) ? at.get(key) : undefined;
  return at;
}

export function textAt(
  value: Lossless | undefined,
  ...path: readonly string[]
): string | undefined {
  const found = member(value, ...path);
  return typeof found === "string" ? found : undefined;
}

export function copyOf(value: Lossless): Lossless {
  if (value instanceof Map) return new Map([...value].map(([key, each]) => [key, copyOf(each)]));
  return Array.isArray(value) ? value.map(copyOf) : value;
}

export function objectOf(members: Readonly<Record<string, Lossless>>): LosslessObject {
  return new Map(Object.entries(members));
}
