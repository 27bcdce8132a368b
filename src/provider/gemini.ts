import type { Content, HistoryResult } from "../domain/history.js";
import { invariant } from "../domain/invariant.js";
import { jsonMember, type JsonNode } from "../domain/json-text.js";
import type { PayloadFault } from "../domain/provider-turn.js";
import { argumentsText } from "./arguments-text.js";
import { contentText } from "./content-text.js";
import { contentValue } from "./content-value.js";
import { FieldReader, isVoid, memberPath } from "./field-reader.js";
import { memberWithKey } from "./json-members.js";
import { JsonSplice } from "./json-splice.js";
import { isJsonObjectText } from "../domain/json-object.js";
import { contentOfPieces, type ResponsePiece } from "./response-pieces.js";
import { jsonString, strictJson } from "./strict-json.js";
import { toolNameFor } from "./tool-name.js";
import { utf8Text } from "../domain/utf8-text.js";
import { validArguments } from "./valid-arguments.js";
import type {
  ItemsContent,
  ItemSpeaker,
  JsonSpan,
  ProjectedCall,
  RequestItem,
  Wire,
} from "./wire.js";

const NATIVE_MEDIA_TYPE = "application/vnd.toolmark.gemini+json";

/**
 * What the documentation wants in the place of a signature on the first call of a step that no Gemini model made. It
 * happens to be well-formed base64, so that models that know no signatures pass over it.
 */
const FOREIGN_SIGNATURE = "skip_thought_signature_validator";

/** Ids of other providers that the interface takes; it makes do without the rest. */
const FOREIGN_ID = /^[a-zA-Z0-9_-]{1,64}$/;

/** Stands before a call that neither a user nor a result comes before, which is refused. */
const PROMPT: RequestItem = {
  speaker: "user",
  json: contentJson("user", [textPart('"Continue."')]),
};

function itemsOf({ node }: JsonSpan): JsonNode | PayloadFault {
  const candidates = jsonMember(node, "candidates");
  const [candidate, second] = candidates?.children ?? [];
  if (candidates?.type !== "array" || candidate === undefined || second !== undefined) {
    return { path: "candidates", rule: "must be an array of one candidate" };
  }
  const path = "candidates[0].content";
  const content = jsonMember(candidate, "content");
  if (content?.type !== "object") return { path, rule: "must be an object" };
  const role = jsonMember(content, "role");
  if (role !== undefined && role.value !== "model") {
    return { path: memberPath(path, "role"), rule: 'must be "model"' };
  }
  return content;
}

function read({ text, node }: JsonSpan, path: string): ItemsContent | PayloadFault {
  const reader = new FieldReader();
  const partsPath = memberPath(path, "parts");
  const parts = jsonMember(node, "parts");
  const pieces = (isVoid(parts) ? [] : reader.elements(parts, partsPath)).map((part, index) =>
    readPart(reader, { text, node: part }, `${partsPath}[${index}]`),
  );
  return reader.fault ?? contentOfPieces(pieces);
}

function readPart(reader: FieldReader, { text, node }: JsonSpan, path: string): ResponsePiece {
  if (!reader.isObject(node, path)) return undefined;
  const call = callOf(node);
  if (call === undefined) {
    const said = reader.optionalText(node, "text", path);
    return jsonMember(node, "thought")?.value === true ? undefined : said;
  }
  const callPath = memberPath(path, "functionCall");
  if (!reader.isObject(call, callPath)) return undefined;
  const args = jsonMember(call, "args");
  return {
    callId: reader.id(call, "id", callPath),
    itemId: undefined,
    toolName: reader.toolName(call, "name", callPath),
    arguments: isVoid(args) ? "" : argumentsText({ text, node: args }),
  };
}

function callOf(part: JsonNode): JsonNode | undefined {
  const call = jsonMember(part, "functionCall");
  return isVoid(call) ? undefined : call;
}

function replay(items: JsonSpan, calls: readonly ProjectedCall[]): RequestItem[] {
  const splice = new JsonSplice(items);
  const waiting = calls.values();
  let kept = 0;
  for (const part of jsonMember(items.node, "parts")?.children ?? []) {
    // A part that holds nothing is refused.
    if (part.children?.length === 0) {
      splice.remove(part);
      continue;
    }
    kept += 1;
    const call = callOf(part);
    if (call !== undefined) fitCall(splice, call, waiting.next().value);
  }
  if (kept === 0) return [];
  // Without a role the content would be the user's.
  if (jsonMember(items.node, "role") === undefined) splice.insert(items.node, '"role":"model"');
  const json = strictJson(splice.text(items.node));
  return [{ speaker: "assistant", json, hasCalls: calls.length > 0 }];
}

