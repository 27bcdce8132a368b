import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Expiry } from "../../src/ledger/expiry.js";
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

describe("a clock that went back while nothing ran", () => {
  /** Ends an expiry, lets the clock go back, and starts another. */
  async function restart(before: Expiry, backMs: number): Promise<Expiry> {
    await before.stop();
    world.aheadMs -= backMs;
    return startExpiry();
  }

  test("is known by the last event, and gives no deadline more time than it had then", async () => {
    const before = await startExpiry();
    const recordId = world.open(10 * MINUTE_MS);
    await pass(6 * MINUTE_MS);
    const later = world.open(20 * MINUTE_MS);
    await restart(before, 400 * DAY_MS);
    await pass(4 * MINUTE_MS - 1);
    expect(world.expired).toEqual([]);
    await pass(1 + CHECK_MS);
    expect(world.expiredIds()).toEqual([recordId]);
    await pass(16 * MINUTE_MS);
    expect(world.expiredIds()).toEqual([recordId, later]);
  });

  test("is known by a last event that set nothing which still waits", async () => {
    const before = await startExpiry();
    const recordId = world.open(10 * MINUTE_MS);
    await pass(6 * MINUTE_MS);
    world.waiting.delete(world.open(DAY_MS));
    await restart(before, 3 * MINUTE_MS);
    await pass(4 * MINUTE_MS - 1);
    expect(world.expired).toEqual([]);
    await pass(1 + CHECK_MS);
    expect(world.expiredIds()).toEqual([recordId]);
  });

  test("takes no time from deadlines set since", async () => {
    const before = await startExpiry();
    world.open(60 * MINUTE_MS);
    await restart(before, DAY_MS);
    const after = world.open(10 * MINUTE_MS);
    await pass(10 * MINUTE_MS - 1);
    expect(world.expired).toEqual([]);
    await pass(1);
    expect(world.expiredIds()).toEqual([after]);
  });

  test("takes no time from a deadline that is set before the first look", async () => {
    const old = world.open(60 * MINUTE_MS);
    world.aheadMs -= DAY_MS;
    const { store, ...options } = world.options();
    let after = "";
    const lastEventTimeMs = async (): Promise<number | undefined> => {
      const lastMs = await store.lastEventTimeMs();
      if (after === "") after = world.open(10 * MINUTE_MS);
      return lastMs;
    };
    await startExpiry({ ...options, store: { ...store, lastEventTimeMs } });
    await pass(10 * MINUTE_MS - 1);
    expect(world.expired).toEqual([]);
    await pass(1);
    expect(world.expiredIds()).toEqual([after]);
    await pass(50 * MINUTE_MS + CHECK_MS);
    expect(world.expiredIds()).toEqual([after, old]);
  });

  test("or before other events were committed, is known by the events that set deadlines", async () => {
    const before = await startExpiry();
    const ahead = world.open(10 * MINUTE_MS);
    await pass(CHECK_MS);
    world.aheadMs -= 400 * DAY_MS;
    const after = world.open(20 * MINUTE_MS);
    await restart(before, 0);
    await pass(10 * MINUTE_MS - 1);
    expect(world.expired).toEqual([]);
    await pass(1 + CHECK_MS);
    expect(world.expiredIds()).toEqual([ahead]);
    await pass(10 * MINUTE_MS);
    expect(world.expiredIds()).toEqual([ahead, after]);
  });

  test("several times is known by as many events", async () => {
    const before = await startExpiry();
    const opened: string[] = [];
    for (let jump = 0; jump < 20; jump += 1) {
      opened.push(world.open((30 - jump) * MINUTE_MS));
      world.aheadMs -= DAY_MS;
    }
    await restart(before, 0);
    for (let minute = 0; minute < 30; minute += 1) {
      await pass(MINUTE_MS);
      expect(lateOf(world)).toEqual([]);
    }
    await pass(CHECK_MS);
    expect(world.expiredIds().sort()).toEqual(opened.sort());
  });

  test("by a second is no jump", async () => {
    const before = await startExpiry();
    const recordId = world.open(10_000);
    await restart(before, 1000);
    await pass(10_999);
    expect(world.expired).toEqual([]);
    await pass(1);
    expect(world.expiredIds()).toEqual([recordId]);
  });

  test.each(["lastEventTimeMs", "listDueSetAfter", "lastPosition"] as const)(
    "is not forgotten when %s fails at first",
    async (name) => {
      const recordId = world.open(5000);
      world.brokenReads.add(name);
      world.aheadMs -= DAY_MS;
      await startExpiry();
      expect(world.faults).toHaveLength(1);
      world.brokenReads.clear();
      await pass(5000 + CHECK_MS);
      expect(world.expiredIds()).toEqual([recordId]);
    },
  );
});
