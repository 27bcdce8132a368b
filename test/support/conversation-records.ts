import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  AskKind,
  AskProvenance,
  AskSchema,
  AskState,
  type Ask,
} from "../../gen/toolmark/v1/ask_pb.js";
import { EventSchema, type Event, type EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { HookDecision, HookSchema, type Hook } from "../../gen/toolmark/v1/hook_pb.js";
import {
  ReceiptPath,
  ReceiptSchema,
  Verdict,
  type Receipt,
} from "../../gen/toolmark/v1/receipt_pb.js";
import {
  ReviewAssessment,
  ReviewDisposition,
  ReviewInspection,
  ReviewJob,
  ReviewSchema,
} from "../../gen/toolmark/v1/review_pb.js";
import {
  ToolCallSchema,
  ToolCallState,
  type ToolCall,
} from "../../gen/toolmark/v1/tool_call_pb.js";
import type { RevisedRecord } from "../../src/domain/merge-law.js";

type Init<Schema extends Parameters<typeof create>[0]> = Exclude<
  MessageInitShape<Schema>,
  { $typeName: string }
>;

export const SESSION = "ses_root";
export const OTHER = "ses_other";
export const CALL = "tc_1";
export const REVIEW = "rv_1";
/** A value that this version of any enum does not know. */
export const UNKNOWN = 99 as never;

export function callOf(revision: bigint, changed: Init<typeof ToolCallSchema> = {}): ToolCall {
  return create(ToolCallSchema, {
    toolCallId: CALL,
    origin: { sessionId: SESSION },
    revision,
    turnId: "trn_1",
    toolName: "exec",
    state: ToolCallState.ACCEPTED,
    ...changed,
  });
}

export function hookOf(revision: bigint, changed: Init<typeof HookSchema> = {}): Hook {
  return create(HookSchema, {
    hookId: "hk_1",
    origin: { sessionId: SESSION },
    revision,
    toolCallId: CALL,
    phase: "pre_tool_use",
    toolName: "exec",
    decision: HookDecision.INFO,
    ...changed,
  });
}

/** A review that asks a person, if nothing else is said. */
export function reviewOf(
  revision: bigint,
  said: Init<typeof ReviewSchema> = {},
  changed: Init<typeof HookSchema> = {},
): Hook {
  const review = create(ReviewSchema, {
    reviewId: REVIEW,
    job: ReviewJob.ACTION,
    assessment: ReviewAssessment.UNRESOLVED,
    inspection: ReviewInspection.COMPLETE,
    disposition: ReviewDisposition.ASK_ACTION,
    ...said,
  });
  return hookOf(revision, { hookId: REVIEW, phase: "review", review, ...changed });
}

export function askOf(revision: bigint, changed: Init<typeof AskSchema> = {}): Ask {
  return create(AskSchema, {
    askId: "ask_1",
    origin: { sessionId: SESSION },
    revision,
    toolCallId: CALL,
    kind: AskKind.ACTION,
    provenance: AskProvenance.PERMISSION,
    allowedVerdicts: [Verdict.DENY, Verdict.ALLOW_ONCE, Verdict.ALLOW_ALWAYS],
    state: AskState.OPEN,
    toolName: "exec",
    ...changed,
  });
}

export function receiptOf(revision: bigint, changed: Init<typeof ReceiptSchema> = {}): Receipt {
  return create(ReceiptSchema, {
    receiptId: "rcp_1",
    askId: "ask_1",
    origin: { sessionId: SESSION },
    revision,
    toolCallId: CALL,
    verdict: Verdict.ALLOW_ONCE,
    path: ReceiptPath.HUMAN,
    toolName: "exec",
    ...changed,
  });
}

const KINDS = {
  "toolmark.v1.ToolCall": ["toolCall", "TOOL_CALL_ACCEPTED"],
  "toolmark.v1.Hook": ["hook", "HOOK_PUBLISHED"],
  "toolmark.v1.Ask": ["ask", "ASK_OPENED"],
  "toolmark.v1.Receipt": ["receipt", "RECEIPT_WRITTEN"],
  "toolmark.v1.Authorization": ["authorization", "AUTHORIZATION_REQUESTED"],
} as const;

/** An event about a record; its sequence is the record's revision if nothing else is said. */
export function eventOf(record: RevisedRecord, changed: Init<typeof EventSchema> = {}): Event {
  const [kindOfRecord, kind] = KINDS[record.$typeName];
  const oneof = { case: kindOfRecord, value: record } as EventRecord["record"];
  return create(EventSchema, {
    sessionId: SESSION,
    sequence: record.revision ?? 1n,
    position: record.revision ?? 1n,
    ...(record.revision === undefined ? {} : { revision: record.revision }),
    kind,
    record: { record: oneof },
    ...changed,
  });
}
