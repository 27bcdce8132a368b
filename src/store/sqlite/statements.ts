import { JOINED_EVENT, type JoinedEventColumns } from "./joined-events.js";
import type { SqliteDatabase } from "./sqlite-database.js";
import type {
  AskColumns,
  AskPlaceColumns,
  BodyColumns,
  BodyDescriptionColumns,
  CreationColumns,
  DueColumns,
  EventColumns,
  MetaColumns,
  PairingColumns,
  RecordColumns,
  RecordPlaceColumns,
  RequestColumns,
  SessionColumns,
  SnapshotColumns,
} from "./rows.js";

/** Before there is a schema, so not among the prepared ones. */
export const FIND_ANY_TABLE = "SELECT 1 FROM sqlite_schema LIMIT 1";

const SESSION_COLUMNS = `tenant, session_id, owner_subject, created_by_subject, parent_session_id,
  root_session_id, state, create_position, sequence, position, high_water, chain, session_sequence,
  active_run_id, update_time_ms, checksum`;

const EVENT_COLUMNS = `e.position, e.sequence, e.revision, e.kind, e.time_ms, e.commitment,
  e.private_commitment, e.chain, e.salt, e.payload`;

const RECORD_COLUMNS = `r.record_id, r.family, r.tool_call_id, r.first_sequence, r.last_sequence,
  r.last_chain`;

const SELECT_RECORDS = `SELECT ${RECORD_COLUMNS}, ${EVENT_COLUMNS}
FROM records AS r LEFT JOIN events AS e ON e.session = r.session AND e.sequence = r.last_sequence`;

/** The session of a tree and those below it. UNION, so that damaged rows cannot lead in circles. */
const TREE = `WITH RECURSIVE below (session, session_id) AS (
  SELECT session, session_id FROM sessions WHERE tenant = @tenant AND session_id = @sessionId
  UNION
  SELECT s.session, s.session_id FROM below AS b CROSS JOIN sessions AS s
    ON s.tenant = @tenant AND s.parent_session_id = b.session_id
)
SELECT session FROM below`;

/** Of a root's tree nothing has to be left out. */
const IS_IN_TREE = (session: string): string => `(@root = @sessionId OR ${session} IN (${TREE}))`;

const SELECT_SESSIONS = `SELECT ${SESSION_COLUMNS} FROM sessions
WHERE tenant = @tenant AND create_position > @after AND (@state IS NULL OR state = @state)`;

const ASK_COLUMNS = `a.position AS first_position, a.last_position, s.tenant, s.session_id,
  a.ask_id, a.tool_call_id, a.tool_name, a.state, a.create_time_ms, a.expire_time_ms,
  s.owner_subject, s.created_by_subject, s.root_session_id, a.last_chain`;

/** As the row itself says it, to be compared with the session. */
const OWN_ASK_COLUMNS = ASK_COLUMNS.replace("s.tenant", "a.tenant")
  .replace("s.owner_subject", "a.owner_subject")
  .replace("s.created_by_subject", "a.created_by_subject")
  .replace("s.root_session_id", "a.root_session_id");

// Whose an ask is, is said twice so that it can be searched for: if the two differ, nobody gets to see it.
// A planner that begins with sessions or events would read all of them: CROSS JOIN and LEFT JOIN keep the order.
const SELECT_ASKS = `SELECT ${ASK_COLUMNS}, ${EVENT_COLUMNS}
FROM asks AS a CROSS JOIN sessions AS s ON s.session = a.session AND s.tenant = a.tenant
  AND s.owner_subject = a.owner_subject AND s.created_by_subject = a.created_by_subject
  AND s.root_session_id = a.root_session_id
LEFT JOIN events AS e ON e.position = a.last_position`;

const DEADLINE_COLUMNS =
  "s.tenant, s.session_id, d.record_id, d.time_ms, d.position, d.set_time_ms";

const ASK_IS_VISIBLE = "(@subject IS NULL OR @subject IN (a.owner_subject, a.created_by_subject))";

/** The state and the positions bound the search; the rest picks from what it finds. */
const ASK_MATCHES = `a.state = @state AND a.position > @after AND a.position <= @until
AND ${ASK_IS_VISIBLE}
AND (@owner IS NULL OR a.owner_subject = @owner)
AND (@toolName IS NULL OR a.tool_name = @toolName)
AND (@createFromMs IS NULL OR a.create_time_ms >= @createFromMs)
AND (@createBeforeMs IS NULL OR a.create_time_ms < @createBeforeMs)
AND (@expireBeforeMs IS NULL OR a.expire_time_ms < @expireBeforeMs)`;

