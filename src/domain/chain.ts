import { lengthPrefixed } from "./identity.js";
import { sha256 } from "./sha256.js";

/** What the chain covers of one event. */
export interface ChainedEvent {
  readonly sessionId: string;
  readonly sequence: bigint;
  readonly position: bigint;
  readonly revision: bigint | undefined;
  readonly kind: string;
  readonly timeMs: number;
  readonly commitment: Uint8Array;
  readonly privateCommitment: Uint8Array | undefined;
}

/** The chain value before a session's first event. */
export const CHAIN_START: Uint8Array = new Uint8Array(32);

const encoder = new TextEncoder();
const EMPTY = new Uint8Array(0);

/** Binds bytes without revealing them once salt and bytes are erased: SHA-256(salt ‖ bytes). */
export function commit(salt: Uint8Array, bytes: Uint8Array): Uint8Array {
  return sha256(salt, bytes);
}

function bigEndian(value: bigint): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, value);
  return bytes;
}

/** The chain value after an event: SHA-256 over the value before it and every field behind its length. */
export function chainAfter(before: Uint8Array, event: ChainedEvent): Uint8Array {
  const fields = lengthPrefixed([
    encoder.encode(event.sessionId),
    bigEndian(event.sequence),
    bigEndian(event.position),
    event.revision === undefined ? EMPTY : bigEndian(event.revision),
    encoder.encode(event.kind),
    bigEndian(BigInt(event.timeMs)),
    event.commitment,
    event.privateCommitment ?? EMPTY,
  ]);
  return sha256(before, fields);
}
