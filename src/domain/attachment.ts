import type { Ask } from "../../gen/toolmark/v1/ask_pb.js";
import type { Authorization } from "../../gen/toolmark/v1/authorization_pb.js";
import type { Hook } from "../../gen/toolmark/v1/hook_pb.js";
import type { Receipt } from "../../gen/toolmark/v1/receipt_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";

/** A record that can be about a call. */
export type Evidence = Hook | Ask | Receipt | Authorization;

/**
 * Where evidence is shown:
 * - `ATTACHED`: with exactly one retained call of the same origin that it names.
 * - `PENDING`: the named call is not known yet.
 * - `STANDALONE`: on its own.
 */
export type Attachment = "ATTACHED" | "PENDING" | "STANDALONE";

/**
 * Decides where evidence belongs, from its explicit references alone. `calls` are the retained calls with the id that
 * the evidence names, whatever their origin.
 */
export function attachmentOf(evidence: Evidence, calls: readonly ToolCall[]): Attachment {
  const { origin, toolCallId } = evidence;
  if (toolCallId === undefined || toolCallId === "" || origin === undefined) return "STANDALONE";
  const named = calls.filter((call) => call.toolCallId === toolCallId);
  if (named.length === 0) return "PENDING";
  const [call] = named;
  if (named.length > 1 || call?.origin?.sessionId !== origin.sessionId) return "STANDALONE";
  if (evidence.$typeName === "toolmark.v1.Hook") return attachmentOfHook(evidence);
  return "ATTACHED";
}

function attachmentOfHook(hook: Hook): Attachment {
  return isUnderItsOwnId(hook) ? "ATTACHED" : "STANDALONE";
}

/** Whether a hook record with a review is the record of that review. Hook records without one always are. */
export function isUnderItsOwnId({ hookId, review }: Hook): boolean {
  return review === undefined || review.reviewId === hookId;
}

/** Whether a receipt settles an ask: record, origin, call and review are those of the ask. */
export function isReceiptOf(receipt: Receipt, ask: Ask): boolean {
  return (
    receipt.askId === ask.askId &&
    receipt.origin?.sessionId === ask.origin?.sessionId &&
    receipt.toolCallId === ask.toolCallId &&
    receipt.reviewId === ask.reviewId
  );
}

/** Whether an ask comes from a review: record, origin and call are those of the review. */
export function isAskOfReview(ask: Ask, review: Hook): boolean {
  return (
    review.review !== undefined &&
    isUnderItsOwnId(review) &&
    ask.reviewId === review.hookId &&
    ask.origin?.sessionId === review.origin?.sessionId &&
    ask.toolCallId === review.toolCallId
  );
}
