import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** What one part of the fault suite counted. */
export interface FaultResult {
  /** The number of the promise that the part checks. */
  readonly promise: number;
  /** Its name. No two parts share one. */
  readonly part: string;
  /** What was counted, for example "cut points". */
  readonly counted: string;
  readonly count: number;
  /** The count of a full run. */
  readonly wanted: number;
  readonly violations: number;
  /** Each fault that was put in on purpose, and how often it was seen. */
  readonly planted: readonly { readonly name: string; readonly caught: number }[];
  /** Other figures of the run, with their unit in the name. */
  readonly figures?: Readonly<Record<string, number>>;
}

/** Hands a result to `npm run test:fault`. Without the folder that FAULT_RESULTS names it does nothing. */
export function recordResult(result: FaultResult): void {
  const folder = process.env["FAULT_RESULTS"];
  if (folder === undefined || folder === "") return;
  mkdirSync(folder, { recursive: true });
  const name = result.part.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");
  // "wx": two parts of one name would hide each other.
  writeFileSync(join(folder, `${result.promise}-${name}.json`), JSON.stringify(result), {
    flag: "wx",
  });
}

/** What RESULTS.json holds: one full run. */
export interface FaultReport {
  /** The day of the run, as in 2026-01-31. */
  readonly date: string;
  readonly seed: number;
  readonly node: string;
  readonly scale: string;
  /** In order of promise, then of part. */
  readonly parts: readonly FaultResult[];
}
