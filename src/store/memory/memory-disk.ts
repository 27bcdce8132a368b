import type {
  BodyRow,
  CreationRow,
  DueRecord,
  EventRow,
  IndexedAsk,
  PairingRow,
  RecordKey,
  RequestRow,
  SessionRef,
  SessionRow,
  SnapshotRow,
} from "../../ledger/store-port.js";

/** A record's entry in the index of last events. */
export interface MemoryRecord {
  readonly key: RecordKey;
  readonly firstSequence: bigint;
  readonly lastSequence: bigint;
  readonly lastChain: Uint8Array;
}

/** An ask's entry in the inbox. */
export interface MemoryAsk extends Omit<IndexedAsk, "event"> {
  readonly lastSequence: bigint;
}

/** Everything of one session. Maps keep the order of insertion, which is the order of listing. */
export interface MemorySession {
  row: SessionRow;
  /** Rising by sequence. */
  readonly events: EventRow[];
  lastRevision: bigint;
  readonly records: Map<string, MemoryRecord>;
  readonly bodies: Map<string, BodyRow>;
  readonly pairings: Map<string, PairingRow>;
  readonly requests: Map<string, RequestRow>;
  /** Newest first. */
  snapshots: readonly SnapshotRow[];
}

/** What outlives a memory store: open another one on it to model a restart. */
export interface MemoryDisk {
  readonly storeId: string;
  readonly generation: bigint;
  lastPosition: bigint;
  /** By tenant, then by session id. */
  readonly sessions: Map<string, Map<string, MemorySession>>;
  /** By tenant, subject and request id. */
  readonly creations: Map<string, CreationRow>;
  /** By tenant, session id and ask id, in the order of opening. */
  readonly asks: Map<string, MemoryAsk>;
  /** By tenant, session id and record id. Only of records that wait. */
  readonly deadlines: Map<string, DueRecord>;
  /** The store that may use the disk: the one opened last. */
  holder: object | undefined;
}

export function createMemoryDisk(generation = 0n, storeId = "memory"): MemoryDisk {
  return {
    storeId,
    generation,
    lastPosition: 0n,
    sessions: new Map(),
    creations: new Map(),
    asks: new Map(),
    deadlines: new Map(),
    holder: undefined,
  };
}

export function recordKey({ tenant, sessionId }: SessionRef, recordId: string): string {
  return JSON.stringify([tenant, sessionId, recordId]);
}

export function creationKey(tenant: string, subject: string, requestId: string): string {
  return JSON.stringify([tenant, subject, requestId]);
}
