import { stat } from "node:fs/promises";
import { hasCode } from "./durable-file.js";
import { LegacyDirectory, LegacyDirectoryError } from "./legacy-dir.js";

/** What folders and files of an older system have of sessions, by folder. Throws LegacyDirectoryError. */
export async function openLegacyPaths(paths: readonly string[]): Promise<LegacyDirectory[]> {
  const directories: LegacyDirectory[] = [];
  const files: string[] = [];
  for (const path of paths) {
    if (await isFolder(path)) directories.push(await LegacyDirectory.open(path));
    else files.push(path);
  }
  if (files.length > 0) directories.push(await LegacyDirectory.ofFiles(files));
  return directories;
}

async function isFolder(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch (error) {
    if (!hasCode(error, "ENOENT", "ENOTDIR")) throw error;
    throw new LegacyDirectoryError(path, "there is no such file or folder");
  }
}
