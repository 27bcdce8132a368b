import { fromBinary, toBinary } from "@bufbuild/protobuf";
import type BetterSqlite from "better-sqlite3";
import { EventPayloadSchema } from "../../gen/toolmark/storage/v1/storage_pb.js";
import { CHAIN_START, chainAfter, commit } from "../../src/domain/chain.js";
import { sessionChecksum } from "../../src/ledger/checksums.js";
import type { EventRow, SessionRef, SessionRow } from "../../src/ledger/store-port.js";
import {
  toEventRow,
  toSessionRow,
  type EventColumns,
  type SessionColumns,
} from "../../src/store/sqlite/rows.js";

/** Changes the log of a session in a file without triggers. */
export type Forger = (
  database: BetterSqlite.Database,
  session: SessionRef,
  random: () => number,
) => void;

interface StoredLog {
  readonly key: bigint;
  readonly row: SessionRow;
  readonly events: EventRow[];
}

function readLog(database: BetterSqlite.Database, { tenant, sessionId }: SessionRef): StoredLog {
  const columns = database
    .prepare<[string, string], SessionColumns & { session: bigint }>(
      "SELECT * FROM sessions WHERE tenant = ? AND session_id = ?",
    )
    .safeIntegers()
    .get(tenant, sessionId);
  if (columns === undefined) throw new Error("there is no such session");
  const events = database
    .prepare<[bigint], EventColumns>("SELECT * FROM events WHERE session = ? ORDER BY sequence")
    .safeIntegers()
    .all(columns.session);
  return { key: columns.session, row: toSessionRow(columns), events: events.map(toEventRow) };
}

function anyOf<Item>(items: readonly Item[], random: () => number): Item {
  const item = items[Math.floor(random() * items.length)];
  if (item === undefined) throw new Error("there is none");
  return item;
}

