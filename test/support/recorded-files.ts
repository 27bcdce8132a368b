import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { ROOT } from "./source-tree.js";

const DEFAULT_FOLDER = join(ROOT, "../shared/real/given");

/** The folder of recorded exchanges: the one that TOOLMARK_REAL names, or the default one. */
export function recordedFolder(): string {
  return process.env["TOOLMARK_REAL"] ?? DEFAULT_FOLDER;
}

/** One recording. */
export interface RecordedText {
  /** Path below the folder, for example `gemini/001.json`. */
  readonly file: string;
  readonly text: string;
}

/** Every recording in the order of its path, or nothing if there is no such folder. */
export function readRecordedTexts(): readonly RecordedText[] | undefined {
  const folder = recordedFolder();
  if (!existsSync(folder)) return undefined;
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(".json"))
    .map((entry) => join(entry.parentPath, entry.name))
    .sort()
    .map((path) => ({ file: relative(folder, path), text: readFileSync(path, "utf8") }));
}
