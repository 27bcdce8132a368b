import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import { TakeOver } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { Ran, ToolCallState, ToolResultKind } from "../../gen/toolmark/v1/tool_call_pb.js";
import type { Decider } from "../support/decider.js";
import {
  allowed,
  amend,
  asked,
  blockedBy,
  deciders,
  endRun,
  hook,
  idIn,
  kindsOf,
  openAction,
  openRelease,
  park,
  parked,
  partOf,
  reasonOf,
  resultOf,
  review,
  settle,
  spendOf,
  startOf,
  stateOf,
  withdraw,
} from "../support/rule-commands.js";

const newDecider = deciders();
const { REQUIRED, OFF } = StartGate;
const { GRANTED, DENIED, CANCELLED, EXPIRED, INTERRUPTED, FAILED, CLOSED, PENDING } =
  AuthorizationState;

/** A turn of three, its second call parked and its third behind it. */
function parking(gate = REQUIRED) {
  const decider = newDecider(gate);
  const [before = "", id = "", behind = ""] = decider.calls("a", "b", "c");
  return { decider, before, id, behind, authorizationId: parked(decider, id, behind) };
}

/** The text that the model is given for a call. */
function textOf(decider: Decider, toolCallId: string): string {
  const ref = decider.call(toolCallId).result?.content?.bodyRef;
  const body = decider.bodies.find(({ bodyRef }) => bodyRef === ref);
  return new TextDecoder().decode(body?.data);
}

/** Two calls: the first parked, the second behind it with an open ask of its own. */
function askedBehind(gate = REQUIRED) {
  const decider = newDecider(gate);
  const [id = "", behind = ""] = decider.calls("a", "b");
  const askId = asked(decider, openAction(behind));
  return { decider, id, behind, askId, authorizationId: parked(decider, id, behind) };
}

describe("a call that waits for an answer and behind a parked one", () => {
  const { START_NOT_ALLOWED } = ErrorReason;

  test("is no way around the parked one, whichever is settled first", () => {
    for (const answeredFirst of [true, false]) {
      const { decider, behind, askId, authorizationId } = askedBehind();
      const steps = [
        () => decider.given(settle(authorizationId, GRANTED)),
        () => allowed(decider, askId),
      ];
      if (answeredFirst) steps.reverse();
      expect(stateOf(decider, behind)).toBe("AWAITING_ANSWER");
      steps[0]?.();
      expect(stateOf(decider, behind)).toBe(
        answeredFirst ? "AWAITING_AUTHORIZATION" : "AWAITING_ANSWER",
      );
      expect(reasonOf(decider.when([startOf(decider, behind)]))).toBe(START_NOT_ALLOWED);
      steps[1]?.();
      decider.given(startOf(decider, behind));
    }
  });

  test("still waits behind it after its ask was withdrawn or its arguments were amended", () => {
    for (const command of [
      ({ askId }: ReturnType<typeof askedBehind>) => withdraw(askId),
      ({ behind }: ReturnType<typeof askedBehind>) => amend(behind, "{}\n"),
    ]) {
      const both = askedBehind();
      const { decider, behind } = both;
      decider.given(command(both));
      expect(stateOf(decider, behind)).toBe("AWAITING_AUTHORIZATION");
      expect(reasonOf(decider.when([startOf(decider, behind)]))).toBe(START_NOT_ALLOWED);
    }
  });

  test("ends with it, and its ask is withdrawn", () => {
    const { decider, behind, askId, authorizationId } = askedBehind();
    decider.given(settle(authorizationId, DENIED));
    expect(stateOf(decider, behind)).toBe("CANCELLED");
    const { state, receiptId = "" } = decider.record("ask", askId);
    expect(AskState[state]).toBe("WITHDRAWN");
    expect(decider.record("receipt", receiptId).verdict).toBe(Verdict.WITHDRAWN);
  });

  test("that was denied is left alone by the authorization", () => {
    for (const outcome of [GRANTED, DENIED]) {
      const { decider, id, behind, askId, authorizationId } = askedBehind();
      decider.answer(askId, Verdict.DENY);
      decider.given(settle(authorizationId, outcome));
      expect(stateOf(decider, behind)).toBe("DENIED");
      expect(stateOf(decider, id)).toBe(outcome === GRANTED ? "ACCEPTED" : "DENIED");
    }
  });

  test("expires once, also if both are due at the same time", () => {
    const decider = newDecider(REQUIRED);
    const [id = "", behind = ""] = decider.calls("a", "b");
    const expireTime = timestampFromMs(decider.nowMs + 1000);
    const askId = asked(decider, openAction(behind, { expireTime }));
    const value = { toolCallId: id, displayName: "x", expireTime, deferredToolCallIds: [behind] };
    decider.given({ case: "parkToolCall", value });
    decider.pass(1000);
    expect([id, behind].map((call) => stateOf(decider, call))).toEqual(["EXPIRED", "EXPIRED"]);
    expect(AskState[decider.record("ask", askId).state]).toBe("EXPIRED");
    expect(decider.state.pendingAuthorizations.size).toBe(0);
  });
});

