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

/** What a cursor says. One is made for each message, so that it is no message itself. */
interface Cursor extends EventPlace {
  readonly generation: bigint;
}

const NUMBER_BYTES = 8;
const CHECK_BYTES = 8;
const CHECK_AT = 3 * NUMBER_BYTES;
const CURSOR_BYTES = CHECK_AT + CHECK_BYTES;

// One is made for each message. Nothing else can run before it is read as text.
const scratch = Buffer.alloc(CURSOR_BYTES);
const scratchView = new DataView(scratch.buffer, scratch.byteOffset, CURSOR_BYTES);

/** A text that stands for a place: three numbers, and a check that is of them and of the scope. */
export function encodeEventCursor({ position, sequence }: EventPlace, scope: CursorScope): string {
  const { generation } = scope;
  scratchView.setBigUint64(0, generation);
  scratchView.setBigUint64(NUMBER_BYTES, position);
  scratchView.setBigUint64(2 * NUMBER_BYTES, sequence);
  scratch.set(checkOf({ generation, position, sequence }, scope), CHECK_AT);
  return scratch.toString("base64url");
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
  const bytes = Buffer.from(text, "base64url");
  // Other spellings of the same bytes are none of ours.
  if (bytes.length !== CURSOR_BYTES || bytes.toString("base64url") !== text) {
    return refuseMalformedCursor();
  }
  const numberAt = (index: number): bigint => bytes.readBigUInt64BE(index * NUMBER_BYTES);
  const cursor = { generation: numberAt(0), position: numberAt(1), sequence: numberAt(2) };
  if (!equalBytes(bytes.subarray(CHECK_AT), checkOf(cursor, scope))) return refuseMalformedCursor();
  if (cursor.generation !== scope.generation) {
    return refuse(ErrorReason.CURSOR_EXPIRED, "the cursor is of a log that was replaced");
  }
  const { position, sequence } = cursor;
  return position <= lastPosition ? { position, sequence } : refuseMalformedCursor();
}

export function refuseMalformedCursor(): Refusal {
  return refuse(ErrorReason.CURSOR_MALFORMED, "the cursor is damaged or of another watch");
}

function checkOf({ generation, position, sequence }: Cursor, { digest }: CursorScope): Uint8Array {
  return digestOf([digest, generation, position, sequence]).subarray(0, CHECK_BYTES);
}
