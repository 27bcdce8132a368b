import { randomInt } from "node:crypto";
import { defineConfig } from "vitest/config";
import { testScale } from "./test/support/scale.js";

const TIMEOUT_MS = { short: 30_000, ci: 120_000, long: 1_800_000 };
const timeoutMs = TIMEOUT_MS[testScale()];

// One seed for every file of the run. Tests read it from the environment, see test/support/seed.ts.
const seed = process.env["SEED"] ?? String(randomInt(2 ** 31));
process.stdout.write(`seed of this run: SEED=${seed} npm test\n`);

const EVERY = "test/**/*.test.ts";
/** These fake the clock or a module, which would stay so for the files after them in the process. */
const ALONE = [
  "test/**/*expiry*.test.ts",
  "test/unit/commit-feed.test.ts",
  "test/fault/forged.test.ts",
];

export default defineConfig({
  test: {
    projects: [
      // One process for many files: loading the program for each of them took a quarter of the run.
      { extends: true, test: { name: "shared", include: [EVERY], exclude: ALONE, isolate: false } },
      { extends: true, test: { name: "alone", include: ALONE } },
    ],
    env: { SEED: seed },
    // Processes, not threads: native modules and signals behave as in the service.
    pool: "forks",
    maxWorkers: 2,
    testTimeout: timeoutMs,
    hookTimeout: timeoutMs,
    teardownTimeout: 10_000,
    restoreMocks: true,
  },
});
