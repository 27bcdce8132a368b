import { serverFaultOf } from "../server/server-link.js";

const RETRY_MS = 100;
const RETRY_MAX_MS = 5000;

/** Waits before the next try of something that failed so many times before. Ends at once if the signal aborts. */
export function waitToRetry(failures: number, signal: AbortSignal): Promise<void> {
  return waitMs(Math.min(RETRY_MS * 2 ** failures, RETRY_MAX_MS), signal);
}

/** Waits for a time, or until the signal aborts. */
export function waitMs(timeMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, timeMs);
    signal.addEventListener("abort", end);
    if (signal.aborted) end();
  });
}

/**
 * Sends a request again for as long as the server is away. Throws what the server refuses; absent once the signal
 * aborts.
 */
export async function retried<Answer>(
  send: () => Promise<Answer>,
  signal: AbortSignal,
): Promise<Answer | undefined> {
  for (let failures = 0; !signal.aborted; failures += 1) {
    try {
      return await send();
    } catch (thrown) {
      if (!serverFaultOf(thrown).isPassing) throw thrown;
    }
    await waitToRetry(failures, signal);
  }
  return undefined;
}
