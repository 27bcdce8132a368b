import type { AnswerFault } from "../answer-faults.js";
import { isStream, type Middleware } from "../reply.js";
import { RuledStream } from "../ruled-stream.js";

/** Nothing thrown below leaves: the caller gets a correlation id, the log gets the cause. */
export function faults(answer: AnswerFault): Middleware {
  return (call, request, next) => {
    try {
      const reply = next(call, request);
      if (reply instanceof Promise) return reply.catch((fault: unknown) => answer(call, fault));
      if (!isStream(reply)) return reply;
      return RuledStream.around(reply, { answer: (fault) => answer(call, fault) });
    } catch (fault) {
      return answer(call, fault);
    }
  };
}
