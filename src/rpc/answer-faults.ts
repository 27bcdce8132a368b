import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { InvariantError } from "../domain/invariant.js";
import { isRefusal, refuse, type Refusal } from "../domain/refusal.js";
import { methodName } from "./call.js";
import { traceOf } from "./fault-trace.js";
import type { Log } from "./log.js";
import type { OpenCall } from "./open-call.js";
import { RequestsCutOff } from "./requests-cut-off.js";

/** Turns whatever was thrown into the refusal that answers the call. */
export type AnswerFault = (call: OpenCall, fault: unknown) => Refusal;

export function answerFaults(log: Log, onInvariantBroken: () => void): AnswerFault {
  return (call, fault) => {
    const expected = refusalBehind(call, fault);
    if (expected !== undefined) return expected;
    const { correlationId } = call;
    log.error("fault", { method: methodName(call.method), correlationId, fault: traceOf(fault) });
    if (fault instanceof InvariantError) onInvariantBroken();
    return refuse(ErrorReason.INTERNAL, `internal fault ${correlationId}`, {
      correlation_id: correlationId,
    });
  };
}

/** What a handler lets pass when its requests or its wait are cut off is no fault. */
function refusalBehind(call: OpenCall, fault: unknown): Refusal | undefined {
  if (fault instanceof RequestsCutOff) return fault.refusal;
  if (isRefusal(fault) && fault === call.aborted) return fault;
  if (fault instanceof Error && fault.name === "AbortError") return call.aborted;
  return undefined;
}
