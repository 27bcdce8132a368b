import { create } from "@bufbuild/protobuf";
import type { ParkToolCallCommand } from "../../../gen/toolmark/engine/v1/command_pb.js";
import {
  AuthorizationSchema,
  AuthorizationState,
} from "../../../gen/toolmark/v1/authorization_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import type { Run } from "../../../gen/toolmark/v1/run_pb.js";
import { ToolCallState, type ToolCall } from "../../../gen/toolmark/v1/tool_call_pb.js";
import { EventKind } from "../event-kind.js";
import { isRefusal, refuse, type Refusal } from "../refusal.js";
import type { OpenCall, SessionState } from "../session-state.js";
import { unchanged, type Decided, type Draft, type ReplyRecord } from "./draft.js";
import { findUnstartedCall, hasEnded, hasRun, isWaiting, refuseWaiting } from "./find-call.js";
import { refusePast } from "./refuse-past.js";

export function parkToolCall(
  draft: Draft,
  state: SessionState,
  run: Run,
  command: ParkToolCallCommand,
): Decided {
  const open = findUnstartedCall(state, draft.facts, command.toolCallId);
  if (isRefusal(open)) return open;
  const { call } = open;
  if (isWaiting(call)) return refuseWaiting(state, call);
  const deferred = unresolvedAfter(state, call);
  const refused =
    refuseOtherSuffix(deferred, command.deferredToolCallIds) ??
    refusePast(draft.facts, command.expireTime);
  if (refused !== undefined) return refused;
  const authorization = requestAuthorization(draft, run, command);
  const calls = [open, ...deferred].map((waiting) => parkCall(draft, waiting));
  return draft.decision([authorization, ...calls]);
}

/** The later calls of the turn that have neither started nor ended: none of them is to overtake the parked one. */
function unresolvedAfter({ openCalls }: SessionState, { turnId, index }: ToolCall): OpenCall[] {
  return [...openCalls.values()]
    .filter(({ call }) => call.turnId === turnId && call.index > index)
    .filter((open) => !hasEnded(open.call) && !hasRun(open))
    .sort((left, right) => left.call.index - right.call.index);
}

function refuseOtherSuffix(
  deferred: readonly OpenCall[],
  named: readonly string[],
): Refusal | undefined {
  const isSame =
    deferred.length === named.length &&
    deferred.every(({ call }, place) => call.toolCallId === named[place]);
  if (isSame) return undefined;
  const field = "command.deferred_tool_call_ids";
  const message = `${field} are not exactly the later calls of the turn that could go on now`;
  return refuse(ErrorReason.REFERENCE_MISMATCH, message, { field });
}

function requestAuthorization(draft: Draft, run: Run, command: ParkToolCallCommand): ReplyRecord {
  const { toolCallId, displayName, expireTime, deferredToolCallIds } = command;
  const authorization = create(AuthorizationSchema, {
    authorizationId: draft.facts.mintId("authorization"),
    origin: { sessionId: draft.sessionId },
    runId: run.runId,
    toolCallId,
    displayName,
    ...(expireTime === undefined ? {} : { expireTime }),
    state: AuthorizationState.PENDING,
    createTime: draft.facts.now,
    deferredToolCallIds,
  });
  return draft.revise(EventKind.authorizationRequested, (revision) => {
    authorization.revision = revision;
    return { case: "authorization", value: authorization };
  });
}

/** A call that waits for something else already goes on doing so. */
function parkCall(draft: Draft, open: OpenCall): ReplyRecord {
  const { call } = open;
  if (isWaiting(call)) return unchanged(open);
  return draft.revise(EventKind.toolCallWaiting, (revision) => ({
    case: "toolCall",
    value: { ...call, revision, state: ToolCallState.AWAITING_AUTHORIZATION },
  }));
}
