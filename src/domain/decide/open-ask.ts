import { create } from "@bufbuild/protobuf";
import type { OpenAskCommand } from "../../../gen/toolmark/engine/v1/command_pb.js";
import { AskKind, AskSchema, AskState, type Ask } from "../../../gen/toolmark/v1/ask_pb.js";
import { BodySchema, type Body } from "../../../gen/toolmark/v1/body_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { ReviewJob } from "../../../gen/toolmark/v1/review_pb.js";
import { StartGate, type Run } from "../../../gen/toolmark/v1/run_pb.js";
import { ToolCallState, type ToolCall } from "../../../gen/toolmark/v1/tool_call_pb.js";
import { EventKind } from "../event-kind.js";
import type { Limits } from "../limits.js";
import { isRefusal, refuse, type Refusal } from "../refusal.js";
import type { OpenCall, SessionState } from "../session-state.js";
import { voidAllows } from "./allows.js";
import type { Decided, Draft, Facts } from "./draft.js";
import { openAskOf } from "./find-ask.js";
import { VERDICTS_OF } from "../verdicts.js";
import {
  findOwnCall,
  findUnstartedCall,
  hasEnded,
  hasRun,
  isWaiting,
  refuseEnded,
  refuseForCall,
  refuseWaiting,
} from "./find-call.js";
import { findHookOfCall, refuseHook } from "./find-hook.js";
import { refusePast } from "./refuse-past.js";

/** Opens an ask. What it presents is the service's own record, not the caller's word. */
export function openAsk(
  draft: Draft,
  state: SessionState,
  run: Run,
  command: OpenAskCommand,
): Decided {
  const open = findAskable(state, draft.facts, run, command);
  if (isRefusal(open)) return open;
  const earlier = openAskOf(state, command.toolCallId, command.kind);
  const refused =
    refuseReview(draft.facts, command) ??
    refusePast(draft.facts, command.expireTime) ??
    refuseTooMany(state, earlier, draft.facts.limits);
  if (refused !== undefined) return refused;
  const replaced = earlier ?? supersededAsk(draft.facts, open, command.kind);
  if (isRefusal(replaced)) return replaced;

  const askId = draft.facts.mintId("ask");
  replaceEarlier(draft, open, command.kind, { replaced, askId });
  const { delegationPath } = state.session;
  const ask = askOf(draft, open.call, command, { askId, runId: run.runId, delegationPath });
  const opened = draft.revise(EventKind.askOpened, (revision) => {
    ask.revision = revision;
    return { case: "ask", value: ask };
  });
  if (command.kind === AskKind.ACTION && open.call.state !== ToolCallState.AWAITING_ANSWER) {
    draft.revise(EventKind.toolCallWaiting, (revision) => ({
      case: "toolCall",
      value: { ...open.call, revision, state: ToolCallState.AWAITING_ANSWER },
    }));
  }
  return draft.decision([opened]);
}

/** The call, if this kind of question can be asked about it now. */
function findAskable(
  state: SessionState,
  facts: Facts,
  run: Run,
  { kind, toolCallId }: OpenAskCommand,
): OpenCall | Refusal {
  if (kind === AskKind.ACTION) {
    const open = findUnstartedCall(state, facts, toolCallId);
    if (isRefusal(open)) return open;
    const waits = open.call.state === ToolCallState.AWAITING_AUTHORIZATION;
    return waits ? refuseWaiting(state, open.call) : open;
  }
  const found = findOwnCall(state, facts, toolCallId);
  if (isRefusal(found)) return found;
  const { call } = found;
  if (found.kind === "settled" || hasEnded(call)) return refuseEnded(call);
  if (isWaiting(call)) return refuseWaiting(state, call);
  if (hasRun(found.open) || run.startGate === StartGate.OFF) return found.open;
  const message = "the call has not started, so there is no result to release";
  return refuseForCall(ErrorReason.TOOL_CALL_NOT_STARTED, message, call);
}

