import * as fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { CommitFeed, type DeadlinesSet } from "../../src/ledger/commit-feed.js";
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
  | {
      readonly kind: "pass" | "open" | "decide";
      readonly timeMs: number;
      readonly sessionId: string;
    }
  | { readonly kind: "jump" | "restart"; readonly byMs: number }
  | { readonly kind: "break" | "repair" | "commit" };

const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    { weight: 4, arbitrary: fc.record({ kind: fc.constant("pass" as const), ...timed(1, 3000) }) },
    {
      weight: 4,
      arbitrary: fc.record({ kind: fc.constant("open" as const), ...timed(1, 20_000) }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ kind: fc.constant("decide" as const), ...timed(1, 20_000) }),
    },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("commit" as const) }) },
    {
      weight: 2,
      arbitrary: fc.record({
        kind: fc.constant("jump" as const),
        byMs: jumps(),
      }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ kind: fc.constant("restart" as const), byMs: jumps() }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ kind: fc.constantFrom("break" as const, "repair" as const) }),
    },
  ),
  { minLength: 1, maxLength: 40 },
);

function jumps() {
  return fc.oneof(
    fc.integer({ min: -30_000, max: -1001 }),
    fc.integer({ min: 1, max: 30_000 }),
    fc.constantFrom(-400 * DAY_MS, 400 * DAY_MS),
  );
}

function timed(min: number, max: number) {
  return {
    timeMs: fc.integer({ min, max }),
    sessionId: fc.constantFrom("ses_1", "ses_2", "ses_broken"),
  };
}

/** A second is no jump. */
const STEP_MS = 1000;

/** A world whose clock jumps, and in which one commit at a time may be under way. */
class JumpingWorld extends ExpiringWorld {
  readonly #backsMs: number[] = [];
  /** How many of the times that the clock went back may not bring a record's end nearer. */
  readonly #backsBefore = new Map<string, number>();
  #lastBefore = 0;
  #commit: (() => void) | undefined;

  jump(byMs: number): void {
    this.aheadMs += byMs;
    if (byMs < 0) this.#backsMs.push(-byMs);
  }

  begin(lifeMs: number, sessionId: string): void {
    this.finish();
    const before = this.#backsMs.length;
    const commit = this.decide(lifeMs, sessionId);
    this.#commit = () => {
      // What is decided before a jump and committed after it is taken for set before those that it was set after too.
      if (before === this.#backsMs.length) this.#lastBefore = before;
      this.#backsBefore.set(commit(), this.#lastBefore);
    };
  }

  /** What a process that begins now knows of how long each record has waited: what was committed since, no more. */
  restart(): void {
    const steadyMs = this.monotonicMs();
    for (const [recordId, record] of this.waiting) {
      const knownMs = Math.max(this.lastEventMs ?? 0, record.decidedMs) - record.decidedMs;
      const openedAtMs = Math.max(record.openedAtMs, steadyMs - knownMs);
      this.waiting.set(recordId, { ...record, openedAtMs });
    }
  }

  finish(): void {
    this.#commit?.();
    this.#commit = undefined;
  }

  early(): string[] {
    return this.expired
      .filter(({ recordId, timeMs, expiredAtWallMs }) => {
        const backsMs = this.#backsMs.slice(this.#backsBefore.get(recordId));
        const backMs = backsMs.reduce((sum, ms) => sum + ms, 0);
        return expiredAtWallMs + backMs + STEP_MS < timeMs;
      })
      .map(({ recordId }) => recordId);
  }
}

/** A world, and the expiry that runs in it. */
class Life {
  #expiry: Expiry;

  constructor(
    readonly world: JumpingWorld,
    readonly options: ExpiryOptions,
  ) {
    this.#expiry = new Expiry(options);
  }

  async begin(): Promise<void> {
    this.#expiry.start();
    await pass(0);
  }

  async end(): Promise<void> {
    await this.#expiry.stop();
  }

  async restart(byMs: number): Promise<void> {
    this.world.finish();
    await this.end();
    this.world.jump(byMs);
    this.world.restart();
    this.#expiry = new Expiry(this.options);
    await this.begin();
  }
}

async function take(life: Life, step: Step): Promise<void> {
  const { world } = life;
  switch (step.kind) {
    case "pass":
      await pass(step.timeMs);
      break;
    case "open":
      world.begin(step.timeMs, step.sessionId);
      world.finish();
      break;
    case "decide":
      world.begin(step.timeMs, step.sessionId);
      break;
    case "commit":
      world.finish();
      break;
    case "jump":
      world.jump(step.byMs);
      break;
    case "restart":
      await life.restart(step.byMs);
      break;
    case "break":
      world.broken.add("ses_broken");
      break;
    case "repair":
      world.broken.clear();
      break;
  }
}

const LAST: readonly Step[] = [{ kind: "commit" }, { kind: "repair" }];

/** Plays the steps; returns what is wrong. */
async function play(all: readonly Step[], change: Change): Promise<string[]> {
  const world = new JumpingWorld();
  const wrong: string[] = [];
  const life = new Life(world, change(world.options()));
  await life.begin();
  let soundSinceMs = 0;
  for (const step of [...all, ...LAST]) {
    await take(life, step);
    if (step.kind === "repair") soundSinceMs = world.monotonicMs();
    const isRepaired = world.monotonicMs() > soundSinceMs + CHECK_MS;
    if (isRepaired) wrong.push(...lateOf(world).map((recordId) => `${recordId} is late`));
  }
  await pass(20_000 + 2 * CHECK_MS);
  wrong.push(...[...world.waiting.keys()].map((recordId) => `${recordId} is late`));
  wrong.push(...world.early().map((recordId) => `${recordId} is early`));
  await life.end();
  return wrong;
}

/** Is told of every commit as if it were another. */
function told(options: ExpiryOptions, change: Partial<DeadlinesSet>): ExpiryOptions {
  const { commits } = options;
  const onDeadline = (wake: (set: DeadlinesSet) => void): (() => void) =>
    commits.onDeadline((set) => {
      wake({ ...set, ...change });
    });
  return { ...options, commits: { onDeadline } };
}

function withStore(options: ExpiryOptions, change: Partial<ExpiryOptions["store"]>): ExpiryOptions {
  return { ...options, store: { ...options.store, ...change } };
}

const none: ExpiryOptions["store"]["listDueSetAfter"] = async () => [];

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
    (options) => told(options, { firstPosition: 2n ** 40n }),
  ],
  [
    "takes jumps for earlier than they are",
    /late/,
    (options) => told(options, { firstPosition: 1n }),
  ],
  [
    "takes commits for decided before a jump",
    /early/,
    (options) => told(options, { decidedMs: 2 ** 52 }),
  ],
  ["takes commits for decided after a jump", /late/, (options) => told(options, { decidedMs: 0 })],
  [
    "forgets what was committed before it began",
    /late/,
    (options) =>
      withStore(options, { lastEventTimeMs: async () => undefined, listDueSetAfter: none }),
  ],
  [
    "looks back to the last event only",
    /late/,
    (options) => withStore(options, { listDueSetAfter: none }),
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
    const { failed } = await fc.check(property, { numRuns: 2000, seed: 1, endOnFailure: true });
    expect(failed).toBe(true);
  });
});
