import { afterAll, beforeAll, expect, test } from "vitest";
import { dirname } from "node:path";
import { scaled, testScale } from "../support/scale.js";
import { seededRandom, seededTitle } from "../support/seed.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import {
  DATABASE,
  misbehaviour,
  runWithFault,
  useStore,
  type FaultOutcome,
  type FaultRun,
  type InjectedFault,
  type UsedStore,
} from "./injected-faults.js";
import { recordResult } from "./results.js";
import { canRun, faultTimeoutMs, STRACE } from "./strace-tools.js";

const TIMEOUT_MS = faultTimeoutMs();
const LAST = 60;
const AT_ONCE = 2;
const RUN: FaultRun = { rounds: 8, bodyBytes: 600 };

/** Fills the write-ahead log, so that it is moved into the database. */
const FILLING: FaultRun = { rounds: 6, bodyBytes: 300_000 };
const CHECKPOINT_FAULTS: readonly InjectedFault[] = (["EIO", "ENOSPC"] as const).flatMap(
  (error) => {
    const fault = { error, store: "used", file: DATABASE } as const;
    return [
      { ...fault, call: "fsync", when: 1 },
      { ...fault, call: "pwrite64", when: 1 },
      { ...fault, call: "pwrite64", when: 700 },
    ];
  },
);

const FAULTS: readonly InjectedFault[] = (["fsync", "pwrite64"] as const).flatMap((call) =>
  (["EIO", "ENOSPC"] as const).flatMap((error) =>
    (["new", "used"] as const).flatMap((store) =>
      Array.from({ length: LAST }, (_, index) => ({ call, error, store, when: index + 1 })),
    ),
  ),
);

let used: UsedStore = { folder: "", told: [] };
let made: StoreFolder | undefined;

beforeAll(async () => {
  made = await makeStoreFolder();
  used = await useStore(dirname(made.path));
}, TIMEOUT_MS);

afterAll(async () => {
  await made?.remove();
});

/** Some of all faults, as many of each kind. Each costs two servers: at the short scale it is one of a kind. */
function chosenFaults(): InjectedFault[] {
  const count = testScale() === "short" ? FAULTS.length / LAST : scaled(FAULTS.length);
  const step = FAULTS.length / count;
  const random = seededRandom("injected");
  return Array.from({ length: count }, (_, index) => index * step).flatMap(
    (place) => FAULTS[Math.floor(place + random() * step)] ?? [],
  );
}

async function runAll(faults: readonly InjectedFault[], run: FaultRun): Promise<FaultOutcome[]> {
  const waiting = [...faults];
  const outcomes: FaultOutcome[] = [];
  const work = async (): Promise<void> => {
    for (let fault = waiting.shift(); fault !== undefined; fault = waiting.shift()) {
      outcomes.push(await runWithFault(fault, used, run));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return outcomes;
}

if (canRun("injected faults", [STRACE])) {
  test(
    seededTitle("a failed write or sync is never acknowledged"),
    async () => {
      const planted = { call: "pwrite64", error: "ENOSPC", store: "used", when: 20 } as const;
      const preload = "preload-swallowed-commit.mjs";
      const [swallowed] = await runAll([planted], { ...RUN, preload });
      expect(swallowed?.problems).not.toEqual([]);
      const [unreached] = await runAll([{ ...planted, call: "fsync", when: 10_000 }], RUN);
      expect(unreached && misbehaviour(unreached)).toBe("not reached");

      const faults = chosenFaults();
      const outcomes = await runAll(faults, RUN);
      const counts: Record<string, number> = {};
      for (const { behaviour } of outcomes) counts[behaviour] = (counts[behaviour] ?? 0) + 1;
      process.stdout.write(`injected faults: ${JSON.stringify(counts)}\n`);
      const lost = outcomes.filter(({ problems }) => problems.length > 0);
      const wrong = outcomes.filter((outcome) => misbehaviour(outcome) !== undefined);
      recordResult({
        ...{ promise: 4, part: "injected faults", counted: "faults", count: outcomes.length },
        ...{ wanted: FAULTS.length, violations: lost.length + wrong.length },
        planted: [
          { name: "a failed commit is reported as done", caught: swallowed?.problems.length ?? 0 },
          { name: "a fault that is never met", caught: unreached === undefined ? 0 : 1 },
        ],
        figures: counts,
      });
      expect(lost).toEqual([]);
      expect(wrong).toEqual([]);
    },
    TIMEOUT_MS,
  );

  test(
    "a failure to move the log into the database is nothing to callers",
    async () => {
      const planted = {
        call: "pwrite64",
        error: "EIO",
        store: "used",
        when: 1,
        file: DATABASE,
      } as const;
      const preload = "preload-checkpoint-in-commit.mjs";
      const [refusing] = await runAll([planted], { ...RUN, preload });
      const caught = refusing === undefined ? undefined : misbehaviour(refusing);
      expect(caught).toBeDefined();

      const faults = CHECKPOINT_FAULTS.slice(0, scaled(CHECKPOINT_FAULTS.length));
      const outcomes = await runAll(faults, FILLING);
      const wrong = outcomes.filter((outcome) => {
        return misbehaviour(outcome) !== undefined || outcome.problems.length > 0;
      });
      recordResult({
        ...{ promise: 4, part: "checkpoint faults", counted: "faults", count: outcomes.length },
        ...{ wanted: CHECKPOINT_FAULTS.length, violations: wrong.length },
        planted: [{ name: "a failed checkpoint fails the commit", caught: 1 }],
      });
      expect(wrong).toEqual([]);
    },
    TIMEOUT_MS,
  );
}
