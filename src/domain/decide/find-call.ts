import { HeldResult } from "../../../gen/toolmark/storage/v1/storage_pb.js";
import { AskKind } from "../../../gen/toolmark/v1/ask_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { ToolCallState, type ToolCall } from "../../../gen/toolmark/v1/tool_call_pb.js";
import { isRefusal, refuse, type Refusal } from "../refusal.js";
import type { OpenCall, SessionState } from "../session-state.js";
import type { Facts } from "./draft.js";
import { openAskOf } from "./find-ask.js";
import { pendingAuthorizationOf } from "./waits-for.js";

/** A call of the session: open, or settled with its result. */
export type FoundCall =
  | { readonly kind: "open"; readonly open: OpenCall; readonly call: ToolCall }
  | { readonly kind: "settled"; readonly call: ToolCall };

export function findCall(
  state: SessionState,
  facts: Facts,
  toolCallId: string,
): FoundCall | Refusal {
  const open = state.openCalls.get(toolCallId);
  if (open !== undefined) return { kind: "open", open, call: open.call };
  const settled = facts.settledRecord(toolCallId);
  if (settled?.case === "toolCall") return { kind: "settled", call: settled.value };
  return refuse(ErrorReason.TOOL_CALL_NOT_FOUND, "the session has no such tool call");
}

/** As `findCall`, without calls that a fork copied: they take no new evidence. */
export function findOwnCall(
  state: SessionState,
  facts: Facts,
  toolCallId: string,
): FoundCall | Refusal {
  const found = findCall(state, facts, toolCallId);
  if (isRefusal(found) || found.call.inheritedFromSessionId === undefined) return found;
  return refuseForCall(ErrorReason.CALL_INHERITED, "the call was copied by a fork", found.call);
}

export function refuseEnded(call: ToolCall): Refusal {
  const state = ToolCallState[call.state];
  return refuse(ErrorReason.TOOL_CALL_ENDED, `the call has ended as ${state}`, {
    tool_call_id: call.toolCallId,
    state,
  });
}

export function refuseForCall(reason: ErrorReason, message: string, call: ToolCall): Refusal {
  return refuse(reason, message, { tool_call_id: call.toolCallId });
}

/** Refuses what a call cannot do while it waits for an answer or an authorization. */
export function refuseWaiting(state: SessionState, call: ToolCall): Refusal {
  const { toolCallId } = call;
  const ask = openAskOf(state, toolCallId, AskKind.ACTION);
  const authorization = pendingAuthorizationOf(state, toolCallId);
  const message = `the call waits for an ${ask === undefined ? "authorization" : "answer"}`;
  return refuse(ErrorReason.START_NOT_ALLOWED, message, {
    tool_call_id: toolCallId,
    ...(ask === undefined ? {} : { ask_id: ask.askId }),
    ...(authorization === undefined ? {} : { authorization_id: authorization.authorizationId }),
  });
}

/** Refuses what a call cannot do since its arguments changed under a question or its answer. */
export function refuseUnallowed(call: ToolCall): Refusal {
  const message = "the arguments changed after the call was asked about: a new ask must allow it";
  return refuseForCall(ErrorReason.START_NOT_ALLOWED, message, call);
}

/** A call of the session's own that has neither started nor ended, or why it is no such call. */
export function findUnstartedCall(
  state: SessionState,
  facts: Facts,
  toolCallId: string,
): OpenCall | Refusal {
  const found = findOwnCall(state, facts, toolCallId);
  if (isRefusal(found)) return found;
  const { call } = found;
  if (found.kind === "settled" || hasEnded(call)) return refuseEnded(call);
  if (!hasRun(found.open)) return found.open;
  return refuseForCall(ErrorReason.TOOL_CALL_STARTED, "the call has started", call);
}

/** Whether a call is known to have started: by its recorded start, or by a result whose release was asked for. */
export function hasRun({ call, heldResult }: OpenCall): boolean {
  return call.state === ToolCallState.STARTED || heldResult !== HeldResult.UNSPECIFIED;
}

/** Whether a call has neither ended nor a recorded start. */
export function isUnstarted(call: ToolCall): boolean {
  return call.state === ToolCallState.ACCEPTED || isWaiting(call);
}

/** Whether a call waits for an answer or an authorization. */
export function isWaiting(call: ToolCall): boolean {
  return (
    call.state === ToolCallState.AWAITING_ANSWER ||
    call.state === ToolCallState.AWAITING_AUTHORIZATION
  );
}

/** Whether a call has ended, with or without a result. */
export function hasEnded(call: ToolCall): boolean {
  return !isUnstarted(call) && call.state !== ToolCallState.STARTED;
}
