import type { Content } from "../domain/history.js";
import { encodeIdBody } from "../domain/identity.js";
import { invariant } from "../domain/invariant.js";
import { jsonMember, type JsonNode } from "../domain/json-text.js";
import type { PayloadFault } from "../domain/provider-turn.js";
import { putCallId, requiredCallId } from "./call-id.js";
import { contentValue, isEmptyValue } from "./content-value.js";
import { FieldReader, memberPath } from "./field-reader.js";
import { fitsLength } from "./id-length.js";
import { memberWithKey, stringMember } from "./json-members.js";
import { JsonSplice } from "./json-splice.js";
import { jsonString, strictJson } from "./strict-json.js";
import { toolNameFor } from "./tool-name.js";
import { validArguments } from "./valid-arguments.js";
import type {
  ItemCall,
  ItemsContent,
  ItemSpeaker,
  JsonSpan,
  ProjectedCall,
  RequestItem,
  Wire,
} from "./wire.js";

const CALL_ID_LENGTH_MAX = 64;
const ITEM_ID = /^[A-Za-z0-9_-]{1,64}$/;
/** The interface refuses other ids of items that are function calls. */
const FUNCTION_CALL_ITEM_ID = /^fc_[A-Za-z0-9_-]{1,61}$/;

/** Items that a result answers: where their arguments are and what the result is called. */
const CALL_KINDS: Readonly<Record<string, { arguments: string; result: string }>> = {
  function_call: { arguments: "arguments", result: "function_call_output" },
  custom_tool_call: { arguments: "input", result: "custom_tool_call_output" },
};
/** Items that wait for an answer which is not a text: a request with the item and without the answer is refused. */
const OTHER_CALLS = new Set(["apply_patch_call", "computer_call", "local_shell_call"]);

const NATIVE_MEDIA_TYPE = "application/vnd.toolmark.openai-responses+json";

function itemsOf({ node }: JsonSpan): JsonNode | PayloadFault {
  const output = jsonMember(node, "output");
  return output?.type === "array" ? output : { path: "output", rule: "must be an array" };
}

function read({ node }: JsonSpan, path: string): ItemsContent | PayloadFault {
  const reader = new FieldReader();
  const texts: string[] = [];
  const calls: ItemCall[] = [];
  for (const [index, item] of reader.elements(node, path).entries()) {
    const itemPath = `${path}[${index}]`;
    if (!reader.isObject(item, itemPath)) continue;
    const type = reader.text(item, "type", itemPath);
    if (OTHER_CALLS.has(type) || isForClient(item, type)) {
      reader.refuse(memberPath(itemPath, "type"), `must not be ${type}: no result can answer it`);
    }
    if (type === "message") texts.push(readMessage(reader, item, itemPath));
    const kind = CALL_KINDS[type];
    if (kind === undefined) continue;
    calls.push({
      callId: reader.id(item, "call_id", itemPath),
      itemId: reader.id(item, "id", itemPath),
      toolName: reader.toolName(item, "name", itemPath),
      arguments: reader.text(item, kind.arguments, itemPath),
    });
  }
  const text = texts.filter((said) => said !== "").join("\n\n");
  return reader.fault ?? { text, calls };
}

/** Items that the provider answers itself, unless it runs nothing for them. */
function isForClient(item: JsonNode, type: string): boolean {
  if (type !== "shell_call") return false;
  const environment = jsonMember(item, "environment");
  return environment === undefined || stringMember(environment, "type") !== "container_reference";
}

function readMessage(reader: FieldReader, item: JsonNode, path: string): string {
  const contentPath = memberPath(path, "content");
  let text = "";
  for (const [index, part] of reader.elements(jsonMember(item, "content"), contentPath).entries()) {
    const partPath = `${contentPath}[${index}]`;
    if (!reader.isObject(part, partPath)) continue;
    const type = reader.text(part, "type", partPath);
    if (type === "output_text") text += reader.text(part, "text", partPath);
    if (type === "refusal") text += reader.text(part, "refusal", partPath);
  }
  return text;
}

