import type { StartToolCallCommand } from "../../../gen/toolmark/engine/v1/command_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { Ran, ToolCallState } from "../../../gen/toolmark/v1/tool_call_pb.js";
import { equalBytes } from "../bytes.js";
import { EventKind } from "../event-kind.js";
import { isRefusal } from "../refusal.js";
import type { SessionState } from "../session-state.js";
import type { Decided, Draft } from "./draft.js";
import { findUnstartedCall, refuseForCall } from "./find-call.js";

export function startToolCall(
  draft: Draft,
  state: SessionState,
  command: StartToolCallCommand,
): Decided {
  const open = findUnstartedCall(state, draft.facts, command.toolCallId);
  if (isRefusal(open)) return open;
  const { call } = open;
  if (call.state !== ToolCallState.ACCEPTED) {
    return refuseForCall(ErrorReason.START_NOT_ALLOWED, "the call waits for an answer", call);
  }
  if (!equalBytes(command.argumentsSha256, call.effective?.sha256 ?? new Uint8Array(0))) {
    const message = "the digest is not that of the effective arguments";
    return refuseForCall(ErrorReason.ARGUMENTS_MISMATCH, message, call);
  }
  const started = draft.revise(EventKind.toolCallStarted, (revision) => ({
    case: "toolCall",
    value: { ...call, revision, state: ToolCallState.STARTED, ran: Ran.YES },
  }));
  return draft.decision([started]);
}
