import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { AskCursorSchema, type AskCursor } from "../../gen/toolmark/storage/v1/storage_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { equalBytes } from "../domain/bytes.js";
import { refuse, type Refusal } from "../domain/refusal.js";
import { digestOf } from "../domain/sha256.js";
import type { AskScope } from "../ledger/store-port.js";

/** Where a watch of asks stands. */
export interface AskPlace {
  /** Every change up to this position was given, except those below. */
  readonly position: bigint;
  /**
   * While the asks that were open at the start are still being given, those opened after `position` being left: the
   * position at the start. Absent afterwards.
   */
  readonly openUntil: bigint | undefined;
}

/** The log that a cursor is checked against. */
export interface CursorLog {
  readonly generation: bigint;
  readonly lastPosition: bigint;
}

const SCOPE_DIGEST_BYTES = 8;

/** Names what a watch gives, and from which store: a cursor of one is of no use for another. */
export function scopeDigest(
  storeId: string,
  scope: AskScope,
  includeDescendants: boolean,
): Uint8Array {
  const { tenant, visibleToSubject, sessionId } = scope;
  const visibility = visibleToSubject === undefined ? "tenant" : "own";
  const session = sessionId ?? "";
  const descendants = String(includeDescendants);
  const fields = ["asks", storeId, tenant, visibility, visibleToSubject, session, descendants];
  return digestOf(fields).subarray(0, SCOPE_DIGEST_BYTES);
}

export function encodeAskCursor(
  { position, openUntil = 0n }: AskPlace,
  digest: Uint8Array,
  generation: bigint,
): string {
  const cursor = create(AskCursorSchema, {
    generation,
    scopeDigest: digest,
    position,
    openUntil,
  });
  return textOf(cursor);
}

/** Where the cursor stands. Only the very text of `encodeAskCursor` is one. */
export function decodeAskCursor(
  text: string,
  digest: Uint8Array,
  log: CursorLog,
): AskPlace | Refusal {
  const cursor = decode(text);
  if (cursor === undefined || !equalBytes(cursor.scopeDigest, digest)) return refuseMalformed();
  if (cursor.generation !== log.generation) {
    return refuse(ErrorReason.CURSOR_EXPIRED, "the cursor is of a log that was replaced");
  }
  const { position, openUntil } = cursor;
  const isInLog = position <= log.lastPosition && openUntil <= log.lastPosition;
  const isInListing = openUntil === 0n || position <= openUntil;
  if (!isInLog || !isInListing) return refuseMalformed();
  return { position, openUntil: openUntil === 0n ? undefined : openUntil };
}

function decode(text: string): AskCursor | undefined {
  try {
    const cursor = fromBinary(AskCursorSchema, Buffer.from(text, "base64url"));
    // Other spellings, unknown fields and fields in another order are none of ours.
    return cursor.$unknown === undefined && textOf(cursor) === text ? cursor : undefined;
  } catch (error) {
    if (error instanceof Error) return undefined;
    throw error;
  }
}

function textOf(cursor: AskCursor): string {
  return Buffer.from(toBinary(AskCursorSchema, cursor)).toString("base64url");
}

function refuseMalformed(): Refusal {
  return refuse(ErrorReason.CURSOR_MALFORMED, "the cursor is damaged or of another watch");
}
