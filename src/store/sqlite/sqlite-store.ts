import type { Store } from "../../ledger/store-port.js";
import { migrateDown, readMigrations } from "./migrate.js";
import {
  openDatabase,
  openMigratedDatabase,
  type OpenedDatabase,
  type OpenOptions,
} from "./open.js";
import { SessionKeys } from "./session-keys.js";
import { SqliteReader } from "./sqlite-reader.js";
import { SqliteWriter } from "./sqlite-writer.js";
import { prepareReads, prepareWrites } from "./statements.js";

/** A store in one SQLite file. */
export interface SqliteStore extends Store {
  /** Given to the file when it was made. */
  readonly storeId: string;
}

export interface SqliteStoreOptions extends OpenOptions {
  /** Taken if the file is new: a random id, which tells one store's cursors from another's. */
  readonly storeId: string;
  /** Taken if the file is new. */
  readonly generation?: bigint;
}

/**
 * Opens the file as the only writer, making or migrating it as needed. Rejects with `StoreOpenError`. Opening a file
 * that is up to date writes nothing to it.
 */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<SqliteStore> {
  const opened = openMigratedDatabase(options);
  try {
    return createStore(opened, options);
  } catch (error) {
    opened.close();
    throw error;
  }
}

/** Takes the schema of a file that nobody has open back to an older version. */
export async function downgradeSqliteStore(
  options: OpenOptions & { readonly version: number; readonly allowDataLoss?: boolean },
): Promise<void> {
  const opened = openDatabase(options);
  try {
    migrateDown(opened.database, readMigrations(), options.version, options.allowDataLoss);
  } finally {
    opened.close();
  }
}

function createStore(opened: OpenedDatabase, options: SqliteStoreOptions): SqliteStore {
  const { database } = opened;
  const reads = prepareReads(database);
  const writes = prepareWrites(database);
  let meta = reads.readMeta.get();
  if (meta === undefined) {
    meta = { generation: options.generation ?? 0n, store_id: options.storeId };
    writes.insertMeta.run(meta.generation, meta.store_id);
  }
  const keys = new SessionKeys(reads.findSessionKey);
  const reader = new SqliteReader(database, keys, reads);
  const writer = new SqliteWriter(database, keys, writes, reads);
  return {
    generation: meta.generation,
    storeId: meta.store_id,
    lastPosition: async () => reader.lastPosition(),
    commit: async (group) => writer.commit(group),
    findSession: async (session) => reader.findSession(session),
    listSessions: async (query) => reader.listSessions(query),
    readSnapshots: async (session) => reader.readSnapshots(session),
    readEvents: async (session, afterSequence, limit, maxBytes) =>
      reader.readEvents(session, afterSequence, { limit, maxBytes }),
    readEvent: async (session, sequence) => reader.readEvent(session, sequence),
    findRecord: async (session, recordId) => reader.findRecord(session, recordId),
    listRecords: async (session, query) => reader.listRecords(session, query),
    listAsks: async (query) => reader.listAsks(query),
    listAskChanges: async (query) => reader.listAskChanges(query),
    listDue: async (query) => reader.listDue(query),
    nextDeadlineMs: async () => reader.nextDeadlineMs(),
    readBody: async (session, bodyRef) => reader.readBody(session, bodyRef),
    findBody: async (session, bodyRef) => reader.findBody(session, bodyRef),
    readPairings: async (session, toolCallIds) => reader.readPairings(session, toolCallIds),
    findRequests: async (requests) => reader.findRequests(requests),
    findCreation: async (tenant, subject, requestId) =>
      reader.findCreation(tenant, subject, requestId),
    close: async () => {
      opened.close();
    },
  };
}
