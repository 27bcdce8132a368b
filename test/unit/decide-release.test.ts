import { describe, expect, test } from "vitest";
import { TakeOver } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { Ran, ToolCallState, ToolResultKind } from "../../gen/toolmark/v1/tool_call_pb.js";
import type { CommandInit, Decider } from "../support/decider.js";
import {
  allowed,
  amend,
  asked,
  blockedBy,
  bytes,
  data,
  deciders,
  digest,
  endRun,
  hook,
  idIn,
  kindsOf,
  openAction,
  openRelease,
  park,
  partOf,
  reasonOf,
  reconcile,
  resultOf,
  spendOf,
  startOf,
  stateOf,
  withdraw,
} from "../support/rule-commands.js";

const newDecider = deciders();
const { REQUIRED, OFF } = StartGate;
const { UNSPECIFIED, FAILED, TIMED_OUT, WITHHELD, BLOCKED } = ToolCallState;

/** A call with an open release ask. Only under a gate its start is recorded. */
function holding(gate = REQUIRED) {
  const decider = newDecider(gate);
  const [id = ""] = decider.calls("a");
  if (gate === REQUIRED) decider.given(startOf(decider, id));
  return { decider, id, askId: asked(decider, openRelease(id)) };
}

function everyResult(id: string): CommandInit[] {
  const ends = [UNSPECIFIED, FAILED, TIMED_OUT, WITHHELD];
  return [partOf(id), resultOf(id, FAILED), ...ends.map((end) => resultOf(id, end, "held"))];
}

const withoutAllow: readonly (readonly [string, (decider: Decider, askId: string) => unknown])[] = [
  ["a denial", (decider, askId) => decider.answer(askId, Verdict.DENY)],
  ["an expiry", (decider, askId) => decider.pass(0, [askId])],
  ["a withdrawal", (decider, askId) => decider.given(withdraw(askId))],
];

describe("a release ask", () => {
  test.each([REQUIRED, OFF])("shows digest and size and leaves its call (gate %s)", (gate) => {
    const decider = newDecider(gate);
    const [id = ""] = decider.calls("a");
    if (gate === REQUIRED) decider.given(startOf(decider, id));
    const before = decider.call(id);
    const events = decider.given(openRelease(id, "held"));
    expect(kindsOf(events)).toEqual(["ASK_OPENED"]);
    const ask = decider.record("ask", idIn(events, "ask"));
    const sizeBytes = BigInt(bytes("held").length);
    expect(ask.presented).toMatchObject({ sha256: digest("held"), sizeBytes, bodyRef: "" });
    expect(ask.presented?.data).toBeUndefined();
    expect(ask.allowedVerdicts).toEqual([Verdict.DENY, Verdict.ALLOW_ONCE]);
    expect(decider.call(id)).toEqual(before);
  });

  test("needs a recorded start where the run requires starts", () => {
    const decider = newDecider(REQUIRED);
    const [id = ""] = decider.calls("a");
    const refusal = decider.when([openRelease(id)]);
    expect(reasonOf(refusal)).toBe(ErrorReason.TOOL_CALL_NOT_STARTED);
  });

  test("is not about a call that waits or has ended", () => {
    const decider = newDecider(OFF);
    const [asking = "", waiting = "", ended = ""] = decider.calls("a", "b", "c");
    decider.given(resultOf(ended, UNSPECIFIED, "done"), openAction(asking), park(waiting));
    expect(
      [asking, waiting, ended, "tc_none"].map((id) => reasonOf(decider.when([openRelease(id)]))),
    ).toEqual([
      ErrorReason.START_NOT_ALLOWED,
      ErrorReason.START_NOT_ALLOWED,
      ErrorReason.TOOL_CALL_ENDED,
      ErrorReason.TOOL_CALL_NOT_FOUND,
    ]);
  });

  test.each([REQUIRED, OFF])("refuses every result while it is open (gate %s)", (gate) => {
    const { decider, id } = holding(gate);
    for (const command of everyResult(id)) {
      expect(decider.when([command])).toMatchObject({
        reason: ErrorReason.RESULT_HELD,
        metadata: { tool_call_id: id },
      });
    }
  });

  test("counts as a start, recorded or not", () => {
    const { decider, id } = holding(OFF);
    const hookId = idIn(decider.given(hook(id)), "hook");
    const commands = [
      amend(id, "{ }"),
      startOf(decider, id),
      openAction(id),
      park(id),
      blockedBy(id, hookId),
    ];
    for (const command of commands) {
      expect(decider.when([command])).toMatchObject({
        reason: ErrorReason.TOOL_CALL_STARTED,
        metadata: { tool_call_id: id },
      });
    }
    const notRun = endRun(RunOutcome.FAILED, { notRunToolCallIds: [id] });
    expect(reasonOf(decider.when([notRun]))).toBe(ErrorReason.RUN_END_CONTRADICTS_START);
  });
});

