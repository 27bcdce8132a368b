import { rmSync } from "node:fs";
import { describeStore, findUnsoundPage, type StoreContent } from "../store/sqlite/copy.js";
import { readMigrations } from "../store/sqlite/migrate.js";
import { StoreOpenError } from "../store/sqlite/store-open-error.js";
import { makePrivateFile, syncFile } from "./durable-file.js";
import { cleaningUpOnSignal } from "./signal-cleanup.js";
import { findDamage } from "./verify-store.js";

/** What SQLite may put beside a file. */
const SQLITE_SUFFIXES = ["-wal", "-shm", "-journal"] as const;

/** Names the first thing that is not as it was written in a file that nobody has open, if there is any. */
export type FindDamage = (path: string) => Promise<string | undefined>;

/** Removes a database with all that SQLite put beside it. */
export function removeDatabase(path: string): void {
  for (const suffix of ["", ...SQLITE_SUFFIXES]) rmSync(`${path}${suffix}`, { force: true });
}

/** Makes a file for a copy of a store and works on it. If that fails or is ended by a signal, the file is gone. */
export async function withCopy<Answer>(path: string, work: () => Promise<Answer>): Promise<Answer> {
  const remove = (): void => {
    removeDatabase(path);
  };
  return cleaningUpOnSignal(remove, async () => {
    makePrivateFile(path);
    return work();
  }).catch((error: unknown) => {
    remove();
    throw error;
  });
}

/** Has the copy on the disk, and as it was written. Rejects with StoreOpenError "unreadable" if it is damaged. */
export async function requireSound(path: string, from: string, find: FindDamage): Promise<void> {
  const damage = await find(path);
  if (damage !== undefined) {
    throw new StoreOpenError("unreadable", `${from} is damaged: ${damage}`, { path: from, damage });
  }
  await syncFile(path);
}

/** Looks at the pages, then at every row of a store in the newest schema. Only that has what rows are checked by. */
export const findAnyDamage: FindDamage = async (path) =>
  isNewest(describeStore(path)) ? findDamage(path) : findUnsoundPage(path);

export function isNewest({ schemaVersion }: Pick<StoreContent, "schemaVersion">): boolean {
  return schemaVersion === readMigrations().length;
}
