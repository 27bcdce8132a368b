import { getEventListeners } from "node:events";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Bell, CommitFeed } from "../../src/ledger/commit-feed.js";
import type { CommandWrite } from "../../src/ledger/store-port.js";
import { committedWrite, OPEN_ASK } from "../support/committed-write.js";

function askWrite(tenant: string, sessionId: string): CommandWrite {
  return committedWrite(tenant, sessionId, [{ ask: OPEN_ASK }]);
}

function deadlineWrite(...timesMs: (number | undefined)[]): CommandWrite {
  return committedWrite(
    "a",
    "ses_1",
    timesMs.map((timeMs) => ({ deadline: { timeMs } })),
  );
}

describe("a commit feed", () => {
  test("wakes the session's and the tenant's watchers, nobody else", () => {
    const feed = new CommitFeed();
    const woken: string[] = [];
    const topics: [tenant: string, sessionId: string | undefined][] = [
      ["a", "ses_1"],
      ["a", "ses_2"],
      ["a", undefined],
      ["b", "ses_1"],
      ["b", undefined],
      ["1:a", undefined],
      ["", "ases_1"],
    ];
    for (const [tenant, sessionId] of topics) {
      feed.onAsksChanged({ tenant, sessionId }, () => woken.push(`${tenant}/${sessionId ?? "*"}`));
    }
    feed.publish([askWrite("a", "ses_1")]);
    expect(woken.sort()).toEqual(["a/*", "a/ses_1"]);
  });

  test("wakes once for a commit", () => {
    const feed = new CommitFeed();
    const wake = vi.fn();
    feed.onAsksChanged({ tenant: "a", sessionId: undefined }, wake);
    feed.publish([askWrite("a", "ses_1"), askWrite("a", "ses_1"), askWrite("a", "ses_2")]);
    expect(wake).toHaveBeenCalledTimes(1);
  });

  test("wakes nobody for events of other records", () => {
    const feed = new CommitFeed();
    const wake = vi.fn();
    feed.onAsksChanged({ tenant: "a", sessionId: "ses_1" }, wake);
    feed.onAsksChanged({ tenant: "a", sessionId: undefined }, wake);
    feed.onDeadline(wake);
    feed.publish([committedWrite("a", "ses_1", [{}]), committedWrite("a", "ses_1", [])]);
    expect(wake).not.toHaveBeenCalled();
  });

  test("tells the earliest deadline of a commit, and none that ended", () => {
    const feed = new CommitFeed();
    const told: number[] = [];
    feed.onDeadline((timeMs) => told.push(timeMs));
    feed.publish([deadlineWrite(300, undefined), deadlineWrite(200, 400), askWrite("a", "ses_1")]);
    feed.publish([deadlineWrite(undefined)]);
    expect(told).toEqual([200]);
  });

  test("keeps nothing of who stopped", () => {
    const feed = new CommitFeed();
    const wake = vi.fn();
    const topic = { tenant: "a", sessionId: "ses_1" };
    const stops = [
      feed.onAsksChanged(topic, wake),
      feed.onAsksChanged(topic, wake),
      feed.onAsksChanged({ tenant: "a", sessionId: undefined }, wake),
      feed.onDeadline(wake),
      feed.onDeadline(wake),
    ];
    expect(feed.subscribers).toBe(5);
    stops[0]!();
    stops[0]!();
    expect(feed.subscribers).toBe(4);
    feed.publish([askWrite("a", "ses_1")]);
    expect(wake).toHaveBeenCalledTimes(2);
    for (const stop of stops) stop();
    expect(feed.subscribers).toBe(0);
    feed.publish([askWrite("a", "ses_1"), deadlineWrite(1)]);
    expect(wake).toHaveBeenCalledTimes(2);
  });

  test("lets a second stop not end who came after", () => {
    const feed = new CommitFeed();
    const wake = vi.fn();
    const topic = { tenant: "a", sessionId: "ses_1" };
    const stop = feed.onAsksChanged(topic, () => undefined);
    stop();
    feed.onAsksChanged(topic, wake);
    stop();
    feed.publish([askWrite("a", "ses_1")]);
    expect(wake).toHaveBeenCalledTimes(1);
  });

  test("lets who is woken stop at once", () => {
    const feed = new CommitFeed();
    const topic = { tenant: "a", sessionId: "ses_1" };
    const woken: number[] = [];
    for (const index of [0, 1, 2]) {
      const stop = feed.onAsksChanged(topic, () => {
        woken.push(index);
        stop();
      });
    }
    feed.publish([askWrite("a", "ses_1")]);
    expect(woken).toEqual([0, 1, 2]);
    expect(feed.subscribers).toBe(0);
  });

  test("looks at nothing when nobody listens", () => {
    const write = {
      get events(): never {
        throw new Error("looked at");
      },
    } as unknown as CommandWrite;
    const feed = new CommitFeed();
    feed.publish([write]);
    feed.onAsksChanged({ tenant: "a", sessionId: "ses_1" }, () => undefined)();
    feed.onDeadline(() => undefined)();
    feed.publish([write]);
    feed.onDeadline(() => undefined);
    expect(() => {
      feed.publish([write]);
    }).toThrow("looked at");
  });
});

