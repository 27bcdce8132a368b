import type { EndRunCommand } from "../../../gen/toolmark/engine/v1/command_pb.js";
import { HeldResult } from "../../../gen/toolmark/storage/v1/storage_pb.js";
import { AuthorizationState } from "../../../gen/toolmark/v1/authorization_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { RunOutcome, RunState, StartGate, type Run } from "../../../gen/toolmark/v1/run_pb.js";
import { Ran, ToolCallState, type ToolCall } from "../../../gen/toolmark/v1/tool_call_pb.js";
import { EventKind } from "../event-kind.js";
import { isRefusal, type Refusal } from "../refusal.js";
import type { OpenCall, SessionState } from "../session-state.js";
import { syntheticText } from "../synthetic-text.js";
import { settleAllows } from "./allows.js";
import type { Decided, Draft, ReplyRecord } from "./draft.js";
import {
  findCall,
  hasEnded,
  hasRun,
  isUnstarted,
  refuseEnded,
  refuseForCall,
} from "./find-call.js";
import { closeAuthorization } from "./settle-authorization.js";
import { withdrawal, writeSettlement } from "./settle-ask.js";
import { syntheticResult } from "./synthetic-result.js";

/** What the harness says of calls that have no recorded end. */
interface Lists {
  readonly notRun: ReadonlySet<string>;
  readonly interrupted: ReadonlySet<string>;
}

const NOTHING_LISTED: Lists = { notRun: new Set(), interrupted: new Set() };

export function endRun(
  draft: Draft,
  state: SessionState,
  run: Run,
  command: EndRunCommand,
): Decided {
  const lists: Lists = {
    notRun: new Set(command.notRunToolCallIds),
    interrupted: new Set(command.interruptedToolCallIds),
  };
  const refused = refuseLists(draft, state, lists);
  if (refused !== undefined) return refused;
  const calls =
    command.outcome === RunOutcome.PARKED ? [] : endOpenCalls(draft, state, run.startGate, lists);
  return draft.decision([writeRunEnd(draft, run, command.outcome), ...calls]);
}

/** Ends a run that another run or the end of the session replaces, with nothing listed. */
export function replaceRun(draft: Draft, state: SessionState, run: Run, outcome: RunOutcome): void {
  if (outcome !== RunOutcome.PARKED) endOpenCalls(draft, state, run.startGate, NOTHING_LISTED);
  writeRunEnd(draft, run, outcome);
}

/** Ends the active run and every unfinished call. Without a run, what was recorded of a call's start decides. */
export function endUnfinished(draft: Draft, state: SessionState): void {
  if (state.activeRun !== undefined) {
    replaceRun(draft, state, state.activeRun, RunOutcome.CANCELLED);
  } else endOpenCalls(draft, state, StartGate.REQUIRED, NOTHING_LISTED);
}

function writeRunEnd(draft: Draft, run: Run, outcome: RunOutcome): ReplyRecord {
  return draft.write(EventKind.runEnded, {
    case: "run",
    value: { ...run, state: RunState.ENDED, outcome, endTime: draft.facts.now },
  });
}

function refuseLists(draft: Draft, state: SessionState, lists: Lists): Refusal | undefined {
  for (const id of [...lists.notRun, ...lists.interrupted]) {
    const found = findCall(state, draft.facts, id);
    if (isRefusal(found)) return found;
    const { call } = found;
    if (found.kind === "settled" || hasEnded(call)) return refuseEnded(call);
    if (contradictsStart(found.open, lists)) {
      const message = "the list contradicts the recorded start of the call";
      return refuseForCall(ErrorReason.RUN_END_CONTRADICTS_START, message, call);
    }
  }
  return undefined;
}

function contradictsStart(open: OpenCall, lists: Lists): boolean {
  if (lists.notRun.has(open.call.toolCallId)) return hasRun(open);
  return open.call.ran === Ran.NO;
}

/** Ends whatever waits in a session. Its calls are ended after it. */
function closeWaiting(draft: Draft, state: SessionState): void {
  for (const ask of state.openAsks.values()) {
    writeSettlement(draft, state, ask, withdrawal(draft));
  }
  for (const authorization of state.pendingAuthorizations.values()) {
    closeAuthorization(draft, authorization, AuthorizationState.CLOSED);
  }
}

function endOpenCalls(
  draft: Draft,
  state: SessionState,
  gate: StartGate,
  lists: Lists,
): ReplyRecord[] {
  closeWaiting(draft, state);
  return [...state.openCalls.values()].map((open) => {
    const { call, unspentAllows } = open;
    const end = endOf(open, gate, lists);
    const result = syntheticResult(draft, textOf(call, end.state));
    settleAllows(draft, unspentAllows, { ran: end.ran, isReleased: false });
    const kind = hasEnded(call) ? EventKind.resultRecorded : EventKind.toolCallEnded;
    return draft.revise(kind, (revision) => ({
      case: "toolCall",
      value: {
        ...call,
        revision,
        ...end,
        result,
        releasedSha256: releasedBy(open),
        endTime: call.endTime ?? draft.facts.now,
      },
    }));
  });
}

/** Digest of a result that was released and not given: no other may come late. */
function releasedBy({ heldResult, heldSha256 }: OpenCall): Uint8Array {
  return heldResult === HeldResult.RELEASED ? heldSha256 : new Uint8Array(0);
}

/** What the model is told: also what is known of the start, and what a call waited for that did not run. */
function textOf({ state }: ToolCall, end: ToolCallState): string {
  if (end === ToolCallState.CANCELLED) return WAITED_FOR[state] ?? syntheticText(end);
  const hasStarted = state === ToolCallState.STARTED;
  return end === ToolCallState.OUTCOME_UNKNOWN && hasStarted ? STARTED_TEXT : syntheticText(end);
}

const STARTED_TEXT = "The call was started. It is not known how it ended; it may have had effects.";

const WAITED_FOR: Partial<Record<ToolCallState, string>> = {
  [ToolCallState.AWAITING_ANSWER]:
    "The run ended before the question about this call was answered. It did not run.",
  [ToolCallState.AWAITING_AUTHORIZATION]:
    "The run ended before the authorization that this call waited for was given. It did not run.",
};

/**
 * The end of an unfinished call: withheld if its result was, else what the harness says, else what the recorded start
 * proves, else unknown.
 */
function endOf(
  { call, heldResult }: OpenCall,
  gate: StartGate,
  { notRun, interrupted }: Lists,
): Pick<ToolCall, "state" | "ran"> {
  if (hasEnded(call)) return { state: call.state, ran: call.ran };
  if (heldResult === HeldResult.ASKED || heldResult === HeldResult.BARRED) {
    return { state: ToolCallState.WITHHELD, ran: Ran.YES };
  }
  if (interrupted.has(call.toolCallId)) {
    return { state: ToolCallState.INTERRUPTED, ran: Ran.YES };
  }
  const provenUnstarted = gate === StartGate.REQUIRED && isUnstarted(call) && call.ran === Ran.NO;
  if (notRun.has(call.toolCallId) || provenUnstarted) {
    return { state: ToolCallState.CANCELLED, ran: Ran.NO };
  }
  // Whoever had its result released has seen that it ran.
  const ran = heldResult === HeldResult.RELEASED ? Ran.YES : Ran.UNKNOWN;
  return { state: ToolCallState.OUTCOME_UNKNOWN, ran };
}
