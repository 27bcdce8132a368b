import type {
  AskChangesQuery,
  AskPlace,
  AskQuery,
  AskScope,
  BodyRow,
  CreationRow,
  DueQuery,
  DueRecord,
  EventRow,
  IndexedAsk,
  IndexedRecord,
  PairingRow,
  PlaceQuery,
  RecordPlace,
  RecordQuery,
  RequestRef,
  RequestRow,
  SessionQuery,
  SessionRef,
  SessionRow,
  SessionTree,
  SnapshotRow,
} from "../../ledger/store-port.js";
import { toJoinedEvent } from "./joined-events.js";
import {
  type AskColumns,
  toAskPlace,
  toBodyRow,
  toCreationRow,
  toDueRecord,
  toEventRow,
  toIndexedAsk,
  toIndexedRecord,
  toPairingRow,
  toRecordPlace,
  toRequestRow,
  toSessionRow,
  toSnapshotRow,
} from "./rows.js";
import type { SessionKeys } from "./session-keys.js";
import type { SqliteDatabase, SqliteStatement } from "./sqlite-database.js";
import type { ReadStatements } from "./statements.js";

const LOWEST = -(2n ** 63n);
const HIGHEST = 2n ** 63n - 1n;

/** Answers from committed rows. Synchronous: nothing stays open between calls. */
export class SqliteReader {
  readonly #database: SqliteDatabase;
  readonly #keys: SessionKeys;
  readonly #statements: ReadStatements;

  constructor(database: SqliteDatabase, keys: SessionKeys, statements: ReadStatements) {
    this.#database = database;
    this.#keys = keys;
    this.#statements = statements;
  }

  lastPosition(): bigint {
    return this.#statements.lastPosition.get()?.position ?? 0n;
  }

  lastEventTimeMs(): number | undefined {
    const timeMs = this.#statements.lastEventTime.get()?.time_ms;
    return timeMs === undefined ? undefined : Number(timeMs);
  }

  findSession({ tenant, sessionId }: SessionRef): SessionRow | undefined {
    const found = this.#statements.findSession.get(tenant, sessionId);
    return found && toSessionRow(found);
  }

  listSessions(query: SessionQuery): SessionRow[] {
    const { tenant, limit, ownerSubject, visibleToSubject } = query;
    const { listSessions, listOwnedSessions, listVisibleSessions, listTreeSessions } =
      this.#statements;
    const page = { tenant, after: query.afterCreatePosition, state: query.state ?? null, limit };
    const subject = visibleToSubject ?? null;
    if (query.tree !== undefined) {
      const whose = { owner: ownerSubject ?? null, subject };
      return listTreeSessions.all({ ...page, ...whose, ...treeOf(query.tree) }).map(toSessionRow);
    }
    if (ownerSubject !== undefined) {
      return listOwnedSessions.all({ ...page, owner: ownerSubject, subject }).map(toSessionRow);
    }
    if (subject !== null) return listVisibleSessions.all({ ...page, subject }).map(toSessionRow);
    return listSessions.all(page).map(toSessionRow);
  }

  readSnapshots(session: SessionRef): SnapshotRow[] {
    const key = this.#keys.find(session);
    return key === undefined ? [] : this.#statements.readSnapshots.all(key).map(toSnapshotRow);
  }

  readEvents(
    session: SessionRef,
    after: bigint,
    page: { readonly limit: number; readonly maxBytes: number },
  ): EventRow[] {
    const key = this.#keys.find(session);
    if (key === undefined) return [];
    const events: EventRow[] = [];
    let sizeBytes = 0;
    // Leaving the loop closes the cursor, so that it never reads more than the page takes.
    for (const columns of this.#statements.readEvents.iterate(key, after, page.limit)) {
      const event = toJoinedEvent(columns);
      events.push(event);
      sizeBytes += event.payload?.length ?? 0;
      if (sizeBytes >= page.maxBytes) break;
    }
    return events;
  }

  readEvent(session: SessionRef, sequence: bigint): EventRow | undefined {
    const key = this.#keys.find(session);
    const found = key === undefined ? key : this.#statements.readEvent.get(key, sequence);
    return found && toEventRow(found);
  }

  findRecord(session: SessionRef, recordId: string): IndexedRecord | undefined {
    const key = this.#keys.find(session);
    const found = key === undefined ? key : this.#statements.findRecord.get(key, recordId);
    return found && toIndexedRecord(found);
  }

  listRecords(session: SessionRef, query: RecordQuery): IndexedRecord[] {
    const key = this.#keys.find(session);
    if (key === undefined) return [];
    const { family, toolCallId, afterFirstSequence, limit } = query;
    const { listRecords, listRecordsOfCall } = this.#statements;
    const found =
      toolCallId === undefined
        ? listRecords.all(key, family, afterFirstSequence, limit)
        : listRecordsOfCall.all(key, toolCallId, family, afterFirstSequence, limit);
    return found.map(toIndexedRecord);
  }

  listAsks(query: AskQuery): IndexedAsk[] {
    const session = this.#sessionOf(query);
    if (session === undefined) return [];
    const { tenant, state, limit } = query;
    return this.#asksStatement(query)
      .all({
        session,
        tenant,
        state,
        subject: query.visibleToSubject ?? null,
        owner: query.ownerSubject ?? null,
        toolName: query.toolName ?? null,
        createFromMs: query.createFromMs ?? null,
        createBeforeMs: query.createBeforeMs ?? null,
        expireBeforeMs: query.expireBeforeMs ?? null,
        after: query.afterPosition,
        until: query.untilPosition ?? HIGHEST,
        limit,
        ...treeOf(query.tree),
      })
      .map(toIndexedAsk);
  }

