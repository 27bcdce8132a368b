import { toBinary } from "@bufbuild/protobuf";
import type { DescMessage } from "@bufbuild/protobuf";
import { AskSchema, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationSchema, type Authorization } from "../../gen/toolmark/v1/authorization_pb.js";
import { HookSchema, type Hook } from "../../gen/toolmark/v1/hook_pb.js";
import { ReceiptSchema, type Receipt } from "../../gen/toolmark/v1/receipt_pb.js";
import { ToolCallSchema, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { equalBytes } from "./bytes.js";

/** The five kinds of record that carry a revision. */
export type RevisedRecord = ToolCall | Hook | Ask | Receipt | Authorization;

/**
 * What an incoming update of a record does:
 * - `advanced`: it becomes the record's state.
 * - `older`: it is kept in history only.
 * - `repeated`: it is already the record's state.
 * - `conflict`: it contradicts the record and stands alone as evidence; the record keeps its state.
 */
export type MergeOutcome = "advanced" | "older" | "repeated" | "conflict";

const SCHEMAS = {
  "toolmark.v1.ToolCall": ToolCallSchema,
  "toolmark.v1.Hook": HookSchema,
  "toolmark.v1.Ask": AskSchema,
  "toolmark.v1.Receipt": ReceiptSchema,
  "toolmark.v1.Authorization": AuthorizationSchema,
} as const;

/** The id of a record within its kind. */
export function recordId(record: RevisedRecord): string {
  switch (record.$typeName) {
    case "toolmark.v1.ToolCall":
      return record.toolCallId;
    case "toolmark.v1.Hook":
      return record.hookId;
    case "toolmark.v1.Ask":
      return record.askId;
    case "toolmark.v1.Receipt":
      return record.receiptId;
    case "toolmark.v1.Authorization":
      return record.authorizationId;
  }
}

function samePayload(left: RevisedRecord, right: RevisedRecord): boolean {
  if (left === right) return true;
  const schema: DescMessage = SCHEMAS[left.$typeName];
  return equalBytes(toBinary(schema, left), toBinary(schema, right));
}

/** Whether two states can be of one record: kind, id, origin and call are the same. */
export function isSameRecord(left: RevisedRecord, right: RevisedRecord): boolean {
  return (
    left.$typeName === right.$typeName &&
    recordId(left) === recordId(right) &&
    left.origin?.sessionId === right.origin?.sessionId &&
    left.toolCallId === right.toolCallId
  );
}

/**
 * The merge law: what `incoming` does to `current`, the record with the same id that is already known. Applying any
 * updates in any order, with any repetition, ends in the same state. A record that is not known yet is advanced.
 */
export function merge(current: RevisedRecord | undefined, incoming: RevisedRecord): MergeOutcome {
  if (current === undefined) return "advanced";
  if (!isSameRecord(current, incoming)) return "conflict";
  if (incoming.revision === undefined) {
    if (current.revision === undefined && samePayload(current, incoming)) return "repeated";
    return "conflict";
  }
  if (current.revision === undefined || incoming.revision > current.revision) return "advanced";
  if (incoming.revision < current.revision) return "older";
  return samePayload(current, incoming) ? "repeated" : "conflict";
}
