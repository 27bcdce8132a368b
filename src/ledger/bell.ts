import { startTimer } from "./timer.js";

/**
 * Remembers that it rang until somebody waits: a ring between a read and the wait after it is not lost. Rings do not
 * add up. Of several who wait at a time each is woken.
 */
export class Bell {
  readonly #waiting = new Set<() => void>();
  #hasRung = false;

  ring(): void {
    this.#hasRung = this.#waiting.size === 0;
    for (const wake of [...this.#waiting]) wake();
  }

  /**
   * Resolves to true once rung, at once if it rang since the last wait; to false after `timeoutMs` (about 24 days if it
   * is more, never if it is Infinity), or when one of the signals aborts. Does not keep the process alive.
   */
  rung(timeoutMs: number, ...signals: AbortSignal[]): Promise<boolean> {
    if (this.#hasRung) {
      this.#hasRung = false;
      return Promise.resolve(true);
    }
    if (timeoutMs <= 0 || signals.some(({ aborted }) => aborted)) return Promise.resolve(false);
    return new Promise((resolve) => {
      const settle = (rang: boolean): void => {
        clearTimeout(timer);
        this.#waiting.delete(wake);
        for (const stop of stops) stop();
        resolve(rang);
      };
      const wake = (): void => {
        settle(true);
      };
      const giveUp = (): void => {
        settle(false);
      };
      const timer = timeoutMs === Infinity ? undefined : startTimer(giveUp, timeoutMs, undefined);
      const stops = signals.map((signal) => whenAborted(signal, giveUp));
      this.#waiting.add(wake);
    });
  }
}

/** Who waits for the abort of a signal, and the one listener that calls them. */
interface SignalWaiters {
  readonly calls: Set<{ readonly call: () => void }>;
  readonly listener: () => void;
}

const waitersOfSignals = new WeakMap<AbortSignal, SignalWaiters>();

/**
 * One listener for each signal, however many wait for it: with a listener each, adding one to a signal that all calls
 * share would take longer the more there are, and the signal would warn of a leak. Returns how to stop.
 */
export function whenAborted(signal: AbortSignal, call: () => void): () => void {
  const waiters = waitersOfSignals.get(signal) ?? listenTo(signal);
  const waiter = { call };
  waiters.calls.add(waiter);
  return () => {
    if (!waiters.calls.delete(waiter) || waiters.calls.size > 0) return;
    signal.removeEventListener("abort", waiters.listener);
    waitersOfSignals.delete(signal);
  };
}

function listenTo(signal: AbortSignal): SignalWaiters {
  const calls: SignalWaiters["calls"] = new Set();
  const listener = (): void => {
    for (const { call } of [...calls]) call();
  };
  signal.addEventListener("abort", listener);
  const waiters = { calls, listener };
  waitersOfSignals.set(signal, waiters);
  return waiters;
}
