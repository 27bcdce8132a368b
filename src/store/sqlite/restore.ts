import type { RowRules } from "../../ledger/store-port.js";
import { asOpenError, contentOf, readMeta, type StoreContent } from "./copy.js";
import { metaChecksum } from "./meta.js";
import { migrateUp, readMigrations } from "./migrate.js";
import { openBetterSqlite, openFile, openToRead, refuseMissingEvents, takeLock } from "./open.js";
import { rebuild } from "./rebuild.js";
import { sqliteCode, toError, type SqliteDatabase } from "./sqlite-database.js";
import { StoreOpenError, type StoreOpenReason } from "./store-open-error.js";

const DAMAGE_REASONS: ReadonlySet<StoreOpenReason> = new Set(["unreadable", "events_missing"]);
const BUSY_TIMEOUT_MS = 2000;
const SET_META = "UPDATE meta SET generation = ?, checksum = ? WHERE id = 1";
/** Revisions of a generation begin at 2^32 times it and have 63 bits. */
const GENERATION_MAX = 2n ** 31n - 1n;

/** Takes a store, whose file may be damaged or missing, for this process alone. Throws StoreOpenError. */
export function holdStore(path: string): { release(): void } {
  const lock = takeLock(openBetterSqlite, `${path}.lock`);
  return {
    release: () => {
      lock.close();
    },
  };
}

/** What was found of a store whose file is to be replaced. */
export interface ReplacedStore {
  /** Absent if it cannot be told. */
  readonly generation: bigint | undefined;
  /** Absent if the file is damaged or of a schema that is not known. */
  readonly content: StoreContent | undefined;
  /** Whether all that was committed is in the file itself. */
  readonly isMerged: boolean;
}

/**
 * Merges the write-ahead log of a held store into its file, and says what is in it. What is damaged is told as far as
 * it can be read. Throws StoreOpenError: "foreign_file" if it is no store, "locked" if somebody reads it, "unavailable"
 * if the disk is full.
 */
export function mergeReplaced(path: string): ReplacedStore {
  if (!isWhole(path)) return unmerged(path);
  let database: SqliteDatabase | undefined;
  try {
    database = openFile(openBetterSqlite, path, BUSY_TIMEOUT_MS);
    const generation = readable(() => database && readMeta(database).generation);
    const content = readable(() => database && contentOf(database));
    if (database.pragma("wal_checkpoint(TRUNCATE)") !== 0) throw inUse(path);
    return { generation, content, isMerged: true };
  } catch (error) {
    if (!isDamage(toError(error))) throw asOpenError(path, toError(error));
    return { generation: undefined, content: undefined, isMerged: false };
  } finally {
    database?.close();
  }
}

/** Whether merging the log would lose nothing of it: SQLite passes over what is damaged in it, and removes it. */
function isWhole(path: string): boolean {
  try {
    refuseMissingEvents(path, BUSY_TIMEOUT_MS);
    return true;
  } catch (error) {
    return !(error instanceof StoreOpenError && error.reason === "events_missing");
  }
}

function unmerged(path: string): ReplacedStore {
  const database = readable(() => openToRead(path, BUSY_TIMEOUT_MS));
  try {
    const generation = readable(() => database && readMeta(database).generation);
    const content = readable(() => database && contentOf(database));
    return { generation, content, isMerged: false };
  } finally {
    database?.close();
  }
}

/** Brings a copy to the newest schema, and says what is in it. Throws StoreOpenError. */
export function migrateCopy(path: string, rules: RowRules): StoreContent {
  return onCopy(path, (database) => {
    migrateUp(database, readMigrations(), (older) => {
      rebuild(older, rules);
    });
    return contentOf(database);
  });
}

/** Begins a log generation in a copy, and says what is in it. Throws StoreOpenError. */
export function beginGeneration(path: string, generation: bigint): StoreContent {
  if (generation > GENERATION_MAX) {
    throw new StoreOpenError("unavailable", "there are no further log generations", { path });
  }
  return onCopy(path, (database) => {
    const { storeId } = readMeta(database);
    database.prepare(SET_META).run(generation, metaChecksum({ storeId, generation }));
    return contentOf(database);
  });
}

/** When this returns, the file itself has everything, and no log is beside it. */
function onCopy<Answer>(path: string, work: (database: SqliteDatabase) => Answer): Answer {
  const database = openFile(openBetterSqlite, path, BUSY_TIMEOUT_MS);
  try {
    const answer = work(database);
    if (database.pragma("wal_checkpoint(TRUNCATE)") !== 0) throw inUse(path);
    return answer;
  } catch (error) {
    throw asOpenError(path, toError(error));
  } finally {
    database.close();
  }
}

/** What can be read of damaged rows. */
function readable<Answer>(read: () => Answer): Answer | undefined {
  try {
    return read();
  } catch (error) {
    if (isDamage(toError(error))) return undefined;
    throw error;
  }
}

/** Of a file that is replaced because it is damaged, neither rows nor pages need to be what they were. */
function isDamage(error: Error): boolean {
  if (error instanceof StoreOpenError && DAMAGE_REASONS.has(error.reason)) return true;
  const code = sqliteCode(error) ?? sqliteCode(error.cause) ?? "";
  return /^SQLITE_(CORRUPT|NOTADB|ERROR|MISMATCH|IOERR_(READ|SHORT_READ|DATA))/.test(code);
}

function inUse(path: string): StoreOpenError {
  const message = `another program reads ${path}: try again when it has ended`;
  return new StoreOpenError("locked", message, { path });
}
