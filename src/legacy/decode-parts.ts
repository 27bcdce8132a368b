import {
  base64BytesOf,
  elementsOf,
  firstOf,
  isText,
  requiredText,
  textIfFilled,
  textOf,
} from "./field-values.js";
import type { JsonField } from "./json-field.js";
import type { OldCall, OldMessage, OldPart, OldResult } from "./old-session.js";

/** A call as snapshots and logs have it: `ID`, `Name`, and `Args` as raw JSON, of which the bytes are kept. */
export function decodeCall(call: JsonField): OldCall {
  return {
    providerCallId: textOf(call.get("ID")),
    providerItemId: textIfFilled(call.get("item_id")),
    toolName: requiredText(call.get("Name")),
    arguments: call.get("Args").bytes(),
  };
}

/** A call of a parked turn: keys in lower case, and `args` in base64. */
export function decodeParkedCall(call: JsonField): OldCall {
  return {
    providerCallId: textOf(call.get("id")),
    providerItemId: textIfFilled(call.get("item_id")),
    toolName: textOf(call.get("name")),
    arguments: base64BytesOf(call.get("args")),
  };
}

/** The provider's id by which a record names a call, empty if it names none. Some records had the call itself there. */
export function decodeCallReference(reference: JsonField): string {
  if (reference.isAbsent || isText(reference)) return textOf(reference);
  return decodeCall(reference).providerCallId;
}

export function decodeResult(result: JsonField): OldResult {
  return {
    providerCallId: textOf(result.get("CallID")),
    content: textOf(result.get("Content")),
    isError: result.get("IsError").boolean() ?? false,
    parts: decodeParts(result.get("Parts")),
  };
}

/**
 * Parts of a message or result. Messages of snapshots have lower-case keys. Results, and everything in logs, have those
 * of the old system's own type, which are capitalised but for `block_kind`. Spellings that other writers may have used
 * are read as well.
 */
export function decodeParts(parts: JsonField): OldPart[] {
  return elementsOf(parts).map((part) => ({
    blockKind: textOf(firstOf(part, "block_kind", "BlockKind")),
    kind: textOf(firstOf(part, "kind", "Kind")),
    mediaType: textOf(firstOf(part, "mime_type", "MIMEType", "MimeType")),
    data: base64BytesOf(firstOf(part, "data", "Data")),
    url: textOf(firstOf(part, "url", "URL")),
    text: textOf(firstOf(part, "text", "Text")),
    name: textOf(firstOf(part, "name", "Name")),
    title: textOf(firstOf(part, "title", "Title")),
  }));
}

/** How one encoding of messages spells its keys. */
interface MessageKeys {
  readonly role: string;
  readonly text: string;
  readonly calls: string;
  readonly result: string;
  readonly parts: string;
  readonly reasoning: string;
  readonly phase: string;
  readonly reasoningItemId: string;
}

const SNAPSHOT_KEYS: MessageKeys = {
  role: "role",
  text: "text",
  calls: "tool_calls",
  result: "tool_result",
  parts: "parts",
  reasoning: "reasoning",
  phase: "phase",
  reasoningItemId: "reasoning_item_id",
};

const LOG_KEYS: MessageKeys = {
  role: "Role",
  text: "Text",
  calls: "ToolCalls",
  result: "ToolResult",
  parts: "Parts",
  reasoning: "Reasoning",
  phase: "ProviderPhase",
  reasoningItemId: "ReasoningItemID",
};

/** The messages of a snapshot. */
export function decodeSnapshotMessages(messages: JsonField): OldMessage[] {
  return elementsOf(messages).map((message) => decodeMessage(message, SNAPSHOT_KEYS));
}

/** Messages within an event of a log. */
export function decodeLogMessages(messages: JsonField): OldMessage[] {
  return elementsOf(messages).map((message) => decodeMessage(message, LOG_KEYS));
}

function decodeMessage(message: JsonField, keys: MessageKeys): OldMessage {
  const result = message.get(keys.result);
  return {
    // Every writer put it there: without it, the message is of the other encoding and would be read as empty.
    role: requiredText(message.get(keys.role)),
    text: textOf(message.get(keys.text)),
    calls: elementsOf(message.get(keys.calls)).map(decodeCall),
    result: result.isAbsent ? undefined : decodeResult(result),
    parts: decodeParts(message.get(keys.parts)),
    replay: {
      reasoning: textIfFilled(message.get(keys.reasoning)),
      phase: textIfFilled(message.get(keys.phase)),
      reasoningItemId: textIfFilled(message.get(keys.reasoningItemId)),
    },
  };
}
