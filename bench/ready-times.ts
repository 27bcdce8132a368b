import { statSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { atMost, barColumns, type Bar, column, median, print } from "./report.js";
import { Preparation } from "./requests.js";
import { startService, storePath } from "./service-process.js";

const READY_RATIO_MAX = 1.5;
const MIB = 1024 * 1024;
/** Below the size at which SQLite moves it into the database, so that there is something to recover. */
const WAL_BYTES = 8 * MIB;
const SESSIONS_AT_A_TIME = 64;

type End = "stop" | "kill";

interface Start {
  readonly folder: string;
  readonly end: End;
}

/** The time from start to ready on the large store and on an empty one, as stopped and as killed services leave it. */
export async function measureReady(
  starts: number,
  largeFolder: string,
  folder: string,
): Promise<readonly Bar[]> {
  const empty: Start = { folder: join(folder, "empty"), end: "stop" };
  await mkdir(empty.folder);
  print(`\nready, medians of ${starts} starts each`);
  print(`${"".padEnd(28)}${["ms", "ratio", "at most"].map(column).join("")}`);
  const stopped: Start = { folder: largeFolder, end: "stop" };
  // The first of each warms up.
  for (const start of [empty, stopped]) await readyMs(start);
  const bar = await compare("stopped", starts, empty, stopped);
  const walBytes = await writeAndKill(largeFolder);
  const name = `killed, WAL of ${(walBytes / MIB).toFixed(1)} MiB`;
  return [bar, await compare(name, starts, empty, { folder: largeFolder, end: "kill" })];
}

async function compare(name: string, starts: number, empty: Start, large: Start): Promise<Bar> {
  const timesMs: { readonly empty: number[]; readonly large: number[] } = { empty: [], large: [] };
  for (let start = 0; start < starts; start += 1) {
    timesMs.empty.push(await readyMs(empty));
    timesMs.large.push(await readyMs(large));
  }
  const emptyMs = median(timesMs.empty);
  const largeMs = median(timesMs.large);
  const bar = atMost(`ready, ${name}`, largeMs / emptyMs, READY_RATIO_MAX);
  print(`${"empty".padEnd(28)}${column(emptyMs.toFixed(0))}${"".padEnd(24)}${all(timesMs.empty)}`);
  print(`${name.padEnd(28)}${column(largeMs.toFixed(0))}${barColumns(bar)}${all(timesMs.large)}`);
  return bar;
}

function all(timesMs: readonly number[]): string {
  return `   all: ${timesMs.map((time) => time.toFixed(0)).join(" ")}`;
}

async function readyMs({ folder, end }: Start): Promise<number> {
  const service = await startService(folder);
  await service[end]();
  return service.readyMs;
}

/** Leaves commits in the write-ahead log that are not in the database. Gives its size in bytes. */
async function writeAndKill(folder: string): Promise<number> {
  const walFile = `${storePath(folder)}-wal`;
  const service = await startService(folder);
  const preparation = new Preparation(service.grpcAddress);
  try {
    while (statSync(walFile).size < WAL_BYTES) await preparation.beginRuns(SESSIONS_AT_A_TIME);
  } finally {
    preparation.close();
    await service.kill();
  }
  return statSync(walFile).size;
}
