import type { JsonSpan } from "./wire.js";

/** Arguments as the model wrote them: of a JSON string its value, of anything else its own text. */
export function argumentsText({ text, node }: JsonSpan): string {
  const value: unknown = node.value;
  return typeof value === "string" ? value : text.slice(node.offset, node.offset + node.length);
}
