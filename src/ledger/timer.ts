/** The longest time that a timer can wait, about 24 days. A longer one would fire at once. */
const TIMEOUT_MAX_MS = 2 ** 31 - 1;

/** Calls `end` with `whom` after the time, or after about 24 days if it is more. Does not keep the process alive. */
export function startTimer<Whom>(
  end: (whom: Whom) => void,
  timeoutMs: number,
  whom: Whom,
): NodeJS.Timeout {
  return setTimeout(end, Math.min(timeoutMs, TIMEOUT_MAX_MS), whom).unref();
}
