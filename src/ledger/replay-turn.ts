import { fromBinary } from "@bufbuild/protobuf";
import {
  ProviderPairingSchema,
  type ProviderPairing,
} from "../../gen/toolmark/engine/v1/command_pb.js";
import { ProviderTurnSchema, type ProviderTurn } from "../../gen/toolmark/storage/v1/storage_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { Turn } from "../../gen/toolmark/v1/run_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { EventKind } from "../domain/event-kind.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { bringsRecords } from "../domain/session-record.js";
import { broughtCommitment, openRecord } from "./base-state.js";
import {
  isInherited,
  isSameKey,
  openPayload,
  recordKeyOf,
  refuseDamaged,
  refuseDamagedRow,
} from "./event-codec.js";
import { provenPairings } from "./proven-pairings.js";
import type { EventRow, IndexedRecord, SessionRow, Store } from "./store-port.js";

/** A call and what its provider called it. */
export interface PairedCall {
  readonly call: ToolCall;
  /** Absent if the provider gave nothing. */
  readonly pairing: ProviderPairing | undefined;
}

/** A turn with its calls and what its provider gave, each proven by the commitment of its event. */
export interface OpenTurn {
  readonly turn: Turn;
  /** Absent if the harness named the calls alone. */
  readonly given: ProviderTurn | undefined;
  /** In the order of the response. */
  readonly calls: readonly PairedCall[];
}

interface FoundCall {
  readonly call: ToolCall;
  readonly commitment: Uint8Array | undefined;
}

/** Opens a turn of the index, and everything that belongs to it. */
export async function openTurn(
  store: Store,
  row: SessionRow,
  indexed: IndexedRecord,
): Promise<OpenTurn | Refusal> {
  const opened = await openRecord(store, row, indexed);
  if (isRefusal(opened)) return opened;
  if (opened.record.case !== "turn") return refuseDamaged(indexed.lastSequence);
  // A turn has one event.
  if (!isInherited(indexed) && indexed.firstSequence !== indexed.lastSequence) {
    return refuseDamaged(indexed.lastSequence);
  }
  const turn = opened.record.value;
  const bringing = bringingEvent(indexed);
  const commitments = new Map<string, Uint8Array>();
  const commitment = await commitmentOf(store, row, indexed, bringing);
  if (isRefusal(commitment)) return commitment;
  if (commitment !== undefined) commitments.set(turn.turnId, commitment);
  const calls: ToolCall[] = [];
  for (const toolCallId of turn.toolCallIds) {
    const found = await findCall(store, row, toolCallId, bringing);
    if (isRefusal(found)) return found;
    calls.push(found.call);
    if (found.commitment !== undefined) commitments.set(toolCallId, found.commitment);
  }
  const proven = await provenPairings(store, row, commitments);
  if (isRefusal(proven)) return proven;
  const bytes = new Map(proven.map(({ recordId, pairing }) => [recordId, pairing]));
  const given = bytes.get(turn.turnId);
  return {
    turn,
    given: given && fromBinary(ProviderTurnSchema, given),
    calls: calls.map((call) => ({ call, pairing: pairingOf(bytes.get(call.toolCallId)) })),
  };
}

function pairingOf(bytes: Uint8Array | undefined): ProviderPairing | undefined {
  return bytes && fromBinary(ProviderPairingSchema, bytes);
}

async function findCall(
  store: Store,
  row: SessionRow,
  toolCallId: string,
  bringing: EventRow | undefined,
): Promise<FoundCall | Refusal> {
  const indexed = await store.findRecord(row, toolCallId);
  if (indexed === undefined) return refuseDamagedRow(toolCallId);
  const opened = await openRecord(store, row, indexed);
  if (isRefusal(opened)) return opened;
  const { record } = opened;
  if (record.case !== "toolCall") return refuseDamagedRow(toolCallId);
  const commitment = await commitmentOf(store, row, indexed, bringing);
  return isRefusal(commitment) ? commitment : { call: record.value, commitment };
}

/** The event that brought a turn from elsewhere, and its calls with it. Absent if the turn has an event of its own. */
function bringingEvent(indexed: IndexedRecord): EventRow | undefined {
  return isInherited(indexed) ? indexed.event : undefined;
}

/** The commitment to what a provider gave with a record: it came with the record's first event. */
async function commitmentOf(
  store: Store,
  row: SessionRow,
  indexed: IndexedRecord,
  bringing: EventRow | undefined,
): Promise<Uint8Array | undefined | Refusal> {
  const { firstSequence, lastSequence, event: last } = indexed;
  if (firstSequence >= 0n) {
    const first = firstSequence === lastSequence ? last : await store.readEvent(row, firstSequence);
    return first === undefined ? refuseDamaged(firstSequence) : ownCommitment(first, indexed);
  }
  const record = bringing && recordOf(bringing);
  if (record === undefined || isRefusal(record)) return record ?? refuseDamaged(lastSequence);
  if (!bringsRecords(record)) return refuseDamaged(lastSequence);
  return broughtCommitment(store, row, record, firstSequence);
}

/** Of the event that accepted the record: the index may name another. */
function ownCommitment(first: EventRow, indexed: IndexedRecord): Uint8Array | undefined | Refusal {
  const record = recordOf(first);
  if (isRefusal(record)) return record;
  const isFirst =
    first.kind === EventKind.turnAccepted || first.kind === EventKind.toolCallAccepted;
  return isFirst && isSameKey(recordKeyOf(record), indexed)
    ? first.privateCommitment
    : refuseDamaged(first.sequence);
}

function recordOf(row: EventRow): EventRecord["record"] | Refusal {
  const payload = openPayload(row);
  return isRefusal(payload) ? payload : (payload.record?.record ?? { case: undefined });
}
