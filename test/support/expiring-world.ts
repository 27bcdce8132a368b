import { CommitFeed } from "../../src/ledger/commit-feed.js";
import type { ExpiryOptions } from "../../src/ledger/expiry.js";
import type { DueQuery, DueRecord, SessionRef } from "../../src/ledger/store-port.js";
import { committedWrite } from "./committed-write.js";

const START_MS = 1_700_000_000_000;
export const CHECK_MS = 1000;
export const DAY_MS = 86_400_000;

/** A record that waits, when it was committed by the clock that never jumps, and what it was given. */
interface Waiting extends DueRecord {
  readonly openedAtMs: number;
  readonly lifeMs: number;
  /** When it was decided, by the clock that may jump. */
  readonly decidedMs: number;
}

type Read = "listDue" | "nextDeadlineMs" | "lastPosition" | "lastEventTimeMs" | "listDueSetAfter";

interface Expired extends Waiting {
  readonly expiredAtMs: number;
  readonly expiredAtWallMs: number;
}

/** A store of deadlines only, two clocks, and what was asked of them. */
export class ExpiringWorld {
  readonly commits = new CommitFeed();
  readonly waiting = new Map<string, Waiting>();
  readonly expired: Expired[] = [];
  readonly calls: { readonly sessionId: string; readonly recordIds: readonly string[] }[] = [];
  readonly faults: unknown[] = [];
  /** Sessions of which nothing can be expired. */
  readonly broken = new Set<string>();
  readonly brokenReads = new Set<Read>();
  aheadMs = 0;
  position = 0n;
  /** Time of the event at that position. */
  lastEventMs: number | undefined;
  reads = 0;
  callsAtOnceMax = 0;
  #callsNow = 0;

  readonly nowMs = (): number => Math.floor(START_MS + this.monotonicMs() + this.aheadMs);
  readonly monotonicMs = (): number => performance.now();

  readonly store: ExpiryOptions["store"] = {
    listDue: async (query) => this.#read("listDue", () => this.#listDue(query)),
    nextDeadlineMs: async () =>
      this.#read("nextDeadlineMs", () => {
        const timesMs = [...this.waiting.values()].map(({ timeMs }) => timeMs);
        return timesMs.length === 0 ? undefined : Math.min(...timesMs);
      }),
    lastPosition: async () => this.#read("lastPosition", () => this.position),
    lastEventTimeMs: async () => this.#read("lastEventTimeMs", () => this.lastEventMs),
    listDueSetAfter: async (timeMs, limit) =>
      this.#read("listDueSetAfter", () =>
        [...this.waiting.values()]
          .filter(({ setTimeMs }) => setTimeMs > timeMs)
          .sort((one, other) => other.setTimeMs - one.setTimeMs)
          .slice(0, limit),
      ),
  };

  #read<T>(name: Read, answer: () => T): T {
    this.reads += 1;
    if (this.brokenReads.has(name)) throw new Error(`${name} is broken`);
    return answer();
  }

  #listDue({ untilMs, untilPosition, after, limit }: DueQuery): DueRecord[] {
    const isAfter = ({ timeMs, position }: DueRecord): boolean =>
      after === undefined ||
      timeMs > after.timeMs ||
      (timeMs === after.timeMs && position > after.position);
    return [...this.waiting.values()]
      .filter(({ timeMs }) => timeMs <= untilMs)
      .filter(({ position }) => untilPosition === undefined || position <= untilPosition)
      .filter(isAfter)
      .sort((a, b) => a.timeMs - b.timeMs || Number(a.position - b.position))
      .slice(0, limit);
  }

  readonly expire = async (session: SessionRef, recordIds: readonly string[]): Promise<boolean> => {
    this.#callsNow += 1;
    this.callsAtOnceMax = Math.max(this.callsAtOnceMax, this.#callsNow);
    this.calls.push({ sessionId: session.sessionId, recordIds });
    await Promise.resolve();
    this.#callsNow -= 1;
    if (this.broken.has(session.sessionId)) return false;
    for (const recordId of recordIds) this.#settle(recordId);
    return true;
  };

  #settle(recordId: string): void {
    const record = this.waiting.get(recordId);
    if (record === undefined) return;
    this.waiting.delete(recordId);
    const expiredAtMs = this.monotonicMs();
    this.expired.push({ ...record, expiredAtMs, expiredAtWallMs: this.nowMs() });
  }

  /** Commits a record that waits. */
  open(lifeMs: number, sessionId = "ses_1"): string {
    return this.decide(lifeMs, sessionId)();
  }

  /** Decides on a record that waits. Returns how to commit it. */
  decide(lifeMs: number, sessionId = "ses_1"): () => string {
    const decidedMs = this.nowMs();
    return () => {
      this.position += 1n;
      const { position } = this;
      const recordId = `rec_${position}`;
      const session = { tenant: "default", sessionId };
      const timeMs = decidedMs + lifeMs;
      const openedAtMs = this.monotonicMs();
      const due = { session, recordId, timeMs, position, setTimeMs: decidedMs };
      const record = { ...due, openedAtMs, lifeMs, decidedMs };
      this.waiting.set(recordId, record);
      this.lastEventMs = decidedMs;
      const event = { deadline: { timeMs }, position, timeMs: decidedMs };
      this.commits.publish([committedWrite("default", sessionId, [event])]);
      return recordId;
    };
  }

  options(checkMs = CHECK_MS): ExpiryOptions {
    const { store, expire, commits, nowMs, monotonicMs } = this;
    const onFault = (error: unknown): void => void this.faults.push(error);
    return { store, expire, commits, nowMs, monotonicMs, checkMs, onFault };
  }

  expiredIds(): string[] {
    return this.expired.map(({ recordId }) => recordId);
  }
}

/** What waits longer than it was given, or longer than to the next check by the clock as it stands. */
export function lateOf({ waiting, broken, ...clocks }: ExpiringWorld): string[] {
  const slackMs = CHECK_MS + 2;
  return [...waiting.values()]
    .filter(({ session }) => !broken.has(session.sessionId))
    .filter(({ openedAtMs, lifeMs }) => clocks.monotonicMs() > openedAtMs + lifeMs + slackMs)
    .map(({ recordId }) => recordId);
}
