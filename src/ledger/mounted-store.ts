import { SessionState } from "../../gen/toolmark/v1/session_pb.js";
import { mountedIndexAfter, type MountedSessions, type OpenedMount } from "./mounted-sessions.js";
import {
  StoreFault,
  type AskChangesQuery,
  type AskPlace,
  type AskQuery,
  type AskScope,
  type BodyRow,
  type CommandWrite,
  type CommitResult,
  type CreationRow,
  type DueQuery,
  type DueRecord,
  type EventRow,
  type IndexedAsk,
  type IndexedRecord,
  type PairingRow,
  type PlaceQuery,
  type RecordPlace,
  type RecordQuery,
  type RequestRef,
  type RequestRow,
  type SessionQuery,
  type SessionRef,
  type SessionRow,
  type SnapshotRow,
  type Store,
} from "./store-port.js";

/** Positions begin behind the one that every mounted session shows. */
const FIRST_POSITION = 1n;

/**
 * A store that shows mounted sessions beside its own. What is written goes to the store alone; a mounted session is
 * read from what was made of its files until it is stored. Its log is empty.
 */
export class MountedStore implements Store {
  readonly storeId: string;
  readonly generation: bigint;
  readonly #stored: Store;
  readonly #mounts: MountedSessions;

  constructor(stored: Store, mounts: MountedSessions) {
    this.storeId = stored.storeId;
    this.generation = stored.generation;
    this.#stored = stored;
    this.#mounts = mounts;
  }

  async findSession(session: SessionRef): Promise<SessionRow | undefined> {
    const row = await this.#stored.findSession(session);
    if (row !== undefined) {
      await this.#mounts.notice(row);
      return row;
    }
    const opened = await this.#mounts.open(session);
    return opened?.kind === "mounted" ? opened.live.row : opened?.row;
  }

  async listSessions(query: SessionQuery): Promise<SessionRow[]> {
    const { tree } = query;
    const root = tree && (await this.#mounts.openKnown({ ...query, sessionId: tree.sessionId }));
    if (root?.kind === "mounted") {
      const { row } = root.live;
      return row.createPosition > query.afterCreatePosition ? [row] : [];
    }
    const rows = await this.#stored.listSessions(query);
    if (!isAboutMounted(query)) return rows;
    let index = mountedIndexAfter(query.afterCreatePosition);
    for (; rows.length < query.limit && index < this.#mounts.count; index += 1) {
      const mounted = await this.#mounts.at(index);
      if (mounted?.live.row.tenant === query.tenant) rows.push(mounted.live.row);
    }
    return rows;
  }

  async readEvent(session: SessionRef, sequence: bigint): Promise<EventRow | undefined> {
    return (await this.#rowsOf(session)).readEvent(session, sequence);
  }

  async readEvents(
    session: SessionRef,
    afterSequence: bigint,
    limit: number,
    maxBytes: number,
  ): Promise<EventRow[]> {
    const rows = await this.#rowsOf(session);
    if (rows !== this.#stored) return [];
    return rows.readEvents(session, afterSequence, limit, maxBytes);
  }

  async readBody(session: SessionRef, bodyRef: string): Promise<BodyRow | undefined> {
    return (await this.#rowsOf(session)).readBody(session, bodyRef);
  }

  async findRecord(session: SessionRef, recordId: string): Promise<IndexedRecord | undefined> {
    return (await this.#rowsOf(session)).findRecord(session, recordId);
  }

  async listRecords(session: SessionRef, query: RecordQuery): Promise<IndexedRecord[]> {
    return (await this.#rowsOf(session)).listRecords(session, query);
  }

  async readPairings(session: SessionRef, recordIds: readonly string[]): Promise<PairingRow[]> {
    return (await this.#rowsOf(session)).readPairings(session, recordIds);
  }

  async listAsks(query: AskQuery): Promise<IndexedAsk[]> {
    return (await this.#rowsOfScope(query)).listAsks(query);
  }

  async listAskChanges(query: AskChangesQuery): Promise<IndexedAsk[]> {
    return (await this.#rowsOfScope(query)).listAskChanges(query);
  }

  async lastPosition(): Promise<bigint> {
    const last = await this.#stored.lastPosition();
    return last < FIRST_POSITION ? FIRST_POSITION : last;
  }

  lastEventTimeMs(): Promise<number | undefined> {
    return this.#stored.lastEventTimeMs();
  }

  commit(writes: readonly CommandWrite[]): Promise<CommitResult> {
    return this.#stored.commit(writes);
  }

  readSnapshots(session: SessionRef): Promise<SnapshotRow[]> {
    return this.#stored.readSnapshots(session);
  }

  listRecordPlaces(session: SessionRef, query: PlaceQuery): Promise<RecordPlace[]> {
    return this.#stored.listRecordPlaces(session, query);
  }

  listAskPlaces(session: SessionRef, afterId: string, limit: number): Promise<AskPlace[]> {
    return this.#stored.listAskPlaces(session, afterId, limit);
  }

  listDeadlines(session: SessionRef, afterId: string, limit: number): Promise<DueRecord[]> {
    return this.#stored.listDeadlines(session, afterId, limit);
  }

  listBodyRefs(session: SessionRef, afterRef: string, limit: number): Promise<string[]> {
    return this.#stored.listBodyRefs(session, afterRef, limit);
  }

  listPairings(session: SessionRef, afterId: string, limit: number): Promise<PairingRow[]> {
    return this.#stored.listPairings(session, afterId, limit);
  }

  listRequests(session: SessionRef, afterId: string, limit: number): Promise<RequestRow[]> {
    return this.#stored.listRequests(session, afterId, limit);
  }

  listDue(query: DueQuery): Promise<DueRecord[]> {
    return this.#stored.listDue(query);
  }

  listDueSetAfter(timeMs: number, limit: number): Promise<DueRecord[]> {
    return this.#stored.listDueSetAfter(timeMs, limit);
  }

  nextDeadlineMs(): Promise<number | undefined> {
    return this.#stored.nextDeadlineMs();
  }

  findRequests(requests: readonly RequestRef[]): Promise<readonly (RequestRow | undefined)[]> {
    return this.#stored.findRequests(requests);
  }

  findCreation(
    tenant: string,
    subject: string,
    requestId: string,
  ): Promise<CreationRow | undefined> {
    return this.#stored.findCreation(tenant, subject, requestId);
  }

  close(): Promise<void> {
    return this.#stored.close();
  }

  async #rowsOf(session: SessionRef): Promise<Store> {
    return this.#rowsIn(await this.#mounts.openKnown(session));
  }

  async #rowsOfScope({ tenant, sessionId }: AskScope): Promise<Store> {
    return sessionId === undefined ? this.#stored : this.#rowsOf({ tenant, sessionId });
  }

  #rowsIn(opened: OpenedMount | undefined): Store {
    if (opened === undefined) return this.#stored;
    if (opened.kind === "mounted") return opened.rows;
    const { fault, where } = opened.fault;
    throw new StoreFault("damaged", new Error(`a mounted session cannot be read: ${fault}`), where);
  }
}

/** Whether a list shows what belongs to nobody, has not ended and works for no other. */
function isAboutMounted({ tree, visibleToSubject, ownerSubject, state }: SessionQuery): boolean {
  return (
    tree === undefined &&
    visibleToSubject === undefined &&
    ownerSubject === undefined &&
    (state === undefined || state === SessionState.OPEN)
  );
}
