import { mkdtemp, rm, statfs } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { measureImport } from "./import-rate.js";
import { measureLoad } from "./load-rates.js";
import { readOptions, type Options } from "./options.js";
import { measureProjection } from "./projection-times.js";
import { print, type Bar } from "./report.js";
import { measureStartUp } from "./start-up.js";
import { measureWatch } from "./watch.js";

const TMPFS_MAGIC = 0x01021994;

async function makeFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "toolmark-bench-"));
  const { type } = await statfs(folder);
  if (type !== TMPFS_MAGIC) return folder;
  await rm(folder, { recursive: true });
  throw new Error("the temporary folder is in memory; set TMPDIR to one on a disk");
}

async function runParts(options: Options, folder: string): Promise<readonly Bar[]> {
  print(
    `node ${process.version}, ${availableParallelism()} cores; medians of ${options.rounds} ` +
      "rounds, interleaved, one warm-up round",
  );
  if (options.parts.includes("load")) await measureLoad(options, folder);
  const bars: Bar[] = [];
  if (options.parts.includes("start-up")) bars.push(...(await measureStartUp(options, folder)));
  if (options.parts.includes("import")) {
    bars.push(...(await measureImport(options.rounds, options.imports, folder)));
  }
  if (options.parts.includes("watch")) bars.push(...(await measureWatch(options, folder)));
  if (options.parts.includes("replay")) bars.push(...(await measureProjection(options, folder)));
  return bars;
}

/** The process's exit code: 1 if a bound was missed and that matters. */
async function main(): Promise<number> {
  const options = readOptions();
  const folder = await makeFolder();
  try {
    const missed = (await runParts(options, folder)).filter(({ isMissed }) => isMissed);
    for (const { name } of missed) print(`missed: ${name}`);
    return options.check && missed.length > 0 ? 1 : 0;
  } finally {
    await rm(folder, { recursive: true });
  }
}

process.exitCode = await main();
