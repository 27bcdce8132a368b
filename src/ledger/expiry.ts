import { Bell, type CommitFeed, type DeadlinesSet } from "./commit-feed.js";
import { sessionKey } from "./live-session.js";
import type { DueQuery, DueRecord, SessionRef, Store } from "./store-port.js";

/** What expiry takes from outside. */
export interface ExpiryOptions {
  readonly store: Pick<Store, "listDue" | "nextDeadlineMs" | "lastPosition">;
  /**
   * Settles these records of a session as expired if they still wait, whatever the time. Resolves to false if it could
   * not be done now.
   */
  readonly expire: (session: SessionRef, recordIds: readonly string[]) => Promise<boolean>;
  readonly commits: Pick<CommitFeed, "onDeadline">;
  /** The clock that deadlines are set by, in milliseconds since the epoch. May jump. */
  readonly nowMs: () => number;
  /** Milliseconds of a clock that never jumps. */
  readonly monotonicMs: () => number;
  /** The clock is looked at at least this often while something waits, since a timer does not see jumps. */
  readonly checkMs: number;
  /** A read of the store or `expire` threw. The next check tries again. */
  readonly onFault: (error: unknown) => void;
}

const PAGE_RECORDS = 256;

/**
 * Expires what has a deadline, without anybody asking: by one timer for the next deadline, and at the latest at the
 * check after it. What cannot be expired is tried again at each check and keeps nothing else waiting. If the clock goes
 * back, deadlines from before come as much earlier: nothing waits longer than it was given. Jumps are known while this
 * runs, not across a restart.
 */
export class Expiry {
  readonly #options: ExpiryOptions;
  readonly #jumps: ClockJumps;
  readonly #bell = new Bell();
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;
  /** A deadline before this time rings. */
  #sleepUntilMs = -Infinity;
  /** The earliest deadline that was set since the last look. */
  #toldMs = Infinity;

  constructor(options: ExpiryOptions) {
    this.#options = options;
    this.#jumps = new ClockJumps(options);
  }

  /** Begins with what fell due before. */
  start(): void {
    this.#running ??= this.#run();
  }

  /** Begins nothing more, and resolves once nothing is left running: no call of `expire`, no timer. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    const stopListening = this.#options.commits.onDeadline((set) => {
      this.#deadlinesSet(set);
    });
    this.#jumps.start();
    while (!signal.aborted) {
      this.#toldMs = Infinity;
      const sleepMs = await this.#look();
      await this.#bell.rung(sleepMs, signal);
      this.#sleepUntilMs = -Infinity;
    }
    stopListening();
  }

  #deadlinesSet(set: DeadlinesSet): void {
    this.#toldMs = Math.min(this.#toldMs, set.earliestMs);
    // Nothing waited, so nobody looked at the clock: what it did meanwhile does not concern these deadlines.
    if (this.#sleepUntilMs === Infinity) this.#jumps.start();
    this.#jumps.deadlinesSet(set);
    if (set.earliestMs >= this.#sleepUntilMs) return;
    this.#sleepUntilMs = -Infinity;
    this.#bell.ring();
  }

  /** Expires what is due. Returns how long to sleep then. */
  async #look(): Promise<number> {
    const { store, checkMs, onFault } = this.#options;
    try {
      await this.#jumps.look();
      const nowMs = this.#options.nowMs();
      const allExpired = await this.#expireDue(nowMs);
      const nextMs = await store.nextDeadlineMs();
      // With something due that stays, the check comes next: a nearer deadline would bring its retries nearer too.
      if (!allExpired || (nextMs ?? Infinity) <= nowMs) return checkMs;
      const waitsUntilMs = Math.min(nextMs ?? Infinity, this.#toldMs);
      if (waitsUntilMs === Infinity) this.#jumps.forget();
      return this.#sleepMs(waitsUntilMs);
    } catch (error) {
      onFault(error);
      return checkMs;
    }
  }

  #sleepMs(nextMs: number): number {
    this.#sleepUntilMs = nextMs;
    if (nextMs === Infinity) return Infinity;
    const nowMs = this.#options.nowMs();
    const sleepMs = Math.min(Math.max(0, nextMs - nowMs), this.#options.checkMs);
    this.#sleepUntilMs = nowMs + sleepMs;
    return sleepMs;
  }

