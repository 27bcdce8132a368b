import { toBinary } from "@bufbuild/protobuf";
import { EventRecordSchema, type EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { adoptSession } from "../domain/decide/adopt-session.js";
import type { SessionDecision } from "../domain/decide/apply.js";
import { Draft, type Facts } from "../domain/decide/draft.js";
import { evolve } from "../domain/evolve.js";
import type { Limits } from "../domain/limits.js";
import { isRefusal, refuse, type Refusal } from "../domain/refusal.js";
import type { OpenCall, SessionState } from "../domain/session-state.js";
import { raisedHighWater } from "./load-session.js";
import type { PreparedAdoption } from "./prepare-adoption.js";
import type { Store } from "./store-port.js";

const BESIDE_EVENT_BYTES = 64 * 1024;

/** What bringing in an older session does: to nothing, or to what an earlier import brought. */
export function decideAdoption(
  store: Pick<Store, "generation">,
  before: SessionState | undefined,
  adoption: PreparedAdoption,
  facts: Facts,
): SessionDecision | Refusal {
  const { sessionId } = adoption.session;
  const decided = adoptSession(new Draft(sessionId, before, facts), adoption);
  if (isRefusal(decided)) return decided;
  const tooLarge = refuseLargeEvent(decided.reply[0]?.record, facts.limits);
  if (tooLarge !== undefined) return tooLarge;
  const state = withProviderIds(evolve(before, decided.events), adoption);
  const highWater = raisedHighWater(store, state.highWater);
  return { ...decided, state: { ...state, highWater }, replies: [decided.reply] };
}

/** What goes on stands in the event itself, which has to fit a message with whatever a reply has beside it. */
function refuseLargeEvent(
  record: EventRecord | undefined,
  { outgoingMessageBytes }: Limits,
): Refusal | undefined {
  const sizeBytes = record === undefined ? 0 : toBinary(EventRecordSchema, record).length;
  const limit = outgoingMessageBytes - BESIDE_EVENT_BYTES;
  if (sizeBytes <= limit) return undefined;
  const message = "too many calls without a result: their event would not fit a message";
  return refuse(ErrorReason.QUOTA_EXCEEDED, message, { limit: String(limit) });
}

function withProviderIds(state: SessionState, { providerCallIds }: PreparedAdoption): SessionState {
  const openCalls = new Map<string, OpenCall>();
  for (const [id, open] of state.openCalls) {
    openCalls.set(id, { ...open, providerCallId: providerCallIds.get(id) ?? "" });
  }
  return { ...state, openCalls };
}

/** Imports add to what imports brought: once anything else was written, the session is this service's own. */
export function refuseDiverged({
  sequence,
  adoptedSequence,
}: Pick<SessionState, "sequence" | "adoptedSequence">): Refusal | undefined {
  if (sequence === adoptedSequence) return undefined;
  const message = "the session was written to since it was imported";
  const metadata = { sequence: String(adoptedSequence + 1n) };
  return refuse(ErrorReason.SESSION_DIVERGED, message, metadata);
}
