import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Expiry, type ExpiryOptions } from "../../src/ledger/expiry.js";
import type { DueQuery, DueRecord } from "../../src/ledger/store-port.js";
import { CHECK_MS, DAY_MS, ExpiringWorld, lateOf } from "../support/expiring-world.js";

const MINUTE_MS = 60_000;

let world: ExpiringWorld;
let running: Expiry[];

beforeEach(() => {
  vi.useFakeTimers();
  world = new ExpiringWorld();
  running = [];
});

afterEach(async () => {
  await Promise.all(running.map((expiry) => expiry.stop()));
  expect(vi.getTimerCount()).toBe(0);
  expect(world.commits.subscribers).toBe(0);
  vi.useRealTimers();
});

async function startExpiry(options = world.options()): Promise<Expiry> {
  const expiry = new Expiry(options);
  running.push(expiry);
  expiry.start();
  await pass(0);
  return expiry;
}

/** Lets time pass on both clocks. */
async function pass(timeMs: number): Promise<void> {
  await vi.advanceTimersByTimeAsync(timeMs);
}

describe("expiry", () => {
  test("begins with what fell due before it started", async () => {
    const due = world.open(1000);
    const later = world.open(60_000);
    await pass(DAY_MS / 24 / 60 / 2);
    await startExpiry();
    expect(world.expiredIds()).toEqual([due]);
    expect([...world.waiting.keys()]).toEqual([later]);
  });

  test("expires at the deadline, not before", async () => {
    await startExpiry(world.options(DAY_MS));
    const first = world.open(300);
    const second = world.open(5000);
    await pass(299);
    expect(world.expired).toEqual([]);
    await pass(1);
    expect(world.expiredIds()).toEqual([first]);
    await pass(4699);
    expect(world.expiredIds()).toEqual([first]);
    await pass(1);
    expect(world.expiredIds()).toEqual([first, second]);
  });

  test("goes on after a restart", async () => {
    const before = await startExpiry();
    const recordId = world.open(5000);
    await before.stop();
    await pass(4000);
    await startExpiry();
    await pass(999);
    expect(world.expired).toEqual([]);
    await pass(1);
    expect(world.expiredIds()).toEqual([recordId]);
  });

  test("has no timer and reads nothing while nothing waits", async () => {
    await startExpiry();
    const { reads } = world;
    expect(vi.getTimerCount()).toBe(0);
    await pass(DAY_MS);
    expect(world.reads).toBe(reads);
    const recordId = world.open(500);
    await pass(500);
    expect(world.expiredIds()).toEqual([recordId]);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("is woken by an earlier deadline, not by a later one", async () => {
    await startExpiry(world.options(DAY_MS));
    const last = world.open(60_000);
    await pass(0);
    const { reads } = world;
    const later = world.open(70_000);
    await pass(0);
    expect(world.reads).toBe(reads);
    const earlier = world.open(10);
    await pass(10);
    expect(world.expiredIds()).toEqual([earlier]);
    await pass(70_000);
    expect(world.expiredIds()).toEqual([earlier, last, later]);
  });

  test("reads at most once a check while deadlines come and go that are further away", async () => {
    await startExpiry();
    world.open(DAY_MS);
    await pass(0);
    const { reads } = world;
    for (let count = 0; count < 1000; count += 1) {
      world.waiting.delete(world.open(60_000));
      await pass(10);
    }
    expect(world.reads - reads).toBeLessThanOrEqual(2 * 10);
  });

  test("does not miss a deadline that is set while it looks", async () => {
    const options = world.options(DAY_MS);
    let recordId = "";
    const nextDeadlineMs = async (): Promise<number | undefined> => {
      const nextMs = await world.store.nextDeadlineMs();
      if (recordId === "") recordId = world.open(50);
      return nextMs;
    };
    await startExpiry({ ...options, store: { ...world.store, nextDeadlineMs } });
    await pass(50);
    expect(world.expiredIds()).toEqual([recordId]);
  });

  test("does not keep the process alive", async () => {
    const started = vi.spyOn(globalThis, "setTimeout");
    await startExpiry();
    world.open(5000);
    await pass(3000);
    const timers = started.mock.results.map(({ value }) => value as NodeJS.Timeout);
    expect(timers.length).toBeGreaterThan(2);
    expect(timers.filter((timer) => timer.hasRef())).toEqual([]);
  });

  test("takes due records in pages and each session alone", async () => {
    for (let count = 0; count < 600; count += 1) world.open(1, `ses_${count % 3}`);
    await pass(1);
    const limits: number[] = [];
    const listDue = async (query: DueQuery): Promise<DueRecord[]> => {
      limits.push(query.limit);
      return world.store.listDue(query);
    };
    await startExpiry({ ...world.options(), store: { ...world.store, listDue } });
    expect(world.expired).toHaveLength(600);
    expect(limits).toEqual([256, 256, 256]);
    expect(world.callsAtOnceMax).toBe(1);
    const sizes = world.calls.map(({ sessionId, recordIds }) => [sessionId, recordIds.length]);
    expect(sizes.slice(0, 3)).toEqual([
      ["ses_0", 86],
      ["ses_1", 85],
      ["ses_2", 85],
    ]);
    expect(sizes).toHaveLength(9);
  });
});

describe("what cannot be expired", () => {
  test("keeps nothing else waiting, also over pages", async () => {
    for (let count = 0; count < 300; count += 1) world.open(1, "ses_broken");
    const other = world.open(2, "ses_1");
    world.broken.add("ses_broken");
    await pass(2);
    await startExpiry();
    expect(world.expiredIds()).toEqual([other]);
  });

  test("is tried again once a check, also while other deadlines come", async () => {
    world.open(1, "ses_broken");
    world.broken.add("ses_broken");
    await pass(1);
    await startExpiry();
    const tries = (): number =>
      world.calls.filter(({ sessionId }) => sessionId === "ses_broken").length;
    expect(tries()).toBe(1);
    await pass(CHECK_MS - 1);
    expect(tries()).toBe(1);
    await pass(1);
    expect(tries()).toBe(2);
    for (let count = 0; count < 1000; count += 1) {
      world.open(5);
      await pass(10);
    }
    expect(tries()).toBe(12);
    expect(world.expired.length).toBeGreaterThanOrEqual(900);
    world.broken.clear();
    await pass(CHECK_MS);
    expect(world.waiting.size).toBe(0);
  });

  test("does not spin when it was said to be expired and still waits", async () => {
    world.open(1);
    await pass(1);
    const expire = vi.fn(async () => Promise.resolve(true));
    await startExpiry({ ...world.options(), expire });
    await pass(5 * CHECK_MS);
    expect(expire).toHaveBeenCalledTimes(6);
  });

  test("is told as a fault if expiring throws, and the others go on", async () => {
    world.open(1, "ses_broken");
    const other = world.open(1, "ses_1");
    await pass(1);
    const fault = new Error("broken");
    const expire: ExpiryOptions["expire"] = async (session, recordIds) => {
      if (session.sessionId === "ses_broken") throw fault;
      return world.expire(session, recordIds);
    };
    await startExpiry({ ...world.options(), expire });
    expect(world.expiredIds()).toEqual([other]);
    await pass(CHECK_MS);
    expect(world.faults).toEqual([fault, fault]);
  });

  test.each(["listDue", "nextDeadlineMs"] as const)(
    "because %s throws is told as a fault and tried at the next check",
    async (name) => {
      world.brokenReads.add(name);
      const recordId = world.open(1);
      await pass(1);
      await startExpiry();
      await pass(CHECK_MS);
      expect(world.faults).toHaveLength(2);
      world.brokenReads.clear();
      await pass(CHECK_MS);
      expect(world.expiredIds()).toEqual([recordId]);
      expect(world.faults).toHaveLength(2);
    },
  );
});

describe("a clock that goes forward", () => {
  test("expires at the next check what is due by it", async () => {
    await startExpiry();
    const recordId = world.open(DAY_MS);
    await pass(100);
    world.aheadMs += 400 * DAY_MS;
    await pass(CHECK_MS);
    expect(world.expiredIds()).toEqual([recordId]);
  });
});

describe("a clock that goes back", () => {
  test("gives no deadline from before more time", async () => {
    await startExpiry();
    const recordId = world.open(5000);
    await pass(2000);
    world.aheadMs -= 400 * DAY_MS;
    await pass(2999);
    expect(world.expired).toEqual([]);
    await pass(1 + CHECK_MS);
    expect(world.expiredIds()).toEqual([recordId]);
  });

  test("takes no time from deadlines set after it was seen", async () => {
    await startExpiry();
    const before = world.open(60_000);
    await pass(100);
    world.aheadMs -= 30_000;
    await pass(CHECK_MS);
    const after = world.open(5000);
    await pass(4999);
    expect(world.expired).toEqual([]);
    await pass(1);
    expect(world.expiredIds()).toEqual([after]);
    await pass(60_000 - 6100 + CHECK_MS);
    expect(world.expiredIds()).toEqual([after, before]);
  });

  test("takes no time from a deadline that is set right after", async () => {
    await startExpiry();
    const before = world.open(20 * MINUTE_MS);
    await pass(100);
    world.aheadMs -= 60 * MINUTE_MS;
    const after = world.open(10 * MINUTE_MS);
    await pass(10 * MINUTE_MS - 1);
    expect(world.expired).toEqual([]);
    await pass(1);
    expect(world.expiredIds()).toEqual([after]);
    await pass(10 * MINUTE_MS - 100 + CHECK_MS);
    expect(world.expiredIds()).toEqual([after, before]);
  });

  test("takes no time from a deadline that is set while what was due is listed", async () => {
    const { store, ...options } = world.options();
    let after = "";
    const listDue = async (query: DueQuery): Promise<DueRecord[]> => {
      if (after === "" && world.monotonicMs() >= startMs + 100) {
        world.aheadMs -= 60 * MINUTE_MS;
        after = world.open(10 * MINUTE_MS);
      }
      return store.listDue(query);
    };
    const startMs = world.monotonicMs();
    await startExpiry({ ...options, store: { ...store, listDue } });
    const before = world.open(100);
    await pass(100 + CHECK_MS);
    expect(world.expiredIds()).toEqual([before]);
    await pass(10 * MINUTE_MS - CHECK_MS - 1);
    expect(world.expiredIds()).toEqual([before]);
    await pass(1);
    expect(world.expiredIds()).toEqual([before, after]);
  });

  test("several times between two looks leaves each deadline the time that it was given", async () => {
    await startExpiry();
    const opened: string[] = [];
    for (let jump = 0; jump < 5; jump += 1) {
      opened.push(world.open(30_000 - 2 * CHECK_MS * jump));
      await pass(10);
      world.aheadMs -= 100_000;
    }
    await pass(30_000 - 8 * CHECK_MS + CHECK_MS);
    for (let count = 1; count <= 5; count += 1) {
      expect(world.expiredIds()).toEqual(opened.toReversed().slice(0, count));
      await pass(2 * CHECK_MS);
    }
  });

  test.each([
    ["before it was seen", 10],
    ["after it was seen", 2 * CHECK_MS],
  ])("during a commit gives what was decided before no more time, told %s", async (_, commitMs) => {
    await startExpiry();
    world.open(40 * MINUTE_MS);
    await pass(100);
    const commit = world.decide(10 * MINUTE_MS);
    world.aheadMs -= 60 * MINUTE_MS;
    await pass(commitMs);
    const decidedBefore = commit();
    const after = world.open(20 * MINUTE_MS);
    await pass(10 * MINUTE_MS - commitMs - 1);
    expect(world.expired).toEqual([]);
    await pass(1 + CHECK_MS);
    expect(world.expiredIds()).toEqual([decidedBefore]);
    await pass(10 * MINUTE_MS - CHECK_MS + commitMs - 1);
    expect(world.expiredIds()).toEqual([decidedBefore]);
    await pass(1);
    expect(world.expiredIds()).toEqual([decidedBefore, after]);
  });

  test("during the first commit with a deadline gives it no more time", async () => {
    await startExpiry();
    const commit = world.decide(5000);
    world.aheadMs -= 60 * MINUTE_MS;
    const recordId = commit();
    await pass(5000 + CHECK_MS);
    expect(world.expiredIds()).toEqual([recordId]);
  });

  test("during a commit that is told while a look finds nothing is not forgotten", async () => {
    const { store, ...options } = world.options();
    let recordId = "";
    const nextDeadlineMs = async (): Promise<number | undefined> => {
      const nextMs = await store.nextDeadlineMs();
      if (recordId !== "") return nextMs;
      const commit = world.decide(5000);
      world.aheadMs -= 60 * MINUTE_MS;
      recordId = commit();
      world.open(60 * MINUTE_MS);
      return nextMs;
    };
    await startExpiry({ ...options, store: { ...store, nextDeadlineMs } });
    await pass(5000 + CHECK_MS);
    expect(world.expiredIds()).toEqual([recordId]);
  });

  test("during a commit that is not stored takes nothing from what is set in its place", async () => {
    await startExpiry();
    world.open(60 * MINUTE_MS);
    await pass(100);
    const commit = world.decide(10 * MINUTE_MS);
    world.aheadMs -= 60 * MINUTE_MS;
    world.waiting.delete(commit());
    world.position -= 1n;
    const after = world.open(10 * MINUTE_MS);
    await pass(10 * MINUTE_MS - 1);
    expect(world.expired).toEqual([]);
    await pass(1);
    expect(world.expiredIds()).toEqual([after]);
  });

  test("by a second is no jump, and by small steps is one", async () => {
    await startExpiry();
    const recordId = world.open(10_000);
    await pass(100);
    world.aheadMs -= 1000;
    await pass(10_899);
    expect(world.expired).toEqual([]);
    await pass(1);
    expect(world.expiredIds()).toEqual([recordId]);
    const stepped = world.open(60_000);
    for (let step = 0; step < 20; step += 1) {
      await pass(CHECK_MS);
      world.aheadMs -= 900;
    }
    await pass(40_000 + 2 * CHECK_MS);
    expect(world.expiredIds()).toEqual([recordId, stepped]);
  });

  test("several times counts each deadline with what came after it", async () => {
    await startExpiry();
    const opened: string[] = [];
    for (let jump = 0; jump < 5; jump += 1) {
      opened.push(world.open(30_000));
      await pass(1000);
      world.aheadMs -= 100_000;
      await pass(1000);
    }
    await pass(30_000 - 10_000 - 1);
    expect(world.expired).toEqual([]);
    for (const recordId of opened) {
      await pass(recordId === opened[0] ? 1 + CHECK_MS : 2000);
      expect(world.expired.at(-1)!.recordId).toBe(recordId);
    }
  });

  test("more often than is remembered expires too early rather than too late", async () => {
    await startExpiry();
    for (let jump = 0; jump < 25; jump += 1) {
      world.open(60_000);
      await pass(CHECK_MS);
      world.aheadMs -= 2000;
    }
    await pass(CHECK_MS);
    const last = world.open(60_000);
    for (let second = 0; second < 59; second += 1) {
      await pass(1000);
      expect(lateOf(world)).toEqual([]);
    }
    expect([...world.waiting.keys()]).toEqual([last]);
    await pass(1000);
    expect(world.waiting.size).toBe(0);
  });

  /** How many reads the next look takes. */
  async function readsOfLook(): Promise<number> {
    const { reads } = world;
    await pass(CHECK_MS);
    return world.reads - reads;
  }

  test("costs a read at each look, at most 16, until what waited then has ended", async () => {
    await startExpiry();
    world.open(DAY_MS);
    await pass(0);
    expect(await readsOfLook()).toBe(2);
    for (let jump = 0; jump < 20; jump += 1) {
      world.aheadMs -= 2000;
      await pass(CHECK_MS);
      expect(await readsOfLook()).toBe(2 + Math.min(jump + 1, 17));
      world.open(DAY_MS);
    }
    expect(await readsOfLook()).toBe(2 + 16);
    world.waiting.clear();
    await pass(CHECK_MS);
    world.open(DAY_MS);
    await pass(0);
    expect(await readsOfLook()).toBe(2);
  });

  test("and forward again costs nothing more, and gives no deadline more time", async () => {
    await startExpiry();
    const first = world.open(30_000);
    await pass(0);
    const before = await readsOfLook();
    world.aheadMs -= 10_000;
    const second = world.open(60_000);
    expect(await readsOfLook()).toBe(before + 1);
    world.aheadMs += 20_000;
    expect(await readsOfLook()).toBe(before);
    world.aheadMs -= 15_000;
    await pass(30_000 - 3 * CHECK_MS - 10_000);
    expect(world.expiredIds()).toEqual([first]);
    await pass(21_000 + CHECK_MS);
    expect(world.expiredIds()).toEqual([first, second]);
  });

  test("while nothing waits takes nothing from the first deadline after it", async () => {
    await startExpiry();
    await pass(1000);
    world.aheadMs -= DAY_MS;
    await pass(1000);
    const recordId = world.open(5000);
    await pass(4999);
    expect(world.expired).toEqual([]);
    await pass(1);
    expect(world.expiredIds()).toEqual([recordId]);
  });

  test("right after it went forward counts for a deadline set in between", async () => {
    await startExpiry();
    world.open(60_000);
    await pass(100);
    world.aheadMs += 50_000;
    const inBetween = world.open(5000);
    world.aheadMs -= 50_000;
    await pass(5000 + CHECK_MS);
    expect(world.expiredIds()).toContain(inBetween);
  });

  test("right after it went forward counts for a deadline that was decided in between", async () => {
    await startExpiry();
    world.open(60 * MINUTE_MS);
    await pass(100);
    world.aheadMs += 50 * MINUTE_MS;
    const commit = world.decide(5000);
    world.aheadMs -= 50 * MINUTE_MS;
    const inBetween = commit();
    const after = world.open(5000);
    await pass(5000 - 1);
    expect(world.expired).toEqual([]);
    await pass(1 + CHECK_MS);
    expect(world.expiredIds().sort()).toEqual([inBetween, after]);
  });

  test("is not forgotten when the store cannot be read then", async () => {
    const recordId = world.open(5000);
    await startExpiry();
    await pass(100);
    world.brokenReads.add("lastPosition");
    world.aheadMs -= DAY_MS;
    await pass(2 * CHECK_MS);
    expect(world.faults.length).toBeGreaterThan(0);
    world.brokenReads.clear();
    await pass(3000 + CHECK_MS);
    expect(world.expiredIds()).toEqual([recordId]);
  });

  test("tries what cannot be expired once a check, also while other deadlines come", async () => {
    await startExpiry();
    world.broken.add("ses_broken");
    world.open(25_000, "ses_broken");
    const tries = (): number =>
      world.calls.filter(({ sessionId }) => sessionId === "ses_broken").length;
    for (let jump = 0; jump < 3; jump += 1) {
      await pass(CHECK_MS);
      world.aheadMs -= 5000;
    }
    await pass(22_000 + CHECK_MS);
    const triesBefore = tries();
    expect(triesBefore).toBeLessThanOrEqual(2);
    for (let count = 0; count < 2000; count += 1) {
      world.open(5);
      await pass(10);
    }
    expect(tries() - triesBefore).toBe(20);
  });
});

describe("stopping", () => {
  test("before the start ends nothing and starts nothing", async () => {
    const expiry = new Expiry(world.options());
    await expiry.stop();
    expiry.start();
    await pass(0);
    expect(world.reads).toBe(0);
  });

  test("leaves no timer and expires nothing more", async () => {
    const expiry = await startExpiry();
    world.open(500);
    await pass(100);
    expect(vi.getTimerCount()).toBe(1);
    await expiry.stop();
    expect(vi.getTimerCount()).toBe(0);
    world.open(1);
    await pass(DAY_MS);
    expect(world.expired).toEqual([]);
  });

  test("waits for what is being expired, and begins with no other session", async () => {
    world.open(1, "ses_1");
    world.open(1, "ses_2");
    await pass(1);
    let finish = (): void => undefined;
    const begun: string[] = [];
    const expire: ExpiryOptions["expire"] = ({ sessionId }) => {
      begun.push(sessionId);
      return new Promise((resolve) => {
        finish = () => {
          resolve(true);
        };
      });
    };
    const expiry = await startExpiry({ ...world.options(), expire });
    const stopped = vi.fn();
    const stopping = expiry.stop().then(stopped);
    await pass(10 * CHECK_MS);
    expect(stopped).not.toHaveBeenCalled();
    finish();
    await stopping;
    expect(begun).toEqual(["ses_1"]);
  });
});
