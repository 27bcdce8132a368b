import { Bell, type CommitFeed } from "./commit-feed.js";
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
  readonly commits: CommitFeed;
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
    const stopListening = this.#options.commits.onDeadline((timeMs) => {
      this.#deadlineSet(timeMs);
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

  #deadlineSet(timeMs: number): void {
    this.#toldMs = Math.min(this.#toldMs, timeMs);
    this.#jumps.deadlineSet();
    if (timeMs >= this.#sleepUntilMs) return;
    // Nothing waited, so nobody looked at the clock: what it did meanwhile does not concern this deadline.
    if (this.#sleepUntilMs === Infinity) this.#jumps.start();
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
      if (nextMs === undefined) this.#jumps.forget();
      return this.#sleepMs(Math.min(nextMs ?? Infinity, this.#toldMs));
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
        // What was set before an earlier jump counted with more, and so was seen.
        const unseen = page.filter(({ position }) => position > seenUntil);
        if (!(await this.#expireEach(unseen))) allExpired = false;
      }
      seenUntil = due.untilPosition ?? seenUntil;
    }
    return allExpired;
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

/** The clock went back by `backMs` after this position was committed. */
interface Jump {
  readonly untilPosition: bigint;
  readonly backMs: number;
}

const JUMP_MS = 1000;
const JUMPS_MAX = 16;

/** What the clock that may jump did, by the one that never does. */
class ClockJumps {
  readonly #options: Pick<ExpiryOptions, "store" | "nowMs" | "monotonicMs">;
  /** Oldest first: positions never fall. */
  #jumps: Jump[] = [];
  /** By how much the one clock is ahead of the other: the most since it last went back. */
  #aheadMs = 0;

  constructor(options: Pick<ExpiryOptions, "store" | "nowMs" | "monotonicMs">) {
    this.#options = options;
  }

  /** What the clock did until now is no jump. */
  start(): void {
    this.#aheadMs = this.#nowAheadMs();
  }

  /** A deadline may come of a clock that is ahead for a moment only: going back from there is a jump. */
  deadlineSet(): void {
    this.#aheadMs = Math.max(this.#aheadMs, this.#nowAheadMs());
  }

  /** No deadline from before a jump is left. */
  forget(): void {
    this.#jumps = [];
  }

  /** Notices a jump since the last look. Small steps back add up to one. */
  async look(): Promise<void> {
    const aheadMs = this.#nowAheadMs();
    const backMs = Math.ceil(this.#aheadMs - aheadMs);
    if (backMs > JUMP_MS) {
      this.#add({ untilPosition: await this.#options.store.lastPosition(), backMs });
    }
    if (backMs > JUMP_MS || aheadMs > this.#aheadMs) this.#aheadMs = aheadMs;
  }

  /** What is due, oldest deadlines first: those from before a jump count with all that the clock went back since. */
  dueAt(nowMs: number): Due[] {
    let untilMs = nowMs;
    const newestFirst: Due[] = [{ untilMs, untilPosition: undefined }];
    for (const { untilPosition, backMs } of this.#jumps.toReversed()) {
      untilMs += backMs;
      newestFirst.push({ untilMs, untilPosition });
    }
    return newestFirst.toReversed();
  }

  #add(jump: Jump): void {
    this.#jumps.push(jump);
    const [oldest, next] = this.#jumps;
    if (this.#jumps.length <= JUMPS_MAX || oldest === undefined || next === undefined) return;
    // What was set between the two counts with more than it should: it expires too early rather than too late.
    const merged = { ...next, backMs: oldest.backMs + next.backMs };
    this.#jumps.splice(0, 2, merged);
  }

  #nowAheadMs(): number {
    return this.#options.nowMs() - this.#options.monotonicMs();
  }
}
