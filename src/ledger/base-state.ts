import { create, fromBinary } from "@bufbuild/protobuf";
import { BaseStateSchema, type BaseState } from "../../gen/toolmark/v1/base_state_pb.js";
import { EventRecordSchema, type EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import { equalBytes } from "../domain/bytes.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { isIntactBody, refuseDamagedBody } from "./body-reader.js";
import { bringsRecords, type BringingRecord } from "../domain/session-record.js";
import {
  indexOf,
  isInherited,
  isSameKey,
  openIndexed,
  recordKeyOf,
  refuseDamaged,
} from "./event-codec.js";
import type { IndexedRecord, InheritedRecord, SessionRef, Store } from "./store-port.js";

/** Bytes of base states that are kept decoded: a list reads many records of one. */
const CACHED_BYTES_MAX = 64 * 1024 * 1024;

interface CachedBase {
  readonly state: BaseState;
  readonly sizeBytes: number;
}

/**
 * By store, then by body reference, which names the session and the bytes. The least recently used is dropped first;
 * the last one read stays, however large: a list reads it once for each of its records.
 */
const caches = new WeakMap<object, Map<string, CachedBase>>();

/** The records that an event brings, as it refers to them, checked by their digest. */
export async function readBaseState(
  store: Pick<Store, "readBody">,
  session: SessionRef,
  bringing: { readonly base?: Body | undefined },
): Promise<BaseState | Refusal> {
  const { bodyRef = "", sha256 } = bringing.base ?? {};
  const cache = caches.get(store) ?? new Map<string, CachedBase>();
  caches.set(store, cache);
  const key = `${session.tenant.length}:${session.tenant}${bodyRef}`;
  const known = cache.get(key);
  if (known !== undefined) {
    cache.delete(key);
    cache.set(key, known);
    return known.state;
  }
  const body = await store.readBody(session, bodyRef);
  const isWritten = body !== undefined && sha256 !== undefined && equalBytes(body.sha256, sha256);
  if (!isWritten || !isIntactBody(session, body)) return refuseDamagedBody(bodyRef);
  const state = fromBinary(BaseStateSchema, body.data);
  keep(cache, key, { state, sizeBytes: body.data.length });
  return state;
}

function keep(cache: Map<string, CachedBase>, key: string, base: CachedBase): void {
  cache.set(key, base);
  let sizeBytes = 0;
  for (const each of cache.values()) sizeBytes += each.sizeBytes;
  for (const [oldest, each] of cache) {
    if (sizeBytes <= CACHED_BYTES_MAX || oldest === key) return;
    cache.delete(oldest);
    sizeBytes -= each.sizeBytes;
  }
}

/** How an event brings records. */
export type Bringing = BringingRecord["case"];

/** An older session can be adopted again with more records: those that were there keep their places. */
const ADOPTED_FIRST_PLACE = -(1n << 40n);

/** Where the record at an index of a base state stands in the list of its session: before every event's. */
export function inheritedPlace({ records }: BaseState, by: Bringing, index: number): bigint {
  return by === "forked" ? BigInt(index - records.length) : ADOPTED_FIRST_PLACE + BigInt(index);
}

function indexAt(base: BaseState, by: Bringing, place: bigint): number {
  return Number(place - inheritedPlace(base, by, 0));
}

/** What the records of a base state are found by, in their order. */
export function inheritedRecords(base: BaseState, by: Bringing): InheritedRecord[] {
  return base.records.flatMap(({ record }, index) => {
    const found = inheritedIndexOf(record?.record ?? { case: undefined }, by);
    return found === undefined
      ? []
      : [{ ...found, firstSequence: inheritedPlace(base, by, index) }];
  });
}

/** What a record of a base state is found by. Nothing that a fork copies can be answered, or waits for a time. */
export function inheritedIndexOf(
  record: EventRecord["record"],
  by: Bringing,
): Omit<InheritedRecord, "firstSequence"> | undefined {
  const { record: key, ask, deadline } = indexOf(record);
  if (key === undefined) return undefined;
  return by === "forked"
    ? { ...key, ask: undefined, deadline: undefined }
    : { ...key, ask, deadline };
}

/** The record that the index names, checked to be that record: of its last event, or of the base state. */
export async function openRecord(
  store: Pick<Store, "readBody">,
  session: SessionRef,
  indexed: IndexedRecord,
): Promise<EventRecord | Refusal> {
  const last = openIndexed(indexed);
  if (isRefusal(last) || !isInherited(indexed) || !bringsRecords(last.record)) return last;
  const base = await readBaseState(store, session, last.record.value);
  if (isRefusal(base)) return base;
  const place = indexAt(base, last.record.case, indexed.firstSequence);
  const record = base.records[place]?.record ?? create(EventRecordSchema);
  return isSameKey(recordKeyOf(record.record), indexed)
    ? record
    : refuseDamaged(indexed.lastSequence);
}

/** The commitment of a base state to what a provider gave with the record at a place. */
export async function broughtCommitment(
  store: Pick<Store, "readBody">,
  session: SessionRef,
  bringing: BringingRecord,
  place: bigint,
): Promise<Uint8Array | undefined | Refusal> {
  const base = await readBaseState(store, session, bringing.value);
  if (isRefusal(base)) return base;
  const commitment = base.records[indexAt(base, bringing.case, place)]?.privateCommitment;
  return commitment === undefined || commitment.length === 0 ? undefined : commitment;
}
