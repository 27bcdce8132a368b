import type {
  BodyCopy,
  BodyRow,
  CommandWrite,
  CreationRow,
  EventRow,
  NewEvent,
  PairingRow,
  RequestRow,
  SessionRef,
  SessionRow,
  SnapshotRow,
} from "../../ledger/store-port.js";
import {
  creationKey,
  recordKey,
  type MemoryDisk,
  type MemoryRecord,
  type MemorySession,
} from "./memory-disk.js";

const INTEGER_BITS = 64;
const SNAPSHOTS_KEPT = 2;

/** Steps that take back what was written, to be run last first. */
export type Undo = (() => void)[];

/** A write that this store does not take. */
class WriteRefusedError extends Error {
  override readonly name = "WriteRefusedError";
}

function refuseUnless(condition: boolean, message: string): asserts condition {
  if (!condition) throw new WriteRefusedError(message);
}

/** Applies one command. If it throws, `undo` takes back the part that was applied. */
export function applyWrite(disk: MemoryDisk, write: CommandWrite, undo: Undo): void {
  const session = putSession(disk, write, undo);
  for (const event of write.events) {
    appendEvent(disk, session, event.row, undo);
    const { row, record, inherited = [] } = event;
    for (const each of inherited) {
      const { firstSequence, ask, deadline, ...key } = each;
      indexRecord(session, row, { key, firstSequence }, undo);
      indexWaiting(disk, session.row, { row, record: key, ask, deadline }, undo);
    }
    if (record !== undefined) {
      indexRecord(session, row, { key: record, firstSequence: row.sequence }, undo);
    }
    indexWaiting(disk, session.row, event, undo);
  }
  for (const body of write.bodies) putBody(session, body, undo);
  for (const copy of write.bodyCopies ?? []) copyBody(disk, session, copy, undo);
  for (const pairing of write.pairings) insertPairing(session, pairing, undo);
  if (write.request !== undefined) insertRequest(session, write.request, undo);
  if (write.creation !== undefined) insertCreation(disk, write.creation, undo);
  if (write.snapshot !== undefined) putSnapshot(session, write.snapshot, undo);
}

function putSession(disk: MemoryDisk, write: CommandWrite, undo: Undo): MemorySession {
  requireIntegers(write.session.createPosition, ...headIntegers(write.session));
  const ofTenant = disk.sessions.get(write.tenant) ?? new Map<string, MemorySession>();
  disk.sessions.set(write.tenant, ofTenant);
  const known = ofTenant.get(write.sessionId);
  if (known === undefined) {
    const session = emptySession(write.session);
    ofTenant.set(write.sessionId, session);
    undo.push(() => ofTenant.delete(write.sessionId));
    return session;
  }
  const before = known.row;
  refuseUnless(
    before.ownerSubject === write.session.ownerSubject &&
      before.createdBySubject === write.session.createdBySubject &&
      before.parentSessionId === write.session.parentSessionId &&
      before.rootSessionId === write.session.rootSessionId &&
      before.createPosition === write.session.createPosition,
    "a session keeps its owner, creator, parent, root and place of creation",
  );
  refuseUnless(before.head.sequence <= write.session.head.sequence, "a head never goes back");
  known.row = write.session;
  undo.push(() => (known.row = before));
  return known;
}

function emptySession(row: SessionRow): MemorySession {
  return {
    row,
    events: [],
    lastRevision: 0n,
    records: new Map(),
    bodies: new Map(),
    pairings: new Map(),
    requests: new Map(),
    snapshots: [],
  };
}

function appendEvent(disk: MemoryDisk, session: MemorySession, row: EventRow, undo: Undo): void {
  const { lastPosition } = disk;
  const { lastRevision } = session;
  requireIntegers(row.position, row.sequence, row.revision ?? 0n);
  refuseUnless(row.position > lastPosition, "an event's position is higher than every earlier one");
  const lastSequence = session.events.at(-1)?.sequence ?? 0n;
  refuseUnless(row.sequence > lastSequence, "an event's sequence is higher than every earlier one");
  refuseUnless(
    row.revision === undefined || row.revision > lastRevision,
    "an event's revision is higher than every earlier one",
  );
  refuseUnless(
    (row.payload === undefined) === (row.salt === undefined),
    "payload and salt are there together or not at all",
  );
  session.events.push(row);
  session.lastRevision = row.revision ?? lastRevision;
  disk.lastPosition = row.position;
  undo.push(() => {
    session.events.pop();
    session.lastRevision = lastRevision;
    disk.lastPosition = lastPosition;
  });
}

function indexRecord(
  { records }: MemorySession,
  row: EventRow,
  { key: record, firstSequence }: Pick<MemoryRecord, "key" | "firstSequence">,
  undo: Undo,
): void {
  const before = records.get(record.recordId);
  if (before === undefined) {
    records.set(record.recordId, {
      key: record,
      firstSequence,
      lastSequence: row.sequence,
      lastChain: row.chain,
    });
    undo.push(() => records.delete(record.recordId));
    return;
  }
  refuseUnless(
    before.key.family === record.family && before.key.toolCallId === record.toolCallId,
    "a record keeps its family and its call",
  );
  records.set(record.recordId, { ...before, lastSequence: row.sequence, lastChain: row.chain });
  undo.push(() => records.set(record.recordId, before));
}