  /** The statement whose index leaves the fewest asks to pick from. */
  #asksStatement(query: AskQuery): SqliteStatement<AskColumns> {
    const statements = this.#statements;
    if (query.tree !== undefined) return statements.listTreeAsks;
    if (query.sessionId !== undefined) return statements.listSessionAsks;
    if (query.ownerSubject !== undefined) return statements.listOwnedAsks;
    if (query.visibleToSubject !== undefined) return statements.listVisibleAsks;
    return query.toolName === undefined ? statements.listAsks : statements.listToolAsks;
  }

  listAskChanges(query: AskChangesQuery): IndexedAsk[] {
    const session = this.#sessionOf(query);
    if (session === undefined) return [];
    const { tenant, limit, visibleToSubject: subject = null, afterPosition: after } = query;
    return this.#changesStatement(query)
      .all({ session, tenant, subject, after, limit, ...treeOf(query.tree) })
      .map(toIndexedAsk);
  }

  #changesStatement(query: AskChangesQuery): SqliteStatement<AskColumns> {
    const { sessionId, visibleToSubject, tree } = query;
    const { listAskChanges, listSessionAskChanges, listVisibleAskChanges } = this.#statements;
    if (tree !== undefined) return this.#statements.listTreeAskChanges;
    if (sessionId !== undefined) return listSessionAskChanges;
    return visibleToSubject === undefined ? listAskChanges : listVisibleAskChanges;
  }

  listDue({ untilMs, untilPosition, after, limit }: DueQuery): DueRecord[] {
    return this.#statements.listDue
      .all({
        untilMs,
        until: untilPosition ?? HIGHEST,
        afterMs: after?.timeMs ?? LOWEST,
        afterPosition: after?.position ?? LOWEST,
        limit,
      })
      .map(toDueRecord);
  }

  listDueSetAfter(timeMs: number, limit: number): DueRecord[] {
    return this.#statements.listDueSetAfter.all(timeMs, limit).map(toDueRecord);
  }

  nextDeadlineMs(): number | undefined {
    const timeMs = this.#statements.nextDeadline.get()?.time_ms ?? undefined;
    return timeMs === undefined ? undefined : Number(timeMs);
  }

  /** The key of the scope's session: null if it is every session, absent if there is none of that id. */
  #sessionOf({ tenant, sessionId }: AskScope): number | null | undefined {
    return sessionId === undefined ? null : this.#keys.find({ tenant, sessionId });
  }

  readBody(session: SessionRef, bodyRef: string): BodyRow | undefined {
    const key = this.#keys.find(session);
    const found = key === undefined ? key : this.#statements.readBody.get(key, bodyRef);
    return found && toBodyRow(found);
  }

  readPairings(session: SessionRef, recordIds: readonly string[]): PairingRow[] {
    const key = this.#keys.find(session);
    if (key === undefined) return [];
    const pairings: PairingRow[] = [];
    for (const recordId of new Set(recordIds)) {
      const found = this.#statements.readPairing.get(key, recordId);
      if (found !== undefined) pairings.push(toPairingRow(found));
    }
    return pairings;
  }

  /** In one read transaction: without it each lookup would take and release the locks of a read by itself. */
  findRequests(requests: readonly RequestRef[]): (RequestRow | undefined)[] {
    this.#statements.beginRead.run();
    try {
      return requests.map(({ session, requestId }) => {
        const key = this.#keys.find(session);
        const found = key === undefined ? key : this.#statements.findRequest.get(key, requestId);
        return found && toRequestRow(found);
      });
    } finally {
      // SQLite itself ends the transaction at some faults.
      if (this.#database.inTransaction) this.#statements.endRead.run();
    }
  }

  findCreation(tenant: string, subject: string, requestId: string): CreationRow | undefined {
    const found = this.#statements.findCreation.get(tenant, subject, requestId);
    return found && toCreationRow(found);
  }

  listRecordPlaces(session: SessionRef, query: PlaceQuery): RecordPlace[] {
    const key = this.#keys.find(session);
    if (key === undefined) return [];
    const { family, afterFirstSequence, limit } = query;
    const { listRecordPlaces } = this.#statements;
    return listRecordPlaces.all(key, family, afterFirstSequence, limit).map(toRecordPlace);
  }

  listAskPlaces(session: SessionRef, afterId: string, limit: number): AskPlace[] {
    return this.#listRows(session, this.#statements.listAskPlaces, afterId, limit).map(toAskPlace);
  }

  listDeadlines(session: SessionRef, afterId: string, limit: number): DueRecord[] {
    return this.#listRows(session, this.#statements.listDeadlines, afterId, limit).map(toDueRecord);
  }

  listBodyRefs(session: SessionRef, afterRef: string, limit: number): string[] {
    const found = this.#listRows(session, this.#statements.listBodyRefs, afterRef, limit);
    return found.map(({ body_ref: bodyRef }) => bodyRef);
  }

  listPairings(session: SessionRef, afterId: string, limit: number): PairingRow[] {
    return this.#listRows(session, this.#statements.listPairings, afterId, limit).map(toPairingRow);
  }

  listRequests(session: SessionRef, afterId: string, limit: number): RequestRow[] {
    return this.#listRows(session, this.#statements.listRequests, afterId, limit).map(toRequestRow);
  }

  #listRows<Columns>(
    session: SessionRef,
    statement: SqliteStatement<Columns>,
    after: string,
    limit: number,
  ): Columns[] {
    const key = this.#keys.find(session);
    return key === undefined ? [] : statement.all(key, after, limit);
  }
}

/** The parameters of a tree. */
function treeOf(tree: SessionTree | undefined): Readonly<Record<string, string>> {
  return tree === undefined ? {} : { sessionId: tree.sessionId, root: tree.rootSessionId };
}