function fitCall(splice: JsonSplice, node: JsonNode, call: ProjectedCall | undefined): void {
  invariant(call !== undefined, "a kept part has no call");
  const id = memberWithKey(node, "id");
  if (id !== undefined && id.children?.[1]?.value !== call.callId) splice.remove(id);
  const args = jsonMember(node, "args");
  if (args !== undefined && args.type !== "object") {
    splice.replace(args, validArguments(call.arguments));
  }
}

function compose(text: string, calls: readonly ProjectedCall[]): RequestItem[] {
  const parts = calls.map((call, index) => {
    const name = jsonString(toolNameFor(call.toolName));
    const args = validArguments(call.arguments);
    const signature = index === 0 ? `,"thoughtSignature":"${FOREIGN_SIGNATURE}"` : "";
    return `{"functionCall":{${idMember(call)}"name":${name},"args":${args}}${signature}}`;
  });
  if (text !== "") parts.unshift(textPart(jsonString(text)));
  if (parts.length === 0) return [];
  const json = contentJson("model", parts);
  return [{ speaker: "assistant", json, hasCalls: calls.length > 0 }];
}

/** All in one content, in the order of the calls: those without ids pair by it. */
function results(calls: readonly ProjectedCall[], items: JsonSpan | undefined): RequestItem[] {
  if (calls.length === 0) return [];
  const parts = calls.map((call) => {
    const name = jsonString(items === undefined ? toolNameFor(call.toolName) : call.toolName);
    const response = responseJson(call.result);
    return `{"functionResponse":{${idMember(call)}"name":${name},"response":${response}}}`;
  });
  return [{ speaker: "tool", json: contentJson("user", parts) }];
}

/** The interface takes objects only. */
function responseJson(result: HistoryResult): string {
  const text = utf8Text(result.data);
  if (text !== undefined && isJsonObjectText(text)) return strictJson(text);
  return `{"${result.isError ? "error" : "result"}":${jsonString(contentText(result))}}`;
}

function message(speaker: Exclude<ItemSpeaker, "tool">, content: Content): RequestItem[] {
  if (speaker === "system") {
    const text = jsonString(`<system>${contentText(content)}</system>`);
    return [{ speaker: "user", json: contentJson("user", [textPart(text)]) }];
  }
  const parts = partsOf(content);
  const role = speaker === "assistant" ? "model" : "user";
  return parts.length === 0 ? [] : [{ speaker, json: contentJson(role, parts) }];
}

function system(contents: readonly Content[]): string {
  return `{"parts":[${contents.flatMap(partsOf).join(",")}]}`;
}

/** The parts of a content in the interface's own JSON, else one part with the text. */
function partsOf(content: Content): readonly string[] {
  const value = contentValue(content, NATIVE_MEDIA_TYPE);
  // Some of the places that offer the interface refuse empty texts.
  if (value === `""`) return [];
  if (!value.startsWith("[")) return [textPart(value)];
  const parts = value.slice(1, -1);
  return parts.trim() === "" ? [] : [parts];
}

function textPart(textJson: string): string {
  return `{"text":${textJson}}`;
}

function contentJson(role: "user" | "model", parts: readonly string[]): string {
  return `{"role":"${role}","parts":[${parts.join(",")}]}`;
}

function idMember({ callId }: ProjectedCall): string {
  return callId === undefined ? "" : `"id":${jsonString(callId)},`;
}

function between(before: ItemSpeaker | undefined, next: RequestItem): RequestItem[] {
  const isAfterNeither = before === undefined || before === "assistant";
  return isAfterNeither && next.hasCalls === true ? [PROMPT] : [];
}

/** Gemini: the one content of a candidate, whose calls may do without ids. */
export const gemini: Wire = {
  itemsOf,
  read,
  replay,
  compose,
  results,
  message,
  system,
  between,
  ids: { fits: (id) => FOREIGN_ID.test(id), fitsOwn: (id) => id !== "", derive: undefined },
  nativeMediaType: NATIVE_MEDIA_TYPE,
};
