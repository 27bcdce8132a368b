import { randomInt } from "node:crypto";
import { defineConfig } from "vitest/config";
import { testScale } from "./test/support/scale.js";

const TIMEOUT_MS = { short: 30_000, ci: 120_000, long: 1_800_000 };
const timeoutMs = TIMEOUT_MS[testScale()];

// One seed for every file of the run. Tests read it from the environment, see test/support/seed.ts.
const seed = process.env["SEED"] ?? String(randomInt(2 ** 31));
process.stdout.write(`seed of this run: SEED=${seed} npm test\n`);

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
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
