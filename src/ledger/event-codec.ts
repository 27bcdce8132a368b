import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { timestampFromMs, timestampMs } from "@bufbuild/protobuf/wkt";
import { ProviderPairingSchema } from "../../gen/toolmark/engine/v1/command_pb.js";
import {
  EventPayloadSchema,
  ProviderTurnSchema,
  type EventPayload,
} from "../../gen/toolmark/storage/v1/storage_pb.js";
import type { Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { EventSchema, type Event, type EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { Actor } from "../../gen/toolmark/v1/origin_pb.js";
import { equalBytes } from "../domain/bytes.js";
import { chainAfter, commit, isChainAfter, isCommitment } from "../domain/chain.js";
import { deadlineMsOf, waitsUntilMs } from "../domain/deadline.js";
import { recordIdOf, toolCallIdOf } from "../domain/record-id.js";
import { isRefusal, refuse, type Refusal } from "../domain/refusal.js";
import { bringsRecords } from "../domain/session-record.js";
import type { DraftEvent } from "../domain/session-state.js";
import {
  RecordFamily,
  type AskEntry,
  type Deadline,
  type EventRow,
  type IndexedAsk,
  type IndexedRecord,
  type NewEvent,
  type PairingRow,
  type RecordKey,
  type RecordPlace,
} from "./store-port.js";

const FAMILY = {
  session: RecordFamily.session,
  forked: RecordFamily.session,
  adopted: RecordFamily.session,
  run: RecordFamily.run,
  turn: RecordFamily.turn,
  message: RecordFamily.message,
  toolCall: RecordFamily.toolCall,
  hook: RecordFamily.hook,
  ask: RecordFamily.ask,
  receipt: RecordFamily.receipt,
  authorization: RecordFamily.authorization,
  legacyEvidence: RecordFamily.legacyEvidence,
} as const;

const SALT_BYTES = 16;

/** The key that a record is found by. Absent for events that update none. */
export function recordKeyOf(record: EventRecord["record"]): RecordKey | undefined {
  const recordId = recordIdOf(record);
  if (recordId === undefined || !isIndexed(record)) return undefined;
  return { recordId, family: FAMILY[record.case], toolCallId: toolCallIdOf(record) };
}

function isIndexed(
  record: EventRecord["record"],
): record is Extract<EventRecord["record"], { case: keyof typeof FAMILY }> {
  return record.case !== undefined && record.case in FAMILY;
}

/** Where an event goes: what its row holds beside the payload. */
export interface EventPlace {
  readonly sessionId: string;
  readonly sequence: bigint;
  readonly position: bigint;
  readonly timeMs: number;
  readonly chainBefore: Uint8Array;
}

export interface SealedEvent {
  readonly event: NewEvent;
  readonly pairing: PairingRow | undefined;
}

/** Encodes, salts, commits and chains an event. */
export function sealEvent(
  draft: DraftEvent,
  actor: Actor,
  place: EventPlace,
  randomBytes: (size: number) => Uint8Array,
): SealedEvent {
  const { sessionId, sequence, position, timeMs, chainBefore } = place;
  const payload = toBinary(
    EventPayloadSchema,
    create(EventPayloadSchema, { actor, record: draft.record }),
  );
  const salt = randomBytes(SALT_BYTES);
  const { record } = draft.record;
  const beside = privateBytesOf(draft);
  const pairing = beside && sealPairing(beside, sequence, randomBytes);
  const chained = {
    sessionId,
    sequence,
    position,
    revision: draft.revision,
    kind: draft.kind,
    timeMs,
    commitment: commit(salt, payload),
    privateCommitment: pairing?.commitment,
  };
  const { revision, kind, commitment, privateCommitment } = chained;
  const row: EventRow = {
    sequence,
    position,
    revision,
    kind,
    timeMs,
    payload,
    salt,
    commitment,
    privateCommitment,
    chain: chainAfter(chainBefore, chained),
  };
  return { event: { row, ...indexOf(record) }, pairing: pairing?.row };
}

/** What an event's record is found by. */
export function indexOf(record: EventRecord["record"]): Omit<NewEvent, "row"> {
  return { record: recordKeyOf(record), ask: askEntryOf(record), deadline: deadlineOf(record) };
}

function askEntryOf(record: EventRecord["record"]): AskEntry | undefined {
  if (record.case !== "ask") return undefined;
  const { toolName, state, createTime, expireTime } = record.value;
  return {
    toolName,
    state,
    createTimeMs: createTime === undefined ? 0 : timestampMs(createTime),
    expireTimeMs: expireTime === undefined ? undefined : deadlineMsOf(expireTime),
  };
}

/** A record that never had a deadline has none to replace. */
function deadlineOf(record: EventRecord["record"]): Deadline | undefined {
  if (record.case !== "ask" && record.case !== "authorization") return undefined;
  if (record.value.expireTime === undefined) return undefined;
  return { timeMs: waitsUntilMs(record.value) };
}

/** What a provider gave with a record, encoded. */
export interface PrivateBytes {
  readonly recordId: string;
  readonly bytes: Uint8Array;
}

function privateBytesOf({ record, pairing, providerTurn }: DraftEvent): PrivateBytes | undefined {
  const { case: kind, value } = record.record;
  if (kind === "toolCall" && pairing !== undefined) {
    return { recordId: value.toolCallId, bytes: toBinary(ProviderPairingSchema, pairing) };
  }
  if (kind === "turn" && providerTurn !== undefined) {
    return { recordId: value.turnId, bytes: toBinary(ProviderTurnSchema, providerTurn) };
  }
  return undefined;
}

/** Salts and commits to what a provider gave. `sequence` is of the event that brings the commitment. */
export function sealPairing(
  { recordId, bytes }: PrivateBytes,
  sequence: bigint,
  randomBytes: (size: number) => Uint8Array,
): { readonly row: PairingRow; readonly commitment: Uint8Array } {
  const salt = randomBytes(SALT_BYTES);
  return {
    row: { recordId, sequence, salt, pairing: bytes },
    commitment: commit(salt, bytes),
  };
}

/** Whether the row's payload is the one that was committed. False for an erased one. */
export function isIntact(row: EventRow): boolean {
  if (row.payload === undefined || row.salt === undefined) return false;
  return isCommitment(row.commitment, row.salt, row.payload);
}

/** Whether the row follows the chain value before it. */
export function followsChain(sessionId: string, before: Uint8Array, row: EventRow): boolean {
  return isChainAfter(row.chain, before, sessionId, row);
}

/** A row that no event proves is not as it was written. */
export function refuseDamagedRow(id: string): Refusal {
  return refuse(ErrorReason.DATA_DAMAGED, "a row does not match its checksum and is not used", {
    id,
  });
}

export function refuseDamaged(sequence: bigint): Refusal {
  return refuse(
    ErrorReason.DATA_DAMAGED,
    `event ${sequence} does not match its commitment and is not served`,
    { sequence: sequence.toString() },
  );
}

/** The payload of a row, checked against its commitment. */
export function openPayload(row: EventRow): EventPayload | Refusal {
  const payload = checkedPayload(row);
  return isRefusal(payload) ? payload : fromBinary(EventPayloadSchema, payload);
}

/** The same as it is stored. */
export function checkedPayload(row: EventRow): Uint8Array | Refusal {
  return row.payload !== undefined && isIntact(row) ? row.payload : refuseDamaged(row.sequence);
}

/**
 * The record of the last event that the index names, checked to be of the record that it names. Of a record without an
 * event of its own: the event that brought it.
 */
export function openIndexed(indexed: IndexedRecord): EventRecord | Refusal {
  const { event, lastSequence, lastChain } = indexed;
  if (event === undefined || !equalBytes(event.chain, lastChain)) {
    return refuseDamaged(lastSequence);
  }
  const payload = openPayload(event);
  if (isRefusal(payload)) return payload;
  const { record } = payload;
  if (record === undefined) return refuseDamaged(lastSequence);
  const isBrought = isInherited(indexed) && bringsRecords(record.record);
  const isNamed = isBrought || isSameKey(recordKeyOf(record.record), indexed);
  return isNamed ? record : refuseDamaged(lastSequence);
}

/** Whether another record's event brought the record: the places of those are before every event's. */
export function isInherited({ firstSequence }: Pick<RecordPlace, "firstSequence">): boolean {
  return firstSequence < 0n;
}

/** Whether a record is the one that an index row is about. */
export function isSameKey(found: RecordKey | undefined, indexed: RecordKey): boolean {
  return (
    found?.recordId === indexed.recordId &&
    found.family === indexed.family &&
    found.toolCallId === indexed.toolCallId
  );
}

/** The ask that the inbox names, checked to be that ask as it stands. */
export function openAsk({ event, ...place }: IndexedAsk): Ask | Refusal {
  if (event === undefined || !equalBytes(event.chain, place.lastChain)) {
    return refuseDamagedRow(place.askId);
  }
  const payload = openPayload(event);
  if (isRefusal(payload)) return payload;
  const ask = askOf(payload.record?.record ?? { case: undefined }, place.askId);
  const isNamed = ask?.askId === place.askId && ask.toolCallId === place.toolCallId;
  return isNamed && isSameEntry(askEntryOf({ case: "ask", value: ask }), place)
    ? ask
    : refuseDamagedRow(place.askId);
}

/** The ask that an event carries, or brings with the session that it adopts. */
function askOf(record: EventRecord["record"], askId: string): Ask | undefined {
  if (record.case === "ask") return record.value;
  if (record.case !== "adopted") return undefined;
  return record.value.asks.find((ask) => ask.askId === askId);
}

function isSameEntry(found: AskEntry | undefined, indexed: AskEntry): boolean {
  return (
    found?.toolName === indexed.toolName &&
    found.state === indexed.state &&
    found.createTimeMs === indexed.createTimeMs &&
    found.expireTimeMs === indexed.expireTimeMs
  );
}

/** A row as the public event, from columns and checked payload. */
export function eventOf(sessionId: string, row: EventRow, payload: EventPayload): Event {
  return create(EventSchema, {
    sessionId,
    sequence: row.sequence,
    position: row.position,
    ...(row.revision === undefined ? {} : { revision: row.revision }),
    recordTime: timestampFromMs(row.timeMs),
    ...(payload.actor === undefined ? {} : { actor: payload.actor }),
    kind: row.kind,
    ...(payload.record === undefined ? {} : { record: payload.record }),
  });
}
