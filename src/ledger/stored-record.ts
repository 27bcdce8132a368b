import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { Session } from "../../gen/toolmark/v1/session_pb.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { sessionOf } from "../domain/session-record.js";
import { openRecord } from "./base-state.js";
import { openPayload, refuseDamaged } from "./event-codec.js";
import type { SessionRef, SessionRow, Store } from "./store-port.js";

/** The committed record as of its last event, checked. */
export async function findRecord(
  store: Store,
  session: SessionRef,
  recordId: string,
): Promise<EventRecord["record"] | undefined | Refusal> {
  const found = await store.findRecord(session, recordId);
  if (found === undefined) return undefined;
  const opened = await openRecord(store, session, found);
  return isRefusal(opened) ? opened : opened.record;
}

/** The Session record as of the session's last own event, checked. */
export async function findSessionRecord(store: Store, row: SessionRow): Promise<Session | Refusal> {
  const { sessionSequence } = row.head;
  const event = await store.readEvent(row, sessionSequence);
  if (event === undefined) return refuseDamaged(sessionSequence);
  const payload = openPayload(event);
  if (isRefusal(payload)) return payload;
  const session = sessionOf(payload.record?.record ?? { case: undefined });
  return session ?? refuseDamaged(sessionSequence);
}