function replay(
  items: JsonSpan,
  calls: readonly ProjectedCall[],
  itemIds: Set<string>,
): RequestItem[] {
  const splice = new JsonSplice(items);
  const waiting = calls.values();
  const kept = withoutTrailingReasoning(items.node.children ?? []);
  for (const item of kept) {
    dropRepeatedId(splice, item, itemIds);
    const type = stringMember(item, "type") ?? "";
    if (CALL_KINDS[type] === undefined) continue;
    const call = waiting.next().value;
    invariant(call !== undefined, "a kept item has no call");
    putCallId(splice, item, "call_id", call.callId);
    if (type === "function_call") repairArguments(splice, item);
  }
  return kept.map((item) => assistant(strictJson(splice.text(item))));
}

/** A response that was cut off may end with reasoning: refused without the item that it was for. */
function withoutTrailingReasoning(items: readonly JsonNode[]): readonly JsonNode[] {
  const last = items.findLastIndex((item) => stringMember(item, "type") !== "reasoning");
  return items.slice(0, last + 1);
}

/** The interface refuses an id that an earlier item has, and one that it would not give; it makes do without any. */
function dropRepeatedId(splice: JsonSplice, item: JsonNode, itemIds: Set<string>): void {
  const id = stringMember(item, "id");
  const member = memberWithKey(item, "id");
  if (id === undefined || member === undefined) return;
  if (!ITEM_ID.test(id) || itemIds.has(id)) splice.remove(member);
  else itemIds.add(id);
}

function repairArguments(splice: JsonSplice, item: JsonNode): void {
  const node = jsonMember(item, "arguments");
  if (typeof node?.value !== "string") return;
  const valid = validArguments(node.value);
  if (valid !== node.value) splice.replace(node, jsonString(valid));
}

function compose(text: string, calls: readonly ProjectedCall[]): RequestItem[] {
  const said = text === "" ? [] : [assistant(easyMessage("assistant", jsonString(text)))];
  return [...said, ...calls.map((call) => assistant(functionCall(call)))];
}

function functionCall(call: ProjectedCall): string {
  const itemId = call.itemId === undefined ? "" : `"id":${jsonString(call.itemId)},`;
  const callId = jsonString(requiredCallId(call.callId));
  const name = jsonString(toolNameFor(call.toolName));
  const args = jsonString(validArguments(call.arguments));
  return `{"type":"function_call",${itemId}"call_id":${callId},"name":${name},"arguments":${args}}`;
}

function results(calls: readonly ProjectedCall[], items: JsonSpan | undefined): RequestItem[] {
  const kinds = (items?.node.children ?? []).flatMap(
    (item) => CALL_KINDS[stringMember(item, "type") ?? ""] ?? [],
  );
  return calls.map(({ callId, result }, index) => {
    const type = jsonString(kinds[index]?.result ?? "function_call_output");
    const id = jsonString(requiredCallId(callId));
    const output = contentValue(result, NATIVE_MEDIA_TYPE);
    return { speaker: "tool", json: `{"type":${type},"call_id":${id},"output":${output}}` };
  });
}

function message(speaker: Exclude<ItemSpeaker, "tool">, content: Content): RequestItem[] {
  const value = contentValue(content, NATIVE_MEDIA_TYPE);
  return isEmptyValue(value) ? [] : [{ speaker, json: easyMessage(speaker, value) }];
}

function assistant(json: string): RequestItem {
  return { speaker: "assistant", json };
}

function easyMessage(role: string, content: string): string {
  return `{"role":${jsonString(role)},"content":${content}}`;
}

/** OpenAI Responses: the items of `output` and of `input`. */
export const openaiResponses: Wire = {
  itemsOf,
  read,
  replay,
  compose,
  results,
  message,
  system: undefined,
  between: () => [],
  ids: {
    fits: (id) => fitsLength(id, CALL_ID_LENGTH_MAX),
    derive: (digest) => `call_${encodeIdBody(digest)}`,
  },
  isItemId: (id) => FUNCTION_CALL_ITEM_ID.test(id),
  nativeMediaType: NATIVE_MEDIA_TYPE,
};
