import { ActorKind, ActorSchema } from "../../../gen/toolmark/v1/origin_pb.js";
import { create } from "@bufbuild/protobuf";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import type { Ask } from "../../../gen/toolmark/v1/ask_pb.js";
import {
  AuthorizationState,
  type Authorization,
} from "../../../gen/toolmark/v1/authorization_pb.js";
import { ReceiptPath, Verdict } from "../../../gen/toolmark/v1/receipt_pb.js";
import { waitsUntilMs } from "../deadline.js";
import type { SessionState } from "../session-state.js";
import type { Decision, Draft } from "./draft.js";
import { endAuthorization } from "./settle-authorization.js";
import { settleAsk } from "./settle-ask.js";

/** Who acts when time runs out. */
export const SYSTEM_ACTOR = create(ActorSchema, { subject: "", kind: ActorKind.SYSTEM });

/** Whether anything of the session waits until this time or shorter. */
export function hasDue(state: SessionState, nowMs: number): boolean {
  if (state.openAsks.size === 0 && state.pendingAuthorizations.size === 0) return false;
  return waiting(state).some((record) => isDue(record, nowMs));
}

/**
 * Expires what has waited long enough: by the clock of the draft, or since the caller, whose clock does not jump, says
 * so of `dueIds`.
 */
export function expireDue(
  draft: Draft,
  state: SessionState,
  dueIds: ReadonlySet<string>,
): Decision {
  const nowMs = timestampMs(draft.facts.now);
  for (const ask of state.openAsks.values()) {
    if (!isDue(ask, nowMs) && !dueIds.has(ask.askId)) continue;
    const expiry = { verdict: Verdict.EXPIRED, path: ReceiptPath.TIMEOUT, reason: "" };
    settleAsk(draft, state, ask, { ...expiry, actor: SYSTEM_ACTOR });
  }
  for (const authorization of state.pendingAuthorizations.values()) {
    const isOver = isDue(authorization, nowMs) || dueIds.has(authorization.authorizationId);
    if (isOver) endAuthorization(draft, state, authorization, AuthorizationState.EXPIRED);
  }
  return draft.decision([]);
}

function waiting(state: SessionState): (Ask | Authorization)[] {
  return [...state.openAsks.values(), ...state.pendingAuthorizations.values()];
}

function isDue(record: Ask | Authorization, nowMs: number): boolean {
  const untilMs = waitsUntilMs(record);
  return untilMs !== undefined && untilMs <= nowMs;
}
