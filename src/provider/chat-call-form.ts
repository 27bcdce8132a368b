import { jsonMember, type JsonNode } from "../domain/json-text.js";
import { stringMember } from "./json-members.js";

/** The members of a call that say what it calls. */
export interface ChatCallForm {
  readonly member: "function" | "custom";
  readonly arguments: "arguments" | "input";
}

export const FUNCTION_CALL: ChatCallForm = { member: "function", arguments: "arguments" };
export const CUSTOM_CALL: ChatCallForm = { member: "custom", arguments: "input" };

/** The form of a call of a message. One without a type is a function's. */
export function chatCallForm(call: JsonNode): ChatCallForm {
  return stringMember(call, "type") === "custom" ? CUSTOM_CALL : FUNCTION_CALL;
}

/** Where the arguments of a call are. */
export function chatCallArguments(call: JsonNode): JsonNode | undefined {
  const form = chatCallForm(call);
  const called = jsonMember(call, form.member);
  return called && jsonMember(called, form.arguments);
}