/** Kept, so that a row can be written anew as it was. */
function insertEvent(database: BetterSqlite.Database, key: bigint, row: EventRow): void {
  database
    .prepare(
      `INSERT INTO events (position, session, sequence, revision, kind, time_ms, commitment,
         private_commitment, chain, salt, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    )
    .run(
      ...[row.position, key, row.sequence, row.revision ?? null, row.kind, row.timeMs],
      ...[row.commitment, row.privateCommitment ?? null, row.chain],
      ...[row.salt ?? null, row.payload ?? null],
    );
}

function deleteEvent(database: BetterSqlite.Database, { position }: EventRow): void {
  database.prepare("DELETE FROM events WHERE position = ?").run(position);
}

function flipped(bytes: Uint8Array, random: () => number): Uint8Array {
  const copy = Uint8Array.from(bytes);
  const at = Math.floor(random() * copy.length);
  copy[at] = (copy[at] ?? 0) ^ (1 << Math.floor(random() * 8));
  return copy;
}

const EDITS: readonly ((row: EventRow, random: () => number) => EventRow)[] = [
  (row, random) => ({ ...row, payload: flipped(row.payload ?? new Uint8Array(1), random) }),
  (row, random) => ({ ...row, salt: flipped(row.salt ?? new Uint8Array(1), random) }),
  (row, random) => ({ ...row, chain: flipped(row.chain, random) }),
  (row, random) => ({ ...row, commitment: flipped(row.commitment, random) }),
  (row) => ({ ...row, kind: `${row.kind}_` }),
  (row) => ({ ...row, timeMs: row.timeMs + 1 }),
];

const edit: Forger = (database, session, random) => {
  const { key, events } = readLog(database, session);
  const event = anyOf(events, random);
  deleteEvent(database, event);
  insertEvent(database, key, anyOf(EDITS, random)(event, random));
};

/** Changes nothing but one text of a payload, which only the commitment covers. */
export const editText: Forger = (database, session) => {
  const { key, events } = readLog(database, session);
  const event = events.find(({ payload }) => Buffer.from(payload ?? []).includes("never remove"));
  if (event?.payload === undefined) throw new Error("there is no such text");
  const payload = Buffer.from(event.payload);
  payload.write("Never", payload.indexOf("never remove"));
  deleteEvent(database, event);
  insertEvent(database, key, { ...event, payload });
};

const remove: Forger = (database, session, random) => {
  deleteEvent(database, anyOf(readLog(database, session).events, random));
};

const insert: Forger = (database, session, random) => {
  const { key, row, events } = readLog(database, session);
  const event = anyOf(events, random);
  const { position } = lastPosition(database);
  const added = { ...event, revision: undefined, position: position + 1n };
  const after = { ...added, sequence: row.head.sequence + 1n, sessionId: session.sessionId };
  insertEvent(database, key, { ...after, chain: chainAfter(row.head.chain, after) });
};

function lastPosition(database: BetterSqlite.Database): { readonly position: bigint } {
  const sql = "SELECT max(position) AS position FROM events";
  const found = database.prepare<[], { position: bigint }>(sql).safeIntegers().get();
  return found ?? { position: 0n };
}

/** Two events change places: all of one but its place is the other's. */
const reorder: Forger = (database, session, random) => {
  const { key, events } = readLog(database, session);
  const one = anyOf(events, random);
  const other = anyOf(
    events.filter(({ sequence }) => sequence !== one.sequence),
    random,
  );
  for (const event of [one, other]) deleteEvent(database, event);
  const placeOf = ({ sequence, position }: EventRow) => ({ sequence, position });
  insertEvent(database, key, { ...one, ...placeOf(other) });
  insertEvent(database, key, { ...other, ...placeOf(one) });
};

/** The end of the log goes, and the session's row says that this is all. */
const truncate: Forger = (database, session, random) => {
  const { key, row, events } = readLog(database, session);
  const length = 1 + Math.floor(random() * (events.length - 1));
  for (const event of events.slice(length)) deleteEvent(database, event);
  const last = events[length - 1];
  if (last === undefined) return;
  const { sequence, position, chain, timeMs: updateTimeMs } = last;
  writeHead(database, key, {
    ...row,
    head: { ...row.head, sequence, position, chain, updateTimeMs },
  });
};

function writeHead(database: BetterSqlite.Database, key: bigint, row: SessionRow): void {
  const { sequence, position, chain, updateTimeMs } = row.head;
  database
    .prepare(
      `UPDATE sessions SET sequence = ?, position = ?, chain = ?, update_time_ms = ?, checksum = ?
       WHERE session = ?`,
    )
    .run(sequence, position, chain, updateTimeMs, sessionChecksum(row), key);
}

/** Who did something becomes another, and everything that tells of it is computed anew, as this program does. */
const rewrite: Forger = (database, session, random) => {
  const { key, row, events } = readLog(database, session);
  const from = 1 + Math.floor(random() * (events.length - 1));
  let chain: Uint8Array = events[from - 1]?.chain ?? CHAIN_START;
  for (const event of events.slice(from)) {
    const payload = event.sequence === BigInt(from + 1) ? byAnother(event) : event.payload;
    const commitment = commit(event.salt ?? new Uint8Array(), payload ?? new Uint8Array());
    chain = chainAfter(chain, { ...event, commitment, sessionId: session.sessionId });
    deleteEvent(database, event);
    insertEvent(database, key, { ...event, payload, commitment, chain });
    const at = [chain, key, event.sequence] as const;
    const records = "UPDATE records SET last_chain = ? WHERE session = ? AND last_sequence = ?";
    database.prepare(records).run(...at);
    const asks = "UPDATE asks SET last_chain = ? WHERE session = ? AND last_position = ?";
    database.prepare(asks).run(chain, key, event.position);
  }
  // Without them the state is told from the events.
  database.prepare("DELETE FROM snapshots WHERE session = ? AND sequence > ?").run(key, from);
  writeHead(database, key, { ...row, head: { ...row.head, chain } });
};

function byAnother({ payload }: EventRow): Uint8Array {
  const decoded = fromBinary(EventPayloadSchema, payload ?? new Uint8Array());
  if (decoded.actor !== undefined) decoded.actor.subject = "eve";
  return toBinary(EventPayloadSchema, decoded);
}

/** The ways to forge a log, by name. */
export const FORGERIES = { edit, delete: remove, insert, reorder, truncate, rewrite } as const;
