import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { HookDecision, type Hook } from "../../../gen/toolmark/v1/hook_pb.js";
import { ReviewDisposition, ReviewJob } from "../../../gen/toolmark/v1/review_pb.js";
import { refuse, type Refusal } from "../refusal.js";
import type { Facts } from "./draft.js";

/** The hook record or review that a command names at `field`, if it is about the call. */
export function findHookOfCall(
  facts: Facts,
  toolCallId: string,
  hookId: string,
  field: string,
): Hook | Refusal {
  const record = facts.settledRecord(hookId);
  if (record?.case !== "hook") {
    return refuse(ErrorReason.HOOK_NOT_FOUND, "the session has no such hook record");
  }
  return record.value.toolCallId === toolCallId
    ? record.value
    : refuseHook(field, "is not about this call");
}

export function refuseHook(field: string, fault: string): Refusal {
  return refuse(ErrorReason.REFERENCE_MISMATCH, `${field} ${fault}`, { field });
}

/** A hook blocks by its decision, a review by denying; what a review of a result denies is not the call. */
export function blocksCall({ decision, review }: Hook): boolean {
  if (review === undefined) return decision === HookDecision.BLOCKED;
  return review.disposition === ReviewDisposition.DENY && review.job !== ReviewJob.INBOUND;
}