const ASKS_OF_TENANT = `${SELECT_ASKS} WHERE ${ASK_MATCHES} AND a.tenant = @tenant`;

const ASK_CHANGES = `${SELECT_ASKS} WHERE a.last_position > @after`;

/** Every statement that reads, by name. */
export const READ_SQL = {
  readMeta: "SELECT generation, store_id, checksum FROM meta WHERE id = 1",
  lastPosition: "SELECT max(position) AS position FROM events",
  lastEventTime: "SELECT time_ms FROM events WHERE position = (SELECT max(position) FROM events)",
  findSessionKey: "SELECT session FROM sessions WHERE tenant = ? AND session_id = ?",
  findSession: `SELECT ${SESSION_COLUMNS} FROM sessions WHERE tenant = ? AND session_id = ?`,
  listSessions: `${SELECT_SESSIONS} ORDER BY create_position LIMIT @limit`,
  listOwnedSessions: `${SELECT_SESSIONS} AND owner_subject = @owner
AND (@subject IS NULL OR @subject = owner_subject OR @subject = created_by_subject)
ORDER BY create_position LIMIT @limit`,
  listVisibleSessions: `${SELECT_SESSIONS} AND owner_subject = @subject
UNION ALL
${SELECT_SESSIONS} AND created_by_subject = @subject AND owner_subject <> @subject
ORDER BY create_position LIMIT @limit`,
  listTreeSessions: `${SELECT_SESSIONS} AND root_session_id = @root
AND (@owner IS NULL OR owner_subject = @owner)
AND (@subject IS NULL OR @subject IN (owner_subject, created_by_subject))
AND ${IS_IN_TREE("session")}
ORDER BY create_position LIMIT @limit`,
  readSnapshots: `SELECT sequence, high_water, chain, state, digest FROM snapshots
WHERE session = ? ORDER BY sequence DESC LIMIT 2`,
  readEvents: `SELECT ${JOINED_EVENT} FROM events AS e
WHERE e.session = ? AND e.sequence > ? ORDER BY e.sequence LIMIT ?`,
  readEvent: `SELECT ${EVENT_COLUMNS} FROM events AS e WHERE e.session = ? AND e.sequence = ?`,
  findRecord: `${SELECT_RECORDS} WHERE r.session = ? AND r.record_id = ?`,
  listRecords: `${SELECT_RECORDS}
WHERE r.session = ? AND r.family = ? AND r.first_sequence > ? ORDER BY r.first_sequence LIMIT ?`,
  listRecordsOfCall: `${SELECT_RECORDS}
WHERE r.session = ? AND r.tool_call_id = ? AND r.family = ? AND r.first_sequence > ?
ORDER BY r.first_sequence LIMIT ?`,
  listAsks: `${ASKS_OF_TENANT} ORDER BY a.position LIMIT @limit`,
  listSessionAsks: `${SELECT_ASKS} WHERE ${ASK_MATCHES} AND a.session = @session
ORDER BY a.position LIMIT @limit`,
  listTreeAsks: `${ASKS_OF_TENANT} AND a.root_session_id = @root AND ${IS_IN_TREE("a.session")}
ORDER BY a.position LIMIT @limit`,
  listOwnedAsks: `${ASKS_OF_TENANT} AND a.owner_subject = @owner ORDER BY a.position LIMIT @limit`,
  listVisibleAsks: `${ASKS_OF_TENANT} AND a.owner_subject = @subject
UNION ALL
${ASKS_OF_TENANT} AND a.created_by_subject = @subject AND a.owner_subject <> @subject
ORDER BY first_position LIMIT @limit`,
  listToolAsks: `${ASKS_OF_TENANT} AND a.tool_name = @toolName ORDER BY a.position LIMIT @limit`,
  listAskChanges: `${ASK_CHANGES} AND a.tenant = @tenant ORDER BY a.last_position LIMIT @limit`,
  listVisibleAskChanges: `${ASK_CHANGES} AND a.tenant = @tenant AND a.owner_subject = @subject
UNION ALL
${ASK_CHANGES} AND a.tenant = @tenant AND a.created_by_subject = @subject
AND a.owner_subject <> @subject
ORDER BY last_position LIMIT @limit`,
  listSessionAskChanges: `${ASK_CHANGES} AND a.session = @session AND ${ASK_IS_VISIBLE}
ORDER BY a.last_position LIMIT @limit`,
  listTreeAskChanges: `${ASK_CHANGES} AND a.tenant = @tenant AND a.root_session_id = @root
AND ${IS_IN_TREE("a.session")} AND ${ASK_IS_VISIBLE}
ORDER BY a.last_position LIMIT @limit`,
  listDue: `SELECT ${DEADLINE_COLUMNS}
FROM deadlines AS d CROSS JOIN sessions AS s ON s.session = d.session
WHERE d.time_ms <= @untilMs AND (d.time_ms, d.position) > (@afterMs, @afterPosition)
AND d.position <= @until
ORDER BY d.time_ms, d.position LIMIT @limit`,
  listDueSetAfter: `SELECT ${DEADLINE_COLUMNS}
FROM deadlines AS d CROSS JOIN sessions AS s ON s.session = d.session
WHERE d.set_time_ms > ? ORDER BY d.set_time_ms DESC LIMIT ?`,
  nextDeadline: "SELECT min(time_ms) AS time_ms FROM deadlines",
  readBody: `SELECT body_ref, sha256, size_bytes, is_json_object, data FROM bodies
WHERE session = ? AND body_ref = ?`,
  findBody: `SELECT body_ref, sha256, size_bytes, is_json_object FROM bodies
WHERE session = ? AND body_ref = ?`,
  readPairing: `SELECT record_id, sequence, salt, pairing FROM pairings
WHERE session = ? AND record_id = ?`,
  findRequest: `SELECT request_id, digest, outcome, checksum FROM requests
WHERE session = ? AND request_id = ?`,
  findCreation: `SELECT tenant, subject, request_id, digest, session_id, checksum FROM creations
WHERE tenant = ? AND subject = ? AND request_id = ?`,
  listRecordPlaces: `SELECT ${RECORD_COLUMNS} FROM records AS r
WHERE r.session = ? AND r.family = ? AND r.first_sequence > ? ORDER BY r.first_sequence LIMIT ?`,
  listAskPlaces: `SELECT ${OWN_ASK_COLUMNS} FROM asks AS a JOIN sessions AS s ON s.session = a.session
WHERE a.session = ? AND a.ask_id > ? ORDER BY a.ask_id LIMIT ?`,
  listDeadlines: `SELECT ${DEADLINE_COLUMNS}
FROM deadlines AS d JOIN sessions AS s ON s.session = d.session
WHERE d.session = ? AND d.record_id > ? ORDER BY d.record_id LIMIT ?`,
  listBodyRefs: `SELECT body_ref FROM bodies
WHERE session = ? AND body_ref > ? ORDER BY body_ref LIMIT ?`,
  listPairings: `SELECT record_id, sequence, salt, pairing FROM pairings
WHERE session = ? AND record_id > ? ORDER BY record_id LIMIT ?`,
  listRequests: `SELECT request_id, digest, outcome, checksum FROM requests
WHERE session = ? AND request_id > ? ORDER BY request_id LIMIT ?`,
} as const;

