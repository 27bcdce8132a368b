import { create } from "@bufbuild/protobuf";
import type {
  CanonicalResult,
  ProvisionalDelta,
  RecordResultCommand,
} from "../../../gen/toolmark/engine/v1/command_pb.js";
import { HeldResult } from "../../../gen/toolmark/storage/v1/storage_pb.js";
import { AskKind } from "../../../gen/toolmark/v1/ask_pb.js";
import type { Body } from "../../../gen/toolmark/v1/body_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
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
import { equalBytes } from "../bytes.js";
import { EventKind } from "../event-kind.js";
import { invariant } from "../invariant.js";
import { isRefusal, type Refusal } from "../refusal.js";
import type { OpenCall, SessionState } from "../session-state.js";
import { syntheticText } from "../synthetic-text.js";
import { settleAllows } from "./allows.js";
import type { Decided, Draft, Facts } from "./draft.js";
import { openAskOf } from "./find-ask.js";
import {
  findOwnCall,
  hasEnded,
  hasRun,
  isWaiting,
  refuseEnded,
  refuseForCall,
  refuseUnallowed,
  refuseWaiting,
} from "./find-call.js";
import { blocksCall, findHookOfCall, refuseHook } from "./find-hook.js";
import { intakeBody } from "./intake-body.js";
import { withdrawal, writeSettlement } from "./settle-ask.js";
import { syntheticResult } from "./synthetic-result.js";

export function recordResult(
  draft: Draft,
  state: SessionState,
  run: Run | Refusal,
  command: RecordResultCommand,
): Decided {
  const found = findOwnCall(state, draft.facts, command.toolCallId);
  if (isRefusal(run)) {
    const isLate = !isRefusal(found) && found.kind === "settled" && isLateFor(found.call, command);
    if (!isLate || run.reason !== ErrorReason.RUN_NOT_ACTIVE) return run;
  }
  if (isRefusal(found)) return found;
  const { call } = found;
  if (found.kind === "open") {
    invariant(!isRefusal(run), "an open call takes results of the active run only");
    return recordForOpenCall(draft, state, { run, open: found.open }, command);
  }
  const { result } = command;
  if (result.case === "canonical" && isLateFor(call, command)) {
    return recordLateResult(draft, call, result.value);
  }
  if (result.case === "provisional") return refuseEnded(call);
  return refuseForCall(ErrorReason.RESULT_ALREADY_RECORDED, "the call has its result", call);
}

/** Whether it is the result of a call that the service has ended with a text of its own. */
function isLateFor(call: ToolCall, { result }: RecordResultCommand): boolean {
  return result.case === "canonical" && call.result?.kind === ToolResultKind.SYNTHETIC;
}

/** An open call and the active run. */
interface Running {
  readonly run: Run;
  readonly open: OpenCall;
}

function recordForOpenCall(
  draft: Draft,
  state: SessionState,
  running: Running,
  command: RecordResultCommand,
): Decided {
  const { result } = command;
  invariant(result.case !== undefined, "command.result was checked to be there");
  return result.case === "provisional"
    ? recordProvisional(draft, state, running, result.value)
    : recordCanonical(draft, state, running, result.value);
}

/**
 * Without a recorded start nothing but a block is believed in a run that requires starts, while a call waits, or when
 * nobody allows it any more.
 */
function refuseUnstarted(state: SessionState, { run, open }: Running): Refusal | undefined {
  const { call } = open;
  if (hasRun(open)) return undefined;
  if (isWaiting(call)) return refuseWaiting(state, call);
  if (open.needsAllow) return refuseUnallowed(call);
  if (run.startGate === StartGate.REQUIRED) {
    const message = "the run requires a recorded start";
    return refuseForCall(ErrorReason.TOOL_CALL_NOT_STARTED, message, call);
  }
  return undefined;
}

/** Refuses what a held result forbids. `result` is absent for a part of one, which nobody could compare. */
function refuseHeld(
  { call, heldResult, heldSha256 }: OpenCall,
  result: CanonicalResult | undefined,
  contentSha256: Uint8Array | undefined,
): Refusal | undefined {
  if (heldResult === HeldResult.UNSPECIFIED) return undefined;
  const isWithheld = result?.end === ToolCallState.WITHHELD;
  const isReleased = heldResult === HeldResult.RELEASED;
  const isTaken = isReleased || (isWithheld && heldResult === HeldResult.BARRED);
  if (result === undefined || !isTaken) {
    return refuseForCall(ErrorReason.RESULT_HELD, "the result of the call is held", call);
  }
  if (contentSha256 === undefined) return undefined;
  const isHeldOne = equalBytes(heldSha256, contentSha256);
  if (isHeldOne !== isWithheld) return undefined;
  const message = isWithheld
    ? "the text is the very result that is withheld"
    : "the result is not the one that was released";
  return refuseForCall(ErrorReason.RESULT_MISMATCH, message, call);
}

