import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { link, lstat, realpath, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import {
  copyStoreAside,
  describeStore,
  type CopyTask,
  type StoreContent,
} from "../store/sqlite/copy.js";
import { PositionMark } from "../store/sqlite/position-mark.js";
import { StoreOpenError } from "../store/sqlite/store-open-error.js";
import {
  findAnyDamage,
  isNewest,
  requireSound,
  withCopy,
  type FindDamage,
} from "./copied-store.js";
import { hasCode, nameBeside, syncFolder } from "./durable-file.js";
import { monotonicMs } from "./system.js";

/** What a store keeps beside its database. */
const OWN_SUFFIXES = ["", "-wal", "-shm", "-journal", ".secret", ".lock", ".position"] as const;

export type BackupStep = "copying" | "verifying" | "naming";

export interface BackupOptions {
  /** The store's database. */
  readonly path: string;
  /** The file to make. */
  readonly to: string;
  /** Whether the copy is checked before it gets its name. */
  readonly verify: boolean;
  readonly onStep?: (step: BackupStep) => void;
  /** Default: looks at everything. */
  readonly findDamage?: FindDamage;
  /** Default: in a thread, so that signals are heard. */
  readonly copy?: (task: CopyTask) => Promise<void>;
}

export interface BackupReport extends StoreContent {
  readonly path: string;
  readonly sizeBytes: number;
  /** In hex. */
  readonly sha256: string;
  /** What of the copy was looked at. The rows of an older schema have nothing that they could be checked by. */
  readonly checked: "everything" | "pages" | "nothing";
  readonly durationMs: number;
}

/** The file to make cannot be made where it was asked for. */
export class BackupTargetError extends Error {
  override readonly name = "BackupTargetError";
}

/**
 * Writes a copy of a store, of one moment, while a server may go on writing: one file, which appears under its name
 * only when all of it is on the disk. Throws BackupTargetError, or StoreOpenError: "unreadable" if the store is
 * damaged, "events_missing" if it lacks what was acknowledged, "unavailable" if it is not there, or if the disk is full
 * or fails.
 */
export async function backupStore(options: BackupOptions): Promise<BackupReport> {
  const startedMs = monotonicMs();
  const from = await existingStore(options.path);
  const to = await freeTarget(from, options.to);
  const aside = nameBeside(to);
  const { verify, onStep = () => undefined, copy = copyStoreAside } = options;
  const { findDamage = findAnyDamage } = options;
  const requireComplete = PositionMark.before(from);
  return withCopy(aside, async () => {
    onStep("copying");
    await copyOfOneFile({ from, to: aside }, copy);
    requireComplete(describeStore(aside));
    if (verify) onStep("verifying");
    await requireSound(aside, from, verify ? findDamage : async () => undefined);
    const content = describeStore(aside);
    const checked = isNewest(content) ? "everything" : "pages";
    const { size: sizeBytes } = await stat(aside);
    const sha256 = await sha256Of(aside);
    onStep("naming");
    await nameDurably(aside, to);
    const durationMs = Math.round(monotonicMs() - startedMs);
    return {
      ...{ ...content, path: to, sizeBytes, sha256 },
      ...{ checked: verify ? checked : "nothing", durationMs },
    };
  });
}

/** The file that a store's path leads to. Throws StoreOpenError "unavailable" if there is none. */
export async function existingStore(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch (error) {
    if (!hasCode(error, "ENOENT", "ENOTDIR", "EACCES")) throw error;
    throw new StoreOpenError("unavailable", `there is no store at ${path}`, { path });
  }
}

async function freeTarget(from: string, to: string): Promise<string> {
  const folder = await realpath(dirname(to)).catch((error: unknown) => {
    if (!hasCode(error, "ENOENT", "ENOTDIR")) throw error;
    throw new BackupTargetError(`there is no folder ${dirname(to)}`);
  });
  const path = join(folder, basename(to));
  if (OWN_SUFFIXES.some((suffix) => path === from + suffix)) {
    throw new BackupTargetError(`${to} is a file of the store itself`);
  }
  if (await isThere(path)) throw taken(to);
  return path;
}

async function isThere(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return true;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return false;
    throw error;
  }
}

/** A restore may put another database in the place of the one that is copied; its log is of no use to the old one. */
async function copyOfOneFile(
  task: CopyTask,
  copy: (task: CopyTask) => Promise<void>,
): Promise<void> {
  const before = await stat(task.from);
  await copy(task);
  const after = await stat(task.from);
  if (before.ino === after.ino && before.dev === after.dev) return;
  const message = `${task.from} was replaced while it was copied: try again`;
  throw new StoreOpenError("unavailable", message, { path: task.from });
}

async function sha256Of(path: string): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return hash.digest("hex");
}

/** A link, unlike a new name, never takes the place of a file that somebody else has made meanwhile. */
async function nameDurably(aside: string, to: string): Promise<void> {
  try {
    await link(aside, to);
    await rm(aside);
  } catch (error) {
    if (hasCode(error, "EEXIST")) throw taken(to);
    if (!hasCode(error, "EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK")) throw error;
    // Some file systems have no links.
    if (await isThere(to)) throw taken(to);
    await rename(aside, to);
  }
  await syncFolder(dirname(to));
}

function taken(path: string): BackupTargetError {
  return new BackupTargetError(`${path} is there already, and is not overwritten`);
}