describe("a call that is parked, and behind an earlier one that is parked after it", () => {
  function parkedTwice() {
    const decider = newDecider(REQUIRED);
    const [first = "", second = "", third = ""] = decider.calls("a", "b", "c");
    const ofSecond = parked(decider, second, third);
    const ofFirst = parked(decider, first, second, third);
    return { decider, first, second, third, ofFirst, ofSecond };
  }

  test("goes on when both are granted, in either order", () => {
    for (const reversed of [false, true]) {
      const { decider, second, third, ofFirst, ofSecond } = parkedTwice();
      const order = reversed ? [ofSecond, ofFirst] : [ofFirst, ofSecond];
      decider.given(settle(order[0] ?? "", GRANTED));
      const waiting = [second, third].map((call) => stateOf(decider, call));
      expect(waiting).toEqual(["AWAITING_AUTHORIZATION", "AWAITING_AUTHORIZATION"]);
      decider.given(settle(order[1] ?? "", GRANTED));
      decider.given(startOf(decider, second), startOf(decider, third));
    }
  });

  test("ends with the earlier one, and its own authorization is closed", () => {
    const { decider, first, second, third, ofFirst, ofSecond } = parkedTwice();
    decider.given(settle(ofFirst, CANCELLED));
    const states = [first, second, third].map((call) => stateOf(decider, call));
    expect(states).toEqual(["CANCELLED", "CANCELLED", "CANCELLED"]);
    expect(decider.record("authorization", ofSecond).state).toBe(CLOSED);
    expect(decider.state.pendingAuthorizations.size).toBe(0);
  });

  test("ends by itself with those behind it, and leaves the earlier one waiting", () => {
    const { decider, first, second, third, ofFirst, ofSecond } = parkedTwice();
    decider.given(settle(ofSecond, FAILED));
    const states = [first, second, third].map((call) => stateOf(decider, call));
    expect(states).toEqual(["AWAITING_AUTHORIZATION", "FAILED", "CANCELLED"]);
    decider.given(settle(ofFirst, GRANTED), startOf(decider, first));
  });
});

