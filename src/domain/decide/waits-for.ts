import { AskKind, type Ask } from "../../../gen/toolmark/v1/ask_pb.js";
import type { Authorization } from "../../../gen/toolmark/v1/authorization_pb.js";
import { ToolCallState } from "../../../gen/toolmark/v1/tool_call_pb.js";
import type { SessionState } from "../session-state.js";
import { openAskOf } from "./find-ask.js";

/** A pending authorization that a call waits for, itself or behind an earlier call of its turn. */
export function pendingAuthorizationOf(
  state: SessionState,
  toolCallId: string,
  except?: Ask | Authorization,
): Authorization | undefined {
  for (const pending of state.pendingAuthorizations.values()) {
    const { toolCallId: parked, deferredToolCallIds: deferred } = pending;
    const isWaitedFor = parked === toolCallId || deferred.includes(toolCallId);
    if (isWaitedFor && pending !== except) return pending;
  }
  return undefined;
}

/** The state of a call that has not started, once `settled` is no longer waited for. */
export function stateWithout(
  settled: Ask | Authorization,
  state: SessionState,
  toolCallId: string,
): ToolCallState {
  const ask = openAskOf(state, toolCallId, AskKind.ACTION);
  if (ask !== undefined && ask !== settled) return ToolCallState.AWAITING_ANSWER;
  return pendingAuthorizationOf(state, toolCallId, settled) === undefined
    ? ToolCallState.ACCEPTED
    : ToolCallState.AWAITING_AUTHORIZATION;
}
