import { create } from "@bufbuild/protobuf";
import type {
  CanonicalResult,
  ProvisionalDelta,
  RecordResultCommand,
} from "../../../gen/toolmark/engine/v1/command_pb.js";
import type { Body } from "../../../gen/toolmark/v1/body_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { HookDecision } from "../../../gen/toolmark/v1/hook_pb.js";
import { StartGate, type Run } from "../../../gen/toolmark/v1/run_pb.js";
import {
  ProvisionalResultSchema,
  Ran,
  ToolCallState,
  ToolResultKind,
  ToolResultSchema,
  type ToolCall,
  type ToolResult,
} from "../../../gen/toolmark/v1/tool_call_pb.js";
import { EventKind } from "../event-kind.js";
import { invariant } from "../invariant.js";
import { isRefusal, refuse, type Refusal } from "../refusal.js";
import type { SessionState } from "../session-state.js";
import { syntheticText } from "../synthetic-text.js";
import type { Decided, Draft, Facts } from "./draft.js";
import { findCall, hasEnded, refuseEnded, refuseForCall } from "./find-call.js";
import { intakeBody, storeBytes } from "./intake-body.js";

/** Whether a call may still be given a result that changes nothing but `late_result`. */
export function takesLateResult(call: ToolCall): boolean {
  return call.result?.kind === ToolResultKind.SYNTHETIC && call.lateResult === undefined;
}

export function recordResult(
  draft: Draft,
  state: SessionState,
  run: Run | Refusal,
  command: RecordResultCommand,
): Decided {
  const found = findCall(state, draft.facts, command.toolCallId);
  const isLate =
    command.result.case === "canonical" &&
    !isRefusal(found) &&
    found.kind === "settled" &&
    takesLateResult(found.call);
  if (isRefusal(run) && !(isLate && run.reason === ErrorReason.RUN_NOT_ACTIVE)) return run;
  if (isRefusal(found)) return found;
  const { call } = found;
  if (found.kind === "open") {
    invariant(!isRefusal(run), "an open call takes results of the active run only");
    return recordForOpenCall(draft, run, call, command);
  }
  if (command.result.case === "canonical" && isLate) {
    return recordLateResult(draft, call, command.result.value);
  }
  if (command.result.case === "provisional") return refuseEnded(call);
  return refuseForCall(ErrorReason.RESULT_ALREADY_RECORDED, "the call has its result", call);
}

function recordForOpenCall(
  draft: Draft,
  run: Run,
  call: ToolCall,
  command: RecordResultCommand,
): Decided {
  const { result } = command;
  invariant(result.case !== undefined, "command.result was checked to be there");
  if (result.case === "provisional") return recordProvisional(draft, run, call, result.value);
  return recordCanonical(draft, run, call, result.value);
}

/** Without a recorded start nothing but a block is believed in a run that requires starts. */
function refuseUnstarted(run: Run, call: ToolCall): Refusal | undefined {
  if (run.startGate !== StartGate.REQUIRED || call.state === ToolCallState.STARTED) {
    return undefined;
  }
  const message = "the run requires a recorded start";
  return refuseForCall(ErrorReason.TOOL_CALL_NOT_STARTED, message, call);
}

function recordProvisional(
  draft: Draft,
  run: Run,
  call: ToolCall,
  delta: ProvisionalDelta,
): Decided {
  if (hasEnded(call)) return refuseEnded(call);
  const unstarted = refuseUnstarted(run, call);
  if (unstarted !== undefined) return unstarted;
  draft.write(EventKind.provisional, {
    case: "provisional",
    value: create(ProvisionalResultSchema, {
      toolCallId: call.toolCallId,
      offsetBytes: delta.offsetBytes,
      chunk: delta.chunk,
    }),
  });
  return draft.decision([]);
}

