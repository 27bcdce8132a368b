import type { SettleAuthorizationCommand } from "../../../gen/toolmark/engine/v1/command_pb.js";
import { AskKind } from "../../../gen/toolmark/v1/ask_pb.js";
import {
  AuthorizationState,
  type Authorization,
} from "../../../gen/toolmark/v1/authorization_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { Ran, ToolCallState } from "../../../gen/toolmark/v1/tool_call_pb.js";
import { EventKind } from "../event-kind.js";
import { invariant } from "../invariant.js";
import { isRefusal, refuse, type Refusal } from "../refusal.js";
import type { OpenCall, SessionState } from "../session-state.js";
import { voidAllows } from "./allows.js";
import { unchanged, type Decided, type Draft, type Facts, type ReplyRecord } from "./draft.js";
import { openAskOf } from "./find-ask.js";
import { hasEnded } from "./find-call.js";
import { withdrawal, writeSettlement } from "./settle-ask.js";
import { syntheticResult } from "./synthetic-result.js";
import { stateWithout } from "./waits-for.js";

export function settleAuthorization(
  draft: Draft,
  state: SessionState,
  { authorizationId, outcome }: SettleAuthorizationCommand,
): Decided {
  const authorization = findPending(state, draft.facts, authorizationId);
  if (isRefusal(authorization)) return authorization;
  return draft.decision(endAuthorization(draft, state, authorization, outcome));
}

/** Ends a pending authorization: the calls that wait for it go on if it was granted, and end otherwise. */
export function endAuthorization(
  draft: Draft,
  state: SessionState,
  authorization: Authorization,
  outcome: AuthorizationState,
): ReplyRecord[] {
  const settled = closeAuthorization(draft, authorization, outcome);
  const calls = waitingCalls(state, authorization).map((open) =>
    outcome === AuthorizationState.GRANTED
      ? letGoOn(draft, state, authorization, open)
      : endCall(draft, state, open, endOf(open, authorization, outcome)),
  );
  return [settled, ...calls];
}

/** Writes the end of an authorization and leaves its calls to the caller. */
export function closeAuthorization(
  draft: Draft,
  authorization: Authorization,
  outcome: AuthorizationState,
): ReplyRecord {
  return draft.revise(EventKind.authorizationSettled, (revision) => ({
    case: "authorization",
    value: { ...authorization, revision, state: outcome },
  }));
}

/** How a call ends without consent. It did not run, so nothing cut it off. */
interface End {
  readonly state: ToolCallState;
  readonly text: string;
}

const NOT_RUN = "It did not run.";
const PARKED_END: Partial<Record<AuthorizationState, End>> = {
  [AuthorizationState.DENIED]: {
    state: ToolCallState.DENIED,
    text: `The authorization that this call needs was denied. ${NOT_RUN}`,
  },
  [AuthorizationState.CANCELLED]: {
    state: ToolCallState.CANCELLED,
    text: `The authorization that this call needs was cancelled. ${NOT_RUN}`,
  },
  [AuthorizationState.EXPIRED]: {
    state: ToolCallState.EXPIRED,
    text: `The authorization that this call needs was not given in time. ${NOT_RUN}`,
  },
  [AuthorizationState.INTERRUPTED]: {
    state: ToolCallState.CANCELLED,
    text: `The authorization that this call needs was interrupted. ${NOT_RUN}`,
  },
  [AuthorizationState.FAILED]: {
    state: ToolCallState.FAILED,
    text: `The authorization that this call needs could not be obtained. ${NOT_RUN}`,
  },
};
const BEHIND: End = {
  state: ToolCallState.CANCELLED,
  text: `An earlier call of this turn did not get its authorization. ${NOT_RUN}`,
};

function endOf(open: OpenCall, { toolCallId }: Authorization, outcome: AuthorizationState): End {
  if (open.call.toolCallId !== toolCallId) return BEHIND;
  const end = PARKED_END[outcome];
  invariant(end !== undefined, "an authorization ends as one of the listed outcomes");
  return end;
}

/** Unless the call waits for something else as well. */
function letGoOn(
  draft: Draft,
  session: SessionState,
  granted: Authorization,
  open: OpenCall,
): ReplyRecord {
  const { call } = open;
  const state = stateWithout(granted, session, call.toolCallId);
  if (state === call.state) return unchanged(open);
  return draft.revise(EventKind.toolCallReady, (revision) => ({
    case: "toolCall",
    value: { ...call, revision, state },
  }));
}

/** Ends a call, and first what else it waits for. */
function endCall(draft: Draft, state: SessionState, open: OpenCall, end: End): ReplyRecord {
  const { call, unspentAllows } = open;
  const ask = openAskOf(state, call.toolCallId, AskKind.ACTION);
  if (ask !== undefined) writeSettlement(draft, state, ask, withdrawal(draft));
  for (const pending of state.pendingAuthorizations.values()) {
    const isOwn = pending.toolCallId === call.toolCallId;
    if (isOwn && end === BEHIND) closeAuthorization(draft, pending, AuthorizationState.CLOSED);
  }
  voidAllows(draft, unspentAllows);
  const result = syntheticResult(draft, end.text);
  return draft.revise(EventKind.toolCallEnded, (revision) => ({
    case: "toolCall",
    value: {
      ...call,
      revision,
      state: end.state,
      ran: Ran.NO,
      result,
      endTime: draft.facts.now,
    },
  }));
}

function waitingCalls(state: SessionState, authorization: Authorization): OpenCall[] {
  const { toolCallId, deferredToolCallIds } = authorization;
  return [toolCallId, ...deferredToolCallIds]
    .flatMap((id) => state.openCalls.get(id) ?? [])
    .filter(({ call }) => !hasEnded(call));
}

function findPending(
  session: SessionState,
  facts: Facts,
  authorizationId: string,
): Authorization | Refusal {
  const pending = session.pendingAuthorizations.get(authorizationId);
  if (pending !== undefined) return pending;
  const settled = facts.settledRecord(authorizationId);
  if (settled?.case !== "authorization") {
    return refuse(ErrorReason.AUTHORIZATION_NOT_FOUND, "the session has no such authorization");
  }
  const state = AuthorizationState[settled.value.state];
  return refuse(ErrorReason.AUTHORIZATION_NOT_PENDING, `the authorization is ${state}`, {
    authorization_id: authorizationId,
    state,
  });
}
