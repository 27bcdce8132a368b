/** A watcher, as it is looked after. */
export class Watched {
  readonly #watchers: StalledWatchers;
  readonly onStalled: () => void;
  offeredMs: number | undefined;

  constructor(watchers: StalledWatchers, onStalled: () => void) {
    this.#watchers = watchers;
    this.onStalled = onStalled;
  }

  /** Says that something was handed to the transport, which has not asked for more since. */
  offered(): void {
    this.offeredMs = this.#watchers.nowMs;
  }

  /** Says that the transport took it. */
  taken(): void {
    this.offeredMs = undefined;
  }

  /** No more is looked after. */
  leave(): void {
    this.#watchers.leave(this);
  }
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
  readonly #watched = new Set<Watched>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: StalledWatchersOptions) {
    this.#options = options;
  }

  get nowMs(): number {
    return this.#options.monotonicMs();
  }

  /** How many are looked after. */
  get size(): number {
    return this.#watched.size;
  }

  /** Calls `onStalled` once if the watcher stalls. */
  enter(onStalled: () => void): Watched {
    const watched = new Watched(this, onStalled);
    this.#watched.add(watched);
    this.#timer ??= this.#startTimer();
    return watched;
  }

  leave(watched: Watched): void {
    this.#watched.delete(watched);
    if (this.#watched.size > 0) return;
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
    const { nowMs } = this;
    const { stalledAfterMs } = this.#options;
    for (const watched of [...this.#watched]) {
      if (watched.offeredMs === undefined || nowMs - watched.offeredMs < stalledAfterMs) continue;
      this.leave(watched);
      watched.onStalled();
    }
  }
}
