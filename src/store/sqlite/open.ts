import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  realpathSync,
  statSync,
} from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import BetterSqlite from "better-sqlite3";
import type { RowRules } from "../../ledger/store-port.js";
import { FileGuard, StoreFilesGoneError } from "./file-guard.js";
import { identifyFile, migrateUp, readMigrations } from "./migrate.js";
import { markPath, PositionMark, type OnWarning } from "./position-mark.js";
import { rebuild } from "./rebuild.js";
import { findSchemaFault } from "./schema-check.js";
import { sqliteCode, toError, type OpenDatabase, type SqliteDatabase } from "./sqlite-database.js";
import { StoreOpenError, type StoreOpenReason } from "./store-open-error.js";
import { storePlaceOf } from "./store-place.js";

const MIB = 1024 * 1024;
const PRIVATE_FILE_MODE = 0o600;
const PRIVATE_FOLDER_MODE = 0o700;
const BUSY_TIMEOUT_MS = 200;

/** Set on each connection, then read back: a build or a driver may ignore what it is told. */
const SETTINGS: readonly { name: string; value: string; readBack: string | number }[] = [
  { name: "journal_mode", value: "WAL", readBack: "wal" },
  { name: "synchronous", value: "FULL", readBack: 2 },
  { name: "recursive_triggers", value: "ON", readBack: 1 },
  { name: "foreign_keys", value: "ON", readBack: 1 },
  { name: "ignore_check_constraints", value: "OFF", readBack: 0 },
  // Erased bytes must not stay in free pages.
  { name: "secure_delete", value: "ON", readBack: 1 },
  { name: "trusted_schema", value: "OFF", readBack: 0 },
  { name: "cell_size_check", value: "ON", readBack: 1 },
  // On macOS a plain fsync stops at the drive's cache; elsewhere these do nothing.
  { name: "fullfsync", value: "ON", readBack: 1 },
  { name: "checkpoint_fullfsync", value: "ON", readBack: 1 },
  { name: "wal_autocheckpoint", value: "3000", readBack: 3000 },
  { name: "journal_size_limit", value: String(16 * MIB), readBack: 16 * MIB },
  { name: "cache_size", value: "-65536", readBack: -65536 },
  { name: "temp_store", value: "MEMORY", readBack: 2 },
];

/** Opens a connection by better-sqlite3. */
export const openBetterSqlite: OpenDatabase = (path, { busyTimeoutMs }) =>
  connectionOf(new BetterSqlite(path, { timeout: busyTimeoutMs }));

/**
 * Opens a file that is there, to read what is committed in it and in its write-ahead log. Neither is changed, and no
 * lock is needed: a server may go on writing. Throws StoreOpenError.
 */
export function openToRead(path: string, busyTimeoutMs = 1000): SqliteDatabase {
  try {
    const options = { timeout: busyTimeoutMs, readonly: true, fileMustExist: true };
    return connectionOf(new BetterSqlite(path, options));
  } catch (error) {
    throw unavailable(path, error);
  }
}

function connectionOf(connection: BetterSqlite.Database): SqliteDatabase {
  return {
    get inTransaction() {
      return connection.inTransaction;
    },
    prepare: <Row>(sql: string) => connection.prepare<unknown[], Row>(sql),
    exec: (sql) => void connection.exec(sql),
    pragma: (text) => connection.pragma(text, { simple: true }),
    close: () => void connection.close(),
  };
}

export interface OpenOptions {
  readonly path: string;
  /** How long a statement may block on another connection's lock. */
  readonly busyTimeoutMs?: number;
  /** Replaces better-sqlite3, for tests of what a weaker one would do. */
  readonly openDatabase?: OpenDatabase;
  /** Needed for a file of an older version that has to be rebuilt. */
  readonly rules?: RowRules;
  /** Is told what was amiss and was passed over. */
  readonly onWarning?: OnWarning;
}

/** A database that is this process's alone until closed. */
export interface OpenedDatabase {
  readonly database: SqliteDatabase;
  readonly path: string;
  readonly busyTimeoutMs: number;
  readonly guard: FileGuard;
  readonly mark: PositionMark;
  /** Once. Throws StoreFilesGoneError, and leaves everything open, if the path leads to other files by now. */
  close(): void;
}

/**
 * Opens the file for this process alone, with every setting verified. Throws `StoreOpenError`, and then leaves nothing
 * open. The schema is the file's own: callers migrate. A file that was closed in order is not written to.
 */
