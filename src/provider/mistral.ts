import type { Content } from "../domain/history.js";
import { invariant } from "../domain/invariant.js";
import { jsonMember, type JsonNode } from "../domain/json-text.js";
import { isPayloadFault } from "../domain/provider-turn.js";
import {
  chatMessage,
  chatResults,
  composeChatTurn,
  fitToolCalls,
  hasCustomCall,
} from "./chat-message.js";
import { contentText } from "./content-text.js";
import { JsonSplice } from "./json-splice.js";
import { chatItemsOf, readChatMessage } from "./read-chat-message.js";
import { strictJson } from "./strict-json.js";
import type { ItemSpeaker, JsonSpan, ProjectedCall, RequestItem, Wire } from "./wire.js";

/** Its content has parts of its own, which others of Chat Completions do not know. */
const NATIVE_MEDIA_TYPE = "application/vnd.toolmark.mistral+json";

const CALL_ID = /^[a-zA-Z0-9]{9}$/;
const CALL_ID_LENGTH = 9;
const BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/**
 * What a request may have. The interface refuses every other member, such as those of another provider of Chat
 * Completions; its own responses have no other.
 */
const MESSAGE_MEMBERS = new Set(["role", "content", "tool_calls", "prefix"]);
const CALL_MEMBERS = new Set(["id", "type", "function", "index"]);

/** The interface wants the assistant to speak between a result and what is not one. */
const ACKNOWLEDGEMENT: RequestItem = {
  speaker: "assistant",
  json: `{"role":"assistant","content":"OK"}`,
};

function replay(items: JsonSpan, calls: readonly ProjectedCall[]): RequestItem[] {
  const message = items.node;
  if (calls.length === 0 && isSilent(message)) return [];
  if (hasCustomCall(message)) return recompose(items, calls);
  const splice = new JsonSplice(items);
  fitToolCalls(splice, message, calls);
  keepMembers(splice, message, MESSAGE_MEMBERS);
  for (const call of jsonMember(message, "tool_calls")?.children ?? []) {
    keepMembers(splice, call, CALL_MEMBERS);
  }
  return [{ speaker: "assistant", json: strictJson(splice.text(message)) }];
}

/** The interface refuses a message that has neither content nor calls. */
function isSilent(message: JsonNode): boolean {
  const content = jsonMember(message, "content");
  if (content?.type === "array") return (content.children ?? []).length === 0;
  return content?.type !== "string" || content.value === "";
}

/** Only functions can be called here. */
function recompose(items: JsonSpan, calls: readonly ProjectedCall[]): RequestItem[] {
  const said = readChatMessage(items, "", "text or object");
  invariant(!isPayloadFault(said), "a kept message cannot be read");
  return composeChatTurn(said.text, calls);
}

function keepMembers(splice: JsonSplice, object: JsonNode, kept: ReadonlySet<string>): void {
  for (const member of object.children ?? []) {
    if (!kept.has(String(member.children?.[0]?.value))) splice.remove(member);
  }
}

/** System messages stand at the beginning or after a user's. Elsewhere they are texts of the user that say so. */
function messageOf(
  speaker: Exclude<ItemSpeaker, "tool">,
  content: Content,
  before: ItemSpeaker | undefined,
): RequestItem[] {
  if (speaker !== "system" || (before !== "assistant" && before !== "tool")) {
    return chatMessage(speaker, content, NATIVE_MEDIA_TYPE);
  }
  const text = contentText(content);
  if (text === "") return [];
  const data = new TextEncoder().encode(`<system>${text}</system>`);
  return chatMessage("user", { data, mediaType: "text/plain" }, NATIVE_MEDIA_TYPE);
}

function between(before: ItemSpeaker | undefined, next: RequestItem): RequestItem[] {
  return before === "tool" && next.speaker === "user" ? [ACKNOWLEDGEMENT] : [];
}

function callIdFrom(digest: Uint8Array): string {
  let rest = digest.reduce((number, byte) => (number << 8n) | BigInt(byte), 0n);
  let id = "";
  while (id.length < CALL_ID_LENGTH) {
    id += BASE62.charAt(Number(rest % 62n));
    rest /= 62n;
  }
  return id;
}

/** Mistral: Chat Completions with ids, an order and members of its own. */
export const mistral: Wire = {
  itemsOf: chatItemsOf,
  read: (items, path) => readChatMessage(items, path, "text or object"),
  replay,
  compose: composeChatTurn,
  results: (calls) => chatResults(calls, NATIVE_MEDIA_TYPE),
  message: messageOf,
  system: undefined,
  between,
  ids: { fits: (id) => CALL_ID.test(id), derive: callIdFrom },
  nativeMediaType: NATIVE_MEDIA_TYPE,
};
