import type { EventRow } from "../../ledger/store-port.js";
import { DamagedRowError } from "./sqlite-fault.js";

// Each value of bytes that the driver hands over costs as much as the row itself: all of a row come as one.
export const JOINED_EVENT = `e.position, e.sequence, e.revision, e.kind, e.time_ms,
  length(e.commitment) AS commitment, length(e.chain) AS chain, length(e.salt) AS salt,
  length(e.private_commitment) AS private_commitment, length(e.payload) AS payload,
  CAST(e.commitment || e.chain || coalesce(e.salt, x'') || coalesce(e.private_commitment, x'')
    || coalesce(e.payload, x'') AS BLOB) AS bytes`;

/** Of each value of bytes its length, and all of them joined. */
export interface JoinedEventColumns {
  readonly position: bigint;
  readonly sequence: bigint;
  readonly revision: bigint | null;
  readonly kind: string;
  readonly time_ms: bigint;
  readonly commitment: bigint;
  readonly chain: bigint;
  readonly salt: bigint | null;
  readonly private_commitment: bigint | null;
  readonly payload: bigint | null;
  readonly bytes: Uint8Array | null;
}

/** SQLite measures bytes in bytes, and text, which none of the columns should hold, in characters. */
function joinedBytes(columns: JoinedEventColumns): number {
  const { commitment, chain, salt, private_commitment: privateCommitment, payload } = columns;
  const digests = Number(commitment) + Number(chain) + Number(privateCommitment ?? 0n);
  return digests + Number(salt ?? 0n) + Number(payload ?? 0n);
}

export function toJoinedEvent(columns: JoinedEventColumns): EventRow {
  const { position, sequence, revision, kind, bytes } = columns;
  if (!(bytes instanceof Uint8Array)) throw new DamagedRowError("a column holds no bytes");
  if (joinedBytes(columns) !== bytes.length) throw new DamagedRowError("a column holds text");
  let at = 0;
  const part = (length: bigint): Uint8Array => {
    const start = bytes.byteOffset + at;
    at += Number(length);
    return new Uint8Array(bytes.buffer, start, Number(length));
  };
  const partIfAny = (length: bigint | null): Uint8Array | undefined =>
    length === null ? undefined : part(length);
  return {
    position,
    sequence,
    revision: revision ?? undefined,
    kind,
    timeMs: Number(columns.time_ms),
    // In the order in which they are joined.
    commitment: part(columns.commitment),
    // Kept by whoever goes on after the event, which would keep all of the row with it.
    chain: part(columns.chain).slice(),
    salt: partIfAny(columns.salt),
    privateCommitment: partIfAny(columns.private_commitment),
    payload: partIfAny(columns.payload),
  };
}
