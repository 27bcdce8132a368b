import type { AwaitAskRequest } from "../../../gen/toolmark/engine/v1/call_service_pb.js";
import type {
  AnswerAskRequest,
  GetAskRequest,
  GetReceiptRequest,
  ListAsksRequest,
  ListReceiptsRequest,
} from "../../../gen/toolmark/v1/approval_service_pb.js";
import { AskState, AskStateSchema } from "../../../gen/toolmark/v1/ask_pb.js";
import { TOOL_NAME_BYTES } from "../../domain/limits.js";
import { refuseField } from "../../domain/refusal.js";
import { VERDICTS_TO_GIVE } from "./asks.js";
import {
  type Checked,
  checkEnum,
  checkId,
  checkIdOrEmpty,
  checkOptionalId,
  checkOptionalTimestamp,
  checkPageToken,
  checkRequestId,
  checkSha256,
  checkText,
  OWNER_SUBJECT_BYTES,
  REASON_BYTES,
  specifiedValues,
} from "./checks.js";

const ANSWER_TOKEN = /^[\x20-\x7e]{1,512}$/;

const ASK_STATES_OR_OPEN: ReadonlySet<number> = new Set([
  AskState.UNSPECIFIED,
  ...specifiedValues(AskStateSchema),
]);

export function checkListAsks(request: ListAsksRequest): Checked {
  return (
    checkPageToken(request.pageToken) ??
    checkIdOrEmpty(request.sessionId, "", "session_id") ??
    checkEnum(request.state, "", "state", ASK_STATES_OR_OPEN) ??
    checkText(request.ownerSubject, "", "owner_subject", OWNER_SUBJECT_BYTES) ??
    checkText(request.toolName, "", "tool_name", TOOL_NAME_BYTES) ??
    checkOptionalTimestamp(request.createdBefore, "", "created_before") ??
    checkOptionalTimestamp(request.createdAfter, "", "created_after") ??
    checkOptionalTimestamp(request.expiringBefore, "", "expiring_before")
  );
}

interface OfAsk {
  readonly sessionId: string;
  readonly askId: string;
}

function checkOfAsk(request: OfAsk): Checked {
  return checkId(request.sessionId, "", "session_id") ?? checkId(request.askId, "", "ask_id");
}

export function checkGetAsk(request: GetAskRequest): Checked {
  return checkOfAsk(request);
}

export function checkAwaitAsk(request: AwaitAskRequest): Checked {
  return checkOfAsk(request);
}

export function checkAnswerAsk(request: AnswerAskRequest): Checked {
  return (
    checkRequestId(request.requestId) ??
    checkOfAsk(request) ??
    checkAnswerToken(request.answerToken) ??
    checkId(request.toolCallId, "", "tool_call_id") ??
    checkOptionalId(request.reviewId, "", "review_id") ??
    checkEnum(request.verdict, "", "verdict", VERDICTS_TO_GIVE) ??
    checkText(request.reason, "", "reason", REASON_BYTES) ??
    (request.presentedSha256.length === 0
      ? undefined
      : checkSha256(request.presentedSha256, "", "presented_sha256"))
  );
}

function checkAnswerToken(token: string): Checked {
  if (ANSWER_TOKEN.test(token)) return undefined;
  return refuseField("answer_token", "must be 1 to 512 printable ASCII characters");
}

export function checkGetReceipt(request: GetReceiptRequest): Checked {
  return (
    checkId(request.sessionId, "", "session_id") ?? checkId(request.receiptId, "", "receipt_id")
  );
}

export function checkListReceipts(request: ListReceiptsRequest): Checked {
  return (
    checkId(request.sessionId, "", "session_id") ??
    checkPageToken(request.pageToken) ??
    checkIdOrEmpty(request.toolCallId, "", "tool_call_id")
  );
}