  async #expireDue(nowMs: number): Promise<boolean> {
    let allExpired = true;
    let seenUntil = -1n;
    for (const due of this.#jumps.dueAt(nowMs)) {
      for await (const page of this.#pagesOf(due)) {
        // What was set before an earlier jump comes earlier, and so was seen.
        const unseen = page.filter(({ position }) => position > seenUntil);
        const stillDue = unseen.filter((record) => this.#isStillDue(due, record));
        if (!(await this.#expireEach(stillDue))) allExpired = false;
      }
      seenUntil = due.untilPosition ?? seenUntil;
    }
    return allExpired;
  }

  /** Not if it was set after the clock went back since the time that due records are listed by. */
  #isStillDue({ untilPosition }: Due, { timeMs }: DueRecord): boolean {
    return untilPosition !== undefined || timeMs <= this.#options.nowMs();
  }

  async *#pagesOf(due: Due): AsyncGenerator<readonly DueRecord[]> {
    let after: DueQuery["after"];
    while (!this.#stopping.signal.aborted) {
      const page = await this.#options.store.listDue({ ...due, after, limit: PAGE_RECORDS });
      yield page;
      after = page.at(-1);
      if (page.length < PAGE_RECORDS) return;
    }
  }

  async #expireEach(records: readonly DueRecord[]): Promise<boolean> {
    let allExpired = true;
    for (const { session, recordIds } of bySession(records)) {
      if (this.#stopping.signal.aborted) return false;
      if (!(await this.#tryExpire(session, recordIds))) allExpired = false;
    }
    return allExpired;
  }

  async #tryExpire(session: SessionRef, recordIds: readonly string[]): Promise<boolean> {
    try {
      return await this.#options.expire(session, recordIds);
    } catch (error) {
      this.#options.onFault(error);
      return false;
    }
  }
}

interface SessionRecords {
  readonly session: SessionRef;
  readonly recordIds: string[];
}

function bySession(records: readonly DueRecord[]): Iterable<SessionRecords> {
  const sessions = new Map<string, SessionRecords>();
  for (const { session, recordId } of records) {
    const key = sessionKey(session);
    const known = sessions.get(key);
    if (known === undefined) sessions.set(key, { session, recordIds: [recordId] });
    else known.recordIds.push(recordId);
  }
  return sessions.values();
}

type Due = Pick<DueQuery, "untilMs" | "untilPosition">;

/** What was set at or before this position was set by a clock that was ahead by at most `aheadMs`. */
interface Mark {
  readonly untilPosition: bigint;
  readonly aheadMs: number;
}

const JUMP_MS = 1000;
const MARKS_MAX = 16;

/**
 * What the clock that may jump did, by the one that never does. By how much it is ahead of the other falls when it goes
 * back: a deadline comes when it would have come by the clock that was furthest ahead since it was set.
 */
class ClockJumps {
  readonly #options: Pick<ExpiryOptions, "store" | "nowMs" | "monotonicMs">;
  /** One for each jump that deadlines were set after, oldest first: each is less far ahead than the one before. */
  #marks: Mark[] = [];
  /** The furthest ahead that the clock was seen since the last mark. */
  #aheadMs = 0;
  /** No deadline that is known of was set after it. */
  #lastPosition: bigint | undefined;

  constructor(options: Pick<ExpiryOptions, "store" | "nowMs" | "monotonicMs">) {
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
    this.#lastPosition = lastPosition;
  }

  /** No deadline from before a jump is left. */
  forget(): void {
    this.#marks = [];
  }

  async look(): Promise<void> {
    this.#seen(this.#nowAheadMs());
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

  /** A clock that is ahead for a moment only may set deadlines then, and going back from there is a jump. */
  #seen(aheadMs: number): void {
    this.#aheadMs = Math.max(this.#aheadMs, aheadMs);
    // The clock made up for these jumps.
    this.#marks = this.#marks.filter((mark) => mark.aheadMs > this.#aheadMs);
  }

  #mark(untilPosition: bigint): void {
    this.#marks.push({ untilPosition, aheadMs: this.#aheadMs });
    const [oldest, next] = this.#marks;
    if (this.#marks.length <= MARKS_MAX || oldest === undefined || next === undefined) return;
    // What was set between the two comes earlier than it should: too early rather than too late.
    this.#marks.splice(0, 2, { ...next, aheadMs: oldest.aheadMs });
  }

  #hasJumped(): boolean {
    return this.#aheadMs - this.#nowAheadMs() > JUMP_MS;
  }

  #nowAheadMs(): number {
    return this.#options.nowMs() - this.#options.monotonicMs();
  }
}
