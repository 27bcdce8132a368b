import {
  Ran,
  ToolCallState,
  type ToolCall,
  type ToolResult,
} from "../../gen/toolmark/v1/tool_call_pb.js";

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

/** Texts for calls that have not ended. */
const OPEN_TEXT: Partial<Record<ToolCallState, string>> = {
  [ToolCallState.ACCEPTED]: "The call has not started yet. It has no result.",
  [ToolCallState.AWAITING_ANSWER]:
    "The call waits for an approval. It has not run and has no result yet.",
  [ToolCallState.AWAITING_AUTHORIZATION]:
    "The call waits for an authorization. It has not run and has no result yet.",
  [ToolCallState.STARTED]: "The call is still running. It has no result yet.",
};

/** The same for calls whose start nobody has to record. */
const UNPROVEN_TEXT: Partial<Record<ToolCallState, string>> = {
  [ToolCallState.ACCEPTED]: "It is not known whether the call has started. It has no result yet.",
  [ToolCallState.AWAITING_ANSWER]: "The call waits for an approval. It has no result yet.",
  [ToolCallState.AWAITING_AUTHORIZATION]:
    "The call waits for an authorization. It has no result yet.",
};

/** What the model is told about a call: its result, or a text that says why there is none. */
export type ToldResult =
  { readonly result: ToolResult } | { readonly text: string; readonly isError: boolean };

/** A late result is not told: what the model was told before it came stays. */
export function toldResult({
  result,
  state,
  ran,
}: Pick<ToolCall, "result" | "state" | "ran">): ToldResult {
  if (result?.content !== undefined) return { result };
  const open = (ran === Ran.UNKNOWN ? UNPROVEN_TEXT[state] : undefined) ?? OPEN_TEXT[state];
  return open === undefined
    ? { text: syntheticText(state), isError: true }
    : { text: open, isError: false };
}
