import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { scaled } from "../support/scale.js";
import { ROOT } from "../support/source-tree.js";
import { canSetClocks } from "./clock-faketime.js";
import { jumpClock, KINDS_OF_JUMP, type ClockJumpsResult } from "./clock-jumps.js";
import { recordResult } from "./results.js";

const JUMPS = 100;
const JUMP_TIMEOUT_MS = 10_000;
const ONE_CLOCK = join(ROOT, "test/mutants/preload-one-clock.mjs");
const jumps = Math.max(KINDS_OF_JUMP, scaled(JUMPS));

describe("a server whose clock is 400 days off and jumps", () => {
  test(
    "keeps order, ids and replies, and gives no ask more time",
    { timeout: JUMP_TIMEOUT_MS * (jumps + 3) },
    async () => {
      if (!canSetClocks()) return;
      const [weak, result] = await Promise.all([
        jumpClock(1, { preload: ONE_CLOCK }),
        jumpClock(jumps, {}),
      ]);
      recordJumps(result, weak.problems.length);
      expect(weak.problems.join("\n")).toMatch(/lives too long/);
      expect(result.problems).toEqual([]);
      expect(result.asksExpired).toBe(jumps);
    },
  );

  function recordJumps(
    { problems, asksExpired, latestMs, acknowledged }: ClockJumpsResult,
    caught: number,
  ): void {
    const lateMsMax = Math.round(latestMs);
    process.stdout.write(
      `clock: ${jumps} jumps, ${acknowledged} commands acknowledged, ` +
        `${asksExpired} asks expired, ${lateMsMax} ms late at most\n`,
    );
    recordResult({
      promise: 27,
      part: "clocks that jump by 400 days",
      counted: "jumps",
      count: jumps,
      wanted: JUMPS,
      violations: problems.length,
      planted: [{ name: "expiry trusts the wall clock alone", caught }],
      figures: { acknowledged, asksExpired, lateMsMax },
    });
  }

  test("is not passed over in CI or in a run of the suite where clocks cannot be set", () => {
    for (const environment of [{ CI: "true" }, { FAULT_RESULTS: "results" }]) {
      expect(() => canSetClocks(environment, "")).toThrow("libfaketime is not installed");
      expect(canSetClocks(environment, "libfaketime.so.1")).toBe(true);
    }
    expect(canSetClocks({}, "")).toBe(false);
  });
});