function refuseReview(facts: Facts, command: OpenAskCommand): Refusal | undefined {
  const { reviewId, toolCallId, kind } = command;
  if (reviewId === undefined) return undefined;
  const field = "command.review_id";
  const hook = findHookOfCall(facts, toolCallId, reviewId, field);
  if (isRefusal(hook)) return hook;
  if (hook.review === undefined) return refuseHook(field, "is no review");
  const isInbound = hook.review.job === ReviewJob.INBOUND;
  return isInbound === (kind === AskKind.RESULT_RELEASE)
    ? undefined
    : refuseHook(field, "is of a job that does not lead to this kind of ask");
}

/** Bounds what is open: asks, and with them the allows that nobody has used. */
function refuseTooMany(
  { openAsks, openCalls }: SessionState,
  earlier: Ask | undefined,
  { openAsksPerSession, openCallsPerSession }: Limits,
): Refusal | undefined {
  if (earlier === undefined && openAsks.size >= openAsksPerSession) {
    return refuseCount("open asks", openAsksPerSession);
  }
  let allows = 0;
  for (const { unspentAllows } of openCalls.values()) allows += unspentAllows.length;
  if (allows + openAsks.size < openCallsPerSession) return undefined;
  return refuseCount("open asks and unspent allows", openCallsPerSession);
}

function refuseCount(what: string, limit: number): Refusal {
  const message = `the session would have more than ${limit} ${what}`;
  return refuse(ErrorReason.QUOTA_EXCEEDED, message, { field: "command", limit: String(limit) });
}

/** The ask that amended arguments superseded, which has no newer one yet. */
function supersededAsk(
  facts: Facts,
  { supersededAskId }: OpenCall,
  kind: AskKind,
): Ask | Refusal | undefined {
  if (kind !== AskKind.ACTION || supersededAskId === undefined) return undefined;
  const record = facts.settledRecord(supersededAskId);
  if (record?.case === "ask") return record.value;
  return refuse(ErrorReason.DATA_DAMAGED, "the superseded ask is missing", { id: supersededAskId });
}

/** The new ask takes the place of the one before it. */
function replaceEarlier(
  draft: Draft,
  { unspentAllows }: OpenCall,
  kind: AskKind,
  { replaced, askId }: { readonly replaced: Ask | undefined; readonly askId: string },
): void {
  if (replaced !== undefined) {
    draft.revise(EventKind.askSuperseded, (revision) => ({
      case: "ask",
      value: { ...replaced, revision, state: AskState.SUPERSEDED, supersededByAskId: askId },
    }));
  }
  // Several allows to start can hold side by side; of a result only the last question counts.
  if (kind === AskKind.RESULT_RELEASE) {
    voidAllows(
      draft,
      unspentAllows.filter((allow) => allow.kind === kind),
    );
  }
}

function askOf(
  draft: Draft,
  call: ToolCall,
  command: OpenAskCommand,
  identity: Pick<Ask, "askId" | "runId" | "delegationPath">,
): Ask {
  const { kind, provenance, reviewId, display, prompt, expireTime, allowedVerdicts } = command;
  return create(AskSchema, {
    ...identity,
    origin: { sessionId: draft.sessionId },
    toolCallId: call.toolCallId,
    ...(reviewId === undefined ? {} : { reviewId }),
    kind,
    provenance,
    presented: presentedBy(call, command),
    display,
    prompt,
    allowedVerdicts: allowedVerdicts.length > 0 ? allowedVerdicts : [...VERDICTS_OF[kind]],
    state: AskState.OPEN,
    ...(expireTime === undefined ? {} : { expireTime }),
    createTime: draft.facts.now,
    toolName: call.toolName,
  });
}

function presentedBy(call: ToolCall, command: OpenAskCommand): Body {
  if (command.kind === AskKind.ACTION && call.effective !== undefined) return call.effective;
  return create(BodySchema, {
    sha256: command.heldSha256,
    sizeBytes: command.heldSizeBytes,
  });
}