function refuseEnd(
  facts: Facts,
  run: Run,
  call: ToolCall,
  result: CanonicalResult,
): Refusal | undefined {
  if (hasEnded(call)) {
    return result.end === ToolCallState.UNSPECIFIED ? undefined : refuseEnded(call);
  }
  if (result.end !== ToolCallState.BLOCKED) return refuseUnstarted(run, call);
  if (call.state === ToolCallState.STARTED) {
    return refuseForCall(ErrorReason.TOOL_CALL_STARTED, "the call has started", call);
  }
  return refuseBlockingHook(facts, call, result.blockedByHookId ?? "");
}

function refuseBlockingHook(facts: Facts, call: ToolCall, hookId: string): Refusal | undefined {
  const record = facts.settledRecord(hookId);
  if (record?.case !== "hook") {
    return refuse(ErrorReason.HOOK_NOT_FOUND, "the session has no such hook record");
  }
  const hook = record.value;
  const blocks = hook.decision === HookDecision.BLOCKED;
  if (hook.toolCallId === call.toolCallId && blocks) return undefined;
  const field = "command.canonical.blocked_by_hook_id";
  return refuse(ErrorReason.REFERENCE_MISMATCH, `${field} does not block this call`, { field });
}

function recordCanonical(
  draft: Draft,
  run: Run,
  call: ToolCall,
  canonical: CanonicalResult,
): Decided {
  const refused = refuseEnd(draft.facts, run, call, canonical);
  if (refused !== undefined) return refused;
  const state = endState(call, canonical);
  const result = resultOf(draft, canonical, state);
  if (isRefusal(result)) return result;
  const recorded = draft.revise(EventKind.resultRecorded, (revision) => ({
    case: "toolCall",
    value: {
      ...call,
      revision,
      state,
      ran: ranAfter(call, state),
      result,
      blockedByHookId: canonical.blockedByHookId,
      endTime: call.endTime ?? draft.facts.now,
    },
  }));
  return draft.decision([recorded]);
}

function endState(call: ToolCall, { end }: CanonicalResult): ToolCallState {
  if (hasEnded(call)) return call.state;
  return end === ToolCallState.UNSPECIFIED ? ToolCallState.COMPLETED : end;
}

function ranAfter(call: ToolCall, end: ToolCallState): Ran {
  switch (end) {
    case ToolCallState.COMPLETED:
    case ToolCallState.WITHHELD:
      return Ran.YES;
    case ToolCallState.FAILED:
      return call.state === ToolCallState.STARTED ? Ran.YES : Ran.UNKNOWN;
    case ToolCallState.TIMED_OUT:
      return Ran.UNKNOWN;
    default:
      return Ran.NO;
  }
}

function resultOf(
  draft: Draft,
  canonical: CanonicalResult,
  state: ToolCallState,
): ToolResult | Refusal {
  if (canonical.content === undefined) return syntheticResult(draft, state);
  const content = intakeBody(draft, canonical.content, "command.canonical.content");
  if (isRefusal(content)) return content;
  return canonicalResult(content, canonical.isError);
}

export function canonicalResult(content: Body, isError: boolean): ToolResult {
  return create(ToolResultSchema, { content, isError, kind: ToolResultKind.CANONICAL });
}

/** The result that the service gives a call which ended without one. */
export function syntheticResult(draft: Draft, state: ToolCallState): ToolResult {
  const text = new TextEncoder().encode(syntheticText(state));
  return create(ToolResultSchema, {
    content: storeBytes(draft, text, "text/plain; charset=utf-8"),
    isError: true,
    kind: ToolResultKind.SYNTHETIC,
  });
}

function recordLateResult(draft: Draft, call: ToolCall, canonical: CanonicalResult): Decided {
  // The call has its end: a late result that claims another one is no mere evidence.
  if (canonical.content === undefined || canonical.end !== ToolCallState.UNSPECIFIED) {
    return refuseEnded(call);
  }
  const content = intakeBody(draft, canonical.content, "command.canonical.content");
  if (isRefusal(content)) return content;
  const lateResult = canonicalResult(content, canonical.isError);
  const recorded = draft.revise(EventKind.lateResultRecorded, (revision) => ({
    case: "toolCall",
    value: { ...call, revision, lateResult },
  }));
  return draft.decision([recorded]);
}
