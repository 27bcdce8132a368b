import { create } from "@bufbuild/protobuf";
import { HeldResult } from "../../../gen/toolmark/storage/v1/storage_pb.js";
import { DelegationStepSchema, type DelegationStep } from "../../../gen/toolmark/v1/ask_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { StartGate } from "../../../gen/toolmark/v1/run_pb.js";
import type { CreateSessionRequest } from "../../../gen/toolmark/v1/session_service_pb.js";
import { EventKind } from "../event-kind.js";
import { isRefusal, refuse, refuseField, type Refusal } from "../refusal.js";
import type { OpenCall, SessionState } from "../session-state.js";
import type { Draft, Facts } from "./draft.js";
import {
  findOwnCall,
  hasEnded,
  hasRun,
  isWaiting,
  refuseEnded,
  refuseForCall,
  refuseUnallowed,
  refuseWaiting,
} from "./find-call.js";

/** Where a new session stands below another one, and whose it is. */
export interface Standing {
  readonly ownerSubject: string;
  readonly delegationPath: readonly DelegationStep[];
}

/**
 * Hands work of a call over to a new session: the call names it from now on. `draft` and `state` are the parent's. The
 * child gets its parent's owner, so that nobody sees more or less of the work than of the call that it is for.
 */
export function delegate(
  draft: Draft,
  state: SessionState,
  request: CreateSessionRequest,
  childSessionId: string,
): Standing | Refusal {
  const { ownerSubject, delegationPath: pathOfParent } = state.session;
  const { limits } = draft.facts;
  if (request.ownerSubject !== "" && request.ownerSubject !== ownerSubject) {
    return refuseField("owner_subject", "must be empty or the owner of the parent session");
  }
  const open = findDelegating(state, draft.facts, request.delegation?.parentToolCallId ?? "");
  if (isRefusal(open)) return open;
  const { call } = open;
  const { toolCallId, delegatedSessionIds } = call;
  if (delegatedSessionIds.length >= limits.sessionsPerCall) {
    return refuseCount("sessions that work for one call", limits.sessionsPerCall);
  }
  if (pathOfParent.length >= limits.delegationDepth) {
    return refuseCount("delegating calls above the session", limits.delegationDepth);
  }
  draft.revise(EventKind.toolCallDelegated, (revision) => ({
    case: "toolCall",
    value: { ...call, revision, delegatedSessionIds: [...delegatedSessionIds, childSessionId] },
  }));
  const step = create(DelegationStepSchema, { sessionId: draft.sessionId, toolCallId });
  return { ownerSubject, delegationPath: [...pathOfParent, step] };
}

/** The call, if it may have effects now: a new session is one. */
function findDelegating(state: SessionState, facts: Facts, toolCallId: string): OpenCall | Refusal {
  const found = findOwnCall(state, facts, toolCallId);
  if (isRefusal(found)) return found;
  const { call } = found;
  if (found.kind === "settled" || hasEnded(call)) return refuseEnded(call);
  if (isWaiting(call)) return refuseWaiting(state, call);
  if (found.open.heldResult !== HeldResult.UNSPECIFIED) {
    const message = "the result of the call was held, so that the call has no more effects";
    return refuseForCall(ErrorReason.RESULT_HELD, message, call);
  }
  if (hasRun(found.open)) return found.open;
  if (found.open.needsAllow) return refuseUnallowed(call);
  if (state.activeRun?.startGate === StartGate.OFF) return found.open;
  const message = "the call has not started, so that nothing can work for it";
  return refuseForCall(ErrorReason.TOOL_CALL_NOT_STARTED, message, call);
}

function refuseCount(what: string, limit: number): Refusal {
  const message = `there would be more than ${limit} ${what}`;
  return refuse(ErrorReason.QUOTA_EXCEEDED, message, { field: "delegation", limit: String(limit) });
}
