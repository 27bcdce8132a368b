import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { openRecord } from "./base-state.js";
import { refuseDamaged } from "./event-codec.js";
import type { IndexedRecord, SessionRef, Store } from "./store-port.js";

/** An entry of a list and its encoded size. */
export interface SizedItem<Item> {
  readonly item: Item;
  readonly sizeBytes: number;
}

/** Where an entry is read from. */
export interface ItemPlace {
  readonly store: Pick<Store, "readBody">;
  readonly session: SessionRef;
}

/** How a record is shown. Absent if it is not of the kind that the list has. */
export type ItemOf<Item> = (record: EventRecord) => Promise<SizedItem<Item> | Refusal | undefined>;

/** A record of the index as an entry, checked. */
export async function sizedItem<Item>(
  { store, session }: ItemPlace,
  indexed: IndexedRecord,
  itemOf: ItemOf<Item>,
): Promise<SizedItem<Item> | Refusal> {
  const record = await openRecord(store, session, indexed);
  if (isRefusal(record)) return record;
  return (await itemOf(record)) ?? refuseDamaged(indexed.lastSequence);
}
