import { create } from "@bufbuild/protobuf";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import {
  LegacyEvidenceKind,
  LegacySummarySchema,
  type LegacySummary,
} from "../../gen/toolmark/v1/legacy_pb.js";
import { ToolResultKind, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { toolCallIdOf } from "./record-id.js";

/** What was joined of an older session, and what stands alone. */
export function summaryOf(records: Iterable<EventRecord["record"]>): LegacySummary {
  const summary = create(LegacySummarySchema);
  for (const record of records) count(summary, record);
  return summary;
}

function count(summary: LegacySummary, record: EventRecord["record"]): void {
  switch (record.case) {
    case "toolCall":
      countCall(summary, record.value);
      break;
    case "message":
      summary.messages += 1;
      break;
    case "ask":
      if (record.value.state === AskState.OPEN) summary.openAsks += 1;
      break;
    case "authorization":
      if (record.value.state === AuthorizationState.PENDING) summary.pendingAuthorizations += 1;
      break;
    case "hook":
      if (toolCallIdOf(record) === undefined) summary.standaloneHooks += 1;
      else summary.attachedHooks += 1;
      break;
    case "legacyEvidence":
      if (toolCallIdOf(record) === undefined) summary.standaloneEvidence += 1;
      else summary.attachedEvidence += 1;
      if (record.value.kind === LegacyEvidenceKind.GAP) summary.gaps += 1;
      break;
    default:
  }
}

function countCall(summary: LegacySummary, { result }: ToolCall): void {
  summary.toolCalls += 1;
  if (result === undefined) summary.openCalls += 1;
  else if (result.kind === ToolResultKind.CANONICAL) summary.joinedResults += 1;
}
