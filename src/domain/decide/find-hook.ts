import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import type { Hook } from "../../../gen/toolmark/v1/hook_pb.js";
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
