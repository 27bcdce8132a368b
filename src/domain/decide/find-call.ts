import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { ToolCallState, type ToolCall } from "../../../gen/toolmark/v1/tool_call_pb.js";
import { isRefusal, refuse, type Refusal } from "../refusal.js";
import type { OpenCall, SessionState } from "../session-state.js";
import type { Facts } from "./draft.js";

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

/** A call that has neither started nor ended, or why it is no such call. */
export function findUnstartedCall(
  state: SessionState,
  facts: Facts,
  toolCallId: string,
): OpenCall | Refusal {
  const found = findCall(state, facts, toolCallId);
  if (isRefusal(found)) return found;
  const { call } = found;
  if (found.kind === "settled" || hasEnded(call)) return refuseEnded(call);
  if (call.state !== ToolCallState.STARTED) return found.open;
  return refuseForCall(ErrorReason.TOOL_CALL_STARTED, "the call has started", call);
}

/** Whether a call has neither ended nor started. */
export function isUnstarted(call: ToolCall): boolean {
  return (
    call.state === ToolCallState.ACCEPTED ||
    call.state === ToolCallState.AWAITING_ANSWER ||
    call.state === ToolCallState.AWAITING_AUTHORIZATION
  );
}

/** Whether a call has ended, with or without a result. */
export function hasEnded(call: ToolCall): boolean {
  return !isUnstarted(call) && call.state !== ToolCallState.STARTED;
}