function recordProvisional(
  draft: Draft,
  state: SessionState,
  running: Running,
  delta: ProvisionalDelta,
): Decided {
  const { call } = running.open;
  if (hasEnded(call)) return refuseEnded(call);
  const refused = refuseUnstarted(state, running) ?? refuseHeld(running.open, undefined, undefined);
  if (refused !== undefined) return refused;
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
  state: SessionState,
  running: Running,
  result: CanonicalResult,
): Refusal | undefined {
  const { call } = running.open;
  if (hasEnded(call)) {
    return result.end === ToolCallState.UNSPECIFIED ? undefined : refuseEnded(call);
  }
  if (result.end !== ToolCallState.BLOCKED) return refuseUnstarted(state, running);
  if (hasRun(running.open)) {
    return refuseForCall(ErrorReason.TOOL_CALL_STARTED, "the call has started", call);
  }
  if (call.state === ToolCallState.AWAITING_AUTHORIZATION) return refuseWaiting(state, call);
  return refuseBlockingHook(facts, call, result.blockedByHookId ?? "");
}

function refuseBlockingHook(facts: Facts, call: ToolCall, hookId: string): Refusal | undefined {
  const field = "command.canonical.blocked_by_hook_id";
  const hook = findHookOfCall(facts, call.toolCallId, hookId, field);
  if (isRefusal(hook)) return hook;
  return blocksCall(hook) ? undefined : refuseHook(field, "does not block this call");
}

function recordCanonical(
  draft: Draft,
  state: SessionState,
  running: Running,
  canonical: CanonicalResult,
): Decided {
  const { open } = running;
  const { call } = open;
  const refused = refuseEnd(draft.facts, state, running, canonical);
  if (refused !== undefined) return refused;
  const end = endState(call, canonical);
  const result = resultOf(draft, canonical, end);
  if (isRefusal(result)) return result;
  const content = canonical.content === undefined ? undefined : result.content?.sha256;
  const held = refuseHeld(open, canonical, content);
  if (held !== undefined) return held;
  const ran = hasEnded(call) ? call.ran : ranAfter(open, end);
  withdrawOpenAsk(draft, state, call);
  settleAllows(draft, open.unspentAllows, { ran, isReleased: isReleasing(end, content) });
  const recorded = draft.revise(EventKind.resultRecorded, (revision) => ({
    case: "toolCall",
    value: {
      ...call,
      revision,
      state: end,
      ran,
      result,
      blockedByHookId: canonical.blockedByHookId,
      endTime: call.endTime ?? draft.facts.now,
    },
  }));
  return draft.decision([recorded]);
}

/** A blocked call needs no answer any more. */
function withdrawOpenAsk(draft: Draft, state: SessionState, { toolCallId }: ToolCall): void {
  const ask = openAskOf(state, toolCallId, AskKind.ACTION);
  if (ask !== undefined) writeSettlement(draft, state, ask, withdrawal(draft));
}

/** Whether a result gives the model what a release was asked for. */
function isReleasing(end: ToolCallState, content: Uint8Array | undefined): boolean {
  return end !== ToolCallState.WITHHELD && content !== undefined;
}

function endState(call: ToolCall, { end }: CanonicalResult): ToolCallState {
  if (hasEnded(call)) return call.state;
  return end === ToolCallState.UNSPECIFIED ? ToolCallState.COMPLETED : end;
}

function ranAfter(open: OpenCall, end: ToolCallState): Ran {
  switch (end) {
    case ToolCallState.COMPLETED:
    case ToolCallState.WITHHELD:
      return Ran.YES;
    case ToolCallState.FAILED:
      return hasRun(open) ? Ran.YES : Ran.UNKNOWN;
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
  if (canonical.content === undefined) return syntheticResult(draft, syntheticText(state));
  const content = intakeBody(draft, canonical.content, "command.canonical.content");
  if (isRefusal(content)) return content;
  return canonicalResult(content, canonical.isError);
}

export function canonicalResult(content: Body, isError: boolean): ToolResult {
  return create(ToolResultSchema, { content, isError, kind: ToolResultKind.CANONICAL });
}

function recordLateResult(draft: Draft, call: ToolCall, canonical: CanonicalResult): Decided {
  // The call has its end: a late result that claims another one is no mere evidence.
  if (canonical.content === undefined || canonical.end !== ToolCallState.UNSPECIFIED) {
    return refuseEnded(call);
  }
  if (call.state === ToolCallState.WITHHELD) {
    return refuseForCall(ErrorReason.RESULT_HELD, "the result of the call was held", call);
  }
  if (call.lateResult !== undefined) {
    const message = "the call has its late result";
    return refuseForCall(ErrorReason.RESULT_ALREADY_RECORDED, message, call);
  }
  const content = intakeBody(draft, canonical.content, "command.canonical.content");
  if (isRefusal(content)) return content;
  const unreleased = refuseUnreleased(call, content);
  if (unreleased !== undefined) return unreleased;
  const lateResult = canonicalResult(content, canonical.isError);
  const recorded = draft.revise(EventKind.lateResultRecorded, (revision) => ({
    case: "toolCall",
    value: { ...call, revision, lateResult },
  }));
  return draft.decision([recorded]);
}

/** Refuses another result than the one that was released before the run ended. */
export function refuseUnreleased(call: ToolCall, content: Body): Refusal | undefined {
  const { releasedSha256 } = call;
  if (releasedSha256.length === 0 || equalBytes(releasedSha256, content.sha256)) return undefined;
  const message = "the result is not the one that was released";
  return refuseForCall(ErrorReason.RESULT_MISMATCH, message, call);
}