describe("parking", () => {
  test("makes the call and those behind it wait for one authorization", () => {
    const decider = newDecider(REQUIRED);
    const [before = "", id = "", behind = "", last = ""] = decider.calls("a", "b", "c", "d");
    const [other = ""] = decider.calls("e");
    const events = decider.given(park(id, behind, last));
    expect(kindsOf(events)).toEqual([
      "AUTHORIZATION_REQUESTED",
      ...["TOOL_CALL_WAITING", "TOOL_CALL_WAITING", "TOOL_CALL_WAITING"],
    ]);
    expect(decider.record("authorization", idIn(events, "authorization"))).toMatchObject({
      toolCallId: id,
      runId: decider.runId,
      origin: { sessionId: decider.sessionId },
      displayName: "Calendar",
      state: PENDING,
      deferredToolCallIds: [behind, last],
    });
    expect([before, id, behind, last, other].map((call) => stateOf(decider, call))).toEqual([
      "ACCEPTED",
      ...["AWAITING_AUTHORIZATION", "AWAITING_AUTHORIZATION", "AWAITING_AUTHORIZATION"],
      "ACCEPTED",
    ]);
  });

  const suffixes: readonly [string, (ids: readonly string[]) => (string | undefined)[]][] = [
    ["none", () => []],
    ["too few", ([, , behind]) => [behind]],
    ["the last alone", ([, , , last]) => [last]],
    ["another order", ([, , behind, last]) => [last, behind]],
    ["one twice", ([, , behind, last]) => [behind, last, last]],
    ["the parked call", ([, id, behind, last]) => [id, behind, last]],
    ["an earlier call", ([before, , behind, last]) => [before, behind, last]],
    ["a call of another turn", ([, , behind, last, other]) => [behind, last, other]],
    ["an unknown call", ([, , behind, last]) => [behind, last, "tc_none"]],
  ];
  test.each(suffixes)("with %s of the calls behind it is refused", (_, wrong) => {
    const decider = newDecider(REQUIRED);
    const turn = decider.calls("a", "b", "c", "d");
    const ids = [...turn, ...decider.calls("e")];
    const named = wrong(ids).map((id) => id ?? "");
    expect(decider.when([park(ids[1] ?? "", ...named)])).toMatchObject({
      reason: ErrorReason.REFERENCE_MISMATCH,
      metadata: { field: "command.deferred_tool_call_ids" },
    });
    expect(ids.map((id) => stateOf(decider, id))).toEqual(ids.map(() => "ACCEPTED"));
    expect(decider.state.pendingAuthorizations.size).toBe(0);
  });

  test("leaves out calls behind it that started or ended", () => {
    const decider = newDecider(REQUIRED);
    const [id = "", started = "", done = "", denied = "", free = ""] = decider.calls(
      ...["a", "b", "c", "d", "e"],
    );
    decider.given(
      startOf(decider, started),
      startOf(decider, done),
      resultOf(done, ToolCallState.UNSPECIFIED, "done"),
    );
    decider.answer(asked(decider, openAction(denied)), Verdict.DENY);
    const authorizationId = parked(decider, id, free);
    decider.given(settle(authorizationId, FAILED));
    expect([started, denied, free].map((call) => stateOf(decider, call))).toEqual([
      "STARTED",
      "DENIED",
      "CANCELLED",
    ]);
  });

  test("is refused of a call that started, ended or waits, or with an expiry in the past", () => {
    const decider = newDecider(REQUIRED);
    const [asking = "", waiting = "", done = "", started = ""] = decider.calls("a", "b", "c", "d");
    decider.given(
      startOf(decider, started),
      startOf(decider, done),
      resultOf(done, ToolCallState.UNSPECIFIED, "x"),
    );
    decider.given(openAction(asking), park(waiting));
    const late = timestampFromMs(decider.nowMs);
    const [free = ""] = decider.calls("e");
    const value = { toolCallId: free, displayName: "x", expireTime: late };
    expect(
      [
        ...[asking, waiting, done, started, "tc_none"].map((id) => park(id)),
        { case: "parkToolCall" as const, value },
      ].map((command) => reasonOf(decider.when([command]))),
    ).toEqual([
      ErrorReason.START_NOT_ALLOWED,
      ErrorReason.START_NOT_ALLOWED,
      ErrorReason.TOOL_CALL_ENDED,
      ErrorReason.TOOL_CALL_STARTED,
      ErrorReason.TOOL_CALL_NOT_FOUND,
      ErrorReason.FIELD_INVALID,
    ]);
  });
});

describe.each([REQUIRED, OFF])("while a call waits for an authorization (gate %s)", (gate) => {
  test("it takes no start, ask, result or block", () => {
    const { decider, id, behind } = parking(gate);
    for (const call of [id, behind]) {
      const hookId = idIn(decider.given(hook(call)), "hook");
      const refused = [startOf(decider, call), openAction(call), blockedBy(call, hookId)];
      for (const command of refused) {
        expect(reasonOf(decider.when([command]))).toBe(ErrorReason.START_NOT_ALLOWED);
      }
      const results = [ToolCallState.UNSPECIFIED, ToolCallState.FAILED, ToolCallState.WITHHELD].map(
        (end) => resultOf(call, end, "x"),
      );
      for (const command of [partOf(call), ...results, openRelease(call)]) {
        expect(reasonOf(decider.when([command]))).toBe(ErrorReason.START_NOT_ALLOWED);
      }
    }
  });

  test("its arguments may change, which voids what was allowed", () => {
    const decider = newDecider(gate);
    const [id = ""] = decider.calls("a");
    const receiptId = allowed(decider, asked(decider, openAction(id)));
    const authorizationId = parked(decider, id);
    decider.given(amend(id, "{ }"));
    expect(stateOf(decider, id)).toBe("AWAITING_AUTHORIZATION");
    expect(spendOf(decider, receiptId)).toBe("VOID");
    decider.given(settle(authorizationId, GRANTED));
    const start = decider.when([startOf(decider, id)]);
    expect(reasonOf(start)).toBe(ErrorReason.START_NOT_ALLOWED);
  });
});

