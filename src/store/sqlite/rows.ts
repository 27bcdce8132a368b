import { AskState } from "../../../gen/toolmark/v1/ask_pb.js";
import { SessionState } from "../../../gen/toolmark/v1/session_pb.js";
import {
  type AskPlace,
  type BodyRow,
  type CreationRow,
  type DueRecord,
  type EventRow,
  type IndexedAsk,
  type IndexedRecord,
  type PairingRow,
  RecordFamily,
  type RecordPlace,
  type RequestRow,
  type SessionRow,
  type SnapshotRow,
} from "../../ledger/store-port.js";
import { DamagedRowError } from "./sqlite-fault.js";

export interface MetaColumns {
  readonly generation: bigint;
  readonly store_id: string;
  readonly checksum: Uint8Array;
}

export interface SessionColumns {
  readonly tenant: string;
  readonly session_id: string;
  readonly owner_subject: string;
  readonly created_by_subject: string;
  readonly parent_session_id: string | null;
  readonly root_session_id: string;
  readonly state: bigint;
  readonly create_position: bigint;
  readonly sequence: bigint;
  readonly position: bigint;
  readonly high_water: bigint;
  readonly chain: Uint8Array;
  readonly session_sequence: bigint;
  readonly active_run_id: string | null;
  readonly update_time_ms: bigint;
  readonly checksum: Uint8Array;
}

export interface EventColumns {
  readonly position: bigint;
  readonly sequence: bigint;
  readonly revision: bigint | null;
  readonly kind: string;
  readonly time_ms: bigint;
  readonly commitment: Uint8Array;
  readonly private_commitment: Uint8Array | null;
  readonly chain: Uint8Array;
  readonly salt: Uint8Array | null;
  readonly payload: Uint8Array | null;
}

/** Every event column is null if the row that the index names is missing. */
interface LastEventColumns extends Omit<EventColumns, "position"> {
  readonly position: bigint | null;
}

export interface RecordPlaceColumns {
  readonly record_id: string;
  readonly family: bigint;
  readonly tool_call_id: string | null;
  readonly first_sequence: bigint;
  readonly last_sequence: bigint;
  readonly last_chain: Uint8Array;
}

export type RecordColumns = RecordPlaceColumns & LastEventColumns;

export interface AskPlaceColumns {
  readonly first_position: bigint;
  readonly last_position: bigint;
  readonly tenant: string;
  readonly session_id: string;
  readonly ask_id: string;
  readonly tool_call_id: string;
  readonly tool_name: string;
  readonly state: bigint;
  readonly create_time_ms: bigint;
  readonly expire_time_ms: bigint | null;
  readonly owner_subject: string;
  readonly created_by_subject: string;
  readonly root_session_id: string;
  readonly last_chain: Uint8Array;
}

export type AskColumns = AskPlaceColumns & LastEventColumns;

export interface DueColumns {
  readonly tenant: string;
  readonly session_id: string;
  readonly record_id: string;
  readonly time_ms: bigint;
  readonly position: bigint;
  readonly set_time_ms: bigint;
}

export interface BodyDescriptionColumns {
  readonly body_ref: string;
  readonly sha256: Uint8Array;
  readonly size_bytes: bigint;
  readonly is_json_object: bigint;
}

export interface BodyColumns extends BodyDescriptionColumns {
  readonly data: Uint8Array;
}

export interface PairingColumns {
  readonly record_id: string;
  readonly sequence: bigint;
  readonly salt: Uint8Array | null;
  readonly pairing: Uint8Array | null;
}

export interface RequestColumns {
  readonly request_id: string;
  readonly digest: Uint8Array;
  readonly outcome: Uint8Array;
  readonly checksum: Uint8Array;
}

export interface CreationColumns {
  readonly tenant: string;
  readonly subject: string;
  readonly request_id: string;
  readonly digest: Uint8Array;
  readonly session_id: string;
  readonly checksum: Uint8Array;
}

export interface SnapshotColumns {
  readonly sequence: bigint;
  readonly high_water: bigint;
  readonly chain: Uint8Array;
  readonly state: Uint8Array;
  readonly digest: Uint8Array;
}

export function toSessionRow(columns: SessionColumns): SessionRow {
  return {
    tenant: columns.tenant,
    sessionId: columns.session_id,
    ownerSubject: columns.owner_subject,
    createdBySubject: columns.created_by_subject,
    parentSessionId: columns.parent_session_id ?? undefined,
    rootSessionId: columns.root_session_id,
    state: toSessionState(Number(columns.state)),
    createPosition: columns.create_position,
    head: {
      sequence: columns.sequence,
      position: columns.position,
      highWater: columns.high_water,
      chain: plain(columns.chain),
      sessionSequence: columns.session_sequence,
      activeRunId: columns.active_run_id ?? undefined,
      updateTimeMs: Number(columns.update_time_ms),
    },
    checksum: plain(columns.checksum),
  };
}

