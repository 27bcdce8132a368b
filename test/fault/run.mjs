// Runs the fault suite: node test/fault/run.mjs [--long | --table] [file filter …]
import { spawnSync } from "node:child_process";
import { randomInt } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { renderTable, shortfalls, sortedParts, withTable } from "./results-table.mjs";

const ROOT = join(import.meta.dirname, "../..");
const REPORT = join(ROOT, "test/fault/RESULTS.json");
const PAGE = join(ROOT, "docs/durability.md");
/** These judge how soon a server is there: nothing else runs beside them. */
const TIMED = ["test/fault/kill.test.ts", "test/fault/single-writer.test.ts"];
/** The test of the report is about the last full run, not about this one. */
const LEFT_OUT = ["test/fault/results.test.ts"];
const OTHERS = readdirSync(join(ROOT, "test/fault"))
  .map((name) => `test/fault/${name}`)
  .filter((path) => path.endsWith(".test.ts") && ![...TIMED, ...LEFT_OUT].includes(path));
/** Histories and stores of earlier schemas are checked where their other tests are. */
const ELSEWHERE = ["test/compat", "test/property/ledger.test.ts"];
const SEED_LIMIT = 2 ** 31;

const flags = process.argv.slice(2).filter((argument) => argument.startsWith("--"));
const filters = process.argv.slice(2).filter((argument) => !argument.startsWith("--"));
const unknown = flags.filter((flag) => flag !== "--long" && flag !== "--table");
if (unknown.length > 0) {
  process.stderr.write(`unknown: ${unknown.join(" ")}; known are --long and --table\n`);
  process.exit(2);
}
if (flags.includes("--table")) writeTable(JSON.parse(readFileSync(REPORT, "utf8")));
else process.exitCode = runSuite(flags.includes("--long") ? "long" : "ci");

function runSuite(scale) {
  const seed = Number(process.env.SEED || randomInt(SEED_LIMIT));
  const folder = mkdtempSync(join(tmpdir(), "toolmark-results-"));
  try {
    const environment = { TEST_SCALE: scale, SEED: String(seed), FAULT_RESULTS: folder };
    const passed = runAll(environment);
    const date = new Date().toISOString().slice(0, 10);
    const parts = sortedParts(readParts(folder));
    const report = { date, seed, node: process.versions.node, scale, parts };
    process.stdout.write(`\n${renderTable(report)}\n`);
    if (!passed) return 1;
    return scale === "long" ? writeReport(report) : 0;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function runAll(environment) {
  if (filters.length > 0) return runVitest(environment, filters);
  const together = runVitest(environment, [...OTHERS, ...ELSEWHERE]);
  const alone = runVitest(environment, [...TIMED, "--no-file-parallelism"]);
  return together && alone;
}

function runVitest(environment, wanted) {
  const vitest = join(ROOT, "node_modules/vitest/vitest.mjs");
  const args = [vitest, "run", ...wanted];
  const env = { ...process.env, ...environment };
  return spawnSync(process.execPath, args, { cwd: ROOT, env, stdio: "inherit" }).status === 0;
}

function readParts(folder) {
  return readdirSync(folder).map((name) => JSON.parse(readFileSync(join(folder, name), "utf8")));
}

function writeReport(report) {
  const problems = shortfalls(report.parts);
  for (const problem of problems) process.stderr.write(`${problem}\n`);
  if (problems.length > 0) return 1;
  if (filters.length > 0) {
    process.stdout.write("a run of some files only: RESULTS.json stays as it is\n");
    return 0;
  }
  writeFileSync(REPORT, `${JSON.stringify(report, undefined, 2)}\n`);
  writeTable(report);
  return 0;
}

function writeTable(report) {
  writeFileSync(PAGE, withTable(readFileSync(PAGE, "utf8"), report));
}
