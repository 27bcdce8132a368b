import { create } from "@bufbuild/protobuf";
import { AskKind, AskProvenance, AskState, type Ask } from "../../../gen/toolmark/v1/ask_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import type { Actor } from "../../../gen/toolmark/v1/origin_pb.js";
import {
  ReceiptPath,
  ReceiptSchema,
  SpendState,
  Verdict,
  type Receipt,
} from "../../../gen/toolmark/v1/receipt_pb.js";
import { Ran, ToolCallState, type ToolCall } from "../../../gen/toolmark/v1/tool_call_pb.js";
import { EventKind } from "../event-kind.js";
import { invariant } from "../invariant.js";
import { refuse, type Refusal } from "../refusal.js";
import type { OpenCall, SessionState } from "../session-state.js";
import { voidAllows } from "./allows.js";
import type { Draft, ReplyRecord } from "./draft.js";
import { stateWithout } from "./waits-for.js";

/** How an ask is settled, and by whom. */
export interface Settlement {
  readonly verdict: Verdict;
  readonly path: ReceiptPath;
  readonly actor: Actor;
  readonly reason: string;
  readonly rule?: string | undefined;
  readonly hookId?: string | undefined;
}

const ENDS: Partial<Record<Verdict, { readonly kind: EventKind; readonly state: AskState }>> = {
  [Verdict.EXPIRED]: { kind: EventKind.askExpired, state: AskState.EXPIRED },
  [Verdict.WITHDRAWN]: { kind: EventKind.askWithdrawn, state: AskState.WITHDRAWN },
};
const ANSWERED = { kind: EventKind.askAnswered, state: AskState.ANSWERED };

export function isAllow(verdict: Verdict): boolean {
  return verdict === Verdict.ALLOW_ONCE || verdict === Verdict.ALLOW_ALWAYS;
}

/** Whether the ask takes this verdict, from whomever. Nobody knows who put an ask of unknown provenance. */
export function refuseVerdict(ask: Ask, verdict: Verdict): Refusal | undefined {
  const isKnown = ask.provenance !== AskProvenance.UNSPECIFIED;
  if (ask.allowedVerdicts.includes(verdict) && (isKnown || !isAllow(verdict))) return undefined;
  const name = Verdict[verdict];
  return refuse(ErrorReason.VERDICT_NOT_ALLOWED, `the ask does not allow ${name}`, {
    ask_id: ask.askId,
    verdict: name,
  });
}

/** What takes an ask back that nobody needs to answer any more. */
export function withdrawal(draft: Draft, reason = ""): Settlement {
  const { actor } = draft.facts;
  return { verdict: Verdict.WITHDRAWN, path: ReceiptPath.SYSTEM, actor, reason };
}

/** Settles an open ask: its receipt, which is the reply, its own end, and what that means for its call. */
export function settleAsk(
  draft: Draft,
  state: SessionState,
  ask: Ask,
  settlement: Settlement,
): ReplyRecord {
  const open = callOfAsk(state, ask);
  const receipt = writeSettlement(draft, state, ask, settlement);
  if (ask.kind !== AskKind.ACTION) return receipt;
  const { verdict } = settlement;
  const goesOn = isAllow(verdict) || verdict === Verdict.WITHDRAWN;
  if (goesOn) letGoOn(draft, state, ask, open.call);
  else endCall(draft, open, verdict);
  return receipt;
}

/** As `settleAsk`, but leaves the call to the caller, who ends it. */
export function writeSettlement(
  draft: Draft,
  state: SessionState,
  ask: Ask,
  settlement: Settlement,
): ReplyRecord {
  const { call } = callOfAsk(state, ask);
  const receiptId = draft.facts.mintId("receipt");
  // The receipt first: what it means for the call is found by its ask, which is open until the next event.
  const receipt = draft.revise(EventKind.receiptWritten, (revision) => ({
    case: "receipt",
    value: receiptOf(draft, ask, settlement, { receiptId, revision, toolName: call.toolName }),
  }));
  const end = ENDS[settlement.verdict] ?? ANSWERED;
  draft.revise(end.kind, (revision) => ({
    case: "ask",
    value: { ...ask, revision, state: end.state, receiptId },
  }));
  return receipt;
}

function callOfAsk(state: SessionState, ask: Ask): OpenCall {
  const open = state.openCalls.get(ask.toolCallId);
  invariant(open !== undefined, "the call of an open ask is open");
  return open;
}

function receiptOf(
  draft: Draft,
  ask: Ask,
  settlement: Settlement,
  identity: Pick<Receipt, "receiptId" | "toolName"> & { readonly revision: bigint },
): Receipt {
  const { verdict, path, actor, reason, rule, hookId } = settlement;
  const presented = ask.presented?.sha256;
  invariant(presented !== undefined, "an ask presents something");
  return create(ReceiptSchema, {
    ...identity,
    askId: ask.askId,
    origin: { sessionId: draft.sessionId },
    toolCallId: ask.toolCallId,
    ...(ask.reviewId === undefined ? {} : { reviewId: ask.reviewId }),
    verdict,
    path,
    ...(rule === undefined ? {} : { rule }),
    ...(hookId === undefined ? {} : { hookId }),
    actor,
    reason,
    presentedSha256: presented,
    answerTime: draft.facts.now,
    spendState: isAllow(verdict) ? SpendState.UNSPENT : SpendState.UNSPECIFIED,
  });
}

function letGoOn(draft: Draft, session: SessionState, ask: Ask, call: ToolCall): void {
  const state = stateWithout(ask, session, call.toolCallId);
  const isReady = state === ToolCallState.ACCEPTED;
  draft.revise(isReady ? EventKind.toolCallReady : EventKind.toolCallWaiting, (revision) => ({
    case: "toolCall",
    value: { ...call, revision, state },
  }));
}

/** A denial or an expiry ends the call, without a result yet. */
function endCall(draft: Draft, { call, unspentAllows }: OpenCall, verdict: Verdict): void {
  voidAllows(draft, unspentAllows);
  const state = verdict === Verdict.EXPIRED ? ToolCallState.EXPIRED : ToolCallState.DENIED;
  draft.revise(EventKind.toolCallEnded, (revision) => ({
    case: "toolCall",
    value: { ...call, revision, state, ran: Ran.NO, endTime: draft.facts.now },
  }));
}
