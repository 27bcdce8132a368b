import type { ToolCallStatus } from "@agentclientprotocol/sdk";
import type { Hook } from "../../gen/toolmark/v1/hook_pb.js";
import { Ran, ToolCallState, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";

/** What an editor is told of a call's state. It knows four; what happened is said in words. */
export function statusOf({ state, endTime }: ToolCall): ToolCallStatus {
  switch (state) {
    case ToolCallState.ACCEPTED:
    case ToolCallState.AWAITING_ANSWER:
    case ToolCallState.AWAITING_AUTHORIZATION:
      return "pending";
    case ToolCallState.STARTED:
      return "in_progress";
    case ToolCallState.COMPLETED:
      return "completed";
    default:
      return isEndedState(state) || endTime !== undefined ? "failed" : "pending";
  }
}

/** Whether a call has ended. */
export function isEnded(call: ToolCall): boolean {
  const status = statusOf(call);
  return status === "completed" || status === "failed";
}

function isEndedState(state: ToolCallState): boolean {
  return state in ENDED;
}

const ENDED: Readonly<Partial<Record<ToolCallState, string>>> = {
  [ToolCallState.FAILED]: "Failed: it could not be carried out or finished.",
  [ToolCallState.BLOCKED]: "Blocked by a hook.",
  [ToolCallState.DENIED]: "Denied.",
  [ToolCallState.EXPIRED]: "Expired: what it waited for did not come in time.",
  [ToolCallState.WITHHELD]: "Withheld: the model was given this text instead of the result.",
  [ToolCallState.CANCELLED]: "Cancelled before it started.",
  [ToolCallState.INTERRUPTED]: "Interrupted while it ran.",
  [ToolCallState.TIMED_OUT]: "Timed out.",
  [ToolCallState.OUTCOME_UNKNOWN]: "Outcome unknown: nobody knows how it ended.",
  [ToolCallState.RESULT_MISSING]: "Result missing: an older system kept none.",
};

const RAN: Readonly<Partial<Record<Ran, string>>> = {
  [Ran.NO]: "It did not run.",
  [Ran.YES]: "It ran.",
  [Ran.UNKNOWN]: "Whether it ran is not known.",
};

/** What happened to a call, above its result. Empty if its status says all. `blocker` is the hook that blocked it. */
export function headlineOf(call: ToolCall, blocker?: Hook): string {
  switch (call.state) {
    case ToolCallState.AWAITING_ANSWER:
      return "Waits for an answer.";
    case ToolCallState.AWAITING_AUTHORIZATION:
      return "Waits for an authorization.";
    case ToolCallState.COMPLETED:
      return call.result?.isError === true ? "The tool reported an error." : "";
    case ToolCallState.BLOCKED:
      return blockedText(call, blocker);
    case ToolCallState.CANCELLED:
    case ToolCallState.INTERRUPTED:
      return ENDED[call.state] ?? "";
    default:
      return isEndedState(call.state) ? `${ENDED[call.state] ?? ""}${ranText(call, " ")}` : "";
  }
}

/** Whether it ran, behind what was said before. */
function ranText({ ran }: ToolCall, separator: string): string {
  const text = RAN[ran];
  return text === undefined ? "" : `${separator}${text}`;
}

function blockedText(call: ToolCall, blocker: Hook | undefined): string {
  const { blockedByHookId = "a hook" } = call;
  if (blocker === undefined) return `Blocked by ${blockedByHookId}.${ranText(call, " ")}`;
  const name = blocker.hookName === "" ? "a hook" : blocker.hookName;
  if (blocker.text === "") return `Blocked by ${name}.${ranText(call, " ")}`;
  return `Blocked by ${name}: ${blocker.text}${ranText(call, "\n")}`;
}
