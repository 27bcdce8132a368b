import { existsSync } from "node:fs";
import { link, lstat, rename, rm, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { ROW_RULES } from "../ledger/row-rules.js";
import { copyStoreAside, type CopyTask, type StoreContent } from "../store/sqlite/copy.js";
import { resolvePath } from "../store/sqlite/open.js";
import { markedGeneration, writeMark } from "../store/sqlite/position-mark.js";
import {
  beginGeneration,
  holdStore,
  mergeReplaced,
  migrateCopy,
  type ReplacedStore,
} from "../store/sqlite/restore.js";
import { existingStore } from "./backup-store.js";
import {
  findAnyDamage,
  removeDatabase,
  requireSound,
  withCopy,
  type FindDamage,
} from "./copied-store.js";
import { giveToOwnerOf, hasCode, syncFile, syncFolder } from "./durable-file.js";
import { StoreOpenError } from "../store/sqlite/store-open-error.js";
import { holdingSignals } from "./signal-cleanup.js";
import { keepGeneration, storedGeneration } from "./store-secret.js";

/** What a restore does, in order. After each the store is the old one or the new one, whatever happens. */
export type RestoreStep =
  | "copying"
  | "migrating"
  | "verifying"
  | "merging"
  | "keeping"
  | "generation"
  | "clearing"
  | "replacing"
  | "finishing";

export interface RestoreOptions {
  /** A backup, or another store that is not served, or the store itself. */
  readonly from: string;
  /** The store's database. It need not be there. */
  readonly path: string;
  /** Whether the replaced database is given up. */
  readonly discard: boolean;
  /** Default: looks at everything. */
  readonly findDamage?: FindDamage;
  /** Told before each step. */
  readonly onStep?: (step: RestoreStep) => void;
  /** Default: in a thread, so that signals are heard. */
  readonly copy?: (task: CopyTask) => Promise<void>;
}

export interface RestoreReport {
  readonly path: string;
  readonly from: string;
  /** What was restored, with its new generation. */
  readonly restored: StoreContent;
  /** Absent if there was no store. */
  readonly replaced: ReplacedStore | undefined;
  /** Where the replaced database is. */
  readonly keptAs: string | undefined;
  /** Whether the generation before this one is known: from the replaced database or from the secret's file. */
  readonly isGenerationProven: boolean;
}

/**
 * Puts a copy of a backup in the place of a store's database and begins a new log generation. Until the last step the
 * old database is in its place, and a restore that was cut off can be done again. Throws StoreOpenError: "locked" while
 * a server has the store, "unreadable" if the backup is damaged.
 */
export async function restoreStore(options: RestoreOptions): Promise<RestoreReport> {
  const from = await existingStore(options.from);
  const path = resolvePath(options.path);
  const hold = holdStore(path);
  try {
    const prepared = `${path}.restoring`;
    // Left behind by one that was cut off.
    removeDatabase(prepared);
    const restore = new Restore(options, { from, path, prepared });
    const ready = await withCopy(prepared, () => restore.prepare());
    // Not inside withCopy: at a signal that would remove the copy, and the store could not be served.
    return await holdingSignals(() => restore.replace(ready)).catch((error: unknown) => {
      removeDatabase(prepared);
      throw error;
    });
  } finally {
    hold.release();
  }
}

/** What is made beside a database if it is not there. */
const BESIDE = [".lock", ".secret", ".position"] as const;

interface RestorePaths {
  readonly from: string;
  readonly path: string;
  readonly prepared: string;
}

interface Ready {
  readonly restored: StoreContent;
  readonly replaced: ReplacedStore | undefined;
  readonly stored: bigint | undefined;
  readonly isGenerationProven: boolean;
}

/** The steps of one restore. The store is this process's. */
class Restore {
  readonly #options: RestoreOptions;
  readonly #paths: RestorePaths;

  constructor(options: RestoreOptions, paths: RestorePaths) {
    this.#options = options;
    this.#paths = paths;
  }

  /** Everything that leaves the store as it is. */
  async prepare(): Promise<Ready> {
    const { path, prepared } = this.#paths;
    // First of all, since a secret that cannot be used stops all of it.
    const stored = await storedGeneration(path);
    const copied = await this.#copy();
    this.#begin("merging");
    const replaced = (await isEmptyOrMissing(path)) ? undefined : mergeReplaced(path);
    const marked = markedGeneration(path);
    const earlier = [copied.generation, replaced?.generation ?? 0n, stored ?? 0n, marked ?? 0n];
    const restored = beginGeneration(prepared, highest(earlier) + 1n);
    if (replaced !== undefined) await giveToOwnerOf(path, prepared);
    await syncFile(prepared);
    const isGenerationProven =
      replaced?.generation !== undefined || stored !== undefined || marked !== undefined;
    return { restored, replaced, stored, isGenerationProven };
  }

  async replace(ready: Ready): Promise<RestoreReport> {
    const { restored, replaced, stored, isGenerationProven } = ready;
    const { from, path } = this.#paths;
    const keptAs = await this.#replace(restored, replaced, stored);
    return { path, from, restored, replaced, keptAs, isGenerationProven };
  }

  #begin(step: RestoreStep): void {
    this.#options.onStep?.(step);
  }

  /** A sound copy in the newest schema beside the old database. */
  async #copy(): Promise<StoreContent> {
    const { copy = copyStoreAside, findDamage = findAnyDamage } = this.#options;
    const { from, prepared } = this.#paths;
    this.#begin("copying");
    await copy({ from, to: prepared });
    this.#begin("migrating");
    const content = migrateCopy(prepared, ROW_RULES);
    this.#begin("verifying");
    await requireSound(prepared, from, findDamage);
    return content;
  }

  /** Where the old database is kept, if it is. */
  async #replace(
    restored: StoreContent,
    replaced: ReplacedStore | undefined,
    stored: bigint | undefined,
  ): Promise<string | undefined> {
    const { path, prepared } = this.#paths;
    this.#begin("keeping");
    const isKept = replaced !== undefined && !this.#options.discard;
    const mark = String(replaced?.generation ?? stored ?? "unknown");
    const keptAs = isKept ? await keepUnder(`${path}.replaced-${mark}`, path) : undefined;
    this.#begin("generation");
    await keepGeneration(path, restored.generation);
    this.#begin("clearing");
    await clearLogs(path, replaced?.isMerged === false ? keptAs : undefined);
    this.#begin("replacing");
    await rename(prepared, path);
    await syncFolder(dirname(path));
    this.#begin("finishing");
    // Not before: a mark ahead of the database refuses it, one of an earlier generation does not.
    writeMark(path, restored);
    for (const suffix of BESIDE) await giveToOwnerOf(path, path + suffix);
    await syncFolder(dirname(path));
    return keptAs;
  }
}