describe.each([REQUIRED, OFF])("a result that was held (gate %s)", (gate) => {
  test.each(withoutAllow)("stays held after %s: only WITHHELD is taken", (_, end) => {
    const { decider, id, askId } = holding(gate);
    const { state } = decider.call(id);
    end(decider, askId);
    expect(decider.call(id).state).toBe(state);
    for (const command of everyResult(id).slice(0, -1)) {
      expect(reasonOf(decider.when([command]))).toBe(ErrorReason.RESULT_HELD);
    }
    decider.given(resultOf(id, WITHHELD, "not for you"));
    const result = { kind: ToolResultKind.CANONICAL, content: { sha256: digest("not for you") } };
    expect(decider.call(id)).toMatchObject({ state: WITHHELD, ran: Ran.YES, result });
  });

  test.each(withoutAllow)("is released by a newer ask after %s", (_, end) => {
    const { decider, id, askId } = holding(gate);
    end(decider, askId);
    const receiptId = allowed(decider, asked(decider, openRelease(id)));
    decider.given(resultOf(id, UNSPECIFIED, "held"));
    expect(stateOf(decider, id)).toBe("COMPLETED");
    expect(spendOf(decider, receiptId)).toBe("SPENT");
  });

  test("is given once it is allowed, which spends the allow", () => {
    const { decider, id, askId } = holding(gate);
    const receiptId = allowed(decider, askId);
    expect(spendOf(decider, receiptId)).toBe("UNSPENT");
    const events = decider.given(resultOf(id, UNSPECIFIED, "held"));
    expect(kindsOf(events)).toEqual(["RECEIPT_SPENT", "RESULT_RECORDED"]);
    expect(spendOf(decider, receiptId)).toBe("SPENT");
    expect(decider.call(id)).toMatchObject({ state: ToolCallState.COMPLETED, ran: Ran.YES });
  });

  test.each([UNSPECIFIED, FAILED, TIMED_OUT])("is that which was allowed (end %s)", (end) => {
    const { decider, id, askId } = holding(gate);
    const receiptId = allowed(decider, askId);
    expect(decider.when([resultOf(id, end, "other")])).toMatchObject({
      reason: ErrorReason.RESULT_MISMATCH,
      metadata: { tool_call_id: id },
    });
    expect(spendOf(decider, receiptId)).toBe("UNSPENT");
    decider.given(resultOf(id, end, "held"));
    expect(spendOf(decider, receiptId)).toBe("SPENT");
  });

  test("may be withheld although it was allowed, or fail without content: the allow is void", () => {
    for (const result of [
      (id: string) => resultOf(id, WITHHELD, "no"),
      (id: string) => resultOf(id, FAILED),
    ]) {
      const { decider, id, askId } = holding(gate);
      const receiptId = allowed(decider, askId);
      decider.given(result(id));
      expect(spendOf(decider, receiptId)).toBe("VOID");
      expect(decider.call(id).ran).toBe(Ran.YES);
    }
  });

  test("is held again by a newer ask, which voids the allow", () => {
    const { decider, id, askId } = holding(gate);
    const first = allowed(decider, askId);
    const events = decider.given(openRelease(id, "held again"));
    expect(kindsOf(events)).toEqual(["RECEIPT_VOIDED", "ASK_OPENED"]);
    expect(spendOf(decider, first)).toBe("VOID");
    const early = decider.when([resultOf(id, UNSPECIFIED, "held")]);
    expect(reasonOf(early)).toBe(ErrorReason.RESULT_HELD);
    const [newer = ""] = decider.state.openAsks.keys();
    allowed(decider, newer);
    const older = decider.when([resultOf(id, UNSPECIFIED, "held")]);
    expect(reasonOf(older)).toBe(ErrorReason.RESULT_MISMATCH);
    decider.given(resultOf(id, UNSPECIFIED, "held again"));
  });

  test("stays held when a newer ask replaces the open one", () => {
    const { decider, id, askId } = holding(gate);
    const newer = asked(decider, openRelease(id, "held again"));
    expect(decider.record("ask", askId)).toMatchObject({
      state: AskState.SUPERSEDED,
      supersededByAskId: newer,
    });
    expect(reasonOf(decider.when([resultOf(id, UNSPECIFIED, "held")]))).toBe(
      ErrorReason.RESULT_HELD,
    );
  });

  test.each([...withoutAllow, ["nothing", () => undefined] as const])(
    "is withheld by the run's end after %s, whatever the harness says of the call",
    (_, end) => {
      const { decider, id, askId } = holding(gate);
      end(decider, askId);
      decider.given(endRun(RunOutcome.FAILED, { interruptedToolCallIds: [id] }));
      const result = { kind: ToolResultKind.SYNTHETIC };
      expect(decider.call(id)).toMatchObject({ state: WITHHELD, ran: Ran.YES, result });
    },
  );

  test("that was released and never given ends unknown but as one that ran, and the allow is void", () => {
    const { decider, id, askId } = holding(gate);
    const receiptId = allowed(decider, askId);
    decider.given(endRun());
    expect(decider.call(id)).toMatchObject({
      state: ToolCallState.OUTCOME_UNKNOWN,
      ran: Ran.YES,
    });
    expect(spendOf(decider, receiptId)).toBe("VOID");
    expect(reasonOf(decider.when([reconcile(id, ToolCallState.CANCELLED)]))).toBe(
      ErrorReason.TOOL_CALL_STARTED,
    );
    decider.given(reconcile(id, ToolCallState.COMPLETED));
  });

  test("that was released comes late as it was released, or not at all", () => {
    const { decider, id, askId } = holding(gate);
    allowed(decider, askId);
    decider.given(endRun());
    decider.begin(gate);
    const value = { toolCallId: id, end: ToolCallState.COMPLETED, content: data("other") };
    const reconciled: CommandInit = { case: "reconcileToolCall", value };
    for (const command of [resultOf(id, UNSPECIFIED, "other"), reconciled]) {
      expect(reasonOf(decider.when([command]))).toBe(ErrorReason.RESULT_MISMATCH);
    }
    decider.given(resultOf(id, UNSPECIFIED, "held"));
  });

  test("takes no parts, which nobody could compare", () => {
    const { decider, id, askId } = holding(gate);
    for (const settle of [() => undefined, () => allowed(decider, askId)]) {
      settle();
      expect(reasonOf(decider.when([partOf(id)]))).toBe(ErrorReason.RESULT_HELD);
    }
  });

  test("is not given as the text instead of itself", () => {
    const { decider, id, askId } = holding(gate);
    decider.answer(askId, Verdict.DENY);
    const held = resultOf(id, ToolCallState.WITHHELD, "held");
    expect(reasonOf(decider.when([held]))).toBe(ErrorReason.RESULT_MISMATCH);
    decider.given(resultOf(id, ToolCallState.WITHHELD, "another text"));
  });

  test("that was not released does not come in late either", () => {
    const { decider, id, askId } = holding(gate);
    decider.answer(askId, Verdict.DENY);
    const { runId } = decider;
    decider.given(endRun());
    const late = resultOf(id, UNSPECIFIED, "held");
    expect(reasonOf(decider.when([late], runId))).toBe(ErrorReason.RESULT_HELD);
    decider.begin(gate);
    expect(reasonOf(decider.when([late]))).toBe(ErrorReason.RESULT_HELD);
  });
});