export function openDatabase(options: OpenOptions): OpenedDatabase {
  const { openDatabase: open = openBetterSqlite, busyTimeoutMs = BUSY_TIMEOUT_MS } = options;
  const path = resolvePath(options.path);
  const lock = takeLock(open, `${path}.lock`);
  let database: SqliteDatabase | undefined;
  let mark: PositionMark | undefined;
  try {
    checkMark(path, busyTimeoutMs);
    const isLogLeftOver = sizeOf(`${path}-wal`) > 0;
    database = openFile(open, path, busyTimeoutMs);
    // Before anything is written: what is missing may be put back.
    mark = PositionMark.open(path, storePlaceOf(database), options.onWarning ?? ignore);
    if (isLogLeftOver) emptyLog(database, path);
    const guard = new FileGuard([path, `${path}-wal`, `${path}.lock`]);
    const close = closing({ database, lock, guard, mark });
    return { database, path, busyTimeoutMs, guard, mark, close };
  } catch (error) {
    mark?.close();
    database?.close();
    lock.close();
    throw openError(path, error);
  }
}

/** What is wrong with a file whatever is missing from it. */
const TOLD_BY_OPENING: ReadonlySet<StoreOpenReason> = new Set(["unreadable", "foreign_file"]);

/**
 * Looks at the mark before anything is made or changed: what is missing may be put back. What else is wrong with the
 * file is told by the open that follows.
 */
function checkMark(path: string, busyTimeoutMs: number): void {
  if (sizeOf(markPath(path)) === 0) return;
  try {
    if (existsSync(path)) refuseMissingEvents(path, busyTimeoutMs);
    else PositionMark.open(path, undefined, ignore).close();
  } catch (error) {
    if (error instanceof StoreOpenError && TOLD_BY_OPENING.has(error.reason)) return;
    throw error;
  }
}

/**
 * Looks by a connection that cannot write: one that can moves what it takes for the log into the file, and removes the
 * log, as it is closed. Throws StoreOpenError.
 */
export function refuseMissingEvents(path: string, busyTimeoutMs: number): void {
  const database = openToRead(path, busyTimeoutMs);
  try {
    identifyFile(database, path);
    PositionMark.open(path, storePlaceOf(database), ignore).close();
  } catch (error) {
    throw error instanceof StoreOpenError ? error : unavailable(path, error);
  } finally {
    database.close();
  }
}

/**
 * Copies what a process that did not close the file left in the log, and syncs it. Its last syncs may have failed:
 * commits on top of pages that are not on disk would be lost with them.
 */
function emptyLog(database: SqliteDatabase, path: string): void {
  if (database.pragma("wal_checkpoint(TRUNCATE)") !== 0) throw locked(path);
}

function closing(opened: {
  readonly database: SqliteDatabase;
  readonly lock: SqliteDatabase;
  readonly guard: FileGuard;
  readonly mark: PositionMark;
}): () => void {
  const { database, lock, guard, mark } = opened;
  let isClosed = false;
  return () => {
    if (isClosed) return;
    const gone = guard.gone();
    // SQLite would remove the log at the path, which is that of another file.
    if (gone !== undefined) throw gone;
    isClosed = true;
    try {
      mark.close();
      database.close();
    } finally {
      lock.close();
    }
  };
}

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

function ignore(): void {
  // Whoever wants warnings says so.
}

/** As `openDatabase`, with the newest schema. */
export function openMigratedDatabase(options: OpenOptions): OpenedDatabase {
  const opened = openDatabase(options);
  try {
    const { rules } = options;
    const rebuilding = rules === undefined ? undefined : rebuildBy(rules);
    migrateUp(opened.database, readMigrations(), rebuilding);
    refuseDamagedSchema(opened);
    return opened;
  } catch (error) {
    opened.close();
    throw openError(opened.path, error);
  }
}

/** Without its own tables and triggers the database would not refuse what it has to. */
function refuseDamagedSchema({ database, path }: OpenedDatabase): void {
  const fault = findSchemaFault(database, openBetterSqlite);
  if (fault === undefined) return;
  throw new StoreOpenError("unreadable", `${path} is damaged: ${fault}`, { path, fault });
}

function rebuildBy(rules: RowRules): (database: SqliteDatabase) => void {
  return (database) => {
    rebuild(database, rules);
  };
}

