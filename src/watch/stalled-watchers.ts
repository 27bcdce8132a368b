/** A watcher, as it is looked after. */
export interface Watched {
  /** Says that something was handed to the transport, which has not asked for more since. */
  offered(): void;
  /** Says that the transport took it. */
  taken(): void;
  /** No more is looked after. */
  leave(): void;
}

interface Entry {
  offeredMs: number | undefined;
  readonly onStalled: () => void;
}

const CHECKS_PER_LIMIT = 10;

export interface StalledWatchersOptions {
  /** Milliseconds of a clock that never jumps. */
  readonly monotonicMs: () => number;
  /** How long a watcher may leave what it was offered. */
  readonly stalledAfterMs: number;
}

/** Notices watchers that do not take what they are offered. One timer for all, and none while there are none. */
export class StalledWatchers {
  readonly #options: StalledWatchersOptions;
  readonly #entries = new Set<Entry>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: StalledWatchersOptions) {
    this.#options = options;
  }

  /** How many are looked after. */
  get size(): number {
    return this.#entries.size;
  }

  /** Calls `onStalled` once if the watcher stalls. */
  enter(onStalled: () => void): Watched {
    const entry: Entry = { offeredMs: undefined, onStalled };
    this.#entries.add(entry);
    this.#timer ??= this.#startTimer();
    return {
      offered: () => {
        entry.offeredMs = this.#options.monotonicMs();
      },
      taken: () => {
        entry.offeredMs = undefined;
      },
      leave: () => {
        this.#leave(entry);
      },
    };
  }

  #leave(entry: Entry): void {
    this.#entries.delete(entry);
    if (this.#entries.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #startTimer(): NodeJS.Timeout {
    const { stalledAfterMs } = this.#options;
    return setInterval(() => {
      this.#check();
    }, stalledAfterMs / CHECKS_PER_LIMIT).unref();
  }

  #check(): void {
    const { monotonicMs, stalledAfterMs } = this.#options;
    const nowMs = monotonicMs();
    for (const entry of [...this.#entries]) {
      if (entry.offeredMs === undefined || nowMs - entry.offeredMs < stalledAfterMs) continue;
      this.#leave(entry);
      entry.onStalled();
    }
  }
}
