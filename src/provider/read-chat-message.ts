import { jsonMember, type JsonNode } from "../domain/json-text.js";
import type { PayloadFault } from "../domain/provider-turn.js";
import { argumentsText } from "./arguments-text.js";
import { chatCallForm } from "./chat-call-form.js";
import { FieldReader, isVoid, memberPath } from "./field-reader.js";
import { stringMember } from "./json-members.js";
import type { ItemCall, ItemsContent, JsonSpan } from "./wire.js";

/** The message of a response with one choice. */
export function chatItemsOf({ node }: JsonSpan): JsonNode | PayloadFault {
  const choices = jsonMember(node, "choices");
  const [choice, ...others] = choices?.type === "array" ? (choices.children ?? []) : [];
  if (choice === undefined || others.length > 0) {
    return { path: "choices", rule: "must be an array of one choice" };
  }
  if (choice.type !== "object") return { path: "choices[0]", rule: "must be an object" };
  const message = jsonMember(choice, "message");
  return message?.type === "object"
    ? message
    : { path: "choices[0].message", rule: "must be an object" };
}

/** How the arguments of a function may be given: as the text of an object, or as an object too. */
export type ChatArguments = "text" | "text or object";

export function readChatMessage(
  items: JsonSpan,
  path: string,
  args: ChatArguments,
): ItemsContent | PayloadFault {
  return new ChatMessageReader(items, args).read(path);
}

class ChatMessageReader {
  readonly #fields = new FieldReader();

  constructor(
    private readonly message: JsonSpan,
    private readonly args: ChatArguments,
  ) {}

  read(path: string): ItemsContent | PayloadFault {
    const fields = this.#fields;
    const { node } = this.message;
    const role = fields.text(node, "role", path);
    if (role !== "assistant") fields.refuse(memberPath(path, "role"), 'must be "assistant"');
    const content = this.#readContent(jsonMember(node, "content"), memberPath(path, "content"));
    const refusal = fields.optionalText(node, "refusal", path) ?? "";
    this.#refuseOldCall(jsonMember(node, "function_call"), memberPath(path, "function_call"));
    const calls = this.#readCalls(jsonMember(node, "tool_calls"), memberPath(path, "tool_calls"));
    return fields.fault ?? { text: content + refusal, calls };
  }

  #readContent(content: JsonNode | undefined, path: string): string {
    if (isVoid(content)) return "";
    if (typeof content.value === "string") return content.value;
    if (content.type !== "array") this.#fields.refuse(path, "must be a string or an array");
    let text = "";
    for (const [index, part] of (content.children ?? []).entries()) {
      const partPath = `${path}[${index}]`;
      if (!this.#fields.isObject(part, partPath)) continue;
      if (stringMember(part, "type") === "text") text += this.#fields.text(part, "text", partPath);
    }
    return text;
  }

  /** The form of a call from before a message could have several: it has no id, and its result is no tool's. */
  #refuseOldCall(call: JsonNode | undefined, path: string): void {
    if (isVoid(call) || !this.#fields.isObject(call, path)) return;
    if ((stringMember(call, "name") ?? "") === "") return;
    this.#fields.refuse(path, "must be absent: calls are read from tool_calls");
  }

  #readCalls(calls: JsonNode | undefined, path: string): ItemCall[] {
    if (isVoid(calls)) return [];
    return this.#fields
      .elements(calls, path)
      .flatMap((call, index) => this.#readCall(call, `${path}[${index}]`));
  }

  #readCall(call: JsonNode, path: string): ItemCall[] {
    const fields = this.#fields;
    if (!fields.isObject(call, path)) return [];
    const callId = fields.id(call, "id", path);
    const type = fields.optionalText(call, "type", path) ?? "function";
    if (type !== "function" && type !== "custom") {
      fields.refuse(memberPath(path, "type"), 'must be "function" or "custom"');
    }
    const form = chatCallForm(call);
    const called = jsonMember(call, form.member);
    const calledPath = memberPath(path, form.member);
    if (!fields.isObject(called, calledPath)) return [];
    const toolName = fields.toolName(called, "name", calledPath);
    const args = this.#readArguments(called, form.arguments, calledPath);
    return [{ callId, itemId: undefined, toolName, arguments: args }];
  }

  #readArguments(called: JsonNode, key: string, path: string): string {
    if (this.args === "text" || key !== "arguments") return this.#fields.text(called, key, path);
    const node = jsonMember(called, key);
    if (node?.type === "object" || node?.type === "string") {
      return argumentsText({ text: this.message.text, node });
    }
    this.#fields.refuse(memberPath(path, key), "must be a string or an object");
    return "";
  }
}
