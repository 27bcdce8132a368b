import { encodeIdBody } from "../domain/identity.js";
import { jsonMember, type JsonNode } from "../domain/json-text.js";
import { chatMessage, chatResults, composeChatTurn, fitToolCalls } from "./chat-message.js";
import { chatCallArguments } from "./chat-call-form.js";
import { isVoid } from "./field-reader.js";
import { fitsLength } from "./id-length.js";
import { memberWithKey, stringMember } from "./json-members.js";
import { JsonSplice } from "./json-splice.js";
import { chatItemsOf, readChatMessage } from "./read-chat-message.js";
import { jsonString, strictJson } from "./strict-json.js";
import type { JsonSpan, ProjectedCall, RequestItem, Wire } from "./wire.js";

/** What the interface's own provider takes. */
const CALL_ID_LENGTH_MAX = 40;
/** Others that offer the interface give longer ones, of up to 50 characters as seen, and take them back. */
const OWN_CALL_ID_LENGTH_MAX = 64;

const NATIVE_MEDIA_TYPE = "application/vnd.toolmark.openai-chat+json";

/** Members of a response that a request must not have. Everything else of a turn goes back as it came. */
export const OPENAI_CHAT_RESPONSE_ONLY = [
  {
    member: "audio",
    reason:
      "The audio of a request has an id and nothing else: data, expires_at and transcript are of the response. Audio " +
      "without an id is left out whole.",
  },
  {
    member: "tool_calls",
    isVoid: true,
    reason: "A request takes no null there and no empty list.",
  },
  { member: "function_call", isVoid: true, reason: "A request takes no null there." },
] as const;

function replay(items: JsonSpan, calls: readonly ProjectedCall[]): RequestItem[] {
  const splice = new JsonSplice(items);
  const message = items.node;
  fitToolCalls(splice, message, calls);
  dropVoid(splice, message);
  for (const call of jsonMember(message, "tool_calls")?.children ?? []) fitToolCall(splice, call);
  fitAudio(splice, message);
  if (calls.length === 0) fitContent(splice, message);
  return [{ speaker: "assistant", json: strictJson(splice.text(message)) }];
}

/** Providers that are not so strict leave the type out, or give arguments as an object. */
function fitToolCall(splice: JsonSplice, call: JsonNode): void {
  const type = jsonMember(call, "type");
  if (type === undefined) splice.insert(call, `"type":"function"`);
  else if (type.type === "null") splice.replace(type, `"function"`);
  const args = chatCallArguments(call);
  if (args?.type === "object") splice.replace(args, jsonString(strictJson(splice.text(args))));
}

/** Members that say nothing: some providers give them, and requests with them are refused. */
function dropVoid(splice: JsonSplice, message: JsonNode): void {
  for (const { member: key } of OPENAI_CHAT_RESPONSE_ONLY) {
    const member = memberWithKey(message, key);
    const value = member?.children?.[1];
    const isNothing =
      value?.type === "null" || (value?.type === "array" && (value.children ?? []).length === 0);
    if (member !== undefined && isNothing) splice.remove(member);
  }
}

function fitAudio(splice: JsonSplice, message: JsonNode): void {
  const audio = memberWithKey(message, "audio");
  const value = audio?.children?.[1];
  if (audio === undefined || value?.type !== "object") return;
  const id = stringMember(value, "id");
  if (id === undefined || id === "") splice.remove(audio);
  else splice.replace(value, `{"id":${jsonString(id)}}`);
}

/** A message without calls has to have content, if only an empty one. */
function fitContent(splice: JsonSplice, message: JsonNode): void {
  const content = jsonMember(message, "content");
  if (content === undefined) splice.insert(message, `"content":""`);
  else if (isVoid(content)) splice.replace(content, `""`);
}

/** OpenAI Chat Completions: `choices[0].message` and the items of `messages`. */
export const openaiChat: Wire = {
  itemsOf: chatItemsOf,
  read: (items, path) => readChatMessage(items, path, "text"),
  replay,
  compose: composeChatTurn,
  results: (calls) => chatResults(calls, NATIVE_MEDIA_TYPE),
  message: (speaker, content) => chatMessage(speaker, content, NATIVE_MEDIA_TYPE),
  system: undefined,
  between: () => [],
  ids: {
    fits: (id) => fitsLength(id, CALL_ID_LENGTH_MAX),
    fitsOwn: (id) => fitsLength(id, OWN_CALL_ID_LENGTH_MAX),
    derive: (digest) => `call_${encodeIdBody(digest)}`,
  },
  nativeMediaType: NATIVE_MEDIA_TYPE,
};
