import type { Ask } from "../../../gen/toolmark/v1/ask_pb.js";
import type { AnswerAskRequest } from "../../../gen/toolmark/v1/approval_service_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { ReceiptPath } from "../../../gen/toolmark/v1/receipt_pb.js";
import { equalBytes } from "../bytes.js";
import { isRefusal, refuse, type Refusal } from "../refusal.js";
import type { SessionState } from "../session-state.js";
import type { Decided, Draft } from "./draft.js";
import { findOpenAsk } from "./find-ask.js";
import { refuseVerdict, settleAsk } from "./settle-ask.js";

/** A human's answer. Every reference must be the ask's own, or nothing happens. */
export function answerAsk(draft: Draft, state: SessionState, request: AnswerAskRequest): Decided {
  const ask = findOpenAsk(state, draft.facts, request.askId);
  if (isRefusal(ask)) return ask;
  const refused =
    refuseReferences(ask, request) ??
    refuseToken(draft, ask, request.answerToken) ??
    refuseVerdict(ask, request.verdict);
  if (refused !== undefined) return refused;
  const { verdict, reason } = request;
  const { actor } = draft.facts;
  const settlement = { verdict, path: ReceiptPath.HUMAN, actor, reason };
  return draft.decision([settleAsk(draft, state, ask, settlement)]);
}

function refuseReferences(ask: Ask, request: AnswerAskRequest): Refusal | undefined {
  if (request.toolCallId !== ask.toolCallId) return refuseMismatch("tool_call_id");
  if (request.reviewId !== ask.reviewId) return refuseMismatch("review_id");
  const shown = request.presentedSha256;
  const presented = ask.presented?.sha256 ?? new Uint8Array(0);
  return shown.length === 0 || equalBytes(shown, presented)
    ? undefined
    : refuseMismatch("presented_sha256");
}

function refuseMismatch(field: string): Refusal {
  return refuse(ErrorReason.ANSWER_MISMATCH, `${field} is not that of the ask`, { field });
}

function refuseToken(draft: Draft, ask: Ask, token: string): Refusal | undefined {
  if (draft.facts.isAnswerToken(ask, token)) return undefined;
  return refuse(ErrorReason.ANSWER_TOKEN_INVALID, "the answer token is not this ask's");
}
