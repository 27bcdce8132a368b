/** The tables of a session's rows. */
export type VerifiedTable =
  | "sessions"
  | "events"
  | "snapshots"
  | "records"
  | "asks"
  | "deadlines"
  | "bodies"
  | "pairings"
  | "requests";

/** The first row that is not as it was written. */
export interface Finding {
  readonly table: VerifiedTable;
  /** The row's key within the session; of the session's own row its id. */
  readonly key: string;
  /** The event that the row is or belongs to, where there is one. */
  readonly sequence?: bigint;
  /** What is wrong with it, as the rest of a sentence that begins with "it". */
  readonly fault: string;
}

/** A point of a session's log that somebody kept. */
export interface LogPoint {
  readonly sequence: bigint;
  readonly position: bigint;
  /** Chain value after the event. */
  readonly chain: Uint8Array;
}

/** What was gone through. */
export interface VerifiedCounts {
  readonly events: number;
  readonly bodies: number;
  /** Bytes of payloads and bodies. */
  readonly bytes: number;
}

export type Verdict =
  /** Every row is as it was written, and the log goes through the checkpoint, if there is one. */
  | { readonly outcome: "sound"; readonly head: LogPoint; readonly counts: VerifiedCounts }
  | { readonly outcome: "damaged"; readonly finding: Finding; readonly counts: VerifiedCounts }
  /** The rows agree with each other, but not with the checkpoint. */
  | {
      readonly outcome: "checkpoint_missed";
      readonly sequence: bigint;
      readonly head: LogPoint;
      readonly counts: VerifiedCounts;
    }
  /** Nobody waits for the verdict any more. */
  | { readonly outcome: "aborted" };

/** Thrown inside this folder only: a row is not as it was written. */
export class Unsound extends Error {
  constructor(readonly finding: Finding) {
    super(`${finding.table} ${finding.key}: it ${finding.fault}`);
  }
}

/** Thrown inside this folder only: the verdict is no longer wanted. */
export class Aborted extends Error {}