export function toEventRow(columns: EventColumns): EventRow {
  return {
    sequence: columns.sequence,
    position: columns.position,
    revision: columns.revision ?? undefined,
    kind: columns.kind,
    timeMs: Number(columns.time_ms),
    payload: plainIfAny(columns.payload),
    salt: plainIfAny(columns.salt),
    commitment: plain(columns.commitment),
    privateCommitment: plainIfAny(columns.private_commitment),
    chain: plain(columns.chain),
  };
}

function hasEvent(columns: LastEventColumns): columns is EventColumns {
  return columns.position !== null;
}

function toLastEvent(columns: LastEventColumns): EventRow | undefined {
  return hasEvent(columns) ? toEventRow(columns) : undefined;
}

export function toIndexedRecord(columns: RecordColumns): IndexedRecord {
  return { ...toRecordPlace(columns), event: toLastEvent(columns) };
}

export function toRecordPlace(columns: RecordPlaceColumns): RecordPlace {
  return {
    recordId: columns.record_id,
    family: toRecordFamily(Number(columns.family)),
    toolCallId: columns.tool_call_id ?? undefined,
    firstSequence: columns.first_sequence,
    lastSequence: columns.last_sequence,
    lastChain: plain(columns.last_chain),
  };
}

export function toIndexedAsk(columns: AskColumns): IndexedAsk {
  return { ...toAskPlace(columns), event: toLastEvent(columns) };
}

export function toAskPlace(columns: AskPlaceColumns): AskPlace {
  const { expire_time_ms: expireTimeMs } = columns;
  return {
    tenant: columns.tenant,
    sessionId: columns.session_id,
    ownerSubject: columns.owner_subject,
    createdBySubject: columns.created_by_subject,
    rootSessionId: columns.root_session_id,
    askId: columns.ask_id,
    toolCallId: columns.tool_call_id,
    toolName: columns.tool_name,
    state: toAskState(Number(columns.state)),
    createTimeMs: Number(columns.create_time_ms),
    expireTimeMs: expireTimeMs === null ? undefined : Number(expireTimeMs),
    position: columns.first_position,
    lastPosition: columns.last_position,
    lastChain: plain(columns.last_chain),
  };
}

export function toDueRecord(columns: DueColumns): DueRecord {
  return {
    session: { tenant: columns.tenant, sessionId: columns.session_id },
    recordId: columns.record_id,
    timeMs: Number(columns.time_ms),
    position: columns.position,
    setTimeMs: Number(columns.set_time_ms),
  };
}

export function toBodyDescription(columns: BodyDescriptionColumns): Omit<BodyRow, "data"> {
  return {
    bodyRef: columns.body_ref,
    sha256: plain(columns.sha256),
    sizeBytes: Number(columns.size_bytes),
    isJsonObject: columns.is_json_object === 1n,
  };
}

export function toBodyRow(columns: BodyColumns): BodyRow {
  return { ...toBodyDescription(columns), data: plain(columns.data) };
}

export function toPairingRow(columns: PairingColumns): PairingRow {
  return {
    recordId: columns.record_id,
    sequence: columns.sequence,
    salt: plainIfAny(columns.salt),
    pairing: plainIfAny(columns.pairing),
  };
}

export function toRequestRow(columns: RequestColumns): RequestRow {
  return {
    requestId: columns.request_id,
    digest: plain(columns.digest),
    outcome: plain(columns.outcome),
    checksum: plain(columns.checksum),
  };
}

export function toCreationRow(columns: CreationColumns): CreationRow {
  return {
    tenant: columns.tenant,
    subject: columns.subject,
    requestId: columns.request_id,
    digest: plain(columns.digest),
    sessionId: columns.session_id,
    checksum: plain(columns.checksum),
  };
}

export function toSnapshotRow(columns: SnapshotColumns): SnapshotRow {
  return {
    sequence: columns.sequence,
    highWater: columns.high_water,
    chain: plain(columns.chain),
    state: plain(columns.state),
    digest: plain(columns.digest),
  };
}

function isSessionState(value: number): value is SessionState {
  return value in SessionState;
}

function toSessionState(value: number): SessionState {
  if (isSessionState(value)) return value;
  throw new DamagedRowError(`${value} is no state of a session`);
}

function isAskState(value: number): value is AskState {
  return value in AskState;
}

function toAskState(value: number): AskState {
  if (isAskState(value)) return value;
  throw new DamagedRowError(`${value} is no state of an ask`);
}

const FAMILIES: readonly number[] = Object.values(RecordFamily);

function isRecordFamily(value: number): value is RecordFamily {
  return FAMILIES.includes(value);
}

function toRecordFamily(value: number): RecordFamily {
  if (isRecordFamily(value)) return value;
  throw new DamagedRowError(`${value} is no family of records`);
}

/** The driver gives Buffers, which slice, print and compare in ways of their own. */
function plain(data: Uint8Array): Uint8Array {
  if (!(data instanceof Uint8Array)) throw new DamagedRowError("a column holds no bytes");
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

function plainIfAny(data: Uint8Array | null): Uint8Array | undefined {
  return data === null ? undefined : plain(data);
}
