import { isRefusal } from "../domain/refusal.js";
import type { CallContext } from "./call.js";
import { RequestsCutOff } from "./requests-cut-off.js";

/**
 * The requests of a call, cut off as soon as it is aborted or the server drains: for what a caller may take its time to
 * send, and a shutdown need not wait for.
 */
export async function* untilCutOff<Request>(
  { signal, draining }: Pick<CallContext, "signal" | "draining">,
  requests: AsyncIterable<Request>,
): AsyncGenerator<Request> {
  const cutOff = AbortSignal.any([signal, draining]);
  const iterator = requests[Symbol.asyncIterator]();
  let isStuck = false;
  try {
    for (;;) {
      isStuck = true;
      const next = await nextUnless(cutOff, iterator);
      isStuck = false;
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    const closing = iterator.return?.();
    // A request that never comes is waited for until the transport ends the call.
    if (!isStuck) await closing;
  }
}

function nextUnless<Request>(
  cutOff: AbortSignal,
  iterator: AsyncIterator<Request>,
): Promise<IteratorResult<Request>> {
  return new Promise((resolve, reject) => {
    const giveUp = (): void => {
      const reason: unknown = cutOff.reason;
      const fault = new Error("a call is aborted with a refusal", { cause: reason });
      reject(isRefusal(reason) ? new RequestsCutOff(reason) : fault);
    };
    if (cutOff.aborted) {
      giveUp();
      return;
    }
    cutOff.addEventListener("abort", giveUp, { once: true });
    iterator
      .next()
      .then(resolve, reject)
      .finally(() => {
        cutOff.removeEventListener("abort", giveUp);
      });
  });
}
