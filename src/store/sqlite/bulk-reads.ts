import type { BodyRow, EventRow, SessionRef, SessionRows } from "../../ledger/store-port.js";
import { toBodyRow, type BodyColumns } from "./rows.js";
import type { SessionKeys } from "./session-keys.js";
import type { SqliteDatabase } from "./sqlite-database.js";
import { DamagedRowError, reading } from "./sqlite-fault.js";

/** Bytes that come with a page of bodies; larger ones are read one by one. */
const SMALL_BODY_BYTES = 16 * 1024;

// Each value of bytes that the driver hands over costs as much as the row itself: all of a row come as one.
const READ_EVENTS = `SELECT position, sequence, revision, kind, time_ms,
  length(commitment) AS commitment, length(chain) AS chain, length(salt) AS salt,
  length(private_commitment) AS private_commitment, length(payload) AS payload,
  CAST(commitment || chain || coalesce(salt, x'') || coalesce(private_commitment, x'')
    || coalesce(payload, x'') AS BLOB) AS bytes
FROM events WHERE session = ? AND sequence > ? ORDER BY sequence LIMIT ?`;

const READ_BODIES = `SELECT body_ref, sha256, size_bytes, is_json_object,
  CASE WHEN length(data) <= ${SMALL_BODY_BYTES} THEN data END AS data
FROM bodies WHERE session = ? AND body_ref > ? ORDER BY body_ref LIMIT ?`;

/** Of each value of bytes its length, and all of them joined. */
interface JoinedColumns {
  readonly position: bigint;
  readonly sequence: bigint;
  readonly revision: bigint | null;
  readonly kind: string;
  readonly time_ms: bigint;
  readonly commitment: bigint;
  readonly chain: bigint;
  readonly salt: bigint | null;
  readonly private_commitment: bigint | null;
  readonly payload: bigint | null;
  readonly bytes: Uint8Array | null;
}

type BulkReads = Pick<SessionRows, "readEvents" | "listBodyRefs" | "readBody">;

/** Reads of whole sessions, with as few calls and values as can be. For a file that nobody writes to. */
export function bulkReads(
  database: SqliteDatabase,
  keys: SessionKeys,
  readBody: SessionRows["readBody"],
): BulkReads {
  const events = database.prepare<JoinedColumns>(READ_EVENTS).safeIntegers();
  const bodies = database.prepare<BodyColumns | SmallBodyColumns>(READ_BODIES).safeIntegers();
  /** Of the page that was listed last. */
  let listed: ReadonlyMap<string, BodyRow> = new Map();
  let listedOf: SessionRef | undefined;

  function listBodies(session: SessionRef, after: string, limit: number): string[] {
    const key = keys.find(session);
    const page = key === undefined ? [] : bodies.all(key, after, limit);
    listed = new Map(
      page.flatMap((row) => (row.data === null ? [] : [[row.body_ref, toBodyRow(row)] as const])),
    );
    listedOf = session;
    return page.map(({ body_ref: ref }) => ref);
  }

  return {
    // A page is not cut by size: an event holds no bodies.
    readEvents: async (session, after, limit) =>
      reading(() => {
        const key = keys.find(session);
        return key === undefined ? [] : events.all(key, after, limit).map(toEvent);
      }),
    listBodyRefs: async (session, after, limit) => reading(() => listBodies(session, after, limit)),
    readBody: async (session, ref) => {
      const body = listedOf === session ? listed.get(ref) : undefined;
      return body ?? readBody(session, ref);
    },
  };
}

interface SmallBodyColumns extends Omit<BodyColumns, "data"> {
  readonly data: null;
}

/** SQLite measures bytes in bytes, and text, which none of the columns should hold, in characters. */
function joinedBytes(columns: JoinedColumns): number {
  const { commitment, chain, salt, private_commitment: privateCommitment, payload } = columns;
  const lengths = [commitment, chain, salt ?? 0n, privateCommitment ?? 0n, payload ?? 0n];
  return Number(lengths.reduce((sum, length) => sum + length, 0n));
}

function toEvent(columns: JoinedColumns): EventRow {
  const { position, sequence, revision, kind, bytes } = columns;
  if (!(bytes instanceof Uint8Array)) throw new DamagedRowError("a column holds no bytes");
  if (joinedBytes(columns) !== bytes.length) throw new DamagedRowError("a column holds text");
  let at = 0;
  const part = (length: bigint): Uint8Array => {
    const start = bytes.byteOffset + at;
    at += Number(length);
    return new Uint8Array(bytes.buffer, start, Number(length));
  };
  const partIfAny = (length: bigint | null): Uint8Array | undefined =>
    length === null ? undefined : part(length);
  return {
    position,
    sequence,
    revision: revision ?? undefined,
    kind,
    timeMs: Number(columns.time_ms),
    // In the order in which they are joined.
    commitment: part(columns.commitment),
    chain: part(columns.chain),
    salt: partIfAny(columns.salt),
    privateCommitment: partIfAny(columns.private_commitment),
    payload: partIfAny(columns.payload),
  };
}
