import { Worker } from "node:worker_threads";
import { toMeta } from "./meta.js";
import { identifyFile, schemaVersion } from "./migrate.js";
import { openToRead } from "./open.js";
import type { MetaColumns } from "./rows.js";
import { sqliteCode, toError, type SqliteDatabase } from "./sqlite-database.js";
import { StoreOpenError, type StoreOpenReason } from "./store-open-error.js";

/** Since this version the row of generation and id has a checksum. */
const META_CHECKSUM_VERSION = 4;
const READ_META = "SELECT * FROM meta WHERE id = 1";
const COUNT_ROWS = `SELECT (SELECT count(*) FROM sessions) AS sessions,
  (SELECT count(*) FROM events) AS events,
  (SELECT coalesce(max(position), 0) FROM events) AS position`;

/** What is in a store's file. */
export interface StoreContent {
  readonly schemaVersion: number;
  readonly storeId: string;
  readonly generation: bigint;
  /** Of the last event; 0 if there is none. */
  readonly position: bigint;
  readonly sessions: number;
  readonly events: number;
}

/** What the thread that copies is given, and what it answers. */
export interface CopyTask {
  readonly from: string;
  readonly to: string;
}
export interface CopyFault {
  readonly reason: StoreOpenReason;
  readonly message: string;
  readonly details: Readonly<Record<string, string>>;
}

/**
 * Copies what is committed in a store, of one moment, into one file that is empty or not there, while a server may go
 * on writing. The copy needs no write-ahead log and has no free pages. Blocks until it is done. Throws StoreOpenError:
 * "unreadable" if the store is damaged, "foreign_file" if it is none, "unavailable" if the disk is full or fails.
 */
export function copyStore({ from, to }: CopyTask): void {
  const database = openToRead(from);
  try {
    requireStore(database, from);
    database.prepare("VACUUM INTO ?").run(to);
  } catch (error) {
    throw copyFailed({ from, to }, toError(error));
  } finally {
    database.close();
  }
}

/** As `copyStore`, in a thread of its own: signals are heard meanwhile. */
export function copyStoreAside(task: CopyTask): Promise<void> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL("./copy-thread.js", import.meta.url), { workerData: task });
    worker.once("message", (fault: CopyFault | undefined) => {
      if (fault === undefined) resolve();
      else reject(new StoreOpenError(fault.reason, fault.message, fault.details));
    });
    worker.once("error", reject);
  });
}

/** What is in a file that nobody writes to. Throws StoreOpenError. */
export function describeStore(path: string): StoreContent {
  const database = openToRead(path);
  try {
    requireStore(database, path);
    return contentOf(database);
  } catch (error) {
    throw asOpenError(path, toError(error));
  } finally {
    database.close();
  }
}

/** Whether SQLite finds the file sound: the first thing that it says is not. Throws StoreOpenError. */
export function findUnsoundPage(path: string): string | undefined {
  const database = openToRead(path);
  try {
    const found = database.pragma("integrity_check(1)");
    return found === "ok" ? undefined : String(found);
  } catch (error) {
    throw asOpenError(path, toError(error));
  } finally {
    database.close();
  }
}

/** What the file on this connection holds. Throws what SQLite throws, or StoreOpenError. */
export function contentOf(database: SqliteDatabase): StoreContent {
  const counts = database
    .prepare<{ sessions: bigint; events: bigint; position: bigint }>(COUNT_ROWS)
    .safeIntegers()
    .get();
  const { sessions = 0n, events = 0n, position = 0n } = counts ?? {};
  const { storeId, generation } = readMeta(database);
  return {
    ...{ schemaVersion: schemaVersion(database), storeId, generation, position },
    ...{ sessions: Number(sessions), events: Number(events) },
  };
}

/** Id and generation of the file on this connection. Throws StoreOpenError if they are not as they were written. */
export function readMeta(database: SqliteDatabase): Pick<StoreContent, "storeId" | "generation"> {
  const columns = database.prepare<MetaColumns>(READ_META).safeIntegers().get();
  if (columns === undefined) throw new StoreOpenError("unreadable", "the file has no store's id");
  if (schemaVersion(database) >= META_CHECKSUM_VERSION) return toMeta(columns);
  return { storeId: columns.store_id, generation: columns.generation };
}

/** An empty file would do for a new store, but there is nothing to be copied in it. */
function requireStore(database: SqliteDatabase, path: string): void {
  identifyFile(database, path);
  if (schemaVersion(database) > 0) return;
  throw new StoreOpenError("unreadable", `${path} is empty: there is no store in it`, { path });
}

/** Only the copy is written to. */
function copyFailed({ from, to }: CopyTask, cause: Error): StoreOpenError {
  const code = sqliteCode(cause) ?? "";
  const isFull = code === "SQLITE_FULL";
  const isOfCopy = isFull || /^SQLITE_IOERR_(WRITE|FSYNC|TRUNCATE)/.test(code);
  if (!isOfCopy) {
    return asOpenError(from, cause);
  }
  const text = isFull ? `no space is left for ${to}` : `${to} cannot be written`;
  const details = { path: to, cause: cause.message };
  return new StoreOpenError("unavailable", `${text}: ${cause.message}`, details, { cause });
}

/** The error as one that says of which file it tells. */
export function asOpenError(path: string, cause: Error): StoreOpenError {
  if (cause instanceof StoreOpenError) return cause;
  const isDamage = isDamageCode(sqliteCode(cause));
  const text = isDamage ? `${path} is damaged` : `${path} cannot be read or written`;
  const details = { path, cause: cause.message };
  const reason = isDamage ? "unreadable" : "unavailable";
  return new StoreOpenError(reason, `${text}: ${cause.message}`, details, { cause });
}

/** Not what a schema or a table is said to be, or no database at all. */
function isDamageCode(code = ""): boolean {
  return /^SQLITE_(CORRUPT|NOTADB|ERROR|MISMATCH)/.test(code);
}
