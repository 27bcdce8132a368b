import type {
  AskChangesQuery,
  AskPlace,
  AskQuery,
  AskScope,
  BodyRow,
  CommandWrite,
  CommitResult,
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
  Store,
} from "../../ledger/store-port.js";
import {
  createMemoryDisk,
  creationKey,
  type MemoryAsk,
  type MemoryDisk,
  type MemoryRecord,
  type MemorySession,
} from "./memory-disk.js";
import { applyWrite, type Undo } from "./memory-write.js";

export interface MemoryStoreOptions {
  /** The disk of an earlier store. That store may not use it any more, as if its process had died. */
  readonly disk?: MemoryDisk;
  /** Of a new disk. */
  readonly generation?: bigint;
  /** Of a new disk. */
  readonly storeId?: string;
}

/** A store that lives as long as its disk, an object of the caller's. */
export function createMemoryStore(options: MemoryStoreOptions = {}): Store {
  return new MemoryStore(options.disk ?? createMemoryDisk(options.generation, options.storeId));
}

class MemoryStore implements Store {
  readonly storeId: string;
  readonly generation: bigint;
  readonly #disk: MemoryDisk;

  constructor(disk: MemoryDisk) {
    this.storeId = disk.storeId;
    this.generation = disk.generation;
    this.#disk = disk;
    disk.holder = this;
  }

  async lastPosition(): Promise<bigint> {
    return this.#held().lastPosition;
  }

  async lastEventTimeMs(): Promise<number | undefined> {
    const { sessions, lastPosition } = this.#held();
    const all = [...sessions.values()].flatMap((ofTenant) => [...ofTenant.values()]);
    const last = all.map(({ events }) => events.at(-1));
    return last.find((event) => event?.position === lastPosition)?.timeMs;
  }

