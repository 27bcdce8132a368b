import * as fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { CommitFeed } from "../../src/ledger/commit-feed.js";
import { Expiry, type ExpiryOptions } from "../../src/ledger/expiry.js";
import { CHECK_MS, DAY_MS, ExpiringWorld, lateOf } from "../support/expiring-world.js";
import { propertyOptions, seededTitle } from "../support/seed.js";

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});

/** Lets time pass on both clocks. */
async function pass(timeMs: number): Promise<void> {
  await vi.advanceTimersByTimeAsync(timeMs);
}

type Step =
  | { readonly kind: "pass" | "open"; readonly timeMs: number; readonly sessionId: string }
  | { readonly kind: "jump"; readonly byMs: number }
  | { readonly kind: "break" | "repair" };

const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    { weight: 4, arbitrary: fc.record({ kind: fc.constant("pass" as const), ...timed(1, 3000) }) },
    {
      weight: 4,
      arbitrary: fc.record({ kind: fc.constant("open" as const), ...timed(1, 20_000) }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        kind: fc.constant("jump" as const),
        byMs: fc.oneof(
          fc.integer({ min: -30_000, max: -1001 }),
          fc.integer({ min: 1, max: 30_000 }),
          fc.constantFrom(-400 * DAY_MS, 400 * DAY_MS),
        ),
      }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ kind: fc.constantFrom("break" as const, "repair" as const) }),
    },
  ),
  { minLength: 1, maxLength: 40 },
);

function timed(min: number, max: number) {
  return {
    timeMs: fc.integer({ min, max }),
    sessionId: fc.constantFrom("ses_1", "ses_2", "ses_broken"),
  };
}

/** Plays the steps; returns what is wrong. */
async function play(all: readonly Step[], change: Change): Promise<string[]> {
  const world = new ExpiringWorld();
  const jumps: { readonly atMs: number; readonly backMs: number }[] = [];
  const wrong: string[] = [];
  const expiry = new Expiry(change(world.options()));
  expiry.start();
  await pass(0);
  let soundSinceMs = 0;
  for (const step of [...all, { kind: "repair" } as const]) {
    switch (step.kind) {
      case "pass":
        await pass(step.timeMs);
        break;
      case "open":
        world.open(step.timeMs, step.sessionId);
        break;
      case "jump":
        world.aheadMs += step.byMs;
        if (step.byMs < 0) jumps.push({ atMs: world.monotonicMs(), backMs: -step.byMs });
        break;
      case "break":
        world.broken.add("ses_broken");
        break;
      case "repair":
        world.broken.clear();
        soundSinceMs = world.monotonicMs();
        break;
    }
    const isRepaired = world.monotonicMs() > soundSinceMs + CHECK_MS;
    if (isRepaired) wrong.push(...lateOf(world).map((recordId) => `${recordId} is late`));
  }
  await pass(20_000 + 2 * CHECK_MS);
  wrong.push(...[...world.waiting.keys()].map((recordId) => `${recordId} is late`));
  for (const { recordId, timeMs, openedAtMs, expiredAtWallMs } of world.expired) {
    const backMs = jumps
      .filter(({ atMs }) => atMs >= openedAtMs - CHECK_MS)
      .reduce((sum, jump) => sum + jump.backMs, 0);
    if (expiredAtWallMs + backMs < timeMs) wrong.push(`${recordId} is early`);
  }
  await expiry.stop();
  return wrong;
}

type Change = (options: ExpiryOptions) => ExpiryOptions;

const WRONG: readonly (readonly [string, RegExp, Change])[] = [
  ["looks at one clock", /late/, (options) => ({ ...options, monotonicMs: options.nowMs })],
  ["checks hardly ever", /late/, (options) => ({ ...options, checkMs: 4 * CHECK_MS })],
  ["is told of no deadline", /late/, (options) => ({ ...options, commits: new CommitFeed() })],
  [
    "takes time from every deadline",
    /early/,
    (options) => ({
      ...options,
      store: {
        ...options.store,
        listDue: (query) => options.store.listDue({ ...query, untilPosition: undefined }),
      },
    }),
  ],
  [
    "takes jumps for later than they are",
    /early/,
    (options) => ({
      ...options,
      store: { ...options.store, lastPosition: async () => Promise.resolve(2n ** 40n) },
    }),
  ],
  [
    "takes jumps for earlier than they are",
    /late/,
    (options) => ({
      ...options,
      store: { ...options.store, lastPosition: async () => Promise.resolve(0n) },
    }),
  ],
  [
    "tells the wrong pages",
    /late/,
    (options) => ({
      ...options,
      expire: async (session, recordIds) => options.expire(session, recordIds.slice(1)),
    }),
  ],
];

describe("whatever the clock does", () => {
  test(
    seededTitle("nothing waits longer than it was given, and nothing ends early otherwise"),
    async () => {
      const property = fc.asyncProperty(steps, async (all) => {
        expect(await play(all, (options) => options)).toEqual([]);
      });
      await fc.assert(property, propertyOptions(2000));
    },
  );

  test.each(WRONG)("or it is found out: one that %s", async (_, pattern, change) => {
    const property = fc.asyncProperty(steps, async (all) => {
      const wrong = await play(all, change);
      return !wrong.some((text) => pattern.test(text));
    });
    const { failed } = await fc.check(property, { numRuns: 200, seed: 1, endOnFailure: true });
    expect(failed).toBe(true);
  });
});
