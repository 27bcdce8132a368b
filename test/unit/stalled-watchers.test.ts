import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { StalledWatchers } from "../../src/watch/stalled-watchers.js";

let nowMs: number;
let watchers: StalledWatchers;

beforeEach(() => {
  vi.useFakeTimers();
  nowMs = 0;
  watchers = new StalledWatchers({ monotonicMs: () => nowMs, stalledAfterMs: 1000 });
});

afterEach(() => {
  vi.useRealTimers();
});

function pass(timeMs: number): void {
  nowMs += timeMs;
  vi.advanceTimersByTime(timeMs);
}

test("a watcher that takes nothing is told of once", () => {
  const onStalled = vi.fn();
  watchers.enter(onStalled).offered();
  pass(900);
  expect(onStalled).not.toHaveBeenCalled();
  pass(5000);
  expect(onStalled).toHaveBeenCalledTimes(1);
  expect([watchers.size, vi.getTimerCount()]).toEqual([0, 0]);
});

test("a watcher that takes what it is offered, or is offered nothing, is left alone", () => {
  const onStalled = vi.fn();
  const taking = watchers.enter(onStalled);
  watchers.enter(onStalled);
  for (let round = 0; round < 10; round += 1) {
    taking.offered();
    pass(900);
    taking.taken();
  }
  pass(5000);
  expect(onStalled).not.toHaveBeenCalled();
});

test("who left is forgotten, and without watchers there is no timer", () => {
  const onStalled = vi.fn();
  const entries = [watchers.enter(onStalled), watchers.enter(onStalled)];
  for (const entry of entries) entry.offered();
  expect([watchers.size, vi.getTimerCount()]).toEqual([2, 1]);
  for (const entry of entries) entry.leave();
  expect([watchers.size, vi.getTimerCount()]).toEqual([0, 0]);
  pass(5000);
  expect(onStalled).not.toHaveBeenCalled();
});
