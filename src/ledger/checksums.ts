import { equalBytes } from "../domain/bytes.js";
import { digestOf } from "../domain/sha256.js";
import type { CreationRow, RequestRow, SessionRef, SessionRow } from "./store-port.js";

/**
 * What guards the rows that no event proves: a row that was changed outside the program does not have its checksum. It
 * is against damage, not against forgery, which the chain and a checkpoint tell.
 */
export function sessionChecksum(row: Omit<SessionRow, "checksum">): Uint8Array {
  const { head } = row;
  return digestOf([
    "session",
    row.tenant,
    row.sessionId,
    row.ownerSubject,
    row.createdBySubject,
    row.parentSessionId,
    row.rootSessionId,
    BigInt(row.state),
    row.createPosition,
    head.sequence,
    head.position,
    head.highWater,
    head.chain,
    head.sessionSequence,
    head.activeRunId,
    BigInt(head.updateTimeMs),
  ]);
}

/** Whether the session's row is as it was written. */
export function isIntactSession(row: SessionRow): boolean {
  return equalBytes(sessionChecksum(row), row.checksum);
}

/** Guards a remembered request, with the session that remembers it. */
export function requestChecksum(
  { tenant, sessionId }: SessionRef,
  { requestId, digest, outcome }: Omit<RequestRow, "checksum">,
): Uint8Array {
  return digestOf(["request", tenant, sessionId, requestId, digest, outcome]);
}

/** Guards a remembered creation. */
export function creationChecksum(row: Omit<CreationRow, "checksum">): Uint8Array {
  const { tenant, subject, requestId, digest, sessionId } = row;
  return digestOf(["creation", tenant, subject, requestId, digest, sessionId]);
}
