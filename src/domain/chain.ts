import { digestOf, isDigestOf, isSha256, sha256, type DigestField } from "./sha256.js";

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

/** Binds bytes without revealing them once salt and bytes are erased: SHA-256(salt ‖ bytes). */
export function commit(salt: Uint8Array, bytes: Uint8Array): Uint8Array {
  return sha256(salt, bytes);
}

/** Whether bytes are those that were bound. */
export function isCommitment(commitment: Uint8Array, salt: Uint8Array, bytes: Uint8Array): boolean {
  return isSha256(commitment, salt, bytes);
}

/** The chain value after an event: SHA-256 over the value before it and every field, each behind its length. */
export function chainAfter(before: Uint8Array, event: ChainedEvent): Uint8Array {
  return digestOf(chainedFields(before, event.sessionId, event));
}

/** Whether a chain value is the one after an event of the session. */
export function isChainAfter(
  chain: Uint8Array,
  before: Uint8Array,
  sessionId: string,
  event: Omit<ChainedEvent, "sessionId">,
): boolean {
  return isDigestOf(chain, chainedFields(before, sessionId, event));
}

function chainedFields(
  before: Uint8Array,
  sessionId: string,
  event: Omit<ChainedEvent, "sessionId">,
): readonly DigestField[] {
  return [
    before,
    sessionId,
    event.sequence,
    event.position,
    event.revision,
    event.kind,
    BigInt(event.timeMs),
    event.commitment,
    event.privateCommitment,
  ];
}