describe("an authorization that is settled", () => {
  test.each([REQUIRED, OFF])("as granted lets the same calls go on (gate %s)", (gate) => {
    const { decider, id, behind, authorizationId } = parking(gate);
    const { ran } = decider.call(id);
    const events = decider.given(settle(authorizationId, GRANTED));
    expect(kindsOf(events)).toEqual([
      "AUTHORIZATION_SETTLED",
      ...["TOOL_CALL_READY", "TOOL_CALL_READY"],
    ]);
    expect(decider.record("authorization", authorizationId).state).toBe(GRANTED);
    for (const call of [id, behind]) {
      expect(decider.call(call)).toMatchObject({ state: ToolCallState.ACCEPTED, ran });
      decider.given(startOf(decider, call));
    }
  });

  const ends: readonly [AuthorizationState, ToolCallState, RegExp][] = [
    [DENIED, ToolCallState.DENIED, /was denied\. It did not run\.$/],
    [CANCELLED, ToolCallState.CANCELLED, /was cancelled\. It did not run\.$/],
    [EXPIRED, ToolCallState.EXPIRED, /was not given in time\. It did not run\.$/],
    [INTERRUPTED, ToolCallState.CANCELLED, /was interrupted\. It did not run\.$/],
    [FAILED, ToolCallState.FAILED, /could not be obtained\. It did not run\.$/],
  ];
  test.each(ends)("as %s ends each of its calls with a text of its own", (outcome, state, text) => {
    for (const gate of [REQUIRED, OFF]) {
      const { decider, before, id, behind, authorizationId } = parking(gate);
      const events = decider.given(settle(authorizationId, outcome));
      expect(kindsOf(events)).toEqual([
        "AUTHORIZATION_SETTLED",
        ...["TOOL_CALL_ENDED", "TOOL_CALL_ENDED"],
      ]);
      expect(decider.record("authorization", authorizationId).state).toBe(outcome);
      const result = { kind: ToolResultKind.SYNTHETIC, isError: true };
      expect(decider.call(id)).toMatchObject({ state, ran: Ran.NO, result });
      expect(decider.call(behind)).toMatchObject({
        state: ToolCallState.CANCELLED,
        ran: Ran.NO,
        result,
      });
      expect(decider.call(id).endTime).toBeDefined();
      expect(textOf(decider, id)).toMatch(text);
      expect(textOf(decider, behind)).toMatch(/^An earlier call of this turn/);
      expect(stateOf(decider, before)).toBe("ACCEPTED");
      expect([...decider.state.openCalls.keys()]).toEqual([before]);
    }
  });

  test("says something else for each outcome", () => {
    const texts = ends.map(([outcome]) => {
      const { decider, id, authorizationId } = parking();
      decider.given(settle(authorizationId, outcome));
      return textOf(decider, id);
    });
    expect(new Set(texts).size).toBe(ends.length);
  });

  test("voids what its calls were allowed, unless granted", () => {
    for (const [outcome, spend] of [
      [GRANTED, "UNSPENT"],
      [DENIED, "VOID"],
    ] as const) {
      const decider = newDecider(REQUIRED);
      const [id = "", behind = ""] = decider.calls("a", "b");
      const receipts = [id, behind].map((call) =>
        allowed(decider, asked(decider, openAction(call))),
      );
      decider.given(settle(parked(decider, id, behind), outcome));
      expect(receipts.map((receiptId) => spendOf(decider, receiptId))).toEqual([spend, spend]);
    }
  });

  test.each([GRANTED, DENIED])("is not settled again after %s", (outcome) => {
    const { decider, authorizationId } = parking();
    decider.given(settle(authorizationId, outcome));
    for (const again of [GRANTED, DENIED, EXPIRED]) {
      expect(decider.when([settle(authorizationId, again)])).toMatchObject({
        reason: ErrorReason.AUTHORIZATION_NOT_PENDING,
        metadata: { authorization_id: authorizationId, state: AuthorizationState[outcome] },
      });
    }
    const unknown = decider.when([settle("aut_none", GRANTED)]);
    expect(reasonOf(unknown)).toBe(ErrorReason.AUTHORIZATION_NOT_FOUND);
  });

  test("may be followed by another parking of the same call, and a review under the same id", () => {
    const { decider, id, behind, authorizationId } = parking();
    const first = idIn(decider.given(review(id)), "hook");
    decider.given(settle(authorizationId, GRANTED));
    const again = idIn(decider.given(review(id)), "hook");
    expect(again).toBe(first);
    expect(parked(decider, id, behind)).not.toBe(authorizationId);
  });
});

