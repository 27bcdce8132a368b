import type { MessageInitShape } from "@bufbuild/protobuf";
import { afterEach, expect } from "vitest";
import type { OpenAskCommandSchema } from "../../gen/toolmark/engine/v1/command_pb.js";
import { AskKind, AskProvenance } from "../../gen/toolmark/v1/ask_pb.js";
import type { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import type { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { ReceiptPath, SpendState, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import {
  ReviewAssessment,
  ReviewDisposition,
  ReviewInspection,
  ReviewJob,
} from "../../gen/toolmark/v1/review_pb.js";
import { RunOutcome, type StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { evolve } from "../../src/domain/evolve.js";
import { isRefusal } from "../../src/domain/refusal.js";
import { sha256 } from "../../src/domain/sha256.js";
import type { DraftEvent } from "../../src/domain/session-state.js";
import { Decider, type CommandInit } from "./decider.js";
import { checkFold } from "./fold-checks.js";

type Decided = ReturnType<Decider["when"]>;

/**
 * Makes deciders. After each test the history of each is folded again: all at once, and from a snapshot at every point.
 */
export function deciders(): (gate?: StartGate) => Decider {
  const made: Decider[] = [];
  afterEach(() => {
    for (const { history, state } of made.splice(0)) {
      expect(evolve(undefined, history)).toEqual(state);
      checkFold(history);
    }
  });
  return (gate) => {
    const decider = new Decider(gate);
    made.push(decider);
    return decider;
  };
}

export const bytes = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);
export const data = (text: string) => ({ data: bytes(text) });
export const digest = (text: string): Uint8Array => sha256(bytes(text));

export function reasonOf(decided: Decided): ErrorReason | undefined {
  return isRefusal(decided) ? decided.reason : undefined;
}

export function kindsOf(decided: Decided): string[] {
  if (isRefusal(decided)) throw new Error(decided.message);
  return decided.map(({ kind }) => kind);
}

export function startOf(decider: Decider, toolCallId: string): CommandInit {
  const argumentsSha256 = decider.call(toolCallId).effective?.sha256 ?? new Uint8Array(32);
  return { case: "startToolCall", value: { toolCallId, argumentsSha256 } };
}

/** A canonical result. Without text it has no content. */
export function resultOf(
  toolCallId: string,
  end = ToolCallState.UNSPECIFIED,
  text?: string,
): CommandInit {
  const content = text === undefined ? {} : { content: data(text) };
  const result = { case: "canonical" as const, value: { end, ...content } };
  return { case: "recordResult", value: { toolCallId, result } };
}

export function partOf(toolCallId: string): CommandInit {
  const result = { case: "provisional" as const, value: { chunk: bytes("part") } };
  return { case: "recordResult", value: { toolCallId, result } };
}

export function blockedBy(toolCallId: string, blockedByHookId: string): CommandInit {
  const value = { end: ToolCallState.BLOCKED, blockedByHookId };
  const result = { case: "canonical" as const, value };
  return { case: "recordResult", value: { toolCallId, result } };
}

export function amend(toolCallId: string, text: string): CommandInit {
  return { case: "amendToolCall", value: { toolCallId, effective: data(text) } };
}

export function endRun(outcome = RunOutcome.FAILED, lists: object = {}): CommandInit {
  return { case: "endRun", value: { outcome, ...lists } };
}

type AskInit = Partial<
  Exclude<MessageInitShape<typeof OpenAskCommandSchema>, { $typeName: string }>
>;

export function openAction(toolCallId: string, changed: AskInit = {}): CommandInit {
  const provenance = AskProvenance.PERMISSION;
  return {
    case: "openAsk",
    value: { toolCallId, kind: AskKind.ACTION, provenance, ...changed },
  };
}

/** Asks to release this text. */
export function openRelease(toolCallId: string, text = "held", changed: AskInit = {}): CommandInit {
  const held = { heldSha256: digest(text), heldSizeBytes: BigInt(bytes(text).length) };
  const provenance = AskProvenance.HOOK_GUARDRAIL;
  return {
    case: "openAsk",
    value: { toolCallId, kind: AskKind.RESULT_RELEASE, provenance, ...held, ...changed },
  };
}

export function withdraw(askId: string): CommandInit {
  return { case: "withdrawAsk", value: { askId, reason: "no need" } };
}

export function settleByRule(askId: string, verdict = Verdict.ALLOW_ONCE): CommandInit {
  const by = { path: ReceiptPath.RULE, rule: "allow ls", reason: "listed" };
  return { case: "settleAsk", value: { askId, verdict, ...by } };
}

export function settleByHook(
  askId: string,
  hookId: string,
  verdict = Verdict.ALLOW_ONCE,
): CommandInit {
  return { case: "settleAsk", value: { askId, verdict, path: ReceiptPath.HOOK, hookId } };
}

export function park(toolCallId: string, ...deferredToolCallIds: string[]): CommandInit {
  return {
    case: "parkToolCall",
    value: { toolCallId, displayName: "Calendar", deferredToolCallIds },
  };
}

export function settle(authorizationId: string, outcome: AuthorizationState): CommandInit {
  return { case: "settleAuthorization", value: { authorizationId, outcome } };
}

export function reconcile(toolCallId: string, end: ToolCallState): CommandInit {
  return { case: "reconcileToolCall", value: { toolCallId, end } };
}

export function hook(toolCallId: string, decision = HookDecision.BLOCKED): CommandInit {
  return { case: "publishHook", value: { toolCallId, phase: "pre_tool_use", decision } };
}

export function review(
  toolCallId: string,
  job = ReviewJob.ACTION,
  changed: object = {},
): CommandInit {
  return {
    case: "publishReview",
    value: {
      toolCallId,
      phase: "review",
      text: "looked at",
      review: {
        job,
        assessment: ReviewAssessment.UNRESOLVED,
        inspection: ReviewInspection.COMPLETE,
        disposition: ReviewDisposition.ASK_ACTION,
        checker: "guard",
        ...changed,
      },
    },
  };
}

/** The id of the only record of these events with such an id. */
export function idIn(events: readonly DraftEvent[], kind: IdKind): string {
  const ids = events.flatMap(({ record: { record } }) => {
    switch (record.case) {
      case "ask":
        return kind === "ask" ? [record.value.askId] : [];
      case "receipt":
        return kind === "receipt" ? [record.value.receiptId] : [];
      case "authorization":
        return kind === "authorization" ? [record.value.authorizationId] : [];
      case "hook":
        return kind === "hook" ? [record.value.hookId] : [];
      default:
        return [];
    }
  });
  const [id] = new Set(ids);
  if (id === undefined || new Set(ids).size > 1) throw new Error(`${ids.length} ids of ${kind}`);
  return id;
}

type IdKind = "ask" | "receipt" | "authorization" | "hook";

/** Opens an ask; gives its id. An older one that it replaces is in the events too. */
export function asked(decider: Decider, command: CommandInit): string {
  const events = decider.given(command).filter(({ kind }) => kind === "ASK_OPENED");
  return idIn(events, "ask");
}

/** Allows an ask; gives the receipt's id. */
export function allowed(decider: Decider, askId: string, verdict = Verdict.ALLOW_ONCE): string {
  const events = decider.answer(askId, verdict);
  if (isRefusal(events)) throw new Error(events.message);
  return idIn(events, "receipt");
}

/** Parks a call; gives the authorization's id. */
export function parked(decider: Decider, toolCallId: string, ...deferred: string[]): string {
  return idIn(decider.given(park(toolCallId, ...deferred)), "authorization");
}

export function spendOf(decider: Decider, receiptId: string): string {
  return SpendState[decider.record("receipt", receiptId).spendState];
}

export function stateOf(decider: Decider, toolCallId: string): string {
  return ToolCallState[decider.call(toolCallId).state];
}
