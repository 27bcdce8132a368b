import type { BodyRow, SessionRef, SessionRows } from "../../ledger/store-port.js";
import { JOINED_EVENT, toJoinedEvent, type JoinedEventColumns } from "./joined-events.js";
import { toBodyRow, type BodyColumns } from "./rows.js";
import type { SessionKeys } from "./session-keys.js";
import type { SqliteDatabase } from "./sqlite-database.js";
import { reading } from "./sqlite-fault.js";

/** Bytes that come with a page of bodies; larger ones are read one by one. */
const SMALL_BODY_BYTES = 16 * 1024;

const READ_EVENTS = `SELECT ${JOINED_EVENT} FROM events AS e
WHERE e.session = ? AND e.sequence > ? ORDER BY e.sequence LIMIT ?`;

const READ_BODIES = `SELECT body_ref, sha256, size_bytes, is_json_object,
  CASE WHEN length(data) <= ${SMALL_BODY_BYTES} THEN data END AS data
FROM bodies WHERE session = ? AND body_ref > ? ORDER BY body_ref LIMIT ?`;

type BulkReads = Pick<SessionRows, "readEvents" | "listBodyRefs" | "readBody">;

/** Reads of whole sessions, with as few calls and values as can be. For a file that nobody writes to. */
export function bulkReads(
  database: SqliteDatabase,
  keys: SessionKeys,
  readBody: SessionRows["readBody"],
): BulkReads {
  const events = database.prepare<JoinedEventColumns>(READ_EVENTS).safeIntegers();
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
        return key === undefined ? [] : events.all(key, after, limit).map(toJoinedEvent);
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