/** The one path of a store's file, whatever links lead to it; its folder is made if there is none. */
export function resolvePath(path: string): string {
  if (path.trim() === "" || path.startsWith(":") || path.startsWith("file:")) {
    throw new StoreOpenError("path_invalid", `store path ${path} names no file`, { path });
  }
  const absolute = resolve(path);
  try {
    if (existsSync(absolute)) return realpathSync(absolute);
    makeFolder(dirname(absolute));
    return join(realpathSync(dirname(absolute)), basename(absolute));
  } catch (error) {
    throw unavailable(path, error);
  }
}

/** Each new folder is made to survive power loss: else all that is in it would not. */
function makeFolder(folder: string): void {
  const first = mkdirSync(folder, { recursive: true, mode: PRIVATE_FOLDER_MODE });
  if (first === undefined) return;
  let parent = folder;
  do {
    parent = dirname(parent);
    syncFolder(parent);
  } while (parent !== dirname(first) && parent !== dirname(parent));
}

/** Makes the names in a folder survive power loss. */
function syncFolder(path: string): void {
  const folder = openSync(path, "r");
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}

/**
 * Makes the store this process's alone until closed. Throws StoreOpenError: "locked" if another has it. The lock is a
 * file of its own, so that readers of the database are not kept out. A dead process frees it.
 */
export function takeLock(open: OpenDatabase, path: string): SqliteDatabase {
  let lock: SqliteDatabase | undefined;
  try {
    createPrivateFile(path);
    lock = open(path, { busyTimeoutMs: 0 });
    lock.exec("BEGIN EXCLUSIVE");
    return lock;
  } catch (error) {
    lock?.close();
    if (!isBusy(error)) throw unavailable(path, error);
    const message = `the store is open already: ${path} is held`;
    throw new StoreOpenError("locked", message, { path }, { cause: error });
  }
}

/** Opens a file for a caller who has taken the lock. */
export function openFile(open: OpenDatabase, path: string, busyTimeoutMs: number): SqliteDatabase {
  let database: SqliteDatabase | undefined;
  try {
    createPrivateFile(path);
    database = open(path, { busyTimeoutMs });
    identifyFile(database, path);
    applySettings(database);
    syncNewLog(database, path);
    return database;
  } catch (error) {
    database?.close();
    throw error instanceof StoreOpenError ? error : unavailable(path, error);
  }
}

/** The first read makes the log. SQLite syncs its folder later, but passes over it if that fails. */
function syncNewLog(database: SqliteDatabase, path: string): void {
  database.pragma("schema_version");
  syncFolder(dirname(path));
}

/** Only for a file that is not there yet: closing a second handle would drop this process's locks on it. */
function createPrivateFile(path: string): void {
  if (!existsSync(path)) closeSync(openSync(path, "a", PRIVATE_FILE_MODE));
}

function applySettings(database: SqliteDatabase): void {
  for (const { name, value } of SETTINGS) database.pragma(`${name} = ${value}`);
  for (const { name, readBack } of SETTINGS) {
    const found = database.pragma(name);
    if (found === readBack) continue;
    const details = { setting: name, expected: String(readBack), found: String(found) };
    const message = `${name} is ${details.found}, the store needs ${details.expected}`;
    throw new StoreOpenError("weak_setting", message, details);
  }
}

/** Why a store could not be opened, as StoreOpenError. A fault of this program stays what it is. */
export function openError(path: string, thrown: unknown): Error {
  if (thrown instanceof StoreOpenError && !isBusy(thrown.cause)) return thrown;
  if (isBusy(thrown) || thrown instanceof StoreOpenError) return locked(path, thrown);
  const cause = toError(thrown);
  const isOutside = "code" in cause || cause instanceof StoreFilesGoneError;
  return isOutside ? unavailable(path, cause) : cause;
}

function unavailable(path: string, thrown: unknown): StoreOpenError {
  const cause = toError(thrown);
  if (isBusy(cause)) return locked(path, cause);
  const isDamaged = /^SQLITE_(NOTADB|CORRUPT)(_|$)/.test(sqliteCode(cause) ?? "");
  const reason = isDamaged ? "unreadable" : "unavailable";
  const details = { path, cause: cause.message };
  return new StoreOpenError(reason, `cannot open ${path}: ${cause.message}`, details, { cause });
}

function locked(path: string, thrown?: unknown): StoreOpenError {
  const message = `another process holds the database ${path}: end it, or wait until it is done`;
  return new StoreOpenError("locked", message, { path }, { cause: thrown });
}

function isBusy(thrown: unknown): boolean {
  return /^SQLITE_(BUSY|LOCKED)(_|$)/.test(sqliteCode(thrown) ?? "");
}
