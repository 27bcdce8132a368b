import type { AnswerFault } from "./answer-faults.js";
import type { Item } from "./call.js";
import type { OpenCall } from "./open-call.js";

/** Gives the items until the call is aborted, and then the refusal of that. */
export async function* untilAborted(
  call: OpenCall,
  items: AsyncIterable<Item>,
  answerLate: AnswerFault,
): AsyncGenerator<Item> {
  const iterator = items[Symbol.asyncIterator]();
  let stuck = false;
  try {
    while (call.aborted === undefined) {
      stuck = true;
      const next = await nextUnlessAborted(call, iterator, answerLate);
      stuck = next === undefined;
      if (next?.done === true) return;
      if (next !== undefined) yield next.value;
    }
    yield call.aborted;
  } finally {
    const closing = iterator.return?.();
    // A handler that is stuck in a wait of its own is freed when that ends; the caller is not kept
    // for it.
    if (stuck) closing?.catch((fault: unknown) => answerLate(call, fault));
    else await closing;
  }
}

/** The next item, or undefined as soon as the call is aborted. */
function nextUnlessAborted(
  call: OpenCall,
  iterator: AsyncIterator<Item>,
  answerLate: AnswerFault,
): Promise<IteratorResult<Item> | undefined> {
  const { signal } = call;
  return new Promise((resolve, reject) => {
    const giveUp = (): void => {
      resolve(undefined);
    };
    signal.addEventListener("abort", giveUp);
    iterator.next().then(
      (next) => {
        signal.removeEventListener("abort", giveUp);
        resolve(next);
      },
      (fault: unknown) => {
        signal.removeEventListener("abort", giveUp);
        if (signal.aborted) answerLate(call, fault);
        reject(
          fault instanceof Error ? fault : new Error("a handler threw no error", { cause: fault }),
        );
      },
    );
  });
}