describe("a bell", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });

  afterEach(() => {
    expect(vi.getTimerCount()).toBe(0);
    vi.useRealTimers();
  });

  test("wakes who waits", async () => {
    const bell = new Bell();
    const rung = bell.rung(1000);
    bell.ring();
    expect(await rung).toBe(true);
  });

  test("wakes each of several, and is silent then", async () => {
    const bell = new Bell();
    const rung = [bell.rung(1000), bell.rung(Infinity)];
    bell.ring();
    expect(await Promise.all(rung)).toEqual([true, true]);
    expect(await bell.rung(0)).toBe(false);
  });

  /** Whether a reader that reads, then waits, is told of a change in between; and of no other. */
  async function loses(bell: Pick<Bell, "ring" | "rung">): Promise<boolean> {
    bell.ring();
    bell.ring();
    const [first, second] = [await bell.rung(0), await bell.rung(0)];
    return !first || second;
  }

  test("remembers that it rang until somebody waits", async () => {
    expect(await loses(new Bell())).toBe(false);
  });

  test("or it is found out", async () => {
    const forgetful = { ring: () => undefined, rung: (timeMs: number) => new Bell().rung(timeMs) };
    let rings = 0;
    const counting = {
      ring: () => void (rings += 1),
      rung: async () => Promise.resolve((rings -= 1) >= 0),
    };
    expect(await loses(forgetful)).toBe(true);
    expect(await loses(counting)).toBe(true);
  });

  test("gives up after the time, not before", async () => {
    const bell = new Bell();
    const ended = vi.fn();
    const rung = bell.rung(1000).then(ended);
    await vi.advanceTimersByTimeAsync(999);
    expect(ended).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(1);
    await rung;
    expect(ended).toHaveBeenCalledWith(false);
  });

  test("does not take a long time for none", async () => {
    const bell = new Bell();
    const ended = vi.fn();
    const rung = bell.rung(2 ** 40).then(ended);
    await vi.advanceTimersByTimeAsync(1_000_000);
    expect(ended).not.toHaveBeenCalled();
    bell.ring();
    await rung;
    expect(ended).toHaveBeenCalledWith(true);
  });

  test("waits for ever without a timer", async () => {
    const bell = new Bell();
    const rung = bell.rung(Infinity);
    expect(vi.getTimerCount()).toBe(0);
    bell.ring();
    expect(await rung).toBe(true);
  });

  test("does not keep the process alive", async () => {
    const bell = new Bell();
    const started = vi.spyOn(globalThis, "setTimeout");
    const rung = bell.rung(1000);
    const timers = started.mock.results.map(({ value }) => value as NodeJS.Timeout);
    expect(timers.map((timer) => timer.hasRef())).toEqual([false]);
    bell.ring();
    await rung;
  });

  test("gives up when one of the signals aborts, and leaves no listener on any", async () => {
    const bell = new Bell();
    const [left, right] = [new AbortController(), new AbortController()];
    const rung = bell.rung(1000, left.signal, right.signal);
    expect(getEventListeners(left.signal, "abort")).toHaveLength(1);
    right.abort();
    expect(await rung).toBe(false);
    expect(getEventListeners(left.signal, "abort")).toEqual([]);
    expect(getEventListeners(right.signal, "abort")).toEqual([]);
    expect(await bell.rung(1000, left.signal, right.signal)).toBe(false);
    bell.ring();
    expect(await bell.rung(1000, left.signal)).toBe(true);
  });

  test("leaves no listener after a ring or the end of the time", async () => {
    const bell = new Bell();
    const { signal } = new AbortController();
    const waits = [bell.rung(1000, signal)];
    bell.ring();
    waits.push(bell.rung(1000, signal));
    await vi.advanceTimersByTimeAsync(1000);
    expect(await Promise.all(waits)).toEqual([true, false]);
    expect(getEventListeners(signal, "abort")).toEqual([]);
  });

  test("puts one listener on a signal that many share, and each of them gives up alone", async () => {
    const shared = new AbortController();
    const bells = Array.from({ length: 50 }, () => new Bell());
    const rung = bells.map((bell) => bell.rung(1000, shared.signal));
    expect(getEventListeners(shared.signal, "abort")).toHaveLength(1);
    bells[0]!.ring();
    expect(await rung[0]).toBe(true);
    expect(getEventListeners(shared.signal, "abort")).toHaveLength(1);
    shared.abort();
    expect(await Promise.all(rung.slice(1))).toEqual(Array.from({ length: 49 }, () => false));
    expect(getEventListeners(shared.signal, "abort")).toEqual([]);
  });

  test("may be given one signal twice", async () => {
    const bell = new Bell();
    const { signal } = new AbortController();
    const rung = bell.rung(1000, signal, signal);
    bell.ring();
    expect(await rung).toBe(true);
    expect(getEventListeners(signal, "abort")).toEqual([]);
  });
});
