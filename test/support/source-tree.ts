import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { runProcess } from "./run-process.js";

export const ROOT = resolve(import.meta.dirname, "../..");

/** A file of this repository. `path` is relative to its root and has forward slashes. */
export interface SourceFile {
  readonly path: string;
  readonly text: string;
}

const BINARY = /[.](binpb|png|sqlite|db|gz|bin)$/;

/** Every text file that git tracks or would track, generated code and the lock file left out. */
export async function readSourceTree(): Promise<SourceFile[]> {
  const listing = await runProcess(
    "git",
    ["ls-files", "-z", "--cached", "--others", "--exclude-standard"],
    { cwd: ROOT },
  );
  if (listing.code !== 0) throw new Error(`git ls-files: ${listing.stderr}`);
  const paths = [...new Set(listing.stdout.split("\0"))].filter(
    (path) =>
      path !== "" &&
      !path.startsWith("gen/") &&
      path !== "package-lock.json" &&
      !BINARY.test(path) &&
      existsSync(join(ROOT, path)),
  );
  return Promise.all(
    paths.sort().map(async (path) => ({ path, text: await readFile(join(ROOT, path), "utf8") })),
  );
}
