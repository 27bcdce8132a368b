import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { adoptSession } from "../domain/decide/adopt-session.js";
import type { SessionDecision } from "../domain/decide/apply.js";
import { Draft, type Facts } from "../domain/decide/draft.js";
import { evolve } from "../domain/evolve.js";
import { isRefusal, refuse, type Refusal } from "../domain/refusal.js";
import type { OpenCall, SessionState } from "../domain/session-state.js";
import { raisedHighWater } from "./load-session.js";
import type { PreparedAdoption } from "./prepare-adoption.js";
import type { Store } from "./store-port.js";

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
  const state = withProviderIds(evolve(before, decided.events), adoption);
  const highWater = raisedHighWater(store, state.highWater);
  return { ...decided, state: { ...state, highWater }, replies: [decided.reply] };
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
