import { existsSync, realpathSync } from "node:fs";
import type { CreationRow, SessionRef, SessionRows } from "../../ledger/store-port.js";
import { bulkReads } from "./bulk-reads.js";
import { asOpenError, readMeta } from "./copy.js";
import { identifyFile, readMigrations, refuseNewer } from "./migrate.js";
import { openBetterSqlite, openToRead, takeLock } from "./open.js";
import { PositionMark } from "./position-mark.js";
import { toCreationRow, type CreationColumns } from "./rows.js";
import { findSchemaFault } from "./schema-check.js";
import { SessionKeys } from "./session-keys.js";
import { toError, type SqliteDatabase } from "./sqlite-database.js";
import { reading } from "./sqlite-fault.js";
import { SqliteReader } from "./sqlite-reader.js";
import { prepareReads } from "./statements.js";
import { StoreOpenError } from "./store-open-error.js";
import { storePlaceOf } from "./store-place.js";

/** Sessions lie among each other in the file: their pages are needed again. */
const CACHE_KIB = 128 * 1024;
const LIST_SESSIONS = `SELECT session, tenant, session_id FROM sessions
WHERE session > ? ORDER BY session LIMIT ?`;
const LIST_CREATIONS = `SELECT tenant, subject, request_id, digest, session_id, checksum FROM creations
WHERE (tenant, subject, request_id) > (?, ?, ?) ORDER BY tenant, subject, request_id LIMIT ?`;

/** A session of the file, with its place in the order of making. */
export interface ListedSession extends SessionRef {
  readonly key: number;
}

/** Which creation a list goes on after. */
export type CreationPlace = Pick<CreationRow, "tenant" | "subject" | "requestId">;

/** Every row of a file, read without changing it. Reads throw StoreFault. */
export interface FileReader extends SessionRows {
  readonly generation: bigint;
  /** What is wrong with the tables themselves. If something is, no other answer means anything. */
  findSchemaFault(): string | undefined;
  /** What SQLite finds wrong with the file's pages, indices and references. */
  findUnsoundPage(): string | undefined;
  /** Says so if the file has not come as far as the mark beside it tells. */
  findMissingEvents(): string | undefined;
  /** In the order of making. */
  listAllSessions(afterKey: number, limit: number): ListedSession[];
  /** In the order of tenant, subject and request. */
  listCreations(after: CreationPlace, limit: number): CreationRow[];
  close(): void;
}

/**
 * Opens a store that nobody serves, or a backup of one, for reading alone: migrates nothing and writes nothing to the
 * database; what a write-ahead log beside it holds is read. Throws StoreOpenError: "locked" if a server has it.
 */
export function openFileReader(given: string): FileReader {
  // Links to one database lead to one lock and one mark.
  const path = existsSync(given) ? realpathSync(given) : given;
  const lock = lockOf(path);
  try {
    return readerOf(path, lock);
  } catch (error) {
    lock?.close();
    throw asOpenError(path, toError(error));
  }
}

/** As `openFileReader`, for a second connection of a process that has the store already. */
export function openUnlockedFileReader(path: string): FileReader {
  try {
    return readerOf(path, undefined);
  } catch (error) {
    throw asOpenError(path, toError(error));
  }
}

/** A backup has no lock, and gets none. */
function lockOf(path: string): SqliteDatabase | undefined {
  const lockPath = `${path}.lock`;
  if (!existsSync(path) || !existsSync(lockPath)) return undefined;
  try {
    return takeLock(openBetterSqlite, lockPath);
  } catch (error) {
    if (!(error instanceof StoreOpenError) || error.reason !== "locked") throw error;
    const message = `${path} is being served: use VerifySession, or verify a backup`;
    throw new StoreOpenError("locked", message, { path }, { cause: error });
  }
}

function readerOf(path: string, lock: SqliteDatabase | undefined): FileReader {
  const database = openToRead(path);
  try {
    requireNewestSchema(database, path);
    database.pragma("cell_size_check = ON");
    database.pragma(`cache_size = -${CACHE_KIB}`);
    // One transaction: otherwise each read would take and release the locks by itself.
    database.exec("BEGIN");
    const { generation } = readMeta(database);
    return {
      generation,
      findMissingEvents: () => findMissingEvents(database, path),
      ...sessionRowsOf(database),
      ...fileRowsOf(database),
      ...closing(),
    };
  } catch (error) {
    database.close();
    throw error;
  }

  function closing(): Pick<FileReader, "close"> {
    return {
      close: () => {
        database.close();
        lock?.close();
      },
    };
  }
}

function requireNewestSchema(database: SqliteDatabase, path: string): void {
  identifyFile(database, path);
  const migrations = readMigrations();
  const found = refuseNewer(database, migrations);
  if (found === migrations.length) return;
  const details = { found: String(found), needed: String(migrations.length) };
  const message =
    `${path} has schema version ${details.found}, not ${details.needed}: ` +
    "start the server once, or run toolmark migrate";
  throw new StoreOpenError("migration_failed", message, details);
}

function sessionRowsOf(database: SqliteDatabase): SessionRows {
  const statements = prepareReads(database);
  const keys = new SessionKeys(statements.findSessionKey);
  const reader = new SqliteReader(database, keys, statements);
  return {
    findSession: async (session) => reading(() => reader.findSession(session)),
    readSnapshots: async (session) => reading(() => reader.readSnapshots(session)),
    ...bulkReads(database, keys, async (session, ref) =>
      reading(() => reader.readBody(session, ref)),
    ),
    listRecordPlaces: async (session, query) =>
      reading(() => reader.listRecordPlaces(session, query)),
    listAskPlaces: async (session, after, limit) =>
      reading(() => reader.listAskPlaces(session, after, limit)),
    listDeadlines: async (session, after, limit) =>
      reading(() => reader.listDeadlines(session, after, limit)),
    listPairings: async (session, after, limit) =>
      reading(() => reader.listPairings(session, after, limit)),
    listRequests: async (session, after, limit) =>
      reading(() => reader.listRequests(session, after, limit)),
  };
}

/** The log may end earlier than it once did: a cut file, or an older one in its place. */
function findMissingEvents(database: SqliteDatabase, path: string): string | undefined {
  try {
    const place = reading(() => storePlaceOf(database));
    PositionMark.open(path, place, () => undefined).close();
    return undefined;
  } catch (error) {
    if (error instanceof StoreOpenError && error.reason === "events_missing") return error.message;
    throw error;
  }
}

type FileRows = Pick<
  FileReader,
  "findSchemaFault" | "findUnsoundPage" | "listAllSessions" | "listCreations"
>;

function fileRowsOf(database: SqliteDatabase): FileRows {
  const sessions = database.prepare<{ session: number; tenant: string; session_id: string }>(
    LIST_SESSIONS,
  );
  const creations = database.prepare<CreationColumns>(LIST_CREATIONS);
  return {
    findSchemaFault: () => reading(() => findSchemaFault(database, openBetterSqlite)),
    findUnsoundPage: () =>
      reading(() => {
        const found = database.pragma("integrity_check(1)");
        if (found !== "ok") return String(found);
        const table = database.pragma("foreign_key_check");
        return typeof table === "string" ? `a row of ${table} is of no session` : undefined;
      }),
    listAllSessions: (after, limit) =>
      reading(() =>
        sessions.all(after, limit).map(({ session: key, tenant, session_id: sessionId }) => ({
          ...{ key, tenant, sessionId },
        })),
      ),
    listCreations: ({ tenant, subject, requestId }, limit) =>
      reading(() => creations.all(tenant, subject, requestId, limit).map(toCreationRow)),
  };
}
