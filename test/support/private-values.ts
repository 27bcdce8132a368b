import { isObject, parseLossless, type Lossless } from "./lossless-json.js";

/** Members of a provider's response that nobody but the harness may see. */
const PRIVATE_MEMBERS: ReadonlySet<string> = new Set([
  ...["id", "call_id", "tool_use_id", "tool_call_id", "item_id"],
  ...["signature", "encrypted_content", "thoughtSignature", "encrypted_stdout"],
  ...["thinking", "reasoning", "reasoning_content"],
]);

/** Every value of a response that must stay private: ids, signatures, sealed contents and thoughts. */
export function privateValuesOf(response: string): Set<string> {
  const values = new Set<string>();
  collect(parseLossless(response), values);
  return values;
}

function collect(value: Lossless, values: Set<string>): void {
  if (Array.isArray(value)) for (const each of value) collect(each, values);
  if (!isObject(value)) return;
  const isThought = value.get("thought") === true || value.get("type") === "summary_text";
  for (const [key, member] of value) {
    const isPrivate = PRIVATE_MEMBERS.has(key) || (isThought && key === "text");
    if (typeof member === "string" && isPrivate) values.add(member);
    // What the model wrote for a tool may be seen, whatever it is called.
    else if (key !== "args" && key !== "input") collect(member, values);
  }
}