function highest(generations: readonly bigint[]): bigint {
  return generations.reduce((most, one) => (one > most ? one : most), 0n);
}

/** A server that could not start may have left a file without anything in it. */
async function isEmptyOrMissing(path: string): Promise<boolean> {
  try {
    return (await stat(path)).size === 0 && !existsSync(`${path}-wal`);
  } catch (error) {
    if (hasCode(error, "ENOENT")) return true;
    throw error;
  }
}

/** Gives a file a second name, which it keeps when another takes its first: that name, or one like it that is free. */
async function keepUnder(name: string, path: string): Promise<string> {
  const { ino, dev } = await stat(path);
  for (let attempt = 1; ; attempt += 1) {
    const keptAs = attempt === 1 ? name : `${name}.${attempt}`;
    try {
      await link(path, keptAs);
      await syncFolder(dirname(path));
      return keptAs;
    } catch (error) {
      if (!hasCode(error, "EEXIST")) throw cannotKeep(path, toError(error));
      const other = await lstat(keptAs);
      // By a restore that was cut off after it.
      if (other.ino === ino && other.dev === dev) return keptAs;
    }
  }
}

/**
 * No log of the old database may be beside the new one, not even after power loss. What could not be merged stays with
 * the file that it belongs to, if that is kept.
 */
async function clearLogs(path: string, keptAs: string | undefined): Promise<void> {
  for (const suffix of ["-wal", "-journal"]) {
    const isThere = existsSync(path + suffix);
    if (isThere && keptAs !== undefined) await rename(path + suffix, keptAs + suffix);
    else await rm(path + suffix, { force: true });
  }
  await rm(`${path}-shm`, { force: true });
  await syncFolder(dirname(path));
}

function cannotKeep(path: string, cause: Error): StoreOpenError {
  const message = `${path} cannot be kept under another name (--discard gives it up): ${cause.message}`;
  return new StoreOpenError("unavailable", message, { path, cause: cause.message }, { cause });
}

function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
