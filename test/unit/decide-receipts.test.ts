import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { ActorKind } from "../../gen/toolmark/v1/origin_pb.js";
import { ReceiptPath, SpendState, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { ReviewJob } from "../../gen/toolmark/v1/review_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { Ran, ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { DEFAULT_LIMITS } from "../../src/domain/limits.js";
import { isRefusal } from "../../src/domain/refusal.js";
import type { Decider } from "../support/decider.js";
import { TENANT_CALLER } from "../support/outside-world.js";
import {
  allowed,
  amend,
  asked,
  blockedBy,
  deciders,
  digest,
  endRun,
  hook,
  idIn,
  kindsOf,
  openAction,
  parked,
  reasonOf,
  resultOf,
  review,
  settleByHook,
  settleByRule,
  spendOf,
  startOf,
  stateOf,
  withdraw,
} from "../support/rule-commands.js";

const newDecider = deciders();
const { REQUIRED, OFF } = StartGate;
const { DENY, ALLOW_ONCE, ALLOW_ALWAYS } = Verdict;

/** A call with an open ACTION ask that names a review, and another call with one. */
function asking(gate = REQUIRED) {
  const decider = newDecider(gate);
  const [id = "", other = ""] = decider.calls("a", "b");
  const reviewId = idIn(decider.given(review(id, ReviewJob.PERMISSION)), "hook");
  const askId = asked(decider, openAction(id, { reviewId, allowedVerdicts: [DENY, ALLOW_ONCE] }));
  const otherAsk = asked(decider, openAction(other));
  return { decider, id, other, reviewId, askId, otherAsk };
}

/** A call that was allowed. */
function allowing(gate = REQUIRED) {
  const decider = newDecider(gate);
  const [id = ""] = decider.calls("a");
  const askId = asked(decider, openAction(id));
  return { decider, id, askId, receiptId: allowed(decider, askId) };
}

describe("an answer", () => {
  test("makes one receipt of what was asked, by whom, and of what was shown", () => {
    const { decider, id, reviewId, askId } = asking();
    const events = decider.answer(askId, ALLOW_ONCE, { reason: "looks fine" });
    if (isRefusal(events)) throw new Error(events.message);
    const receiptId = idIn(events, "receipt");
    expect(decider.record("ask", askId)).toMatchObject({ state: AskState.ANSWERED, receiptId });
    const receipt = decider.record("receipt", receiptId);
    expect(receipt).toMatchObject({
      askId,
      toolCallId: id,
      reviewId,
      origin: { sessionId: decider.sessionId },
      verdict: ALLOW_ONCE,
      path: ReceiptPath.HUMAN,
      actor: { subject: TENANT_CALLER.subject, kind: ActorKind.PRINCIPAL },
      reason: "looks fine",
      toolName: "bash",
      presentedSha256: digest("{}"),
      spendState: SpendState.UNSPENT,
    });
    expect(receipt).not.toHaveProperty("rule");
    expect(receipt).not.toHaveProperty("hookId");
  });

  type Changed = Parameters<Decider["answer"]>[2];
  const wrong: readonly [
    string,
    (asked: ReturnType<typeof asking>) => Changed,
    ErrorReason,
    object,
  ][] = [
    [
      "the call of another ask",
      ({ other }) => ({ toolCallId: other }),
      ErrorReason.ANSWER_MISMATCH,
      { field: "tool_call_id" },
    ],
    [
      "another review",
      () => ({ reviewId: "rv_other" }),
      ErrorReason.ANSWER_MISMATCH,
      { field: "review_id" },
    ],
    [
      "another digest",
      () => ({ presentedSha256: digest("other") }),
      ErrorReason.ANSWER_MISMATCH,
      { field: "presented_sha256" },
    ],
    [
      "the token of another ask",
      ({ otherAsk }) => ({ answerToken: `token of ${otherAsk}` }),
      ErrorReason.ANSWER_TOKEN_INVALID,
      {},
    ],
    ["no token", () => ({ answerToken: "" }), ErrorReason.ANSWER_TOKEN_INVALID, {}],
    [
      "another ask",
      ({ otherAsk }) => ({ askId: otherAsk }),
      ErrorReason.ANSWER_MISMATCH,
      { field: "tool_call_id" },
    ],
    ["no ask of the session", () => ({ askId: "ask_none" }), ErrorReason.ASK_NOT_FOUND, {}],
    [
      "a verdict that the ask does not allow",
      () => ({ verdict: ALLOW_ALWAYS }),
      ErrorReason.VERDICT_NOT_ALLOWED,
      { verdict: "ALLOW_ALWAYS" },
    ],
  ];
  test.each(wrong)(
    "that names %s is refused and changes nothing",
    (_, change, reason, metadata) => {
      const setting = asking();
      const { decider, askId, otherAsk } = setting;
      const before = decider.history.length;
      const refusal = decider.answer(askId, ALLOW_ONCE, change(setting));
      expect(refusal).toMatchObject({ reason, metadata });
      expect(decider.history).toHaveLength(before);
      expect([...decider.state.openAsks.keys()]).toEqual([askId, otherAsk]);
      expect(isRefusal(decider.answer(askId, ALLOW_ONCE))).toBe(false);
    },
  );

  test("names a review exactly if the ask does", () => {
    const { decider, id, reviewId, askId, otherAsk } = asking();
    const named = decider.answer(otherAsk, DENY, { reviewId });
    expect(named).toMatchObject({ metadata: { field: "review_id" } });
    const answerToken = `token of ${askId}`;
    const bare = decider.send({ askId, answerToken, toolCallId: id, verdict: DENY });
    expect(bare).toMatchObject({ metadata: { field: "review_id" } });
  });

  test("may name the digest of what was shown", () => {
    const { decider, askId } = asking();
    const answer = decider.answer(askId, DENY, { presentedSha256: digest("{}") });
    expect(isRefusal(answer)).toBe(false);
  });
});

describe("a late answer is told how the ask was settled, and changes nothing", () => {
  type Settle = (setting: ReturnType<typeof asking>) => unknown;
  const settled: readonly [string, Settle, ErrorReason][] = [
    ["denied", ({ decider, askId }) => decider.answer(askId, DENY), ErrorReason.ASK_NOT_OPEN],
    [
      "allowed",
      ({ decider, askId }) => decider.answer(askId, ALLOW_ONCE),
      ErrorReason.ASK_NOT_OPEN,
    ],
    [
      "settled by a rule",
      ({ decider, askId }) => decider.given(settleByRule(askId)),
      ErrorReason.ASK_NOT_OPEN,
    ],
    ["withdrawn", ({ decider, askId }) => decider.given(withdraw(askId)), ErrorReason.ASK_NOT_OPEN],
    ["closed with its run", ({ decider }) => decider.given(endRun()), ErrorReason.ASK_NOT_OPEN],
    ["closed with its session", ({ decider }) => decider.end(), ErrorReason.ASK_NOT_OPEN],
    ["expired", ({ decider, askId }) => decider.pass(0, [askId]), ErrorReason.ASK_EXPIRED],
  ];
  test.each(settled)("%s: with the receipt that won", (_, settle, reason) => {
    const setting = asking();
    const { decider, askId } = setting;
    settle(setting);
    const { receiptId } = decider.record("ask", askId);
    const before = decider.history.length;
    for (const verdict of [DENY, ALLOW_ONCE, ALLOW_ALWAYS]) {
      expect(decider.answer(askId, verdict)).toMatchObject({
        reason,
        metadata: { ask_id: askId, receipt_id: receiptId },
      });
    }
    expect(decider.history).toHaveLength(before);
  });

  test("replaced by a newer ask: with the newer one", () => {
    const { decider, id, askId } = asking();
    const newer = asked(decider, openAction(id));
    const late = decider.answer(askId, ALLOW_ONCE);
    expect(late).toMatchObject({ reason: ErrorReason.ASK_SUPERSEDED });
    expect(isRefusal(late) && late.metadata).toEqual({
      ask_id: askId,
      superseded_by_ask_id: newer,
    });
    expect(decider.record("ask", newer).state).toBe(AskState.OPEN);
  });

  test("replaced by amended arguments: with the newer ask once there is one", () => {
    const { decider, id, askId } = asking();
    decider.given(amend(id, "{ }"));
    const late = decider.answer(askId, ALLOW_ONCE);
    expect(late).toMatchObject({ reason: ErrorReason.ASK_SUPERSEDED });
    expect(isRefusal(late) && late.metadata).toEqual({ ask_id: askId });
    const newer = asked(decider, openAction(id));
    expect(decider.answer(askId, ALLOW_ONCE)).toMatchObject({
      metadata: { superseded_by_ask_id: newer },
    });
    expect(stateOf(decider, id)).toBe("AWAITING_ANSWER");
  });

  test("the harness is told the same", () => {
    const { decider, id, askId } = asking();
    decider.answer(askId, ALLOW_ONCE);
    const { receiptId } = decider.record("ask", askId);
    for (const command of [withdraw(askId), settleByRule(askId, DENY)]) {
      expect(decider.when([command])).toMatchObject({
        reason: ErrorReason.ASK_NOT_OPEN,
        metadata: { ask_id: askId, receipt_id: receiptId },
      });
    }
    expect(stateOf(decider, id)).toBe("ACCEPTED");
    expect(reasonOf(decider.when([withdraw("ask_none")]))).toBe(ErrorReason.ASK_NOT_FOUND);
  });
});

describe("the answer of a machine", () => {
  test("by a rule names the rule", () => {
    const { decider, id, askId } = asking();
    const receiptId = idIn(decider.given(settleByRule(askId)), "receipt");
    const receipt = decider.record("receipt", receiptId);
    expect(receipt).toMatchObject({
      verdict: ALLOW_ONCE,
      path: ReceiptPath.RULE,
      rule: "allow ls",
      reason: "listed",
      spendState: SpendState.UNSPENT,
    });
    expect(receipt).not.toHaveProperty("hookId");
    decider.given(startOf(decider, id));
    expect(spendOf(decider, receiptId)).toBe("SPENT");
  });

  test("by a hook names the hook", () => {
    const { decider, id, askId } = asking();
    const hookId = idIn(decider.given(hook(id)), "hook");
    const receiptId = idIn(decider.given(settleByHook(askId, hookId, DENY)), "receipt");
    const receipt = decider.record("receipt", receiptId);
    expect(receipt).toMatchObject({ verdict: DENY, path: ReceiptPath.HOOK, hookId });
    expect(receipt).not.toHaveProperty("rule");
    expect(stateOf(decider, id)).toBe("DENIED");
  });

  test("is that of a hook of this very call", () => {
    const { decider, other, askId } = asking();
    const hookId = idIn(decider.given(hook(other)), "hook");
    expect(decider.when([settleByHook(askId, hookId)])).toMatchObject({
      reason: ErrorReason.REFERENCE_MISMATCH,
      metadata: { field: "command.hook_id" },
    });
    const unknown = decider.when([settleByHook(askId, "hk_none")]);
    expect(reasonOf(unknown)).toBe(ErrorReason.HOOK_NOT_FOUND);
    expect(decider.record("ask", askId).state).toBe(AskState.OPEN);
  });

  test.each([ALLOW_ALWAYS, Verdict.EXPIRED, Verdict.WITHDRAWN])(
    "is one that the ask allows, so not %s",
    (verdict) => {
      const { decider, askId } = asking();
      expect(decider.when([settleByRule(askId, verdict)])).toMatchObject({
        reason: ErrorReason.VERDICT_NOT_ALLOWED,
        metadata: { ask_id: askId, verdict: Verdict[verdict] },
      });
    },
  );
});

describe("an allow to start", () => {
  test("is spent by the start, once", () => {
    const { decider, id, receiptId } = allowing();
    const events = decider.given(startOf(decider, id));
    expect(kindsOf(events)).toEqual(["RECEIPT_SPENT", "TOOL_CALL_STARTED"]);
    expect(spendOf(decider, receiptId)).toBe("SPENT");
    const call = decider.call(id);
    expect(call).toMatchObject({ state: ToolCallState.STARTED, ran: Ran.YES });
    expect(call.startTime).toBeDefined();
    const again = decider.when([startOf(decider, id)]);
    expect(reasonOf(again)).toBe(ErrorReason.TOOL_CALL_STARTED);
    decider.given(resultOf(id, ToolCallState.UNSPECIFIED, "done"));
    const receipts = decider.history.filter(({ kind }) => kind === "RECEIPT_SPENT");
    expect(receipts).toHaveLength(1);
  });

  test("is spent together with every other", () => {
    const { decider, id, receiptId: first } = allowing();
    const second = allowed(decider, asked(decider, openAction(id)), ALLOW_ALWAYS);
    const third = asked(decider, openAction(id));
    decider.given(withdraw(third), startOf(decider, id));
    expect([first, second].map((receipt) => spendOf(decider, receipt))).toEqual(["SPENT", "SPENT"]);
  });

  test("does not outlive a crash of what started", () => {
    const { decider, id, receiptId } = allowing();
    decider.given(startOf(decider, id), endRun());
    expect(decider.call(id).state).toBe(ToolCallState.OUTCOME_UNKNOWN);
    decider.begin(REQUIRED);
    expect(reasonOf(decider.when([startOf(decider, id)]))).toBe(ErrorReason.TOOL_CALL_ENDED);
    expect(spendOf(decider, receiptId)).toBe("SPENT");
  });

  test("is void once the arguments change, and a start needs a new one", () => {
    const { decider, id, receiptId } = allowing();
    expect(kindsOf(decider.given(amend(id, "{ }")))).toEqual([
      "RECEIPT_VOIDED",
      "TOOL_CALL_AMENDED",
    ]);
    expect(spendOf(decider, receiptId)).toBe("VOID");
    expect(reasonOf(decider.when([startOf(decider, id)]))).toBe(ErrorReason.START_NOT_ALLOWED);
    decider.given(amend(id, "{}"));
    expect(reasonOf(decider.when([startOf(decider, id)]))).toBe(ErrorReason.START_NOT_ALLOWED);
    const newer = allowed(decider, asked(decider, openAction(id)));
    decider.given(startOf(decider, id));
    expect([receiptId, newer].map((each) => spendOf(decider, each))).toEqual(["VOID", "SPENT"]);
  });

  test("holds through parking and a resumed run", () => {
    const { decider, id, receiptId } = allowing();
    decider.given(endRun(RunOutcome.PARKED));
    decider.begin(REQUIRED);
    expect(spendOf(decider, receiptId)).toBe("UNSPENT");
    decider.given(startOf(decider, id));
    expect(spendOf(decider, receiptId)).toBe("SPENT");
  });

  test.each([
    ["a run's end", (decider: Decider) => decider.given(endRun())],
    [
      "a block",
      (decider: Decider, id: string) =>
        decider.given(blockedBy(id, idIn(decider.given(hook(id)), "hook"))),
    ],
  ])("is void after %s", (_, end) => {
    const { decider, id, receiptId } = allowing();
    end(decider, id);
    expect(spendOf(decider, receiptId)).toBe("VOID");
  });

  test.each([
    ["COMPLETED", ToolCallState.UNSPECIFIED, "SPENT"],
    ["WITHHELD", ToolCallState.WITHHELD, "SPENT"],
    ["FAILED", ToolCallState.FAILED, "VOID"],
    ["TIMED_OUT", ToolCallState.TIMED_OUT, "VOID"],
  ])("without a gate is settled by the result: %s", (state, end, spend) => {
    const { decider, id, receiptId } = allowing(OFF);
    decider.given(resultOf(id, end, "x"));
    expect(stateOf(decider, id)).toBe(state);
    expect(spendOf(decider, receiptId)).toBe(spend);
  });

  test("without a gate is spent by a call that was cut off while it ran", () => {
    const { decider, id, receiptId } = allowing(OFF);
    decider.given(endRun(RunOutcome.FAILED, { interruptedToolCallIds: [id] }));
    expect(stateOf(decider, id)).toBe("INTERRUPTED");
    expect(spendOf(decider, receiptId)).toBe("SPENT");
  });

  test("counts with the open asks against a limit of the session until it is used", () => {
    const { decider, id } = allowing();
    decider.limits = { ...DEFAULT_LIMITS, openCallsPerSession: 3 };
    allowed(decider, asked(decider, openAction(id)));
    const askId = asked(decider, openAction(id));
    expect(decider.when([openAction(id)])).toMatchObject({
      reason: ErrorReason.QUOTA_EXCEEDED,
      metadata: { limit: "3" },
    });
    allowed(decider, askId);
    expect(reasonOf(decider.when([openAction(id)]))).toBe(ErrorReason.QUOTA_EXCEEDED);
    decider.given(startOf(decider, id));
    decider.limits = { ...DEFAULT_LIMITS, openCallsPerSession: 4 };
    const [other = ""] = decider.calls("other");
    decider.given(openAction(other));
  });
});

test("a hook that blocks a call cannot allow it", () => {
  const { decider, id, askId } = asking();
  const blocking = idIn(decider.given(hook(id)), "hook");
  expect(reasonOf(decider.when([settleByHook(askId, blocking)]))).toBe(
    ErrorReason.REFERENCE_MISMATCH,
  );
  decider.given(settleByHook(askId, blocking, Verdict.DENY));
});

describe("a start is refused", () => {
  test("while the call waits for an answer, with the ask", () => {
    const { decider, id, askId } = asking();
    expect(decider.when([startOf(decider, id)])).toMatchObject({
      reason: ErrorReason.START_NOT_ALLOWED,
      metadata: { tool_call_id: id, ask_id: askId },
    });
  });

  test("while the call waits for an authorization, with the authorization", () => {
    const { decider, id } = allowing();
    const authorizationId = parked(decider, id);
    expect(decider.when([startOf(decider, id)])).toMatchObject({
      reason: ErrorReason.START_NOT_ALLOWED,
      metadata: { tool_call_id: id, authorization_id: authorizationId },
    });
  });

  test("with a digest other than that of the effective arguments, and spends nothing", () => {
    const { decider, id, receiptId } = allowing();
    const value = { toolCallId: id, argumentsSha256: digest("other") };
    const refusal = decider.when([{ case: "startToolCall", value }]);
    expect(refusal).toMatchObject({
      reason: ErrorReason.ARGUMENTS_MISMATCH,
      metadata: { tool_call_id: id },
    });
    expect(spendOf(decider, receiptId)).toBe("UNSPENT");
  });

  test("after arguments changed under an open ask, until a new ask allows it", () => {
    const { decider, id } = asking();
    decider.given(amend(id, "{ }"));
    const start = startOf(decider, id);
    const refusals = [decider.when([start])];
    const newer = asked(decider, openAction(id));
    decider.given(withdraw(newer));
    refusals.push(decider.when([start]));
    const third = asked(decider, openAction(id));
    decider.given(amend(id, "{  }"));
    refusals.push(decider.when([startOf(decider, id)]));
    expect(refusals.map(reasonOf)).toEqual(
      Array.from({ length: 3 }, () => ErrorReason.START_NOT_ALLOWED),
    );
    expect(decider.record("ask", third).state).toBe(AskState.SUPERSEDED);
    allowed(decider, asked(decider, openAction(id)));
    decider.given(startOf(decider, id));
  });

  test("not after arguments changed before or after the only ask, which was withdrawn", () => {
    const decider = newDecider(REQUIRED);
    const [id = ""] = decider.calls("a");
    decider.given(amend(id, "{ }"));
    const askId = asked(decider, openAction(id));
    decider.given(withdraw(askId), amend(id, "{  }"));
    decider.given(startOf(decider, id));
  });
});

test("a blocked call's open ask is withdrawn, and its allows are void", () => {
  const { decider, id, receiptId } = allowing();
  const askId = asked(decider, openAction(id));
  const hookId = idIn(decider.given(hook(id)), "hook");
  const events = decider.given(blockedBy(id, hookId));
  expect(kindsOf(events)).toEqual([
    "RECEIPT_WRITTEN",
    "ASK_WITHDRAWN",
    "RECEIPT_VOIDED",
    "RESULT_RECORDED",
  ]);
  expect(decider.record("ask", askId).state).toBe(AskState.WITHDRAWN);
  expect(spendOf(decider, receiptId)).toBe("VOID");
  expect(decider.call(id)).toMatchObject({ state: ToolCallState.BLOCKED, ran: Ran.NO });
});

describe("several asks", () => {
  test("of one turn are answered each for its own call", () => {
    const decider = newDecider(REQUIRED);
    const ids = decider.calls("a", "b", "c");
    const asks = ids.map((id) => asked(decider, openAction(id)));
    const receipts = [1, 0, 2].map((place) => {
      const askId = asks[place] ?? "";
      const events = decider.answer(askId, place === 2 ? DENY : ALLOW_ONCE);
      return decider.record("receipt", idIn(isRefusal(events) ? [] : events, "receipt"));
    });
    expect(receipts.map(({ toolCallId }) => toolCallId)).toEqual([ids[1], ids[0], ids[2]]);
    expect(ids.map((id) => stateOf(decider, id))).toEqual(["ACCEPTED", "ACCEPTED", "DENIED"]);
  });

  test("due at the same time expire each with a receipt of its own", () => {
    const decider = newDecider(REQUIRED);
    const expireTime = timestampFromMs(decider.nowMs + 1000);
    const asks = decider
      .calls("a", "b")
      .map((id) => asked(decider, openAction(id, { expireTime })));
    const events = decider.pass(1000);
    expect(kindsOf(events).filter((kind) => kind === "RECEIPT_WRITTEN")).toHaveLength(2);
    const receipts = asks.map((askId) => decider.record("ask", askId).receiptId);
    expect(new Set(receipts).size).toBe(2);
  });
});
