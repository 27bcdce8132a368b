import type {
  BodyRow,
  CreationRow,
  EventRow,
  PairingRow,
  RecordKey,
  RequestRow,
  SessionRow,
  SnapshotRow,
} from "../../ledger/store-port.js";

/** A record's entry in the index of last events. */
export interface MemoryRecord {
  readonly key: RecordKey;
  readonly firstSequence: bigint;
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
  readonly generation: bigint;
  lastPosition: bigint;
  /** By tenant, then by session id. */
  readonly sessions: Map<string, Map<string, MemorySession>>;
  /** By tenant, subject and request id. */
  readonly creations: Map<string, CreationRow>;
  /** The store that may use the disk: the one opened last. */
  holder: object | undefined;
}

export function createMemoryDisk(generation = 0n): MemoryDisk {
  return {
    generation,
    lastPosition: 0n,
    sessions: new Map(),
    creations: new Map(),
    holder: undefined,
  };
}

export function creationKey(tenant: string, subject: string, requestId: string): string {
  return JSON.stringify([tenant, subject, requestId]);
}
