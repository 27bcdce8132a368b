import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { openRecord } from "./event-codec.js";
import type { SessionRef, Store } from "./store-port.js";

/** The committed record as of its last event, checked. */
export async function findRecord(
  store: Store,
  session: SessionRef,
  recordId: string,
): Promise<EventRecord["record"] | undefined | Refusal> {
  const found = await store.findRecord(session, recordId);
  if (found === undefined) return undefined;
  const opened = openRecord(found);
  return isRefusal(opened) ? opened : opened.record;
}
