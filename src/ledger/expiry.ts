import { ClockJumps, type Due, type DueStore } from "./clock-jumps.js";
import { Bell } from "./bell.js";
import type { CommitFeed, DeadlinesSet } from "./commit-feed.js";
import { sessionKey } from "./live-session.js";
import type { DueQuery, DueRecord, SessionRef } from "./store-port.js";

/** What expiry takes from outside. */
export interface ExpiryOptions {
  readonly store: DueStore;
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
 * back, deadlines from before come as much earlier: nothing waits longer than it was given, as far as this ran. Across
 * a restart the times of what was committed tell of it, see `ClockJumps`.
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
