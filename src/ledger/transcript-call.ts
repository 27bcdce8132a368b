import { create } from "@bufbuild/protobuf";
import { AskSchema, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationSchema } from "../../gen/toolmark/v1/authorization_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import {
  TranscriptCallSchema,
  type TranscriptCall,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { HookSchema } from "../../gen/toolmark/v1/hook_pb.js";
import { LegacyEvidenceSchema, type LegacyEvidence } from "../../gen/toolmark/v1/legacy_pb.js";
import { ReceiptSchema } from "../../gen/toolmark/v1/receipt_pb.js";
import { ToolCallSchema, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { attachmentOf, type Evidence } from "../domain/attachment.js";
import type { Limits } from "../domain/limits.js";
import type { Caller } from "../domain/principal.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { openRecord } from "./base-state.js";
import { refuseDamaged } from "./event-codec.js";
import { RecordFamily, type SessionRow, type Store } from "./store-port.js";
import type { InlineBodies } from "./transcript-bodies.js";
import { childReferences } from "./transcript-children.js";
import { RecordCursor } from "./transcript-cursor.js";
import { entryBytesMax, Room, wireBytes } from "./transcript-room.js";

const LAST_PLACE = 2n ** 63n - 1n;
const BATCH = 64;
/** Names of the lists of an entry, and what encloses them. */
const ENVELOPE_BYTES = 1024;

/** What settles comes first: if not all of it fits, what decided about a call is told before what advised. */
const FAMILIES = [
  RecordFamily.receipt,
  RecordFamily.ask,
  RecordFamily.authorization,
  RecordFamily.legacyEvidence,
  RecordFamily.hook,
] as const;

/** A record that can be told with a call. */
export type CallEvidence = Evidence | LegacyEvidence;

/** Whether a record is told with the call that it names: by its explicit references, see `attachmentOf`. */
export function isToldWith(evidence: CallEvidence, call: ToolCall): boolean {
  if (evidence.$typeName !== "toolmark.v1.LegacyEvidence") {
    return attachmentOf(evidence, [call]) === "ATTACHED";
  }
  const { toolCallId, origin } = evidence;
  return toolCallId === call.toolCallId && origin?.sessionId === call.origin?.sessionId;
}

export interface CallParts {
  readonly store: Store;
  readonly bodies: InlineBodies;
  readonly limits: Limits;
  readonly caller: Caller;
  /** The session that the transcript is of. */
  readonly row: SessionRow;
}

/**
 * A call with what is known about it, as far as one reply has room: of each kind of evidence the oldest, and bodies as
 * long as they fit beside it.
 */
export async function transcriptCall(
  parts: CallParts,
  call: ToolCall,
): Promise<TranscriptCall | Refusal> {
  const { bodies, limits, row } = parts;
  const room = new Room(entryBytesMax(limits) - ENVELOPE_BYTES - wireBytes(ToolCallSchema, call));
  const told = create(TranscriptCallSchema);
  const whole = await bodies.into(row, { case: "toolCall", value: call }, room.leftBytes);
  if (isRefusal(whole)) return whole;
  room.take(room.leftBytes - whole.roomBytes);
  told.toolCall = whole.record.value;
  for (const family of FAMILIES) {
    const fault = await gather(parts, told, { call, family, room });
    if (fault !== undefined) return fault;
  }
  const { children, isWhole } = await childReferences(parts, call, room);
  told.children = children;
  told.truncated ||= !isWhole;
  return withBodies(parts, told, room);
}

interface Wanted {
  readonly call: ToolCall;
  readonly family: RecordFamily;
  readonly room: Room;
}

/** Adds the evidence of one family, oldest first, until the room is full. */
async function gather(
  { store, row }: CallParts,
  told: TranscriptCall,
  { call, family, room }: Wanted,
): Promise<Refusal | undefined> {
  const { toolCallId } = call;
  const range = { family, toolCallId, after: -LAST_PLACE, through: LAST_PLACE, wanted: BATCH };
  const cursor = new RecordCursor(store, row, range);
  for (;;) {
    const indexed = await cursor.peek();
    if (indexed === undefined) return undefined;
    cursor.take();
    const opened = await openRecord(store, row, indexed);
    if (isRefusal(opened)) return opened;
    const added = add(told, opened.record, { call, family, room });
    if (added === "no-evidence") return refuseDamaged(indexed.lastSequence);
    if (added === "full") {
      told.truncated = true;
      return undefined;
    }
  }
}

type Added = "added" | "elsewhere" | "full" | "no-evidence";

function add(told: TranscriptCall, record: EventRecord["record"], { call, room }: Wanted): Added {
  switch (record.case) {
    case "hook":
      return addTo(told.hooks, record.value, wireBytes(HookSchema, record.value), { call, room });
    case "ask":
      return addTo(told.asks, record.value, wireBytes(AskSchema, record.value), { call, room });
    case "receipt":
      return addTo(told.receipts, record.value, wireBytes(ReceiptSchema, record.value), {
        ...{ call, room },
      });
    case "authorization":
      return addTo(
        told.authorizations,
        record.value,
        wireBytes(AuthorizationSchema, record.value),
        { call, room },
      );
    case "legacyEvidence":
      return addTo(
        told.legacyEvidence,
        record.value,
        wireBytes(LegacyEvidenceSchema, record.value),
        { call, room },
      );
    default:
      return "no-evidence";
  }
}

function addTo<Item extends CallEvidence>(
  list: Item[],
  item: Item,
  sizeBytes: number,
  { call, room }: Pick<Wanted, "call" | "room">,
): Added {
  if (!isToldWith(item, call)) return "elsewhere";
  if (!room.take(sizeBytes)) return "full";
  list.push(item);
  return "added";
}

/** Puts the bodies of asks and of old evidence in place, as long as they fit. */
async function withBodies(
  { bodies, row }: CallParts,
  told: TranscriptCall,
  room: Room,
): Promise<TranscriptCall | Refusal> {
  const asks: Ask[] = [];
  for (const value of told.asks) {
    const whole = await bodies.into(row, { case: "ask", value }, room.leftBytes);
    if (isRefusal(whole)) return whole;
    room.take(room.leftBytes - whole.roomBytes);
    asks.push(whole.record.value);
  }
  const legacyEvidence: LegacyEvidence[] = [];
  for (const value of told.legacyEvidence) {
    const whole = await bodies.into(row, { case: "legacyEvidence", value }, room.leftBytes);
    if (isRefusal(whole)) return whole;
    room.take(room.leftBytes - whole.roomBytes);
    legacyEvidence.push(whole.record.value);
  }
  return { ...told, asks, legacyEvidence };
}
