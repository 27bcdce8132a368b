import type { Content } from "../domain/history.js";
import { invariant } from "../domain/invariant.js";
import { jsonMember, type JsonNode } from "../domain/json-text.js";
import { putCallId, requiredCallId } from "./call-id.js";
import { chatCallArguments, chatCallForm, CUSTOM_CALL } from "./chat-call-form.js";
import { contentValue, isEmptyValue } from "./content-value.js";
import type { JsonSplice } from "./json-splice.js";
import { jsonString } from "./strict-json.js";
import { toolNameFor } from "./tool-name.js";
import { validArguments } from "./valid-arguments.js";
import type { ItemSpeaker, ProjectedCall, RequestItem } from "./wire.js";

export function hasCustomCall(message: JsonNode): boolean {
  const calls = jsonMember(message, "tool_calls")?.children ?? [];
  return calls.some((call) => chatCallForm(call) === CUSTOM_CALL);
}

/** The calls of a message with the ids of the request, and with arguments that a provider takes. */
export function fitToolCalls(
  splice: JsonSplice,
  message: JsonNode,
  calls: readonly ProjectedCall[],
): void {
  const toolCalls = jsonMember(message, "tool_calls")?.children ?? [];
  invariant(toolCalls.length === calls.length, "a kept message has other calls than its turn");
  for (const [index, toolCall] of toolCalls.entries()) {
    putCallId(splice, toolCall, "id", calls[index]?.callId);
    if (chatCallForm(toolCall) === CUSTOM_CALL) continue;
    const args = chatCallArguments(toolCall);
    if (typeof args?.value !== "string") continue;
    const valid = validArguments(args.value);
    if (valid !== args.value) splice.replace(args, jsonString(valid));
  }
}

export function composeChatTurn(text: string, calls: readonly ProjectedCall[]): RequestItem[] {
  if (text === "" && calls.length === 0) return [];
  const content = text === "" ? "null" : jsonString(text);
  const toolCalls =
    calls.length === 0 ? "" : `,"tool_calls":[${calls.map(composedCall).join(",")}]`;
  return [{ speaker: "assistant", json: `{"role":"assistant","content":${content}${toolCalls}}` }];
}

function composedCall(call: ProjectedCall): string {
  const id = jsonString(requiredCallId(call.callId));
  const name = jsonString(toolNameFor(call.toolName));
  const args = jsonString(validArguments(call.arguments));
  return `{"id":${id},"type":"function","function":{"name":${name},"arguments":${args}}}`;
}

export function chatResults(
  calls: readonly ProjectedCall[],
  nativeMediaType: string,
): RequestItem[] {
  return calls.map(({ callId, result }) => {
    const id = jsonString(requiredCallId(callId));
    const content = contentValue(result, nativeMediaType);
    return { speaker: "tool", json: `{"role":"tool","tool_call_id":${id},"content":${content}}` };
  });
}

export function chatMessage(
  speaker: Exclude<ItemSpeaker, "tool">,
  content: Content,
  nativeMediaType: string,
): RequestItem[] {
  const value = contentValue(content, nativeMediaType);
  if (isEmptyValue(value)) return [];
  return [{ speaker, json: `{"role":${jsonString(speaker)},"content":${value}}` }];
}
