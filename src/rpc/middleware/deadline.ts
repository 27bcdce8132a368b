import type { AnswerFault } from "../answer-faults.js";
import { isStream, type Middleware } from "../reply.js";
import { UntilAborted } from "../until-aborted.js";

/**
 * Keeps work from being done for a caller that no longer waits. The transports abort the call when
 * its caller goes away or its deadline passes; a single reply is the handler's to cut short,
 * because a command that was decided completes regardless, but a stream ends here, even if its
 * handler never looks at the signal.
 */
export function deadline(answerLate: AnswerFault): Middleware {
  return (call, request, next) => {
    if (call.aborted !== undefined) return call.aborted;
    const reply = next(call, request);
    return isStream(reply) ? new UntilAborted(call, reply, answerLate) : reply;
  };
}