function indexWaiting(disk: MemoryDisk, session: SessionRow, event: NewEvent, undo: Undo): void {
  if (event.ask !== undefined) indexAsk(disk, session, event, undo);
  if (event.deadline !== undefined) setDeadline(disk, session, event, undo);
}

function indexAsk(
  { asks }: MemoryDisk,
  session: SessionRow,
  { row, record, ask }: NewEvent,
  undo: Undo,
): void {
  const toolCallId = record?.toolCallId;
  if (record === undefined || toolCallId === undefined || ask === undefined) {
    throw new WriteRefusedError("an ask is the record of a call");
  }
  const { tenant, sessionId, ownerSubject, createdBySubject, rootSessionId } = session;
  const { toolName, state, createTimeMs, expireTimeMs } = ask;
  const { position: lastPosition, sequence: lastSequence, chain: lastChain } = row;
  const last = { state, lastPosition, lastSequence, lastChain };
  const key = recordKey(session, record.recordId);
  const before = asks.get(key);
  if (before !== undefined) {
    refuseUnless(
      before.toolName === toolName &&
        before.createTimeMs === createTimeMs &&
        before.expireTimeMs === expireTimeMs,
      "an ask keeps its tool and its times",
    );
    asks.set(key, { ...before, ...last });
    undo.push(() => asks.set(key, before));
    return;
  }
  const owned = { tenant, sessionId, ownerSubject, createdBySubject, rootSessionId };
  const place = { ...owned, position: row.position };
  const entry = { askId: record.recordId, toolCallId, toolName, createTimeMs, expireTimeMs };
  asks.set(key, { ...place, ...entry, ...last });
  undo.push(() => asks.delete(key));
}

function setDeadline(
  { deadlines }: MemoryDisk,
  { tenant, sessionId }: SessionRef,
  { row, record, deadline }: NewEvent,
  undo: Undo,
): void {
  if (record === undefined) throw new WriteRefusedError("a deadline is of a record");
  const session = { tenant, sessionId };
  const { recordId } = record;
  const key = recordKey(session, recordId);
  const before = deadlines.get(key);
  undo.push(() => {
    if (before === undefined) deadlines.delete(key);
    else deadlines.set(key, before);
  });
  const timeMs = deadline?.timeMs;
  if (timeMs === undefined) deadlines.delete(key);
  else {
    deadlines.set(key, {
      session,
      recordId,
      timeMs,
      position: row.position,
      setTimeMs: row.timeMs,
    });
  }
}

function putBody({ bodies }: MemorySession, body: BodyRow, undo: Undo): void {
  const before = bodies.get(body.bodyRef);
  if (before !== undefined) {
    const equal = before.sha256.every((byte, index) => byte === body.sha256[index]);
    refuseUnless(equal, "a body reference names the same bytes for ever");
    return;
  }
  bodies.set(body.bodyRef, body);
  undo.push(() => bodies.delete(body.bodyRef));
}

function copyBody(
  disk: MemoryDisk,
  session: MemorySession,
  { from, bodyRef, newBodyRef }: BodyCopy,
  undo: Undo,
): void {
  const body = disk.sessions.get(from.tenant)?.get(from.sessionId)?.bodies.get(bodyRef);
  if (body === undefined) throw new WriteRefusedError("a body to be copied is there");
  putBody(session, { ...body, bodyRef: newBodyRef }, undo);
}

function insertPairing({ pairings }: MemorySession, row: PairingRow, undo: Undo): void {
  requireIntegers(row.sequence);
  refuseUnless(!pairings.has(row.recordId), "a record has one pairing");
  pairings.set(row.recordId, row);
  undo.push(() => pairings.delete(row.recordId));
}

function insertRequest({ requests }: MemorySession, row: RequestRow, undo: Undo): void {
  refuseUnless(!requests.has(row.requestId), "a request is remembered once");
  requests.set(row.requestId, row);
  undo.push(() => requests.delete(row.requestId));
}

function insertCreation({ creations }: MemoryDisk, row: CreationRow, undo: Undo): void {
  const key = creationKey(row.tenant, row.subject, row.requestId);
  refuseUnless(!creations.has(key), "a creation is remembered once");
  creations.set(key, row);
  undo.push(() => creations.delete(key));
}

function putSnapshot(session: MemorySession, row: SnapshotRow, undo: Undo): void {
  requireIntegers(row.sequence, row.highWater);
  const before = session.snapshots;
  session.snapshots = [...before.filter(({ sequence }) => sequence !== row.sequence), row]
    .sort((left, right) => (left.sequence < right.sequence ? 1 : -1))
    .slice(0, SNAPSHOTS_KEPT);
  undo.push(() => (session.snapshots = before));
}

function headIntegers({ head }: SessionRow): bigint[] {
  return [head.sequence, head.position, head.highWater, head.sessionSequence];
}

/** As wide as every store must be, and no wider, so that tests on this one say what others do. */
function requireIntegers(...values: readonly bigint[]): void {
  const fit = values.every((value) => BigInt.asIntN(INTEGER_BITS, value) === value);
  refuseUnless(fit, "an integer has 64 bits");
}
