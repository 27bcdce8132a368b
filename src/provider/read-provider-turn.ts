import { isJsonFault, parseJsonText, type JsonNode } from "../domain/json-text.js";
import {
  isPayloadFault,
  type PayloadFault,
  type ReadCall,
  type ReadProviderTurn,
} from "../domain/provider-turn.js";
import { memberPath } from "./field-reader.js";
import { exceededExtent, type JsonExtent } from "./json-extent.js";
import { utf8Text } from "../domain/utf8-text.js";
import type { ItemCall, JsonSpan } from "./wire.js";
import { wireOf } from "./wires.js";

const utf8 = new TextEncoder();

/** More than any provider takes, and far from what the stack of a program cannot. */
const DEPTH_MAX = 500;
/** Each value takes some hundred bytes while it is read, and nobody is served meanwhile. */
const VALUES_MAX = 250_000;

const RULE_OF: Readonly<Record<keyof JsonExtent, string>> = {
  depth: `must be nested at most ${DEPTH_MAX} deep`,
  values: `must have at most ${VALUES_MAX} values`,
};

/** Reads a provider's response: what is kept of it, what it says and which calls it makes. */
export const readProviderTurn: ReadProviderTurn = (wire, payload) => {
  const response = responseOf(payload);
  if (isPayloadFault(response)) return response;
  const { itemsOf, read } = wireOf(wire);
  const items = itemsOf(response);
  if (isPayloadFault(items)) return items;
  const content = read({ text: response.text, node: items }, pathOf(items));
  if (isPayloadFault(content)) return content;
  return {
    items: utf8.encode(response.text.slice(items.offset, items.offset + items.length)),
    text: content.text.toWellFormed(),
    calls: content.calls.map(readCall),
  };
};

function responseOf(payload: Uint8Array): JsonSpan | PayloadFault {
  const text = utf8Text(payload);
  if (text === undefined) return { path: "", rule: "must be UTF-8" };
  const exceeded = exceededExtent(text, { depth: DEPTH_MAX, values: VALUES_MAX });
  if (exceeded !== undefined) return { path: "", rule: RULE_OF[exceeded] };
  const node = parseJsonText(text);
  if (isJsonFault(node) || node.type !== "object") {
    return { path: "", rule: "must be one JSON object" };
  }
  return { text, node };
}

/** Where a value is in its text. */
function pathOf(node: JsonNode): string {
  const { parent } = node;
  if (parent === undefined) return "";
  if (parent.type === "property") {
    const key: unknown = parent.children?.[0]?.value;
    return memberPath(parent.parent === undefined ? "" : pathOf(parent.parent), String(key));
  }
  return `${pathOf(parent)}[${parent.children?.indexOf(node) ?? 0}]`;
}

function readCall({ toolName, arguments: text, callId, itemId }: ItemCall): ReadCall {
  return {
    toolName,
    arguments: utf8.encode(text),
    providerCallId: callId,
    providerItemId: itemId,
  };
}