/** What encloses reads that are made together. A rollback ends them as well as a commit, and cannot be refused. */
const READ_TRANSACTION_SQL = { begin: "BEGIN DEFERRED", end: "ROLLBACK" } as const;

/** Every statement that writes, by name. */
export const WRITE_SQL = {
  begin: "BEGIN IMMEDIATE",
  commit: "COMMIT",
  rollback: "ROLLBACK",
  insertMeta: "INSERT INTO meta (id, generation, store_id, checksum) VALUES (1, ?, ?, ?)",
  insertSession: `INSERT INTO sessions (${SESSION_COLUMNS})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  // Who may see a session and where it is listed never changes, and its head never goes back; a row that says
  // otherwise hits nothing.
  updateHead: `UPDATE sessions SET state = ?, sequence = ?, position = ?, high_water = ?, chain = ?,
  session_sequence = ?, active_run_id = ?, update_time_ms = ?, checksum = ?
WHERE session = ? AND owner_subject = ? AND created_by_subject = ? AND create_position = ?
  AND parent_session_id IS ? AND root_session_id = ? AND sequence <= ?`,
  insertEvent: `INSERT INTO events (position, session, sequence, revision, kind, time_ms, commitment,
  private_commitment, chain, salt, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  putRecord: `INSERT INTO records (session, family, first_sequence, last_sequence, record_id,
  tool_call_id, last_chain)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (record_id, session) DO UPDATE SET last_sequence = excluded.last_sequence,
  last_chain = excluded.last_chain
WHERE family = excluded.family AND tool_call_id IS excluded.tool_call_id`,
  // A row that says another tool or time for a known ask hits nothing. Its call is the record's, checked there.
  putAsk: `INSERT INTO asks (position, session, ask_id, tool_call_id, tool_name, state,
  create_time_ms, expire_time_ms, last_position, tenant, owner_subject, created_by_subject,
  root_session_id, last_chain)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (session, ask_id) DO UPDATE SET state = excluded.state,
  last_position = excluded.last_position, last_chain = excluded.last_chain
WHERE tool_name = excluded.tool_name AND create_time_ms = excluded.create_time_ms
  AND expire_time_ms IS excluded.expire_time_ms`,
  putDeadline: `INSERT INTO deadlines (session, record_id, time_ms, position, set_time_ms)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (session, record_id) DO UPDATE SET time_ms = excluded.time_ms,
  position = excluded.position, set_time_ms = excluded.set_time_ms`,
  dropDeadline: "DELETE FROM deadlines WHERE session = ? AND record_id = ?",
  insertBody: `INSERT INTO bodies (session, body_ref, sha256, size_bytes, is_json_object, data)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (session, body_ref) DO NOTHING`,
  copyBody: `INSERT INTO bodies (session, body_ref, sha256, size_bytes, is_json_object, data)
SELECT @session, @newBodyRef, sha256, size_bytes, is_json_object, data FROM bodies
WHERE session = @from AND body_ref = @bodyRef`,
  insertPairing: `INSERT INTO pairings (session, record_id, sequence, salt, pairing)
VALUES (?, ?, ?, ?, ?)`,
  insertRequest: `INSERT INTO requests (session, request_id, digest, outcome, checksum)
VALUES (?, ?, ?, ?, ?)`,
  insertCreation: `INSERT INTO creations (tenant, subject, request_id, digest, session_id, checksum)
VALUES (?, ?, ?, ?, ?, ?)`,
  putSnapshot: `INSERT INTO snapshots (session, sequence, high_water, chain, state, digest)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (session, sequence) DO UPDATE SET high_water = excluded.high_water,
  chain = excluded.chain, state = excluded.state, digest = excluded.digest`,
  dropOldSnapshots: `DELETE FROM snapshots WHERE session = ? AND sequence < (
  SELECT sequence FROM snapshots WHERE session = ? ORDER BY sequence DESC LIMIT 1 OFFSET 1
)`,
} as const;

/** What fills rows of a file of an older version. */
const REBUILD_SQL = {
  nextSession: "SELECT session FROM sessions WHERE session > ? ORDER BY session LIMIT 1",
  readSession: `SELECT ${SESSION_COLUMNS} FROM sessions WHERE session = ?`,
  dropRecords: "DELETE FROM records WHERE session = ?",
  dropAsks: "DELETE FROM asks WHERE session = ?",
  dropDeadlines: "DELETE FROM deadlines WHERE session = ?",
  listCreations: `SELECT tenant, subject, request_id, digest, session_id, checksum FROM creations
WHERE (tenant, subject, request_id) > (?, ?, ?) ORDER BY tenant, subject, request_id LIMIT ?`,
  setMetaChecksum: "UPDATE meta SET checksum = ?",
  setStanding: "UPDATE sessions SET parent_session_id = ?, root_session_id = ? WHERE session = ?",
  setSessionChecksum: "UPDATE sessions SET checksum = ? WHERE session = ?",
  setRequestChecksum: "UPDATE requests SET checksum = ? WHERE session = ? AND request_id = ?",
  setCreationChecksum: `UPDATE creations SET checksum = ?
WHERE tenant = ? AND subject = ? AND request_id = ?`,
} as const;

export type RebuildStatements = ReturnType<typeof prepareRebuild>;

export function prepareRebuild(database: SqliteDatabase) {
  const write = (name: keyof typeof REBUILD_SQL) => database.prepare<never>(REBUILD_SQL[name]);
  return {
    nextSession: database.prepare<{ session: number }>(REBUILD_SQL.nextSession),
    readSession: database.prepare<SessionColumns>(REBUILD_SQL.readSession).safeIntegers(),
    listCreations: database.prepare<CreationColumns>(REBUILD_SQL.listCreations).safeIntegers(),
    dropIndex: [write("dropRecords"), write("dropAsks"), write("dropDeadlines")],
    setMetaChecksum: write("setMetaChecksum"),
    setStanding: write("setStanding"),
    setSessionChecksum: write("setSessionChecksum"),
    setRequestChecksum: write("setRequestChecksum"),
    setCreationChecksum: write("setCreationChecksum"),
  };
}

export type ReadStatements = ReturnType<typeof prepareReads>;
export type WriteStatements = ReturnType<typeof prepareWrites>;

/** Reads give integers as `bigint`, except a session's key, which stays far below 2^53. */
export function prepareReads(database: SqliteDatabase) {
  const read = <Row>(name: keyof typeof READ_SQL) =>
    database.prepare<Row>(READ_SQL[name]).safeIntegers();
  return {
    readMeta: read<MetaColumns>("readMeta"),
    lastPosition: read<{ position: bigint | null }>("lastPosition"),
    lastEventTime: read<{ time_ms: bigint }>("lastEventTime"),
    findSessionKey: database.prepare<{ session: number }>(READ_SQL.findSessionKey),
    findSession: read<SessionColumns>("findSession"),
    listSessions: read<SessionColumns>("listSessions"),
    listOwnedSessions: read<SessionColumns>("listOwnedSessions"),
    listVisibleSessions: read<SessionColumns>("listVisibleSessions"),
    listTreeSessions: read<SessionColumns>("listTreeSessions"),
    readSnapshots: read<SnapshotColumns>("readSnapshots"),
    readEvents: read<JoinedEventColumns>("readEvents"),
    readEvent: read<EventColumns>("readEvent"),
    findRecord: read<RecordColumns>("findRecord"),
    listRecords: read<RecordColumns>("listRecords"),
    listRecordsOfCall: read<RecordColumns>("listRecordsOfCall"),
    listAsks: read<AskColumns>("listAsks"),
    listSessionAsks: read<AskColumns>("listSessionAsks"),
    listTreeAsks: read<AskColumns>("listTreeAsks"),
    listOwnedAsks: read<AskColumns>("listOwnedAsks"),
    listVisibleAsks: read<AskColumns>("listVisibleAsks"),
    listToolAsks: read<AskColumns>("listToolAsks"),
    listAskChanges: read<AskColumns>("listAskChanges"),
    listVisibleAskChanges: read<AskColumns>("listVisibleAskChanges"),
    listSessionAskChanges: read<AskColumns>("listSessionAskChanges"),
    listTreeAskChanges: read<AskColumns>("listTreeAskChanges"),
    listDue: read<DueColumns>("listDue"),
    listDueSetAfter: read<DueColumns>("listDueSetAfter"),
    nextDeadline: read<{ time_ms: bigint | null }>("nextDeadline"),
    readBody: read<BodyColumns>("readBody"),
    findBody: read<BodyDescriptionColumns>("findBody"),
    readPairing: read<PairingColumns>("readPairing"),
    findRequest: read<RequestColumns>("findRequest"),
    findCreation: read<CreationColumns>("findCreation"),
    listRecordPlaces: read<RecordPlaceColumns>("listRecordPlaces"),
    listAskPlaces: read<AskPlaceColumns>("listAskPlaces"),
    listDeadlines: read<DueColumns>("listDeadlines"),
    listBodyRefs: read<{ body_ref: string }>("listBodyRefs"),
    listPairings: read<PairingColumns>("listPairings"),
    listRequests: read<RequestColumns>("listRequests"),
    beginRead: database.prepare<never>(READ_TRANSACTION_SQL.begin),
    endRead: database.prepare<never>(READ_TRANSACTION_SQL.end),
  };
}

export function prepareWrites(database: SqliteDatabase) {
  const write = (name: keyof typeof WRITE_SQL) => database.prepare<never>(WRITE_SQL[name]);
  return {
    begin: write("begin"),
    commit: write("commit"),
    rollback: write("rollback"),
    insertMeta: write("insertMeta"),
    insertSession: write("insertSession"),
    updateHead: write("updateHead"),
    insertEvent: write("insertEvent"),
    putRecord: write("putRecord"),
    putAsk: write("putAsk"),
    putDeadline: write("putDeadline"),
    dropDeadline: write("dropDeadline"),
    insertBody: write("insertBody"),
    copyBody: write("copyBody"),
    insertPairing: write("insertPairing"),
    insertRequest: write("insertRequest"),
    insertCreation: write("insertCreation"),
    putSnapshot: write("putSnapshot"),
    dropOldSnapshots: write("dropOldSnapshots"),
  };
}
