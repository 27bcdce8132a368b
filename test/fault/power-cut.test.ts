import { expect, test } from "vitest";
import { scaled } from "../support/scale.js";
import { seededRandom, seededTitle } from "../support/seed.js";
import { cutPower, noCuts, type CutCounts } from "./power-cut-cuts.js";
import { rounds, withRecordedRun, type RecordedRun, type RecordedWork } from "./power-cut-run.js";
import { recordResult } from "./results.js";
import { canRun, faultTimeoutMs, STRACE } from "./strace-tools.js";

const SEEDS = 10;
const CUTS = 3000;
const PLANTED_CUTS = 300;
const TIMEOUT_MS = faultTimeoutMs();

const SMALL = { writers: 4, bodyBytes: 600, makesFolder: true, write: rounds(2) };
/** Fills the write-ahead log until SQLite moves it into the database and begins it anew. */
const CHECKPOINTED = { writers: 4, bodyBytes: 300_000, write: rounds(3) };

/** Records one run, cuts the power at so many points of it and adds what is left to `counts`. */
function cutRecorded(
  label: string,
  work: Omit<RecordedWork, "folder">,
  cuts: number,
  counts: CutCounts,
): Promise<RecordedRun> {
  return withRecordedRun(work, async (run) => {
    await cutPower(run, cuts, seededRandom(label), counts);
    return run;
  });
}

async function plantedCuts(preload: string): Promise<CutCounts> {
  const counts = noCuts();
  await cutRecorded(preload, { ...SMALL, preload }, scaled(PLANTED_CUTS), counts);
  return counts;
}

/** Cut points at which something is lost, or told to be. */
function faultsOf({ lost, corrupt }: CutCounts): number {
  return lost + corrupt;
}

/** How often the database itself was written to, beside its log. */
function databaseWrites({ operations, database }: RecordedRun): number {
  return operations.filter((operation) => {
    return operation.kind === "write" && operation.path.endsWith(`/${database}`);
  }).length;
}

if (canRun("power cut", [STRACE])) {
  test(
    seededTitle("what was acknowledged survives a power cut at any point"),
    async () => {
      const normal = await plantedCuts("preload-normal-sync.mjs");
      expect(faultsOf(normal)).toBeGreaterThan(0);
      const late = await plantedCuts("preload-late-commit.mjs");
      expect(faultsOf(late)).toBeGreaterThan(0);

      const counts = noCuts();
      const seeds = scaled(SEEDS);
      let pagesWritten = 0;
      for (let number = 1; number <= seeds; number += 1) {
        const work = number % 2 === 0 ? CHECKPOINTED : SMALL;
        const cuts = Math.ceil(scaled(CUTS) / seeds);
        const run = await cutRecorded(`run ${number}`, work, cuts, counts);
        if (work !== CHECKPOINTED) continue;
        pagesWritten += databaseWrites(run);
        expect(pagesWritten).toBeGreaterThan(0);
      }
      recordResult({
        ...{ promise: 1, part: "power cut", counted: "cut points" },
        ...{ count: counts.cuts, wanted: CUTS, violations: faultsOf(counts) },
        planted: [
          { name: "synchronous=NORMAL", caught: faultsOf(normal) },
          { name: "acknowledged before the commit", caught: faultsOf(late) },
        ],
        figures: { seeds, plantedCuts: normal.cuts, checkpointWrites: pagesWritten },
      });
      expect(counts.examples).toEqual([]);
      expect(counts).toMatchObject({ lost: 0, corrupt: 0 });
    },
    TIMEOUT_MS,
  );
}
