import type { ReconcileToolCallCommand } from "../../../gen/toolmark/engine/v1/command_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { Ran, ToolCallState, type ToolCall } from "../../../gen/toolmark/v1/tool_call_pb.js";
import { EventKind } from "../event-kind.js";
import { isRefusal, refuse, type Refusal } from "../refusal.js";
import type { SessionState } from "../session-state.js";
import type { Decided, Draft } from "./draft.js";
import { findOwnCall, refuseForCall } from "./find-call.js";
import { intakeBody } from "./intake-body.js";
import { canonicalResult, refuseUnreleased } from "./record-result.js";

const RAN: Partial<Record<ToolCallState, Ran>> = {
  [ToolCallState.COMPLETED]: Ran.YES,
  [ToolCallState.FAILED]: Ran.YES,
  [ToolCallState.CANCELLED]: Ran.NO,
  [ToolCallState.INTERRUPTED]: Ran.YES,
};

export function reconcileToolCall(
  draft: Draft,
  session: SessionState,
  command: ReconcileToolCallCommand,
): Decided {
  const found = findOwnCall(session, draft.facts, command.toolCallId);
  if (isRefusal(found)) return found;
  const { call } = found;
  if (call.state !== ToolCallState.OUTCOME_UNKNOWN) return refuseKnown(call);
  const hasStarted = call.startTime !== undefined || call.ran === Ran.YES;
  if (command.end === ToolCallState.CANCELLED && hasStarted) {
    return refuseForCall(ErrorReason.TOOL_CALL_STARTED, "the call has started", call);
  }
  const late = foundResult(draft, call, command);
  if (isRefusal(late)) return late;
  const reconciled = draft.revise(EventKind.toolCallReconciled, (revision) => ({
    case: "toolCall",
    value: {
      ...call,
      revision,
      state: command.end,
      ran: RAN[command.end] ?? Ran.UNKNOWN,
      lateResult: late,
    },
  }));
  return draft.decision([reconciled]);
}

function refuseKnown(call: ToolCall): Refusal {
  const state = ToolCallState[call.state];
  return refuse(ErrorReason.OUTCOME_KNOWN, `the call's state is ${state}`, {
    tool_call_id: call.toolCallId,
    state,
  });
}

function foundResult(
  draft: Draft,
  call: ToolCall,
  command: ReconcileToolCallCommand,
): ToolCall["lateResult"] | Refusal {
  if (command.content === undefined) return call.lateResult;
  if (call.lateResult !== undefined) {
    const message = "a late result is recorded already";
    return refuseForCall(ErrorReason.RESULT_ALREADY_RECORDED, message, call);
  }
  const content = intakeBody(draft, command.content, "command.content");
  if (isRefusal(content)) return content;
  return refuseUnreleased(call, content) ?? canonicalResult(content, command.isError);
}
