import { existsSync, mkdirSync, openSync, closeSync, realpathSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import BetterSqlite from "better-sqlite3";
import { identifyFile, migrateUp, readMigrations } from "./migrate.js";
import { sqliteCode, toError, type OpenDatabase, type SqliteDatabase } from "./sqlite-database.js";
import { StoreOpenError } from "./store-open-error.js";

const MIB = 1024 * 1024;
const PRIVATE_FILE_MODE = 0o600;
const PRIVATE_FOLDER_MODE = 0o700;

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
export const openBetterSqlite: OpenDatabase = (path, { busyTimeoutMs }) => {
  const connection = new BetterSqlite(path, { timeout: busyTimeoutMs });
  return {
    get inTransaction() {
      return connection.inTransaction;
    },
    prepare: <Row>(sql: string) => connection.prepare<unknown[], Row>(sql),
    exec: (sql) => void connection.exec(sql),
    pragma: (text) => connection.pragma(text, { simple: true }),
    close: () => void connection.close(),
  };
};

export interface OpenOptions {
  readonly path: string;
  /** How long a statement may block on another connection's lock. */
  readonly busyTimeoutMs?: number;
  /** Replaces better-sqlite3, for tests of what a weaker one would do. */
  readonly openDatabase?: OpenDatabase;
}

/** A database that is this process's alone until closed. */
export interface OpenedDatabase {
  readonly database: SqliteDatabase;
  readonly path: string;
  close(): void;
}

/**
 * Opens the file for this process alone, with every setting verified. Throws `StoreOpenError`, and then leaves nothing
 * open. The schema is the file's own: callers migrate.
 */
export function openDatabase(options: OpenOptions): OpenedDatabase {
  const open = options.openDatabase ?? openBetterSqlite;
  const path = resolvePath(options.path);
  const lock = takeLock(open, `${path}.lock`);
  try {
    const database = openFile(open, path, options.busyTimeoutMs ?? 200);
    return {
      database,
      path,
      close: () => {
        try {
          database.close();
        } finally {
          lock.close();
        }
      },
    };
  } catch (error) {
    lock.close();
    throw error;
  }
}

/** As `openDatabase`, with the newest schema. */
export function openMigratedDatabase(options: OpenOptions): OpenedDatabase {
  const opened = openDatabase(options);
  try {
    migrateUp(opened.database, readMigrations());
    return opened;
  } catch (error) {
    opened.close();
    throw error;
  }
}

/** Links to one file must lead to one lock. */
function resolvePath(path: string): string {
  if (path.trim() === "" || path.startsWith(":") || path.startsWith("file:")) {
    throw new StoreOpenError("path_invalid", `store path ${path} names no file`, { path });
  }
  const absolute = resolve(path);
  try {
    if (existsSync(absolute)) return realpathSync(absolute);
    mkdirSync(dirname(absolute), { recursive: true, mode: PRIVATE_FOLDER_MODE });
    return join(realpathSync(dirname(absolute)), basename(absolute));
  } catch (error) {
    throw unavailable(path, error);
  }
}

/** The lock is a file of its own, so that readers of the database are not kept out. A dead process frees it. */
function takeLock(open: OpenDatabase, path: string): SqliteDatabase {
  let lock: SqliteDatabase | undefined;
  try {
    createPrivateFile(path);
    lock = open(path, { busyTimeoutMs: 0 });
    lock.exec("BEGIN EXCLUSIVE");
    return lock;
  } catch (error) {
    lock?.close();
    if (sqliteCode(error)?.startsWith("SQLITE_BUSY") !== true) throw unavailable(path, error);
    const message = `the store is open already: ${path} is held`;
    throw new StoreOpenError("locked", message, { path }, { cause: error });
  }
}

function openFile(open: OpenDatabase, path: string, busyTimeoutMs: number): SqliteDatabase {
  let database: SqliteDatabase | undefined;
  try {
    createPrivateFile(path);
    database = open(path, { busyTimeoutMs });
    identifyFile(database, path);
    applySettings(database);
    return database;
  } catch (error) {
    database?.close();
    throw error instanceof StoreOpenError ? error : unavailable(path, error);
  }
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

function unavailable(path: string, thrown: unknown): StoreOpenError {
  const cause = toError(thrown);
  const damaged = ["SQLITE_NOTADB", "SQLITE_CORRUPT"].includes(sqliteCode(cause) ?? "");
  const reason = damaged ? "unreadable" : "unavailable";
  const details = { path, cause: cause.message };
  return new StoreOpenError(reason, `cannot open ${path}: ${cause.message}`, details, { cause });
}
