import { create, fromBinary } from "@bufbuild/protobuf";
import { BaseStateSchema, type BaseState } from "../../gen/toolmark/v1/base_state_pb.js";
import { EventRecordSchema, type EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { Forked } from "../../gen/toolmark/v1/session_pb.js";
import { equalBytes } from "../domain/bytes.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { isIntactBody, refuseDamagedBody } from "./body-reader.js";
import { isInherited, isSameKey, openIndexed, recordKeyOf, refuseDamaged } from "./event-codec.js";
import type { IndexedRecord, InheritedRecord, SessionRef, Store } from "./store-port.js";

/** Bytes of base states that are kept decoded: a list reads many records of one. */
const CACHED_BYTES_MAX = 16 * 1024 * 1024;

interface CachedBase {
  readonly state: BaseState;
  readonly sizeBytes: number;
}

/**
 * By store, then by body reference, which names the session and the bytes. The least recently used is dropped first;
 * the last one read stays, however large: a list reads it once for each of its records.
 */
const caches = new WeakMap<object, Map<string, CachedBase>>();

/** The records that a fork copied, as its first event refers to them, checked by their digest. */
export async function readBaseState(
  store: Pick<Store, "readBody">,
  session: SessionRef,
  forked: Forked,
): Promise<BaseState | Refusal> {
  const { bodyRef = "", sha256 } = forked.base ?? {};
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

/** Where the record at an index of a base state stands in the list of its session: the last one at -1. */
export function inheritedPlace({ records }: BaseState, index: number): bigint {
  return BigInt(index - records.length);
}

/** Where the records of a base state stand, in their order. */
export function inheritedRecords(base: BaseState): InheritedRecord[] {
  return base.records.flatMap(({ record }, index) => {
    const key = recordKeyOf(record?.record ?? { case: undefined });
    return key === undefined ? [] : [{ ...key, firstSequence: inheritedPlace(base, index) }];
  });
}

/** The record that the index names, checked to be that record: of its last event, or of the base state. */
export async function openRecord(
  store: Pick<Store, "readBody">,
  session: SessionRef,
  indexed: IndexedRecord,
): Promise<EventRecord | Refusal> {
  const last = openIndexed(indexed);
  if (isRefusal(last) || !isInherited(indexed)) return last;
  if (last.record.case !== "forked") return refuseDamaged(indexed.lastSequence);
  const base = await readBaseState(store, session, last.record.value);
  if (isRefusal(base)) return base;
  const place = base.records.length + Number(indexed.firstSequence);
  const record = base.records[place]?.record ?? create(EventRecordSchema);
  return isSameKey(recordKeyOf(record.record), indexed)
    ? record
    : refuseDamaged(indexed.lastSequence);
}
