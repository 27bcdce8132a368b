import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, test } from "vitest";
import { ROOT } from "../support/source-tree.js";
import type { FaultReport, FaultResult } from "./results.js";

/** The promises that this suite is there for. */
const PROMISES = [1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 17, 18, 26, 27, 28];

/** The module that plain Node runs too, so it has no types of its own. */
interface ResultsTable {
  readonly shortfalls: (parts: readonly FaultResult[]) => string[];
  readonly withTable: (page: string, report: FaultReport | undefined) => string;
}

const TABLE = pathToFileURL(join(ROOT, "test/fault/results-table.mjs")).href;
const { shortfalls, withTable } = (await import(TABLE)) as ResultsTable;

/** Absent until a full run was recorded. */
async function readReport(): Promise<FaultReport | undefined> {
  const path = join(ROOT, "test/fault/RESULTS.json");
  if (!existsSync(path)) return undefined;
  return JSON.parse(await readFile(path, "utf8")) as FaultReport;
}

describe("the last full run of the fault suite", () => {
  test("is what docs/durability.md says", async () => {
    const page = await readFile(join(ROOT, "docs/durability.md"), "utf8");
    expect(withTable(page, await readReport())).toBe(page);
  });

  test("counted all that is promised, saw no violation and caught each planted fault", async () => {
    const report = await readReport();
    // Without one the page says so, as the test above has compared.
    if (report === undefined) return;
    const { scale, parts } = report;
    expect(scale).toBe("long");
    expect(shortfalls(parts)).toEqual([]);
    const promises = new Set(parts.map(({ promise }) => promise));
    expect(PROMISES.filter((promise) => !promises.has(promise))).toEqual([]);
  });

  test("or what it lacks is reported", () => {
    const result = { promise: 1, part: "a", counted: "cuts", count: 2, wanted: 2, violations: 0 };
    const planted = [{ name: "b", caught: 1 }];
    expect(shortfalls([{ ...result, planted }])).toEqual([]);
    expect(shortfalls([{ ...result, count: 1, violations: 3, planted: [] }])).toEqual([
      "a: 1 of 2 cuts",
      "a: 3 violations",
      "a: no planted fault",
    ]);
    expect(shortfalls([{ ...result, planted: [{ name: "b", caught: 0 }] }])).toEqual([
      "a: b not caught",
    ]);
  });
});
