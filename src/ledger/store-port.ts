import type { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import type { SessionState } from "../../gen/toolmark/v1/session_pb.js";

/** Names a session: its id is unique in its tenant only. */
export interface SessionRef {
  readonly tenant: string;
  readonly sessionId: string;
}

/** A session's row: what access, listing and recovery need without reading events. */
export interface SessionRow extends SessionRef {
  readonly ownerSubject: string;
  readonly createdBySubject: string;
  /** The session that this one works for. Absent for a root session. */
  readonly parentSessionId: string | undefined;
  /** The root session of the tree that it stands in: its own id if it works for no other. */
  readonly rootSessionId: string;
  readonly state: SessionState;
  /** Position of the session's first event; the order of listing. Lower than that of every session below it. */
  readonly createPosition: bigint;
  readonly head: SessionHead;
  /** SHA-256 over the other fields, see `sessionChecksum`. */
  readonly checksum: Uint8Array;
}

/** The end of a session's log. */
export interface SessionHead {
  readonly sequence: bigint;
  readonly position: bigint;
  readonly highWater: bigint;
  /** Chain value of the last event, 32 bytes. */
  readonly chain: Uint8Array;
  /** Sequence of the last event that carries the Session record itself. */
  readonly sessionSequence: bigint;
  readonly activeRunId: string | undefined;
  readonly updateTimeMs: number;
}

/** A stored event: columns as committed, payload as opaque bytes. */
export interface EventRow {
  readonly sequence: bigint;
  readonly position: bigint;
  readonly revision: bigint | undefined;
  readonly kind: string;
  readonly timeMs: number;
  /** Encoded `toolmark.storage.v1.EventPayload`. Absent, together with the salt, once erased. */
  readonly payload: Uint8Array | undefined;
  readonly salt: Uint8Array | undefined;
  readonly commitment: Uint8Array;
  readonly privateCommitment: Uint8Array | undefined;
  readonly chain: Uint8Array;
}

/** The kinds of record that the index knows. Stored as numbers: never renumber. */
export const RecordFamily = {
  session: 1,
  run: 2,
  turn: 3,
  message: 4,
  toolCall: 5,
  hook: 6,
  ask: 7,
  receipt: 8,
  authorization: 9,
  legacyEvidence: 10,
} as const;
export type RecordFamily = (typeof RecordFamily)[keyof typeof RecordFamily];

/** Which record an event carries, for the index of last events. */
export interface RecordKey {
  readonly recordId: string;
  readonly family: RecordFamily;
  /** The call that the record is about. Absent for calls themselves and records about none. */
  readonly toolCallId: string | undefined;
}

/** What the inbox finds an ask by. Only the state changes after the ask's first event. */
export interface AskEntry {
  readonly toolName: string;
  readonly state: AskState;
  readonly createTimeMs: number;
  /** Absent if the ask never expires. */
  readonly expireTimeMs: number | undefined;
}

/** Until when a record waits. */
export interface Deadline {
  /** Absent if it waits no longer, or for ever. */
  readonly timeMs: number | undefined;
}

/** A record that an event brings besides its own: one that a fork copied, or that an older system kept. */
export interface InheritedRecord extends RecordKey {
  /** Below 0: before every record that has an event. */
  readonly firstSequence: bigint;
  /** The inbox entry, exactly if it is an ask. */
  readonly ask: AskEntry | undefined;
  /** As that of an event. */
  readonly deadline: Deadline | undefined;
}

export interface NewEvent {
  readonly row: EventRow;
  /** Absent for events that update no record. */
  readonly record: RecordKey | undefined;
  /** The inbox entry after the event, exactly if it carries an ask. */
  readonly ask: AskEntry | undefined;
  /** The record's deadline after the event, replacing an earlier one. Absent for records that never have one. */
  readonly deadline: Deadline | undefined;
  /** Records that the event brings besides, in the order of their places. Absent: none. */
  readonly inherited?: readonly InheritedRecord[] | undefined;
}

/** A record's place in the index. */
export interface RecordPlace extends RecordKey {
  /** Sequence of the record's first event; the order of listing. Negative for records that another event brought. */
  readonly firstSequence: bigint;
  readonly lastSequence: bigint;
  /** Chain value after the last event, as written with it: tells that event from an older one. */
  readonly lastChain: Uint8Array;
}

/** A record's place in the index with its last event. */
export interface IndexedRecord extends RecordPlace {
  /** Absent if the row that the index names is missing: damage, to be told as such. */
  readonly event: EventRow | undefined;
}

/** An ask of the inbox. */
export interface AskPlace extends AskEntry, SessionRef {
  readonly askId: string;
  readonly toolCallId: string;
  readonly ownerSubject: string;
  readonly createdBySubject: string;
  readonly rootSessionId: string;
  /** Position of the ask's first event; the order of listing. */
  readonly position: bigint;
  /** Position of its last event; the order of changes. */
  readonly lastPosition: bigint;
  /** Chain value after the last event, as written with it: tells that event from an older one. */
  readonly lastChain: Uint8Array;
}

/** An ask of the inbox with its last event. */
export interface IndexedAsk extends AskPlace {
  /** Absent if the row that the index names is missing: damage, to be told as such. */
  readonly event: EventRow | undefined;
}

/** A record whose deadline has come. */
export interface DueRecord {
  readonly session: SessionRef;
  readonly recordId: string;
  readonly timeMs: number;
  /** Position of the event that set the deadline. */
  readonly position: bigint;
  /** Time of that event, by the clock that the deadline was set by. */
  readonly setTimeMs: number;
}

/** A body, stored once per session. */
export interface BodyRow {
  readonly bodyRef: string;
  readonly sha256: Uint8Array;
  readonly sizeBytes: number;
  readonly isJsonObject: boolean;
  readonly data: Uint8Array;
}

/** What a provider gave with a record. Private: read for the engine role and for outstanding ids only. */
export interface PairingRow {
  /** The call or turn. */
  readonly recordId: string;
  /** Sequence of the event whose private commitment covers this row. */
  readonly sequence: bigint;
  /** 16 bytes. Absent, together with the row's bytes, once erased. */
  readonly salt: Uint8Array | undefined;
  /** Encoded `toolmark.engine.v1.ProviderPairing` of a call, `toolmark.storage.v1.ProviderTurn` of a turn. */
  readonly pairing: Uint8Array | undefined;
}

/** A remembered request. */
export interface RequestRow {
  readonly requestId: string;
  /** SHA-256 of the request without its id. */
  readonly digest: Uint8Array;
  /** Encoded `toolmark.storage.v1.RequestOutcome`. */
  readonly outcome: Uint8Array;
  /** SHA-256 over the other fields and the session, see `requestChecksum`. */
  readonly checksum: Uint8Array;
}

/** Names a request: its scope is the session. */
export interface RequestRef {
  readonly session: SessionRef;
  readonly requestId: string;
}

/** A remembered creation; its scope is the creating principal. */
export interface CreationRow {
  readonly tenant: string;
  readonly subject: string;
  readonly requestId: string;
  readonly digest: Uint8Array;
  readonly sessionId: string;
  /** SHA-256 over the other fields, see `creationChecksum`. */
  readonly checksum: Uint8Array;
}

/** Write-side state as of one event. */
export interface SnapshotRow {
  readonly sequence: bigint;
  readonly highWater: bigint;
  readonly chain: Uint8Array;
  /** Encoded `toolmark.storage.v1.SessionState`. */
  readonly state: Uint8Array;
  /** SHA-256 over the other fields, see `snapshotDigest`. */
  readonly digest: Uint8Array;
}

/** A body of one session that another one gets too, under a reference of its own. */
export interface BodyCopy {
  readonly from: SessionRef;
  readonly bodyRef: string;
  readonly newBodyRef: string;
}

/** Everything that one command writes. */
export interface CommandWrite extends SessionRef {
  /** The session's row after the command. Its creation if there is none yet. */
  readonly session: SessionRow;
  readonly events: readonly NewEvent[];
  readonly bodies: readonly BodyRow[];
  /** Refused if the body is not there. Absent if there are none. */
  readonly bodyCopies?: readonly BodyCopy[] | undefined;
  readonly pairings: readonly PairingRow[];
  readonly request: RequestRow | undefined;
  readonly creation: CreationRow | undefined;
  /** Written with the command; older snapshots than the last two are dropped. */
  readonly snapshot: SnapshotRow | undefined;
}

export type CommitResult =
  | { readonly outcome: "committed" }
  /** The write at `index` was refused by the database. Nothing of the batch is stored. */
  | { readonly outcome: "command_failed"; readonly index: number; readonly cause: Error }
  | { readonly outcome: "failed"; readonly reason: CommitFailure; readonly cause: Error };

/** Why a batch as a whole failed. */
export type CommitFailure =
  /** There is no room. Nothing of the batch is stored; a later commit may succeed. */
  | "full"
  /** Another process holds the database. Nothing of the batch is stored; a later commit may succeed. */
  | "busy"
  /** The database is damaged where it was to be written. Nothing of the batch is stored, and no commit follows. */
  | "damaged"
  /** A write or a sync failed, or the file is no longer there: the outcome is not known, and no commit follows. */
  | "lost"
  /** Any other fault: the outcome is not known. */
  | "other";

/** Thrown by reads of a store that cannot give the rows: it is not known whether they are there. */
export class StoreFault extends Error {
  override readonly name = "StoreFault";

  constructor(
    /** `damaged`: the file is. `unreadable`: it cannot be read. `busy`: another process holds it. */
    readonly reason: "damaged" | "unreadable" | "busy",
    cause: Error,
    /** Where, for callers. */
    readonly where: Readonly<Record<string, string>> = {},
  ) {
    super(`the store could not be read: ${cause.message}`, { cause });
  }
}

/** A session and every one that works for it, at any depth. */
export interface SessionTree {
  readonly sessionId: string;
  /** Of the session. */
  readonly rootSessionId: string;
}

export interface SessionQuery {
  readonly tenant: string;
  /** Only sessions of this tree. Absent: all. */
  readonly tree: SessionTree | undefined;
  /** Only sessions that this subject owns or created. Absent: every session of the tenant. */
  readonly visibleToSubject: string | undefined;
  readonly ownerSubject: string | undefined;
  readonly state: SessionState | undefined;
  /** Only sessions created after this position; 0 for the first page. */
  readonly afterCreatePosition: bigint;
  readonly limit: number;
}

export interface PlaceQuery {
  readonly family: RecordFamily;
  /** Only records whose first event comes after this sequence; before the lowest for the first page. */
  readonly afterFirstSequence: bigint;
  readonly limit: number;
}

export interface RecordQuery extends PlaceQuery {
  readonly toolCallId: string | undefined;
}

/** Whose asks are wanted. */
export interface AskScope {
  readonly tenant: string;
  /** Only asks of sessions that this subject owns or created. Absent: of every session of the tenant. */
  readonly visibleToSubject: string | undefined;
  /** Only asks of this session. Absent: of all. */
  readonly sessionId: string | undefined;
  /** Only asks of this tree; then `sessionId` is that of its session. Absent: whatever stands below. */
  readonly tree: SessionTree | undefined;
}

export interface AskQuery extends AskScope {
  readonly state: AskState;
  readonly ownerSubject: string | undefined;
  readonly toolName: string | undefined;
  /** Only asks with `createFromMs <= createTimeMs < createBeforeMs`, where given. */
  readonly createFromMs: number | undefined;
  readonly createBeforeMs: number | undefined;
  /** Only asks with an `expireTimeMs` below it, if given. */
  readonly expireBeforeMs: number | undefined;
  /** Only asks opened after this position; 0 for the first page. */
  readonly afterPosition: bigint;
  /** Only asks opened at or before this position, if given. */
  readonly untilPosition: bigint | undefined;
  readonly limit: number;
}

export interface AskChangesQuery extends AskScope {
  /** Only asks whose last event comes after this position. */
  readonly afterPosition: bigint;
  readonly limit: number;
}

export interface DueQuery {
  /** Only deadlines at or before this time. */
  readonly untilMs: number;
  /** Only deadlines set at or before this position, if given. */
  readonly untilPosition: bigint | undefined;
  /** The last entry of the page before; absent for the first page. */
  readonly after: Pick<DueRecord, "timeMs" | "position"> | undefined;
  readonly limit: number;
}

/**
 * Every row of a session, for whoever rebuilds or checks it. Lists are cut at `limit` and go on after the last key of
 * the page before, in the order of that key.
 */
export interface SessionRows {
  findSession(session: SessionRef): Promise<SessionRow | undefined>;
  /** Newest first, at most two. */
  readSnapshots(session: SessionRef): Promise<SnapshotRow[]>;
  /**
   * Events with a higher sequence than `afterSequence`, in order; at most `limit`, and no more than the first whose
   * payload brings the sum of payload sizes to `maxBytes`.
   */
  readEvents(
    session: SessionRef,
    afterSequence: bigint,
    limit: number,
    maxBytes: number,
  ): Promise<EventRow[]>;
  readBody(session: SessionRef, bodyRef: string): Promise<BodyRow | undefined>;

  /** Of one family, in the order of their first event. */
  listRecordPlaces(session: SessionRef, query: PlaceQuery): Promise<RecordPlace[]>;
  listAskPlaces(session: SessionRef, afterId: string, limit: number): Promise<AskPlace[]>;
  listDeadlines(session: SessionRef, afterId: string, limit: number): Promise<DueRecord[]>;
  listBodyRefs(session: SessionRef, afterRef: string, limit: number): Promise<string[]>;
  listPairings(session: SessionRef, afterId: string, limit: number): Promise<PairingRow[]>;
  listRequests(session: SessionRef, afterId: string, limit: number): Promise<RequestRow[]>;
}

/**
 * What rows hold beside the log, by the ledger's rules. Given to a store that fills such rows for a file of an older
 * version.
 */
export interface RowRules {
  /** What is found by the event. Absent if the row does not match its commitment. */
  indexOf(row: EventRow): Omit<NewEvent, "row"> | undefined;
  /** Where the records are that an event brings: a body. Absent if it brings none. */
  baseRefOf(row: EventRow): string | undefined;
  /** The records that an event brings by a body. Absent if that is damaged. */
  inheritedOf(row: EventRow, base: Pick<BodyRow, "sha256" | "data">): InheritedRecord[] | undefined;
  /** Where the session stands, by its first event. Absent if the row does not match its commitment. */
  standingOf(first: EventRow): Pick<SessionRow, "parentSessionId" | "rootSessionId"> | undefined;
  followsChain(sessionId: string, chainBefore: Uint8Array, row: EventRow): boolean;
  sessionChecksum(row: Omit<SessionRow, "checksum">): Uint8Array;
  requestChecksum(session: SessionRef, row: Omit<RequestRow, "checksum">): Uint8Array;
  creationChecksum(row: Omit<CreationRow, "checksum">): Uint8Array;
}

/**
 * The store that a ledger writes to: one writer, rows as given, no rule of its own.
 *
 * Order: events of a session are dense by sequence and strictly rise by position over the whole store; the database
 * itself refuses an event whose position, sequence or revision is not higher than every earlier one (of the store, of
 * the session, of the session), and any change of an event. It refuses as well a second pairing of a call, a request
 * or creation with a known id, other bytes under a known `bodyRef`, a record that changes its family or call, an ask
 * that changes more than its state, and a session that changes its owner, creator, parent, root or `createPosition`,
 * or whose head goes back. Equal bodies and a snapshot of the same sequence may come again. Durability: `commit`
 * resolves to "committed" only after the rows would survive power loss (the memory store: the process). Visibility:
 * every read sees committed rows only. Absence is `undefined` or an empty list, never an error; reads throw
 * `StoreFault` if the answer is not known. Byte arrays are not changed by either side after they were handed over.
 */
export interface Store extends SessionRows {
  /** Given to the store when it was made; tells its cursors from another store's. */
  readonly storeId: string;
  /** Log generation, raised by each restore. */
  readonly generation: bigint;

  /** Highest committed position, 0 in an empty store. */
  lastPosition(): Promise<bigint>;
  /** Time of the event at that position. Absent in an empty store. */
  lastEventTimeMs(): Promise<number | undefined>;

  /**
   * Commits all writes in order in one transaction, or none. Never throws for what the database refuses or cannot do:
   * that is in the result.
   */
  commit(writes: readonly CommandWrite[]): Promise<CommitResult>;

  /** In order of creation. */
  listSessions(query: SessionQuery): Promise<SessionRow[]>;

  readEvent(session: SessionRef, sequence: bigint): Promise<EventRow | undefined>;

  /** The record's place in the index with its last event. */
  findRecord(session: SessionRef, recordId: string): Promise<IndexedRecord | undefined>;
  /** In order of their first event. */
  listRecords(session: SessionRef, query: RecordQuery): Promise<IndexedRecord[]>;

  /** In the order of opening. */
  listAsks(query: AskQuery): Promise<IndexedAsk[]>;
  /** In the order of their last event. */
  listAskChanges(query: AskChangesQuery): Promise<IndexedAsk[]>;

  /** By deadline, then position. */
  listDue(query: DueQuery): Promise<DueRecord[]>;
  /** Those that were set at a later time than this one; the latest first. */
  listDueSetAfter(timeMs: number, limit: number): Promise<DueRecord[]>;
  /** The earliest deadline of all. */
  nextDeadlineMs(): Promise<number | undefined>;

  /** Pairings of the named records; records without one are left out. */
  readPairings(session: SessionRef, recordIds: readonly string[]): Promise<PairingRow[]>;

  /** One answer for each, in order: all of a batch's lookups at once, since each of them costs a round. */
  findRequests(requests: readonly RequestRef[]): Promise<readonly (RequestRow | undefined)[]>;
  findCreation(
    tenant: string,
    subject: string,
    requestId: string,
  ): Promise<CreationRow | undefined>;

  /** Releases everything. No call may follow. */
  close(): Promise<void>;
}
