import { getEventListeners } from "node:events";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Bell } from "../../src/ledger/bell.js";
import { CommitFeed, type DeadlinesSet } from "../../src/ledger/commit-feed.js";
import type { AskScope, CommandWrite } from "../../src/ledger/store-port.js";
import { committedWrite, OPEN_ASK } from "../support/committed-write.js";

const ALL = { visibleToSubject: undefined, sessionId: undefined, tree: undefined };
const TENANT_A: AskScope = { tenant: "a", ...ALL };
const SESSION_1 = { ...TENANT_A, sessionId: "ses_1" };

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
  test("wakes who waits for the tenant's, the subject's or the session's asks, nobody else", () => {
    const feed = new CommitFeed();
    const woken: string[] = [];
    const subjects = [undefined, "owner", "creator", "stranger", ""];
    for (const tenant of ["a", "b"]) {
      for (const visibleToSubject of subjects) {
        for (const sessionId of [undefined, "ses_1", "ses_2"]) {
          feed.onAsksChanged({ tenant, visibleToSubject, sessionId, tree: undefined }, () =>
            woken.push(`${tenant} ${visibleToSubject ?? "*"} ${sessionId ?? "*"}`),
          );
        }
      }
    }
    const owned = { ownerSubject: "owner", createdBySubject: "creator" };
    feed.publish([committedWrite("a", "ses_1", [{ ask: OPEN_ASK, askId: "ask_1" }], owned)]);
    const ofSession = subjects.map((subject) => `a ${subject ?? "*"} ses_1`);
    const expected = ["a * *", "a owner *", "a creator *", ...ofSession];
    expect(woken.sort()).toEqual(expected.sort());
  });

  test("takes no name for another", () => {
    const feed = new CommitFeed();
    const wake = vi.fn();
    for (const name of ["ses_1", "a", "owner", "ask_1", "*", "null"]) {
      feed.onAsksChanged({ ...TENANT_A, visibleToSubject: name }, wake);
      feed.onAskChanged({ tenant: "a", sessionId: name }, "ses_1", wake);
    }
    const owned = { ownerSubject: "o", createdBySubject: "c" };
    feed.publish([committedWrite("a", "ses_1", [{ ask: OPEN_ASK, askId: "ask_2" }], owned)]);
    feed.publish([committedWrite("a", "ses_1", [{ askId: "ses_1" }], owned)]);
    expect(wake).not.toHaveBeenCalled();
  });

  test("wakes who watches a session, or a tree of sessions, by the session that was written to", () => {
    const feed = new CommitFeed();
    const woken: string[] = [];
    const tree = (root: string) => ({ sessionId: root, rootSessionId: root });
    for (const tenant of ["a", "b"]) {
      for (const sessionId of ["ses_1", "ses_2"]) {
        const session = { tenant, sessionId };
        feed.onEvents({ ...session, tree: undefined }, (id) =>
          woken.push(`${tenant} ${sessionId} ${id}`),
        );
        feed.onEvents({ ...session, tree: tree(sessionId) }, (id) =>
          woken.push(`${tenant} below ${sessionId} ${id}`),
        );
      }
    }
    feed.publish([committedWrite("a", "ses_1", [{}, {}]), committedWrite("b", "ses_2", [])]);
    expect(woken.sort()).toEqual(["a below ses_1 ses_1", "a ses_1 ses_1"]);
  });

  test("knows how far was told, unless a commit's outcome is not known", () => {
    const feed = new CommitFeed();
    feed.publish([committedWrite("a", "ses_1", [{ position: 6n }])]);
    expect(feed.position).toBeUndefined();
    feed.onEvents({ tenant: "a", sessionId: "ses_1", tree: undefined }, vi.fn());
    feed.publish([
      committedWrite("a", "ses_1", [{ position: 7n }, { position: 8n }]),
      committedWrite("a", "ses_2", []),
    ]);
    expect(feed.position).toBe(8n);
    feed.publish([]);
    expect(feed.position).toBe(8n);
    feed.publish([committedWrite("a", "ses_1", [{ position: 9n }])], "unknown");
    expect(feed.position).toBeUndefined();
  });

  test("forgets who watches events no more", () => {
    const feed = new CommitFeed();
    const wake = vi.fn();
    const scope = { tenant: "a", sessionId: "ses_1", tree: undefined };
    const stops = [feed.onEvents(scope, wake), feed.onEvents(scope, wake)];
    expect(feed.subscribers).toBe(2);
    for (const stop of [...stops, ...stops]) stop();
    feed.publish([askWrite("a", "ses_1")]);
    expect(feed.subscribers).toBe(0);
    expect(wake).not.toHaveBeenCalled();
  });

  test("wakes who waits for one ask by that ask alone", () => {
    const feed = new CommitFeed();
    const woken: string[] = [];
    for (const askId of ["ask_1", "ask_2", "ask_3"]) {
      for (const [tenant, sessionId] of [
        ["a", "ses_1"],
        ["a", "ses_2"],
        ["b", "ses_1"],
      ] as const) {
        const name = `${tenant} ${sessionId} ${askId}`;
        feed.onAskChanged({ tenant, sessionId }, askId, () => woken.push(name));
      }
    }
    const asks = ["ask_1", "ask_3"].map((askId) => ({ ask: OPEN_ASK, askId }));
    feed.publish([committedWrite("a", "ses_1", [{}, ...asks, { askId: "ask_2" }])]);
    expect(woken).toEqual(["a ses_1 ask_1", "a ses_1 ask_3"]);
  });

  test("wakes once for a commit", () => {
    const feed = new CommitFeed();
    const wakes = [vi.fn(), vi.fn()] as const;
    feed.onAsksChanged(TENANT_A, wakes[0]);
    feed.onAsksChanged({ ...TENANT_A, visibleToSubject: "owner" }, wakes[1]);
    feed.publish([askWrite("a", "ses_1"), askWrite("a", "ses_1"), askWrite("a", "ses_2")]);
    for (const wake of wakes) expect(wake).toHaveBeenCalledTimes(1);
  });

  test("wakes nobody for events of other records", () => {
    const feed = new CommitFeed();
    const wake = vi.fn();
    feed.onAsksChanged(SESSION_1, wake);
    feed.onAsksChanged(TENANT_A, wake);
    feed.onDeadline(wake);
    feed.publish([committedWrite("a", "ses_1", [{}]), committedWrite("a", "ses_1", [])]);
    expect(wake).not.toHaveBeenCalled();
  });

  test("tells the earliest deadline of a commit, and none that ended", () => {
    const feed = new CommitFeed();
    const told: number[] = [];
    feed.onDeadline(({ earliestMs }) => told.push(earliestMs));
    feed.publish([deadlineWrite(300, undefined), deadlineWrite(200, 400), askWrite("a", "ses_1")]);
    feed.publish([deadlineWrite(undefined)]);
    expect(told).toEqual([200]);
  });

  test("tells where a commit that set a deadline begins and ends, and when it was decided", () => {
    const feed = new CommitFeed();
    const told: DeadlinesSet[] = [];
    feed.onDeadline((set) => told.push(set));
    const timeMs = 50;
    const marks = [{ position: 8n }, { position: 9n, deadline: { timeMs: 300 } }];
    feed.publish([
      committedWrite("a", "ses_1", [{ position: 7n, timeMs }]),
      committedWrite("a", "ses_2", []),
      committedWrite("a", "ses_2", [...marks, { position: 10n }]),
      committedWrite("a", "ses_3", []),
    ]);
    const place = { firstPosition: 7n, lastPosition: 10n };
    expect(told).toEqual([{ earliestMs: 300, decidedMs: timeMs, ...place }]);
  });

  test("keeps nothing of who stopped", () => {
    const feed = new CommitFeed();
    const wake = vi.fn();
    const stops = [
      feed.onAsksChanged(SESSION_1, wake),
      feed.onAsksChanged(SESSION_1, wake),
      feed.onAsksChanged(TENANT_A, wake),
      feed.onAskChanged(SESSION_1, "ask_1", wake),
      feed.onDeadline(wake),
      feed.onDeadline(wake),
    ];
    expect(feed.subscribers).toBe(6);
    stops[0]!();
    stops[0]!();
    expect(feed.subscribers).toBe(5);
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
    const stop = feed.onAsksChanged(SESSION_1, () => undefined);
    stop();
    feed.onAsksChanged(SESSION_1, wake);
    stop();
    feed.publish([askWrite("a", "ses_1")]);
    expect(wake).toHaveBeenCalledTimes(1);
  });

  test("lets who is woken stop at once", () => {
    const feed = new CommitFeed();
    const woken: number[] = [];
    for (const index of [0, 1, 2]) {
      const stop = feed.onAsksChanged(SESSION_1, () => {
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
    feed.onAsksChanged(SESSION_1, () => undefined)();
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
