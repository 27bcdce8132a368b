import { closeSync, openSync } from "node:fs";
import { chown, open, realpath, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { randomBytes } from "./system.js";

/** Of files that hold what others must not see. */
const PRIVATE_FILE_MODE = 0o600;
const SUFFIX_BYTES = 8;

/** A name beside `path` that nothing else has. */
export function nameBeside(path: string): string {
  const suffix = Buffer.from(randomBytes(SUFFIX_BYTES)).toString("hex");
  return join(dirname(path), `.${basename(path)}.${suffix}.tmp`);
}

/** Makes a file for its owner alone, with its content on the disk when this resolves. Rejects if there is one. */
export async function writeDurably(path: string, text: string): Promise<void> {
  const file = await open(path, "wx", PRIVATE_FILE_MODE);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Gives a file new content: under its name there is always the whole old or the whole new one. */
export async function replaceDurably(path: string, text: string): Promise<void> {
  const aside = nameBeside(path);
  try {
    await writeDurably(aside, text);
    await giveToOwnerOf(path, aside);
    await rename(aside, path);
  } finally {
    await rm(aside, { force: true });
  }
  await syncFolder(dirname(path));
}

/** Makes an empty file for its owner alone, at once. Throws if there is one. */
export function makePrivateFile(path: string): void {
  closeSync(openSync(path, "wx", PRIVATE_FILE_MODE));
}

export async function syncFile(path: string): Promise<void> {
  const file = await open(path, "r+");
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Makes names that are new, changed or gone survive power loss. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** An administrator may work for a service of another user: what is made in the place of a file stays its owner's. */
export async function giveToOwnerOf(model: string, path: string): Promise<void> {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = await stat(model);
  await chown(path, uid, gid);
}

/** The path that links to a file lead to; of a file that is not there, the one that it would have. */
export async function realPathOf(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch (error) {
    if (!hasCode(error, "ENOENT")) throw error;
    return join(await realpath(dirname(path)), basename(path));
  }
}

/** Whether an error is the system's with this code. */
export function hasCode(error: unknown, ...codes: readonly string[]): boolean {
  return (
    error instanceof Error &&
    "code" in error &&
    typeof error.code === "string" &&
    codes.includes(error.code)
  );
}
