import type { DeadlinesSet } from "./commit-feed.js";
import type { DueQuery, Store } from "./store-port.js";

/** What is read of a store to expire what is due in it. */
export type DueStore = Pick<
  Store,
  "listDue" | "listDueSetAfter" | "nextDeadlineMs" | "lastPosition" | "lastEventTimeMs"
>;

/** What the jumps of a clock are told by. */
export interface ClockJumpsOptions {
  readonly store: DueStore;
  /** The clock that deadlines are set by, in milliseconds since the epoch. May jump. */
  readonly nowMs: () => number;
  /** Milliseconds of a clock that never jumps. */
  readonly monotonicMs: () => number;
}

/** What is due by a clock, of what was set until a position. */
export type Due = Pick<DueQuery, "untilMs" | "untilPosition">;

/** What was set at or before this position was set by a clock that was ahead by at most `aheadMs`. */
interface Mark {
  readonly untilPosition: bigint;
  readonly aheadMs: number;
}

const JUMP_MS = 1000;
const MARKS_MAX = 16;

/**
 * What the clock that may jump did, by the one that never does. By how much it is ahead of the other falls when it goes
 * back: a deadline comes when it would have come by the clock that was furthest ahead since it was set. What it did
 * before this began is told by the store alone: an event of a time that is still to come was committed before the clock
 * went back.
 */
export class ClockJumps {
  readonly #options: ClockJumpsOptions;
  /** One for each jump that deadlines were set after, oldest first: each is less far ahead than the one before. */
  #marks: Mark[] = [];
  /** The furthest ahead that the clock was seen since the last mark. */
  #aheadMs = 0;
  /** No deadline that is known of was set after it. */
  #lastPosition: bigint | undefined;
  /** Deadlines at or after it were set since this began. */
  #firstPosition: bigint | undefined;
  #hasLookedBack = false;

  constructor(options: ClockJumpsOptions) {
    this.#options = options;
  }

  /** What the clock did until now is no jump. */
  start(): void {
    this.#aheadMs = this.#nowAheadMs();
  }

  /** Parts what was set before a jump from what is set after it. Small steps back add up to a jump. */
  deadlinesSet({ decidedMs, firstPosition, lastPosition }: DeadlinesSet): void {
    const nowMs = this.#options.nowMs();
    const aheadMs = Math.max(nowMs, decidedMs) - this.#options.monotonicMs();
    // Decided later than now: the clock went back since, so these were set before that jump.
    if (decidedMs <= nowMs && this.#aheadMs - aheadMs > JUMP_MS) {
      this.#mark(firstPosition - 1n);
      this.#aheadMs = aheadMs;
    }
    this.#seen(aheadMs);
    this.#firstPosition ??= firstPosition;
    this.#lastPosition = lastPosition;
  }

  /** No deadline from before a jump is left. */
  forget(): void {
    this.#marks = [];
  }

  async look(): Promise<void> {
    this.#seen(this.#nowAheadMs());
    if (!this.#hasLookedBack) await this.#lookBack();
    if (this.#lastPosition !== undefined || !this.#hasJumped()) return;
    const lastPosition = await this.#options.store.lastPosition();
    this.#lastPosition ??= lastPosition;
  }

  /** What is due, oldest deadlines first: those from before a jump by the clock as it would be without. */
  dueAt(nowMs: number): Due[] {
    const steadyMs = this.#options.monotonicMs();
    const marks = [...this.#marks];
    if (this.#lastPosition !== undefined && this.#hasJumped()) {
      marks.push({ untilPosition: this.#lastPosition, aheadMs: this.#aheadMs });
    }
    const fromBefore = marks.map(({ untilPosition, aheadMs }) => ({
      untilMs: Math.ceil(steadyMs + aheadMs),
      untilPosition,
    }));
    return [...fromBefore, { untilMs: nowMs, untilPosition: undefined }];
  }

  async #lookBack(): Promise<void> {
    const events = await timesToCome(this.#options.store, this.#options.nowMs());
    const steadyMs = this.#options.monotonicMs();
    // As if it went back just now: by how much it went on before that is not known.
    let aheadMs = this.#options.nowMs() + JUMP_MS - steadyMs;
    const marks: Mark[] = [];
    for (const { position, timeMs } of events) {
      if (timeMs - steadyMs <= aheadMs) continue;
      aheadMs = timeMs - steadyMs;
      marks.unshift({ untilPosition: this.#beforeThis(position), aheadMs });
    }
    this.#marks.unshift(...marks);
    this.#mergeMarks();
    this.#hasLookedBack = true;
  }

  #beforeThis(position: bigint): bigint {
    const first = this.#firstPosition;
    return first === undefined || position < first ? position : first - 1n;
  }

  /** A clock that is ahead for a moment only may set deadlines then, and going back from there is a jump. */
  #seen(aheadMs: number): void {
    this.#aheadMs = Math.max(this.#aheadMs, aheadMs);
    // The clock made up for these jumps.
    this.#marks = this.#marks.filter((mark) => mark.aheadMs > this.#aheadMs);
  }

  #mark(untilPosition: bigint): void {
    this.#marks.push({ untilPosition, aheadMs: this.#aheadMs });
    this.#mergeMarks();
  }

  #mergeMarks(): void {
    while (this.#marks.length > MARKS_MAX) {
      const [oldest, next] = this.#marks;
      if (oldest === undefined || next === undefined) return;
      // What was set between the two comes earlier than it should: too early rather than too late.
      this.#marks.splice(0, 2, { ...next, aheadMs: oldest.aheadMs });
    }
  }

  #hasJumped(): boolean {
    return this.#aheadMs - this.#nowAheadMs() > JUMP_MS;
  }

  #nowAheadMs(): number {
    return this.#options.nowMs() - this.#options.monotonicMs();
  }
}

interface EventTime {
  readonly position: bigint;
  readonly timeMs: number;
}

/** Most deadlines from a time to come that are told apart. */
const FROM_THE_FUTURE_MAX = 1000;

/** Times that are still to come: of the last event, and of those that set what waits. Latest position first. */
async function timesToCome(store: DueStore, nowMs: number): Promise<EventTime[]> {
  const found = await store.listDueSetAfter(nowMs, FROM_THE_FUTURE_MAX);
  const times = found.map(({ position, setTimeMs: timeMs }) => ({ position, timeMs }));
  const lastPosition = await store.lastPosition();
  const lastMs = await store.lastEventTimeMs();
  if (lastMs !== undefined) times.push({ position: lastPosition, timeMs: lastMs });
  const [latest] = found;
  if (latest !== undefined && found.length === FROM_THE_FUTURE_MAX) {
    // Too many to tell apart: all come as early as the one that was set last.
    times.push({ position: lastPosition, timeMs: latest.setTimeMs });
  }
  return times.sort((one, other) => Number(other.position - one.position));
}