describe("an authorization whose time is over", () => {
  function expiring() {
    const decider = newDecider(REQUIRED);
    const [id = "", behind = ""] = decider.calls("a", "b");
    const expireTime = timestampFromMs(decider.nowMs + 1000);
    const value = { toolCallId: id, displayName: "x", expireTime, deferredToolCallIds: [behind] };
    const events = decider.given({ case: "parkToolCall", value });
    return { decider, id, behind, authorizationId: idIn(events, "authorization") };
  }

  test.each([
    ["by the clock", 1000, false],
    ["because its time is known to be over", 0, true],
  ])("expires %s, once, with its calls", (_, ms, named) => {
    const { decider, id, behind, authorizationId } = expiring();
    expect(decider.pass(0)).toEqual([]);
    decider.pass(ms, named ? [authorizationId] : []);
    expect(decider.record("authorization", authorizationId).state).toBe(EXPIRED);
    expect([id, behind].map((call) => stateOf(decider, call))).toEqual(["EXPIRED", "CANCELLED"]);
    expect(decider.pass(1000, [authorizationId])).toEqual([]);
    const late = decider.when([settle(authorizationId, GRANTED)]);
    expect(reasonOf(late)).toBe(ErrorReason.AUTHORIZATION_NOT_PENDING);
  });

  test("expires without a run too", () => {
    const { decider, id } = expiring();
    decider.given(endRun(RunOutcome.PARKED));
    decider.pass(1000);
    expect(stateOf(decider, id)).toBe("EXPIRED");
  });
});

describe("authorizations at the end of a run", () => {
  test.each([
    [REQUIRED, ToolCallState.CANCELLED, Ran.NO],
    [OFF, ToolCallState.OUTCOME_UNKNOWN, Ran.UNKNOWN],
  ])("are closed, and their calls end as any other (gate %s)", (gate, state, ran) => {
    const { decider, id, behind, authorizationId } = parking(gate);
    decider.given(endRun());
    expect(decider.record("authorization", authorizationId).state).toBe(CLOSED);
    expect(decider.state.pendingAuthorizations.size).toBe(0);
    for (const call of [id, behind]) expect(decider.call(call)).toMatchObject({ state, ran });
    decider.begin(gate);
    const late = decider.when([settle(authorizationId, GRANTED)]);
    expect(late).toMatchObject({ metadata: { state: "CLOSED" } });
  });

  test.each([
    ["taken over and ended", (decider: Decider) => decider.begin(REQUIRED, TakeOver.END)],
    ["over with its session", (decider: Decider) => decider.end()],
    [
      "parked, and its session ended",
      (decider: Decider) => {
        decider.given(endRun(RunOutcome.PARKED));
        decider.end();
      },
    ],
  ])("that is %s are closed", (_, end) => {
    const { decider, id, authorizationId } = parking();
    end(decider);
    expect(decider.record("authorization", authorizationId).state).toBe(CLOSED);
    expect(stateOf(decider, id)).toBe("CANCELLED");
  });

  test.each([
    ["parked", (decider: Decider) => decider.given(endRun(RunOutcome.PARKED))],
    ["resumed", () => undefined],
  ])("that is %s stay, and are settled under the next run", (_, end) => {
    const { decider, id, behind, authorizationId } = parking();
    const { runId } = decider;
    end(decider);
    decider.begin(REQUIRED, TakeOver.RESUME);
    expect(decider.record("authorization", authorizationId)).toMatchObject({
      state: PENDING,
      runId,
    });
    decider.given(settle(authorizationId, GRANTED), startOf(decider, behind));
    decider.given(startOf(decider, id));
  });
});
