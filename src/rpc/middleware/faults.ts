import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { InvariantError } from "../../domain/invariant.js";
import { isRefusal, refuse, type Refusal } from "../../domain/refusal.js";
import { methodName, type Item } from "../call.js";
import { traceOf } from "../fault-trace.js";
import type { Log } from "../log.js";
import type { OpenCall } from "../open-call.js";
import { isStream, type Middleware } from "../reply.js";
import { RequestsCutOff } from "../requests-cut-off.js";

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

/** Nothing thrown below leaves: the caller gets a correlation id, the log gets the cause. */
export function faults(answer: AnswerFault): Middleware {
  return (call, request, next) => {
    try {
      const reply = next(call, request);
      if (reply instanceof Promise) return reply.catch((fault: unknown) => answer(call, fault));
      return isStream(reply) ? guardStream(call, reply, answer) : reply;
    } catch (fault) {
      return answer(call, fault);
    }
  };
}

async function* guardStream(
  call: OpenCall,
  items: AsyncIterable<Item>,
  answer: AnswerFault,
): AsyncGenerator<Item> {
  let left = false;
  try {
    for await (const item of items) {
      left = true;
      yield item;
      left = false;
    }
  } catch (fault) {
    const refusal = answer(call, fault);
    if (!left) yield refusal;
  }
}
