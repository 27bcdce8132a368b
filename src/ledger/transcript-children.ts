import { create } from "@bufbuild/protobuf";
import {
  SessionReferenceSchema,
  type SessionReference,
} from "../../gen/toolmark/v1/history_service_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { maySee, type Caller } from "../domain/principal.js";
import { isRefusal } from "../domain/refusal.js";
import { isIntactSession } from "./checksums.js";
import { findSessionRecord } from "./stored-record.js";
import type { Store } from "./store-port.js";
import { wireBytes, type Room } from "./transcript-room.js";

/** The sessions that work for a call, and whether all of them fit. */
export interface Children {
  readonly children: SessionReference[];
  readonly isWhole: boolean;
}

/**
 * Names the sessions that work for a call, in the order of their creation, as ListSessions lists them: those that the
 * caller may not see or whose row is damaged are left out; of one whose record is damaged, id and state are told.
 */
export async function childReferences(
  { store, caller }: { readonly store: Store; readonly caller: Caller },
  { delegatedSessionIds }: ToolCall,
  room: Room,
): Promise<Children> {
  const children: SessionReference[] = [];
  for (const sessionId of delegatedSessionIds) {
    const reference = await referenceTo(store, caller, sessionId);
    if (reference === undefined) continue;
    if (!room.take(wireBytes(SessionReferenceSchema, reference))) {
      return { children, isWhole: false };
    }
    children.push(reference);
  }
  return { children, isWhole: true };
}

async function referenceTo(
  store: Store,
  caller: Caller,
  sessionId: string,
): Promise<SessionReference | undefined> {
  const row = await store.findSession({ tenant: caller.tenant, sessionId });
  if (row === undefined || !maySee(caller, row) || !isIntactSession(row)) return undefined;
  const { state } = row;
  const session = await findSessionRecord(store, row);
  if (isRefusal(session)) return create(SessionReferenceSchema, { sessionId, state });
  const { kind, title } = session;
  return create(SessionReferenceSchema, { sessionId, kind, title, state });
}
