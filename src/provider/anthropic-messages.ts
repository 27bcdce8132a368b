import type { Content } from "../domain/history.js";
import { encodeIdBody } from "../domain/identity.js";
import { invariant } from "../domain/invariant.js";
import { jsonMember, type JsonNode } from "../domain/json-text.js";
import type { PayloadFault } from "../domain/provider-turn.js";
import { argumentsText } from "./arguments-text.js";
import { putCallId, requiredCallId } from "./call-id.js";
import { contentText } from "./content-text.js";
import { contentValue, isEmptyValue } from "./content-value.js";
import { FieldReader, memberPath } from "./field-reader.js";
import { memberWithKey, stringMember } from "./json-members.js";
import { JsonSplice } from "./json-splice.js";
import { contentOfPieces, type ResponsePiece } from "./response-pieces.js";
import { jsonString, strictJson } from "./strict-json.js";
import { toolNameFor } from "./tool-name.js";
import { validArguments } from "./valid-arguments.js";
import type {
  ItemsContent,
  ItemSpeaker,
  JsonSpan,
  ProjectedCall,
  RequestItem,
  Wire,
} from "./wire.js";

/** Members of a response that a request must not have. Everything else of a turn goes back as it came. */
export const ANTHROPIC_RESPONSE_ONLY = [
  {
    member: "content[].citations[].file_id",
    reason: "Citations of a request have no file_id, and members that are not known are refused.",
  },
] as const;

const NATIVE_MEDIA_TYPE = "application/vnd.toolmark.anthropic-messages+json";
const CALL_ID = /^[a-zA-Z0-9_-]+$/;

/** Stands before a history that begins with the assistant: the first message has to be the user's. */
const OPENING = message("user", '"Continue."');

/** An error that says nothing is refused. */
const EMPTY_ERROR = '"The call failed and gave no text."';

function itemsOf({ node }: JsonSpan): JsonNode | PayloadFault {
  if (stringMember(node, "type") !== "message") return { path: "type", rule: 'must be "message"' };
  if (stringMember(node, "role") !== "assistant") {
    return { path: "role", rule: 'must be "assistant"' };
  }
  const content = jsonMember(node, "content");
  return content?.type === "array" ? content : { path: "content", rule: "must be an array" };
}

function read({ text, node }: JsonSpan, path: string): ItemsContent | PayloadFault {
  const reader = new FieldReader();
  const pieces = reader
    .elements(node, path)
    .map((block, index) => readBlock(reader, { text, node: block }, `${path}[${index}]`));
  return reader.fault ?? contentOfPieces(pieces);
}

function readBlock(reader: FieldReader, { text, node }: JsonSpan, path: string): ResponsePiece {
  if (!reader.isObject(node, path)) return undefined;
  const type = reader.text(node, "type", path);
  if (type === "text") return reader.text(node, "text", path);
  if (type !== "tool_use") return undefined;
  const callId = reader.text(node, "id", path);
  reader.id(node, "id", path);
  const toolName = reader.toolName(node, "name", path);
  const input = jsonMember(node, "input");
  if (input === undefined) reader.refuse(memberPath(path, "input"), "must be there");
  const args = input === undefined ? "" : argumentsText({ text, node: input });
  return { callId, itemId: undefined, toolName, arguments: args };
}

function replay(items: JsonSpan, calls: readonly ProjectedCall[]): RequestItem[] {
  const splice = new JsonSplice(items);
  const waiting = calls.values();
  let kept = 0;
  for (const block of items.node.children ?? []) {
    const type = stringMember(block, "type");
    if (type === "text" && isBlank(stringMember(block, "text") ?? "")) {
      splice.remove(block);
      continue;
    }
    kept += 1;
    if (type === "text") removeFileIds(splice, block);
    if (type === "tool_use") fitToolUse(splice, block, waiting.next().value);
  }
  return kept === 0 ? [] : [message("assistant", strictJson(splice.text(items.node)))];
}

/** The interface refuses texts with nothing in them but white space, its own too. */
function isBlank(text: string): boolean {
  return text.trim() === "";
}

function removeFileIds(splice: JsonSplice, block: JsonNode): void {
  for (const citation of jsonMember(block, "citations")?.children ?? []) {
    const fileId = memberWithKey(citation, "file_id");
    if (fileId !== undefined) splice.remove(fileId);
  }
}

function fitToolUse(splice: JsonSplice, block: JsonNode, call: ProjectedCall | undefined): void {
  invariant(call !== undefined, "a kept block has no call");
  putCallId(splice, block, "id", call.callId);
  const input = jsonMember(block, "input");
  if (input !== undefined && input.type !== "object") {
    splice.replace(input, validArguments(call.arguments));
  }
}

function compose(text: string, calls: readonly ProjectedCall[]): RequestItem[] {
  const blocks = calls.map((call) => {
    const id = jsonString(requiredCallId(call.callId));
    const name = jsonString(toolNameFor(call.toolName));
    const input = validArguments(call.arguments);
    return `{"type":"tool_use","id":${id},"name":${name},"input":${input}}`;
  });
  if (!isBlank(text)) blocks.unshift(textBlock(jsonString(text)));
  return blocks.length === 0 ? [] : [message("assistant", `[${blocks.join(",")}]`)];
}

/** All in one message: results that are spread over more are refused. */
function results(calls: readonly ProjectedCall[]): RequestItem[] {
  if (calls.length === 0) return [];
  const blocks = calls.map(({ callId, result }) => {
    const id = jsonString(requiredCallId(callId));
    const value = contentValue(result, NATIVE_MEDIA_TYPE);
    const content = result.isError && isBlankValue(value) ? EMPTY_ERROR : value;
    const isError = result.isError ? ',"is_error":true' : "";
    return `{"type":"tool_result","tool_use_id":${id},"content":${content}${isError}}`;
  });
  return [{ ...message("user", `[${blocks.join(",")}]`), speaker: "tool" }];
}

function messageOf(speaker: Exclude<ItemSpeaker, "tool">, content: Content): RequestItem[] {
  if (speaker === "system") {
    // Only the newest models take system messages between others.
    const text = contentText(content);
    return isBlank(text) ? [] : [message("user", jsonString(`<system>${text}</system>`))];
  }
  const value = contentValue(content, NATIVE_MEDIA_TYPE);
  return isBlankValue(value) ? [] : [message(speaker, value)];
}

function system(contents: readonly Content[]): string {
  const blocks = contents
    .map((content) => contentValue(content, NATIVE_MEDIA_TYPE))
    .filter((value) => !isBlankValue(value))
    .map((value) => (value.startsWith("[") ? value.slice(1, -1) : textBlock(value)));
  return `[${blocks.join(",")}]`;
}

function isBlankValue(json: string): boolean {
  return json.startsWith('"') ? isBlank(String(JSON.parse(json))) : isEmptyValue(json);
}

function textBlock(textJson: string): string {
  return `{"type":"text","text":${textJson}}`;
}

function message(speaker: "user" | "assistant", contentJson: string): RequestItem {
  return { speaker, json: `{"role":"${speaker}","content":${contentJson}}` };
}

/** Anthropic Messages: the blocks of `content`, and messages of a user and an assistant. */
export const anthropicMessages: Wire = {
  itemsOf,
  read,
  replay,
  compose,
  results,
  message: messageOf,
  system,
  between: (before, next) =>
    before === undefined && next.speaker === "assistant" ? [OPENING] : [],
  ids: {
    fits: (id) => CALL_ID.test(id),
    derive: (digest) => `call_${encodeIdBody(digest)}`,
  },
  nativeMediaType: NATIVE_MEDIA_TYPE,
};
