import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import { TakeOver } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { AskKind, AskProvenance, AskSchema, AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { ActorKind } from "../../gen/toolmark/v1/origin_pb.js";
import { ReceiptPath, SpendState, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { ReviewJob } from "../../gen/toolmark/v1/review_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { Ran, ToolCallState, ToolResultKind } from "../../gen/toolmark/v1/tool_call_pb.js";
import { DEFAULT_LIMITS } from "../../src/domain/limits.js";
import { isRefusal } from "../../src/domain/refusal.js";
import {
  allowed,
  amend,
  asked,
  deciders,
  digest,
  endRun,
  hook,
  idIn,
  kindsOf,
  openAction,
  openRelease,
  parked,
  partOf,
  reasonOf,
  resultOf,
  review,
  settleByRule,
  startOf,
  stateOf,
  withdraw,
} from "../support/rule-commands.js";
import { Decider } from "../support/decider.js";

const newDecider = deciders();
const { REQUIRED, OFF } = StartGate;
const { DENY, ALLOW_ONCE, ALLOW_ALWAYS } = Verdict;

/** A call with an open ACTION ask. */
function asking(gate = REQUIRED, changed: Parameters<typeof openAction>[1] = {}) {
  const decider = newDecider(gate);
  const [id = ""] = decider.calls("a");
  return { decider, id, askId: asked(decider, openAction(id, changed)) };
}

describe("an ACTION ask", () => {
  test("presents the effective arguments and makes its call wait", () => {
    const decider = newDecider(REQUIRED);
    const [id = ""] = decider.calls("a");
    decider.given(amend(id, '{"path":"/tmp"}'));
    const events = decider.given(openAction(id, { display: "shown", prompt: "may it?" }));
    expect(kindsOf(events)).toEqual(["ASK_OPENED", "TOOL_CALL_WAITING"]);
    const ask = decider.record("ask", idIn(events, "ask"));
    expect(ask).toMatchObject({
      toolCallId: id,
      runId: decider.runId,
      origin: { sessionId: decider.sessionId },
      kind: AskKind.ACTION,
      provenance: AskProvenance.PERMISSION,
      state: AskState.OPEN,
      toolName: "bash",
      display: "shown",
      prompt: "may it?",
      allowedVerdicts: [DENY, ALLOW_ONCE, ALLOW_ALWAYS],
      presented: { sha256: digest('{"path":"/tmp"}') },
    });
    expect(ask.presented).toEqual(decider.call(id).effective);
    expect(ask).not.toHaveProperty("receiptId");
    expect(ask).not.toHaveProperty("supersededByAskId");
    expect(decider.call(id)).toMatchObject({ state: ToolCallState.AWAITING_ANSWER, ran: Ran.NO });
  });

  test.each([ALLOW_ONCE, ALLOW_ALWAYS])("lets its call go on after allow %s", (verdict) => {
    const { decider, id, askId } = asking();
    const events = decider.answer(askId, verdict);
    expect(kindsOf(events)).toEqual(["RECEIPT_WRITTEN", "ASK_ANSWERED", "TOOL_CALL_READY"]);
    expect(decider.call(id)).toMatchObject({ state: ToolCallState.ACCEPTED, ran: Ran.NO });
    expect(decider.state.openAsks.size).toBe(0);
  });

  test("that is withdrawn lets its call go on, and nothing was allowed", () => {
    const { decider, id, askId } = asking();
    const events = decider.given(withdraw(askId));
    expect(kindsOf(events)).toEqual(["RECEIPT_WRITTEN", "ASK_WITHDRAWN", "TOOL_CALL_READY"]);
    expect(decider.record("receipt", idIn(events, "receipt"))).toMatchObject({
      verdict: Verdict.WITHDRAWN,
      path: ReceiptPath.SYSTEM,
      reason: "no need",
      spendState: SpendState.UNSPECIFIED,
    });
    expect(stateOf(decider, id)).toBe("ACCEPTED");
    decider.given(startOf(decider, id));
  });

  const noes = [
    [
      "DENY",
      ToolCallState.DENIED,
      (decider: Decider, askId: string) => decider.answer(askId, DENY),
    ],
    [
      "an expiry",
      ToolCallState.EXPIRED,
      (decider: Decider, askId: string) => decider.pass(0, [askId]),
    ],
  ] as const;
  describe.each(noes)("after %s", (_, state, refuse) => {
    test.each([REQUIRED, OFF])("has ended its call without a result (gate %s)", (gate) => {
      const { decider, id, askId } = asking(gate);
      expect(kindsOf(refuse(decider, askId)).at(-1)).toBe("TOOL_CALL_ENDED");
      const call = decider.call(id);
      expect(call).toMatchObject({ state, ran: Ran.NO });
      expect(call.result).toBeUndefined();
      expect(call.endTime).toBeDefined();
      expect(decider.state.openCalls.has(id)).toBe(true);
    });

    test.each([REQUIRED, OFF])("takes the text that the model is given (gate %s)", (gate) => {
      const { decider, id, askId } = asking(gate);
      refuse(decider, askId);
      const { endTime } = decider.call(id);
      decider.given(resultOf(id, ToolCallState.UNSPECIFIED, "you may not"));
      const result = { kind: ToolResultKind.CANONICAL, content: { sha256: digest("you may not") } };
      expect(decider.call(id)).toMatchObject({ state, ran: Ran.NO, result, endTime });
      expect(decider.state.openCalls.size).toBe(0);
      const again = decider.when([resultOf(id, ToolCallState.UNSPECIFIED, "again")]);
      expect(reasonOf(again)).toBe(ErrorReason.RESULT_ALREADY_RECORDED);
    });

    test("gets a synthetic text at the run's end, if none came", () => {
      const { decider, id, askId } = asking();
      refuse(decider, askId);
      const { endTime } = decider.call(id);
      decider.given(endRun());
      const result = { kind: ToolResultKind.SYNTHETIC, isError: true };
      expect(decider.call(id)).toMatchObject({ state, ran: Ran.NO, result, endTime });
    });

    test("refuses whatever would carry it on", () => {
      const { decider, id, askId } = asking();
      refuse(decider, askId);
      for (const command of [
        startOf(decider, id),
        amend(id, "{ }"),
        openAction(id),
        openRelease(id),
        partOf(id),
        ...[ToolCallState.WITHHELD, ToolCallState.FAILED, ToolCallState.BLOCKED].map((end) =>
          resultOf(id, end, "x"),
        ),
        endRun(RunOutcome.FAILED, { notRunToolCallIds: [id] }),
      ]) {
        expect(decider.when([command])).toMatchObject({
          reason: ErrorReason.TOOL_CALL_ENDED,
          metadata: { tool_call_id: id, state: ToolCallState[state] },
        });
      }
    });

    test("voids what an earlier ask allowed", () => {
      const { decider, id, askId: first } = asking();
      const receiptId = allowed(decider, first);
      refuse(decider, asked(decider, openAction(id)));
      const { spendState } = decider.record("receipt", receiptId);
      expect(spendState).toBe(SpendState.VOID);
    });
  });
});

describe("what may be asked", () => {
  test("an ACTION ask is about a call that has neither started nor ended", () => {
    const decider = newDecider(REQUIRED);
    const [started = "", ended = ""] = decider.calls("a", "b");
    decider.given(
      startOf(decider, started),
      startOf(decider, ended),
      resultOf(ended, ToolCallState.UNSPECIFIED, "done"),
    );
    const refusals = [started, ended, "tc_none"].map((id) => decider.when([openAction(id)]));
    expect(refusals.map(reasonOf)).toEqual([
      ErrorReason.TOOL_CALL_STARTED,
      ErrorReason.TOOL_CALL_ENDED,
      ErrorReason.TOOL_CALL_NOT_FOUND,
    ]);
  });

  test("a call that waits for an authorization is not asked about", () => {
    const decider = newDecider(REQUIRED);
    const [first = "", behind = ""] = decider.calls("a", "b");
    const authorizationId = parked(decider, first, behind);
    for (const id of [first, behind]) {
      expect(decider.when([openAction(id)])).toMatchObject({
        reason: ErrorReason.START_NOT_ALLOWED,
        metadata: { tool_call_id: id, authorization_id: authorizationId },
      });
    }
  });

  test("a review that led to an ask is about the same call and of a job that leads there", () => {
    const decider = newDecider(OFF);
    const [id = "", other = ""] = decider.calls("a", "b");
    const reviewOf = (toolCallId: string, job: ReviewJob) =>
      idIn(decider.given(review(toolCallId, job)), "hook");
    const action = reviewOf(id, ReviewJob.ACTION);
    const permission = reviewOf(id, ReviewJob.PERMISSION);
    const inbound = reviewOf(id, ReviewJob.INBOUND);
    const hookId = idIn(decider.given(hook(id)), "hook");
    const foreign = reviewOf(other, ReviewJob.ACTION);
    const table = [
      [openAction(id, { reviewId: inbound }), ErrorReason.REFERENCE_MISMATCH],
      [openAction(id, { reviewId: foreign }), ErrorReason.REFERENCE_MISMATCH],
      [openAction(id, { reviewId: hookId }), ErrorReason.REFERENCE_MISMATCH],
      [openAction(id, { reviewId: "rv_none" }), ErrorReason.HOOK_NOT_FOUND],
      [openRelease(id, "held", { reviewId: action }), ErrorReason.REFERENCE_MISMATCH],
      [openRelease(id, "held", { reviewId: permission }), ErrorReason.REFERENCE_MISMATCH],
      [openAction(id, { reviewId: permission }), undefined],
      [openAction(id, { reviewId: action }), undefined],
    ] as const;
    for (const [command, reason] of table) expect(reasonOf(decider.when([command]))).toBe(reason);
    const [ask] = [...decider.state.openAsks.values()];
    expect(ask?.reviewId).toBe(action);
    const inboundOfOther = reviewOf(other, ReviewJob.INBOUND);
    const askId = asked(decider, openRelease(other, "held", { reviewId: inboundOfOther }));
    expect(decider.record("ask", askId).reviewId).toBe(inboundOfOther);
  });

  test.each([0, -1])("an expiry %s ms from now is refused", (lifeMs) => {
    const decider = newDecider(REQUIRED);
    const [id = ""] = decider.calls("a");
    const { nowMs } = decider;
    const ask = openAction(id, { expireTime: timestampFromMs(nowMs + lifeMs) });
    expect(decider.when([ask])).toMatchObject({
      reason: ErrorReason.FIELD_INVALID,
      metadata: { field: "command.expire_time" },
    });
    decider.given(openAction(id, { expireTime: timestampFromMs(nowMs + 1) }));
  });

  test("a session has only so many open asks; one in another's place is none more", () => {
    // Too long a history to be folded from every point.
    const decider = new Decider(REQUIRED);
    const limit = DEFAULT_LIMITS.openAsksPerSession;
    const ids = decider.calls(...Array.from({ length: limit + 1 }, () => ""));
    const [first = "", ...rest] = ids;
    const last = rest.at(-1) ?? "";
    for (const id of ids.slice(0, limit)) decider.given(openAction(id));
    expect(decider.when([openAction(last)])).toMatchObject({
      reason: ErrorReason.QUOTA_EXCEEDED,
      metadata: { limit: String(limit) },
    });
    const again = asked(decider, openAction(first));
    decider.given(withdraw(again), openAction(last));
  });
});

describe("a command that is refused after others of its Apply", () => {
  test("is told no id that only these were given", () => {
    const { decider, askId } = asking();
    const refused = decider.when([withdraw(askId), withdraw(askId)]);
    expect(refused).toMatchObject({ reason: ErrorReason.ASK_NOT_OPEN });
    const metadata = isRefusal(refused) ? refused.metadata : {};
    expect(metadata).toEqual({ ask_id: askId, command: "1" });
  });
});

describe("asks that were replaced", () => {
  test("a newer ask of the same kind supersedes the open one in the same commit", () => {
    const { decider, id, askId: first } = asking();
    const events = decider.given(openAction(id));
    expect(kindsOf(events)).toEqual(["ASK_SUPERSEDED", "ASK_OPENED"]);
    const newer = [...decider.state.openAsks.keys()];
    expect(newer).toHaveLength(1);
    expect(decider.record("ask", first)).toMatchObject({
      state: AskState.SUPERSEDED,
      supersededByAskId: newer[0],
    });
    expect(decider.record("ask", first).receiptId).toBeUndefined();
    expect(stateOf(decider, id)).toBe("AWAITING_ANSWER");
  });

  test("amended arguments supersede an open ask, which is told of the newer one when it opens", () => {
    const { decider, id, askId: first } = asking();
    expect(kindsOf(decider.given(amend(id, "{ }")))).toEqual([
      "ASK_SUPERSEDED",
      "TOOL_CALL_AMENDED",
    ]);
    expect(stateOf(decider, id)).toBe("ACCEPTED");
    expect(decider.record("ask", first).state).toBe(AskState.SUPERSEDED);
    expect(decider.record("ask", first).supersededByAskId).toBeUndefined();
    const newer = asked(decider, openAction(id));
    expect(decider.record("ask", first)).toMatchObject({
      state: AskState.SUPERSEDED,
      supersededByAskId: newer,
    });
    expect(decider.record("ask", newer).presented?.sha256).toEqual(digest("{ }"));
    const third = asked(decider, openAction(id));
    expect(decider.record("ask", first).supersededByAskId).toBe(newer);
    expect(decider.record("ask", newer).supersededByAskId).toBe(third);
  });

  test("equal arguments change nothing", () => {
    const { decider, id, askId } = asking();
    const before = decider.call(id);
    expect(decider.given(amend(id, "{}"))).toEqual([]);
    expect(decider.record("ask", askId).state).toBe(AskState.OPEN);
    expect(decider.call(id)).toEqual(before);
    const receiptId = allowed(decider, askId);
    expect(decider.given(amend(id, "{}"))).toEqual([]);
    expect(decider.record("receipt", receiptId).spendState).toBe(SpendState.UNSPENT);
  });

  test("asks of other calls stay as they are", () => {
    const decider = newDecider(REQUIRED);
    const [first = "", second = "", third = ""] = decider.calls("a", "b", "c");
    const asks = [first, second, third].map((id) => asked(decider, openAction(id)));
    allowed(decider, asks[1] ?? "", ALLOW_ALWAYS);
    expect([...decider.state.openAsks.keys()]).toEqual([asks[0], asks[2]]);
    expect([first, second, third].map((id) => stateOf(decider, id))).toEqual([
      "AWAITING_ANSWER",
      "ACCEPTED",
      "AWAITING_ANSWER",
    ]);
  });
});

describe("time", () => {
  test.each([
    ["by the clock", 1000, false],
    ["because its time is known to be over", 0, true],
  ])("expires an ask %s: by the system, and never as an approval", (_, ms, named) => {
    const decider = newDecider(REQUIRED);
    const [id = ""] = decider.calls("a");
    const expireTime = timestampFromMs(decider.nowMs + 1000);
    const askId = asked(decider, openAction(id, { expireTime }));
    expect(decider.pass(0)).toEqual([]);
    const events = decider.pass(ms, named ? [askId] : []);
    expect(kindsOf(events)).toEqual(["RECEIPT_WRITTEN", "ASK_EXPIRED", "TOOL_CALL_ENDED"]);
    const receiptId = idIn(events, "receipt");
    expect(decider.record("ask", askId)).toMatchObject({ state: AskState.EXPIRED, receiptId });
    expect(decider.record("receipt", receiptId)).toMatchObject({
      verdict: Verdict.EXPIRED,
      path: ReceiptPath.TIMEOUT,
      actor: { subject: "", kind: ActorKind.SYSTEM },
      spendState: SpendState.UNSPECIFIED,
    });
    expect(decider.pass(1000, [askId])).toEqual([]);
  });

  test("leaves asks without an expiry alone, and those whose time has not come", () => {
    const { decider, askId } = asking();
    const [other = ""] = decider.calls("b");
    const expireTime = timestampFromMs(decider.nowMs + 10_000);
    decider.given(openAction(other, { expireTime }));
    expect(decider.pass(9000)).toEqual([]);
    expect(kindsOf(decider.pass(1000))).toHaveLength(3);
    expect(decider.pass(400 * 86_400_000, ["ask_none"])).toEqual([]);
    expect(decider.record("ask", askId).state).toBe(AskState.OPEN);
  });
});

describe("an ask of unknown provenance", () => {
  /** As it comes from an older system. */
  function legacy() {
    const decider = newDecider(REQUIRED);
    const [id = ""] = decider.calls("a");
    const { effective } = decider.call(id);
    decider.happened("ASK_OPENED", (revision) => ({
      case: "ask",
      value: create(AskSchema, {
        askId: "old ask",
        origin: { sessionId: decider.sessionId },
        runId: decider.runId,
        revision,
        toolCallId: id,
        kind: AskKind.ACTION,
        ...(effective === undefined ? {} : { presented: effective }),
        allowedVerdicts: [DENY, ALLOW_ONCE, ALLOW_ALWAYS],
        state: AskState.OPEN,
      }),
    }));
    decider.happened("TOOL_CALL_WAITING", (revision) => ({
      case: "toolCall",
      value: { ...decider.call(id), revision, state: ToolCallState.AWAITING_ANSWER },
    }));
    return { decider, id };
  }

  test.each([ALLOW_ONCE, ALLOW_ALWAYS])("is never answered with allow %s", (verdict) => {
    const { decider } = legacy();
    const answers = [
      decider.answer("old ask", verdict),
      decider.when([settleByRule("old ask", verdict)]),
    ];
    for (const answer of answers) {
      expect(answer).toMatchObject({
        reason: ErrorReason.VERDICT_NOT_ALLOWED,
        metadata: { ask_id: "old ask", verdict: Verdict[verdict] },
      });
    }
    expect(decider.record("ask", "old ask").state).toBe(AskState.OPEN);
  });

  test("can be denied", () => {
    const { decider, id } = legacy();
    expect(isRefusal(decider.answer("old ask", DENY))).toBe(false);
    expect(stateOf(decider, id)).toBe("DENIED");
  });

  test("can be withdrawn", () => {
    const { decider, id } = legacy();
    decider.given(withdraw("old ask"));
    expect(decider.record("ask", "old ask").state).toBe(AskState.WITHDRAWN);
    expect(stateOf(decider, id)).toBe("ACCEPTED");
  });

  test("does not expire, and its run's end withdraws it", () => {
    const { decider, id } = legacy();
    expect(decider.pass(400 * 86_400_000)).toEqual([]);
    decider.given(endRun());
    expect(decider.record("ask", "old ask").state).toBe(AskState.WITHDRAWN);
    expect(stateOf(decider, id)).toBe("CANCELLED");
  });
});

describe("a result while a call waits for an answer", () => {
  test.each([REQUIRED, OFF])("is refused (gate %s)", (gate) => {
    const { decider, id } = asking(gate);
    const ends = [
      ToolCallState.UNSPECIFIED,
      ToolCallState.FAILED,
      ToolCallState.WITHHELD,
      ToolCallState.TIMED_OUT,
    ];
    const results = [partOf(id), ...ends.map((end) => resultOf(id, end, "x"))];
    for (const command of results) {
      expect(reasonOf(decider.when([command]))).toBe(ErrorReason.START_NOT_ALLOWED);
    }
    expect(stateOf(decider, id)).toBe("AWAITING_ANSWER");
  });

  test("is refused without a gate too once its arguments changed, until a new ask allows it", () => {
    const { decider, id } = asking(OFF);
    decider.given(amend(id, "{ }"));
    const result = resultOf(id, ToolCallState.UNSPECIFIED, "x");
    expect(reasonOf(decider.when([result]))).toBe(ErrorReason.START_NOT_ALLOWED);
    allowed(decider, asked(decider, openAction(id)));
    decider.given(result);
  });
});

describe("asks at the end of what asked them", () => {
  /** An ACTION ask and a release ask, both open. */
  function both(gate: StartGate) {
    const decider = newDecider(gate);
    const [held = "", waiting = ""] = decider.calls("a", "b");
    if (gate === REQUIRED) decider.given(startOf(decider, held));
    const asks = [asked(decider, openRelease(held)), asked(decider, openAction(waiting))];
    return { decider, held, waiting, asks };
  }

  function expectWithdrawn(decider: Decider, asks: readonly string[]) {
    expect(decider.state.openAsks.size).toBe(0);
    for (const askId of asks) {
      const { state, receiptId } = decider.record("ask", askId);
      expect(state).toBe(AskState.WITHDRAWN);
      expect(decider.record("receipt", receiptId ?? "")).toMatchObject({
        verdict: Verdict.WITHDRAWN,
        path: ReceiptPath.SYSTEM,
        spendState: SpendState.UNSPECIFIED,
      });
    }
  }

  test.each([
    [REQUIRED, ToolCallState.CANCELLED, Ran.NO],
    [OFF, ToolCallState.OUTCOME_UNKNOWN, Ran.UNKNOWN],
  ])("a run's end withdraws each with a receipt (gate %s)", (gate, state, ran) => {
    const { decider, held, waiting, asks } = both(gate);
    decider.given(endRun());
    expectWithdrawn(decider, asks);
    expect(decider.call(held)).toMatchObject({ state: ToolCallState.WITHHELD, ran: Ran.YES });
    expect(decider.call(waiting)).toMatchObject({ state, ran });
  });

  test("a run that takes over and ends the one before it withdraws each", () => {
    const { decider, held, waiting, asks } = both(REQUIRED);
    decider.begin(REQUIRED, TakeOver.END);
    expectWithdrawn(decider, asks);
    expect([held, waiting].map((id) => stateOf(decider, id))).toEqual(["WITHHELD", "CANCELLED"]);
  });

  test("a run that resumes the one before it leaves each open", () => {
    const { decider, waiting, asks } = both(REQUIRED);
    const { runId } = decider;
    decider.begin(REQUIRED, TakeOver.RESUME);
    expect([...decider.state.openAsks.keys()]).toEqual(asks);
    expect(decider.record("ask", asks[0] ?? "").runId).toBe(runId);
    allowed(decider, asks[1] ?? "");
    decider.given(startOf(decider, waiting));
  });

  test("a parked run leaves each open, to be answered while no run is active", () => {
    const { decider, waiting, asks } = both(REQUIRED);
    decider.given(endRun(RunOutcome.PARKED));
    expect([...decider.state.openAsks.keys()]).toEqual(asks);
    allowed(decider, asks[1] ?? "");
    expect(reasonOf(decider.when([withdraw(asks[0] ?? "")]))).toBe(ErrorReason.RUN_NOT_ACTIVE);
    decider.begin(REQUIRED);
    decider.given(startOf(decider, waiting), withdraw(asks[0] ?? ""));
  });

  test.each([true, false])("the session's end withdraws each (run active: %s)", (isActive) => {
    const { decider, held, waiting, asks } = both(REQUIRED);
    if (!isActive) decider.given(endRun(RunOutcome.PARKED));
    decider.end();
    expectWithdrawn(decider, asks);
    expect([held, waiting].map((id) => stateOf(decider, id))).toEqual(["WITHHELD", "CANCELLED"]);
  });
});
