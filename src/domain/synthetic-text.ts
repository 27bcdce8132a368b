import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";

/** The text that the model is given for a call that ended without a result of its own. */
export function syntheticText(state: ToolCallState): string {
  return TEXT[state] ?? "No result was recorded for this call.";
}

const TEXT: Partial<Record<ToolCallState, string>> = {
  [ToolCallState.FAILED]: "The call failed and gave no result.",
  [ToolCallState.BLOCKED]: "The call was blocked by a hook before it started. It did not run.",
  [ToolCallState.DENIED]: "The call was denied. It did not run.",
  [ToolCallState.EXPIRED]: "Nobody answered the question about this call in time. It did not run.",
  [ToolCallState.WITHHELD]: "The call ran. Its result was withheld.",
  [ToolCallState.CANCELLED]: "The call was cancelled before it started. It did not run.",
  [ToolCallState.INTERRUPTED]: "The call was interrupted while it ran. It may have had effects.",
  [ToolCallState.TIMED_OUT]:
    "The call did not finish in time. It is not known whether it had effects.",
  [ToolCallState.OUTCOME_UNKNOWN]: "It is not known whether the call ran.",
  [ToolCallState.RESULT_MISSING]: "An older system kept no result for this call.",
};