  async commit(writes: readonly CommandWrite[]): Promise<CommitResult> {
    if (this.#disk.holder !== this) {
      return { outcome: "failed", reason: "other", cause: closed() };
    }
    const undo: Undo = [];
    for (const [index, write] of writes.entries()) {
      try {
        applyWrite(this.#disk, write, undo);
      } catch (error) {
        for (const step of undo.reverse()) step();
        const cause = error instanceof Error ? error : new Error(String(error));
        return { outcome: "command_failed", index, cause };
      }
    }
    return { outcome: "committed" };
  }

  async findSession(session: SessionRef): Promise<SessionRow | undefined> {
    return this.#session(session)?.row;
  }

  async listSessions(query: SessionQuery): Promise<SessionRow[]> {
    const { ownerSubject, state, visibleToSubject: subject } = query;
    return [...(this.#held().sessions.get(query.tenant)?.values() ?? [])]
      .map(({ row }) => row)
      .filter((row) => row.createPosition > query.afterCreatePosition)
      .filter((row) => ownerSubject === undefined || row.ownerSubject === ownerSubject)
      .filter((row) => state === undefined || row.state === state)
      .filter((row) => subject === undefined || isVisible(row, subject))
      .filter((row) => query.tree === undefined || this.#isInTree(row, query.tree))
      .sort((left, right) => (left.createPosition < right.createPosition ? -1 : 1))
      .slice(0, query.limit);
  }

  async readSnapshots(session: SessionRef): Promise<SnapshotRow[]> {
    return [...(this.#session(session)?.snapshots ?? [])];
  }

  async readEvents(
    session: SessionRef,
    afterSequence: bigint,
    limit: number,
    maxBytes: number,
  ): Promise<EventRow[]> {
    const events = this.#session(session)?.events ?? [];
    const start = indexOfSequence(events, afterSequence + 1n);
    const page: EventRow[] = [];
    let sizeBytes = 0;
    for (const event of events.slice(start, start + limit)) {
      page.push(event);
      sizeBytes += event.payload?.length ?? 0;
      if (sizeBytes >= maxBytes) break;
    }
    return page;
  }

  async readEvent(session: SessionRef, sequence: bigint): Promise<EventRow | undefined> {
    return findEvent(this.#session(session), sequence);
  }

  async findRecord(session: SessionRef, recordId: string): Promise<IndexedRecord | undefined> {
    const stored = this.#session(session);
    const record = stored?.records.get(recordId);
    return record && toIndexedRecord(stored, record);
  }

  async listRecords(session: SessionRef, query: RecordQuery): Promise<IndexedRecord[]> {
    const stored = this.#session(session);
    const { family, toolCallId, afterFirstSequence, limit } = query;
    return [...(stored?.records.values() ?? [])]
      .filter(({ key }) => key.family === family)
      .filter(({ key }) => toolCallId === undefined || key.toolCallId === toolCallId)
      .filter(({ firstSequence }) => firstSequence > afterFirstSequence)
      .slice(0, limit)
      .map((record) => toIndexedRecord(stored, record));
  }

  async listAsks(query: AskQuery): Promise<IndexedAsk[]> {
    const { state, afterPosition, untilPosition } = query;
    return [...this.#held().asks.values()]
      .filter((ask) => ask.state === state && this.#isInScope(ask, query) && isWanted(ask, query))
      .filter(({ position }) => position > afterPosition)
      .filter(({ position }) => untilPosition === undefined || position <= untilPosition)
      .slice(0, query.limit)
      .map((ask) => this.#withEvent(ask));
  }

  async listAskChanges(query: AskChangesQuery): Promise<IndexedAsk[]> {
    return [...this.#held().asks.values()]
      .filter((ask) => this.#isInScope(ask, query) && ask.lastPosition > query.afterPosition)
      .sort((left, right) => (left.lastPosition < right.lastPosition ? -1 : 1))
      .slice(0, query.limit)
      .map((ask) => this.#withEvent(ask));
  }

  async listDue({ untilMs, untilPosition, after, limit }: DueQuery): Promise<DueRecord[]> {
    return [...this.#held().deadlines.values()]
      .filter(({ timeMs }) => timeMs <= untilMs)
      .filter(({ position }) => untilPosition === undefined || position <= untilPosition)
      .filter((due) => after === undefined || compareDue(due, after) > 0)
      .sort(compareDue)
      .slice(0, limit);
  }

  async listDueSetAfter(timeMs: number, limit: number): Promise<DueRecord[]> {
    return [...this.#held().deadlines.values()]
      .filter(({ setTimeMs }) => setTimeMs > timeMs)
      .sort((left, right) => right.setTimeMs - left.setTimeMs)
      .slice(0, limit);
  }

  async nextDeadlineMs(): Promise<number | undefined> {
    let next: number | undefined;
    for (const { timeMs } of this.#held().deadlines.values()) {
      if (next === undefined || timeMs < next) next = timeMs;
    }
    return next;
  }

  async readBody(session: SessionRef, bodyRef: string): Promise<BodyRow | undefined> {
    return this.#session(session)?.bodies.get(bodyRef);
  }

  async readPairings(session: SessionRef, recordIds: readonly string[]): Promise<PairingRow[]> {
    const pairings = this.#session(session)?.pairings;
    return [...new Set(recordIds)].flatMap((id) => pairings?.get(id) ?? []);
  }

  async findRequests(requests: readonly RequestRef[]): Promise<(RequestRow | undefined)[]> {
    return requests.map(({ session, requestId }) =>
      this.#session(session)?.requests.get(requestId),
    );
  }

  async findCreation(
    tenant: string,
    subject: string,
    requestId: string,
  ): Promise<CreationRow | undefined> {
    return this.#held().creations.get(creationKey(tenant, subject, requestId));
  }

  async listRecordPlaces(session: SessionRef, query: PlaceQuery): Promise<RecordPlace[]> {
    return [...(this.#session(session)?.records.values() ?? [])]
      .filter(({ key }) => key.family === query.family)
      .filter(({ firstSequence }) => firstSequence > query.afterFirstSequence)
      .slice(0, query.limit)
      .map(toRecordPlace);
  }

  async listAskPlaces(session: SessionRef, afterId: string, limit: number): Promise<AskPlace[]> {
    const asks = [...this.#held().asks.values()].filter((ask) => isOf(ask, session));
    return pageAfter(asks, ({ askId }) => askId, afterId, limit).map(toAskPlace);
  }

  async listDeadlines(session: SessionRef, afterId: string, limit: number): Promise<DueRecord[]> {
    const due = [...this.#held().deadlines.values()].filter((row) => isOf(row.session, session));
    return pageAfter(due, ({ recordId }) => recordId, afterId, limit);
  }

  async listBodyRefs(session: SessionRef, afterRef: string, limit: number): Promise<string[]> {
    return pageAfter(this.#session(session)?.bodies.keys() ?? [], (ref) => ref, afterRef, limit);
  }

  async listPairings(session: SessionRef, afterId: string, limit: number): Promise<PairingRow[]> {
    const pairings = this.#session(session)?.pairings.values() ?? [];
    return pageAfter(pairings, ({ recordId }) => recordId, afterId, limit);
  }

  async listRequests(session: SessionRef, afterId: string, limit: number): Promise<RequestRow[]> {
    const requests = this.#session(session)?.requests.values() ?? [];
    return pageAfter(requests, ({ requestId }) => requestId, afterId, limit);
  }

  async close(): Promise<void> {
    if (this.#disk.holder === this) this.#disk.holder = undefined;
  }

  #withEvent({ lastSequence, ...ask }: MemoryAsk): IndexedAsk {
    return { ...ask, event: findEvent(this.#session(ask), lastSequence) };
  }

  #isInScope(ask: MemoryAsk, { tenant, visibleToSubject, sessionId, tree }: AskScope): boolean {
    const isOfSession = sessionId === undefined || ask.sessionId === sessionId;
    return (
      ask.tenant === tenant &&
      (tree === undefined ? isOfSession : this.#isInTree(ask, tree)) &&
      (visibleToSubject === undefined || isVisible(ask, visibleToSubject))
    );
  }

  /** Whether a session is that of the tree or stands below it. */
  #isInTree({ tenant, sessionId }: SessionRef, tree: SessionTree): boolean {
    let at: string | undefined = sessionId;
    while (at !== undefined && at !== tree.sessionId) {
      at = this.#session({ tenant, sessionId: at })?.row.parentSessionId;
    }
    return at !== undefined;
  }

  #session({ tenant, sessionId }: SessionRef): MemorySession | undefined {
    return this.#held().sessions.get(tenant)?.get(sessionId);
  }

  #held(): MemoryDisk {
    if (this.#disk.holder !== this) throw closed();
    return this.#disk;
  }
}

function closed(): Error {
  return new Error("the store is closed");
}

function isOf(row: SessionRef, { tenant, sessionId }: SessionRef): boolean {
  return row.tenant === tenant && row.sessionId === sessionId;
}

function isVisible(
  row: Pick<SessionRow, "ownerSubject" | "createdBySubject">,
  subject: string,
): boolean {
  return row.ownerSubject === subject || row.createdBySubject === subject;
}

/** Whether the ask passes the filters by what never changes in it. */
function isWanted(ask: MemoryAsk, query: AskQuery): boolean {
  const { ownerSubject, toolName, createFromMs, createBeforeMs, expireBeforeMs } = query;
  return (
    (ownerSubject === undefined || ask.ownerSubject === ownerSubject) &&
    (toolName === undefined || ask.toolName === toolName) &&
    (createFromMs === undefined || ask.createTimeMs >= createFromMs) &&
    (createBeforeMs === undefined || ask.createTimeMs < createBeforeMs) &&
    (expireBeforeMs === undefined ||
      (ask.expireTimeMs !== undefined && ask.expireTimeMs < expireBeforeMs))
  );
}

type DuePlace = Pick<DueRecord, "timeMs" | "position">;

/** By deadline, then position, which no two share. */
function compareDue(left: DuePlace, right: DuePlace): number {
  return left.timeMs - right.timeMs || Number(left.position - right.position);
}

/** Index of the first event with this sequence or a higher one. */
function indexOfSequence(events: readonly EventRow[], sequence: bigint): number {
  let low = 0;
  let high = events.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const event = events[middle];
    if (event !== undefined && event.sequence < sequence) low = middle + 1;
    else high = middle;
  }
  return low;
}

function findEvent(session: MemorySession | undefined, sequence: bigint): EventRow | undefined {
  const events = session?.events ?? [];
  const event = events[indexOfSequence(events, sequence)];
  return event?.sequence === sequence ? event : undefined;
}

function toIndexedRecord(session: MemorySession | undefined, record: MemoryRecord): IndexedRecord {
  return { ...toRecordPlace(record), event: findEvent(session, record.lastSequence) };
}

function toRecordPlace({ key, ...place }: MemoryRecord): RecordPlace {
  return { ...key, ...place };
}

function toAskPlace({ lastSequence: _, ...place }: MemoryAsk): AskPlace {
  return place;
}

/** The rows after a key, in the order of the keys' UTF-8, as SQLite compares text. */
function pageAfter<Row>(
  rows: Iterable<Row>,
  keyOf: (row: Row) => string,
  after: string,
  limit: number,
): Row[] {
  const bytes = (row: Row): Buffer => Buffer.from(keyOf(row));
  const start = Buffer.from(after);
  return [...rows]
    .filter((row) => Buffer.compare(bytes(row), start) > 0)
    .sort((left, right) => Buffer.compare(bytes(left), bytes(right)))
    .slice(0, limit);
}
