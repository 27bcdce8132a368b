import type { Store } from "../../ledger/store-port.js";
import { migrateDown, readMigrations } from "./migrate.js";
import {
  openDatabase,
  openError,
  openMigratedDatabase,
  type OpenedDatabase,
  type OpenOptions,
} from "./open.js";
import { metaChecksum, toMeta, type StoreMeta } from "./meta.js";
import { removeMark } from "./position-mark.js";
import { SessionKeys } from "./session-keys.js";
import { reading } from "./sqlite-fault.js";
import { SqliteReader } from "./sqlite-reader.js";
import { SqliteWriter } from "./sqlite-writer.js";
import {
  prepareReads,
  prepareWrites,
  type ReadStatements,
  type WriteStatements,
} from "./statements.js";

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
    throw openError(opened.path, error);
  }
}

/** Takes the schema of a file that nobody has open back to an older version. */
export async function downgradeSqliteStore(
  options: OpenOptions & { readonly version: number; readonly allowDataLoss?: boolean },
): Promise<void> {
  const opened = openDatabase(options);
  try {
    migrateDown(opened.database, readMigrations(), options.version, options.allowDataLoss);
    // Then nothing is left of the store.
    if (options.version === 0) removeMark(opened.path);
  } finally {
    opened.close();
  }
}

function createStore(opened: OpenedDatabase, options: SqliteStoreOptions): SqliteStore {
  const { database } = opened;
  const reads = prepareReads(database);
  const writes = prepareWrites(database);
  const { generation, storeId } = metaOf(reads, writes, options);
  const position = reads.lastPosition.get()?.position ?? 0n;
  opened.mark.begin({ generation, storeId, position });
  const keys = new SessionKeys(reads.findSessionKey);
  const reader = new SqliteReader(database, keys, reads);
  const writer = new SqliteWriter(opened, keys, writes, reads);
  return {
    generation,
    storeId,
    ...eventReads(reader),
    ...recordReads(reader),
    ...rowReads(reader),
    commit: async (group) => writer.commit(group),
    close: async () => {
      writer.close();
    },
  };
}

/** What the file says of itself; a new one is told. */
function metaOf(
  reads: ReadStatements,
  writes: WriteStatements,
  { storeId, generation = 0n }: SqliteStoreOptions,
): StoreMeta {
  const stored = reads.readMeta.get();
  if (stored !== undefined) return toMeta(stored);
  const meta = { storeId, generation };
  writes.insertMeta.run(generation, storeId, metaChecksum(meta));
  return meta;
}

type EventReads = Pick<
  Store,
  | "lastPosition"
  | "lastEventTimeMs"
  | "findSession"
  | "listSessions"
  | "readSnapshots"
  | "readEvents"
  | "readEvent"
>;

function eventReads(reader: SqliteReader): EventReads {
  return {
    lastPosition: async () => reading(() => reader.lastPosition()),
    lastEventTimeMs: async () => reading(() => reader.lastEventTimeMs()),
    findSession: async (session) => reading(() => reader.findSession(session)),
    listSessions: async (query) => reading(() => reader.listSessions(query)),
    readSnapshots: async (session) => reading(() => reader.readSnapshots(session)),
    readEvents: async (session, afterSequence, limit, maxBytes) =>
      reading(() => reader.readEvents(session, afterSequence, { limit, maxBytes })),
    readEvent: async (session, sequence) => reading(() => reader.readEvent(session, sequence)),
  };
}

type RecordReads = Pick<
  Store,
  | "findRecord"
  | "listRecords"
  | "listAsks"
  | "listAskChanges"
  | "listDue"
  | "listDueSetAfter"
  | "nextDeadlineMs"
>;

function recordReads(reader: SqliteReader): RecordReads {
  return {
    findRecord: async (session, recordId) => reading(() => reader.findRecord(session, recordId)),
    listRecords: async (session, query) => reading(() => reader.listRecords(session, query)),
    listAsks: async (query) => reading(() => reader.listAsks(query)),
    listAskChanges: async (query) => reading(() => reader.listAskChanges(query)),
    listDue: async (query) => reading(() => reader.listDue(query)),
    listDueSetAfter: async (timeMs, limit) => reading(() => reader.listDueSetAfter(timeMs, limit)),
    nextDeadlineMs: async () => reading(() => reader.nextDeadlineMs()),
  };
}

type RowReads = Omit<
  Store,
  keyof EventReads | keyof RecordReads | "storeId" | "generation" | "commit" | "close"
>;

function rowReads(reader: SqliteReader): RowReads {
  return {
    readBody: async (session, bodyRef) => reading(() => reader.readBody(session, bodyRef)),
    readPairings: async (session, ids) => reading(() => reader.readPairings(session, ids)),
    findRequests: async (requests) => reading(() => reader.findRequests(requests)),
    findCreation: async (tenant, subject, requestId) =>
      reading(() => reader.findCreation(tenant, subject, requestId)),
    listRecordPlaces: async (session, query) =>
      reading(() => reader.listRecordPlaces(session, query)),
    listAskPlaces: async (session, afterId, limit) =>
      reading(() => reader.listAskPlaces(session, afterId, limit)),
    listDeadlines: async (session, afterId, limit) =>
      reading(() => reader.listDeadlines(session, afterId, limit)),
    listBodyRefs: async (session, afterRef, limit) =>
      reading(() => reader.listBodyRefs(session, afterRef, limit)),
    listPairings: async (session, afterId, limit) =>
      reading(() => reader.listPairings(session, afterId, limit)),
    listRequests: async (session, afterId, limit) =>
      reading(() => reader.listRequests(session, afterId, limit)),
  };
}
