import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { EventCursorSchema, type EventCursor } from "../../gen/toolmark/storage/v1/storage_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { equalBytes } from "../domain/bytes.js";
import { refuse, type Refusal } from "../domain/refusal.js";
import { digestOf } from "../domain/sha256.js";
import type { SessionRef, Store } from "../ledger/store-port.js";

/** Where a watch of events stands: every event up to this position was given. */
export interface EventPlace {
  readonly position: bigint;
  /**
   * In a watch of one session: sequence of the event at the position. 0 at the beginning, and in a watch of several.
   */
  readonly sequence: bigint;
}

/** What a watch is about, and in which log: a cursor of one is of no use for another. */
export interface CursorScope {
  readonly generation: bigint;
  /** Digest of the store, the session and of whether those below it are meant too. */
  readonly digest: string;
}

export function cursorScope(
  { storeId, generation }: Pick<Store, "storeId" | "generation">,
  { tenant, sessionId }: SessionRef,
  includeDescendants: boolean,
): CursorScope {
  const digest = digestOf(["events", storeId, tenant, sessionId, String(includeDescendants)]);
  return { generation, digest: Buffer.from(digest).toString("base64") };
}

export const BEGINNING: EventPlace = { position: 0n, sequence: 0n };

const CHECK_BYTES = 8;

export function encodeEventCursor({ position, sequence }: EventPlace, scope: CursorScope): string {
  const { generation } = scope;
  const check = checkOf({ generation, position, sequence }, scope);
  return textOf(create(EventCursorSchema, { generation, position, sequence, check }));
}

/**
 * Where the cursor stands. Only the very text of `encodeEventCursor` is one: CURSOR_MALFORMED for any other and for one
 * of another watch, CURSOR_EXPIRED for one of a log that was replaced.
 */
export function decodeEventCursor(
  text: string,
  scope: CursorScope,
  lastPosition: bigint,
): EventPlace | Refusal {
  const cursor = decode(text);
  if (cursor === undefined || !equalBytes(cursor.check, checkOf(cursor, scope))) {
    return refuseMalformedCursor();
  }
  if (cursor.generation !== scope.generation) {
    return refuse(ErrorReason.CURSOR_EXPIRED, "the cursor is of a log that was replaced");
  }
  const { position, sequence } = cursor;
  return position <= lastPosition ? { position, sequence } : refuseMalformedCursor();
}

export function refuseMalformedCursor(): Refusal {
  return refuse(ErrorReason.CURSOR_MALFORMED, "the cursor is damaged or of another watch");
}

function checkOf(
  { generation, position, sequence }: Pick<EventCursor, "generation" | "position" | "sequence">,
  { digest }: CursorScope,
): Uint8Array {
  return digestOf([digest, generation, position, sequence]).subarray(0, CHECK_BYTES);
}

function decode(text: string): EventCursor | undefined {
  try {
    const cursor = fromBinary(EventCursorSchema, Buffer.from(text, "base64url"));
    // Other spellings, unknown fields and fields in another order are none of ours.
    return cursor.$unknown === undefined && textOf(cursor) === text ? cursor : undefined;
  } catch (error) {
    if (error instanceof Error) return undefined;
    throw error;
  }
}

function textOf(cursor: EventCursor): string {
  return Buffer.from(toBinary(EventCursorSchema, cursor)).toString("base64url");
}
