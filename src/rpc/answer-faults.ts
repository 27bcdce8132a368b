import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { InvariantError } from "../domain/invariant.js";
import { isRefusal, refuse, type Refusal } from "../domain/refusal.js";
import { StoreFault } from "../ledger/store-port.js";
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
    if (fault instanceof StoreFault) return refuseRead(fault);
    if (fault instanceof InvariantError) onInvariantBroken();
    return refuse(ErrorReason.INTERNAL, `internal fault ${correlationId}`, {
      correlation_id: correlationId,
    });
  };
}

/** Why the store did not give what is needed to answer. */
function refuseRead({ reason, where }: StoreFault): Refusal {
  switch (reason) {
    case "damaged":
      return refuse(ErrorReason.DATA_DAMAGED, "the store is damaged where this is kept", where);
    case "busy":
      return refuse(ErrorReason.STORE_BUSY, "the store is busy");
    case "unreadable":
      return refuse(ErrorReason.STORE_UNREADABLE, "the store could not be read just now");
  }
}

/** What a handler lets pass when its requests or its wait are cut off is no fault. */
function refusalBehind(call: OpenCall, fault: unknown): Refusal | undefined {
  if (fault instanceof RequestsCutOff) return fault.refusal;
  if (isRefusal(fault) && fault === call.aborted) return fault;
  if (fault instanceof Error && fault.name === "AbortError") return call.aborted;
  return undefined;
}
