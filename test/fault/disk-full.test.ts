import { describe, expect, test } from "vitest";
import { scaled } from "../support/scale.js";
import { fileSizeLimit, smallDisk, type RoomLever } from "./disk-full-levers.js";
import { DATABASE, fillDisk, RESUMED_MAX_MS } from "./disk-full-run.js";
import { recordResult } from "./results.js";
import { canRun, faultTimeoutMs, MOUNT, PRLIMIT } from "./strace-tools.js";

const TIMEOUT_MS = faultTimeoutMs();
/** How often each disk is filled. */
const FILLINGS = 10;
const LARGEST_MIB = 4;

const PLANTED = "preload-swallowed-commit.mjs";

/** Fills a disk several times, and once under a server that takes failed commits for done. */
async function fillOften(part: string, lever: (number: number) => RoomLever): Promise<void> {
  const planted = await fillDisk(lever(0), PLANTED);
  expect(planted.problems).not.toEqual([]);

  const fillings = scaled(FILLINGS);
  const problems: string[] = [];
  let resumedMsMax = 0;
  for (let number = 0; number < fillings; number += 1) {
    const outcome = await fillDisk(lever(number));
    problems.push(...outcome.problems);
    resumedMsMax = Math.max(resumedMsMax, Math.ceil(outcome.resumedMs));
  }
  recordResult({
    ...{ promise: 5, part, counted: "fillings", count: fillings, wanted: FILLINGS },
    violations: problems.length,
    planted: [{ name: "success is reported when full", caught: planted.problems.length }],
    figures: { resumedMsMax },
  });
  expect(problems).toEqual([]);
  expect(resumedMsMax).toBeLessThanOrEqual(RESUMED_MAX_MS);
}

describe("a store without room refuses commands, is read on, and goes on when there is room", () => {
  if (canRun("full disk", [MOUNT])) {
    test(
      "on a small disk",
      () => fillOften("full disk", (number) => smallDisk(LARGEST_MIB - (number % LARGEST_MIB))),
      TIMEOUT_MS,
    );
  }

  if (canRun("file size limit", [PRLIMIT])) {
    test(
      "under a limit of file sizes",
      () => fillOften("file size limit", () => fileSizeLimit(DATABASE)),
      TIMEOUT_MS,
    );
  }
});
