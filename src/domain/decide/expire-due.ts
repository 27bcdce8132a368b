import { create } from "@bufbuild/protobuf";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { AuthorizationState } from "../../../gen/toolmark/v1/authorization_pb.js";
import { ActorKind, ActorSchema } from "../../../gen/toolmark/v1/origin_pb.js";
import { ReceiptPath, Verdict } from "../../../gen/toolmark/v1/receipt_pb.js";
import { earliestDeadlineMs, waitsUntilMs } from "../deadline.js";
import { Fold } from "../evolve.js";
import type { DraftEvent, SessionState } from "../session-state.js";
import type { SessionDecision } from "./apply.js";
import { Draft, type Facts, type NewBody } from "./draft.js";
import { endAuthorization } from "./settle-authorization.js";
import { settleAsk } from "./settle-ask.js";

/** Who acts when time runs out. */
export const SYSTEM_ACTOR = create(ActorSchema, { subject: "", kind: ActorKind.SYSTEM });

/** Whether anything of the session has waited long enough. */
export function hasDue({ openAsks, pendingAuthorizations }: SessionState, nowMs: number): boolean {
  return (
    earliestDeadlineMs(openAsks) <= nowMs || earliestDeadlineMs(pendingAuthorizations) <= nowMs
  );
}

/**
 * Expires what has waited long enough: by the clock of `facts`, or since the caller, whose clock does not jump, says so
 * of `dueIds`. Each on the state after the one before it, since the end of one can end another.
 */
export function expireDue(
  sessionId: string,
  before: SessionState,
  facts: Facts,
  dueIds: ReadonlySet<string>,
): SessionDecision {
  const fold = new Fold(before);
  const events: DraftEvent[] = [];
  const bodies: NewBody[] = [];
  let state = before;
  for (const id of dueOf(before, timestampMs(facts.now), dueIds)) {
    const draft = new Draft(sessionId, state, facts);
    expire(draft, state, id);
    if (draft.events.length > 0) state = fold.add(draft.events);
    events.push(...draft.events);
    bodies.push(...draft.bodies);
  }
  return { state, events, bodies, replies: [] };
}

function dueOf(
  { openAsks, pendingAuthorizations }: SessionState,
  nowMs: number,
  dueIds: ReadonlySet<string>,
): string[] {
  return [...openAsks, ...pendingAuthorizations]
    .filter(([id, record]) => dueIds.has(id) || (waitsUntilMs(record) ?? Infinity) <= nowMs)
    .map(([id]) => id);
}

function expire(draft: Draft, state: SessionState, id: string): void {
  const ask = state.openAsks.get(id);
  if (ask !== undefined) {
    const expiry = { verdict: Verdict.EXPIRED, path: ReceiptPath.TIMEOUT, reason: "" };
    settleAsk(draft, state, ask, { ...expiry, actor: SYSTEM_ACTOR });
  }
  const authorization = state.pendingAuthorizations.get(id);
  if (authorization !== undefined) {
    endAuthorization(draft, state, authorization, AuthorizationState.EXPIRED);
  }
}
