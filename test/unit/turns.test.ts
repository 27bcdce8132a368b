import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Turns } from "../../src/watch/turns.js";

let nowMs: number;
let committing: Promise<void> | undefined;
let turns: Turns;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  nowMs = 0;
  committing = undefined;
  turns = new Turns({ monotonicMs: () => nowMs, committing: () => committing });
});

afterEach(() => {
  vi.useRealTimers();
});

function turnOfLoop(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}

function startCommit(): { end(): void } {
  const commit = { end: (): void => undefined };
  committing = new Promise((resolve) => {
    commit.end = resolve;
  });
  return commit;
}

/** How many of those that wait have done their work, which takes some time, after each turn of the event loop. */
async function doneByTurn(waiting: number, workMs: number): Promise<number[]> {
  let done = 0;
  const all = Array.from({ length: waiting }, async () => {
    await turns.next();
    // Not at once, but without waiting for anything.
    await Promise.resolve();
    nowMs += workMs;
    done += 1;
  });
  const seen: number[] = [];
  while (done < waiting) {
    await turnOfLoop();
    seen.push(done);
  }
  await Promise.all(all);
  return seen;
}

test("a turn of the event loop is taken up for a quarter of a millisecond, however many wait", async () => {
  expect(await doneByTurn(10, 0.0625)).toEqual([4, 8, 10]);
});

test("work that takes longer has a turn of the event loop for itself", async () => {
  expect(await doneByTurn(3, 5)).toEqual([1, 2, 3]);
});

test("whoever waits lets the commit at hand go first, and what it is answered with", async () => {
  const events: string[] = [];
  const commit = startCommit();
  void committing?.then(() => setImmediate(() => events.push("reply")));
  turns.give({ takeTurn: () => void events.push("turn") });
  await turnOfLoop();
  expect(events).toEqual([]);
  commit.end();
  await turnOfLoop();
  await turnOfLoop();
  expect(events).toEqual(["reply", "turn"]);
});

test("whoever waits has its turn after a millisecond, whatever the commit does", async () => {
  const commit = startCommit();
  let taken = 0;
  turns.give({ takeTurn: () => void (taken += 1) });
  for (let turn = 0; turn < 5; turn += 1) await turnOfLoop();
  expect(taken).toBe(0);
  vi.advanceTimersByTime(1);
  expect(taken).toBe(1);
  commit.end();
  await turnOfLoop();
  await turnOfLoop();
  expect(taken).toBe(1);
  expect(vi.getTimerCount()).toBe(0);
});

test("who was given a turn may read once in it, and waits for another to read again", async () => {
  const read: string[] = [];
  turns.give({
    takeTurn: () => {
      void turns.next().then(() => read.push("at once"));
      void turns.next().then(() => read.push("in another turn"));
      nowMs += 5;
    },
  });
  await turnOfLoop();
  expect(read).toEqual(["at once"]);
  await turnOfLoop();
  expect(read).toEqual(["at once", "in another turn"]);
});

test("whoever waited for a turn to read lets the others have theirs before it reads again", async () => {
  const read: string[] = [];
  const reading = async (name: string): Promise<void> => {
    for (const time of [1, 2]) {
      await turns.next();
      read.push(`${name}${time}`);
    }
  };
  await Promise.all([reading("a"), reading("b")]);
  expect(read).toEqual(["a1", "b1", "a2", "b2"]);
});