describe("without a gate", () => {
  test("an allow to start and one to give the result are spent together", () => {
    const decider = newDecider(OFF);
    const [id = ""] = decider.calls("a");
    const start = allowed(decider, asked(decider, openAction(id)));
    const release = allowed(decider, asked(decider, openRelease(id)));
    expect([start, release].map((each) => spendOf(decider, each))).toEqual(["UNSPENT", "UNSPENT"]);
    decider.given(resultOf(id, UNSPECIFIED, "held"));
    expect([start, release].map((each) => spendOf(decider, each))).toEqual(["SPENT", "SPENT"]);
  });

  test("a call whose result is held does not wait behind a parked one", () => {
    const decider = newDecider(OFF);
    const [first = "", held = "", last = ""] = decider.calls("a", "b", "c");
    const askId = asked(decider, openRelease(held));
    const named = decider.when([park(first, held, last)]);
    expect(reasonOf(named)).toBe(ErrorReason.REFERENCE_MISMATCH);
    decider.given(park(first, last));
    expect(stateOf(decider, held)).toBe("ACCEPTED");
    allowed(decider, askId);
    decider.given(resultOf(held, UNSPECIFIED, "held"));
  });

  test("a result that was held is recorded under a later run that requires starts", () => {
    const { decider, id, askId } = holding(OFF);
    decider.begin(REQUIRED, TakeOver.RESUME);
    decider.answer(askId, Verdict.DENY);
    const newer = asked(decider, openRelease(id));
    allowed(decider, newer);
    decider.given(resultOf(id, FAILED, "held"));
    expect(decider.call(id)).toMatchObject({ state: FAILED, ran: Ran.YES });
  });

  test("a blocked call is not one that is held", () => {
    const { decider, id } = holding(OFF);
    const hookId = idIn(decider.given(hook(id)), "hook");
    expect(reasonOf(decider.when([blockedBy(id, hookId)]))).toBe(ErrorReason.TOOL_CALL_STARTED);
    expect(stateOf(decider, id)).not.toBe(ToolCallState[BLOCKED]);
  });
});

test("one call asks to start and then to give its result: two asks, two receipts", () => {
  const decider = newDecider(REQUIRED);
  const [id = ""] = decider.calls("a");
  const start = allowed(decider, asked(decider, openAction(id)));
  decider.given(startOf(decider, id));
  const release = allowed(decider, asked(decider, openRelease(id)));
  expect(start).not.toBe(release);
  expect([start, release].map((each) => spendOf(decider, each))).toEqual(["SPENT", "UNSPENT"]);
  decider.given(resultOf(id, UNSPECIFIED, "held"));
  expect(spendOf(decider, release)).toBe("SPENT");
});
