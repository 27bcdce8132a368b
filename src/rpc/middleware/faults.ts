import type { AnswerFault } from "../answer-faults.js";
import type { Item } from "../call.js";
import type { OpenCall } from "../open-call.js";
import { isStream, type Middleware } from "../reply.js";

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
