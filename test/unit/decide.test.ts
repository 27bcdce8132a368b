import { describe, expect, test } from "vitest";
import { TakeOver } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { Ran, ToolCallState, ToolResultKind } from "../../gen/toolmark/v1/tool_call_pb.js";
import { DEFAULT_LIMITS } from "../../src/domain/limits.js";
import { isRefusal } from "../../src/domain/refusal.js";
import { Decider, type CommandInit } from "../support/decider.js";
import { data, endRun, reasonOf, resultOf, startOf } from "../support/rule-commands.js";

describe("EndRun ends every unfinished call honestly", () => {
  const { CANCELLED, INTERRUPTED, OUTCOME_UNKNOWN } = ToolCallState;
  const table: readonly [StartGate, boolean, "" | "not run" | "interrupted", ToolCallState, Ran][] =
    [
      [StartGate.REQUIRED, false, "", CANCELLED, Ran.NO],
      [StartGate.REQUIRED, false, "not run", CANCELLED, Ran.NO],
      [StartGate.REQUIRED, true, "", OUTCOME_UNKNOWN, Ran.UNKNOWN],
      [StartGate.REQUIRED, true, "interrupted", INTERRUPTED, Ran.YES],
      [StartGate.OFF, false, "", OUTCOME_UNKNOWN, Ran.UNKNOWN],
      [StartGate.OFF, false, "not run", CANCELLED, Ran.NO],
      [StartGate.OFF, false, "interrupted", INTERRUPTED, Ran.YES],
      [StartGate.OFF, true, "", OUTCOME_UNKNOWN, Ran.UNKNOWN],
      [StartGate.OFF, true, "interrupted", INTERRUPTED, Ran.YES],
    ];
  test.each(table)("gate %s, started %s, listed %j", (gate, started, listed, state, ran) => {
    const decider = new Decider(gate);
    const [id = ""] = decider.calls("a");
    if (started) decider.given(startOf(decider, id));
    const lists = {
      "": {},
      "not run": { notRunToolCallIds: [id] },
      interrupted: { interruptedToolCallIds: [id] },
    }[listed];
    decider.given(endRun(RunOutcome.FAILED, lists));
    const call = decider.call(id);
    expect(call).toMatchObject({ state, ran });
    expect(call.result).toMatchObject({ kind: ToolResultKind.SYNTHETIC, isError: true });
    expect(call.endTime).toBeDefined();
    expect(decider.state.openCalls.size).toBe(0);
  });

  test("a list that contradicts a recorded start is refused", () => {
    const decider = new Decider(StartGate.REQUIRED);
    const [started = "", unstarted = ""] = decider.calls("a", "b");
    decider.given(startOf(decider, started));
    const notRun = endRun(RunOutcome.FAILED, { notRunToolCallIds: [started] });
    const interrupted = endRun(RunOutcome.FAILED, { interruptedToolCallIds: [unstarted] });
    for (const command of [notRun, interrupted]) {
      expect(reasonOf(decider.when([command]))).toBe(ErrorReason.RUN_END_CONTRADICTS_START);
    }
  });

  test("a call that was accepted without a gate is not called unstarted by a run with one", () => {
    const decider = new Decider(StartGate.OFF);
    const [id = ""] = decider.calls("a");
    decider.begin(StartGate.REQUIRED, TakeOver.RESUME);
    decider.given(endRun(RunOutcome.FAILED));
    expect(decider.call(id)).toMatchObject({ state: OUTCOME_UNKNOWN, ran: Ran.UNKNOWN });
  });

  test("a call that could run under a run without a gate is not called unstarted later", () => {
    const decider = new Decider(StartGate.REQUIRED);
    const [id = "", other = ""] = decider.calls("a", "b");
    expect(decider.call(id).ran).toBe(Ran.NO);
    decider.begin(StartGate.OFF, TakeOver.RESUME);
    expect(decider.call(id)).toMatchObject({ state: ToolCallState.ACCEPTED, ran: Ran.UNKNOWN });
    decider.given(endRun(RunOutcome.PARKED));
    decider.begin(StartGate.REQUIRED);
    decider.given(endRun(RunOutcome.FAILED, { interruptedToolCallIds: [other] }));
    expect(decider.call(id)).toMatchObject({ state: OUTCOME_UNKNOWN, ran: Ran.UNKNOWN });
    expect(decider.call(other)).toMatchObject({ state: INTERRUPTED, ran: Ran.YES });
  });

  test("a run without a gate that ends the one before it finds its calls ended", () => {
    const decider = new Decider(StartGate.REQUIRED);
    const [id = ""] = decider.calls("a");
    decider.begin(StartGate.OFF, TakeOver.END);
    expect(decider.call(id)).toMatchObject({ state: CANCELLED, ran: Ran.NO });
  });

  test("parking leaves calls open for the next run", () => {
    const decider = new Decider();
    const [id = ""] = decider.calls("a");
    decider.given(endRun(RunOutcome.PARKED));
    expect(decider.state.activeRun).toBeUndefined();
    expect([...decider.state.openCalls.keys()]).toEqual([id]);
    decider.begin(StartGate.OFF);
    decider.given(resultOf(id, ToolCallState.UNSPECIFIED, "late but fine"));
    expect(decider.call(id).state).toBe(ToolCallState.COMPLETED);
  });
});

describe("a result ends its call once", () => {
  const ends: readonly [string, ToolCallState, string | undefined, Ran, ToolResultKind][] = [
    ["completed", ToolCallState.UNSPECIFIED, "ok", Ran.YES, ToolResultKind.CANONICAL],
    ["failed", ToolCallState.FAILED, "boom", Ran.YES, ToolResultKind.CANONICAL],
    ["failed bare", ToolCallState.FAILED, undefined, Ran.YES, ToolResultKind.SYNTHETIC],
    ["timed out", ToolCallState.TIMED_OUT, undefined, Ran.UNKNOWN, ToolResultKind.SYNTHETIC],
    ["withheld", ToolCallState.WITHHELD, "no", Ran.YES, ToolResultKind.CANONICAL],
  ];
  test.each(ends)("a started call that is %s", (_name, end, text, ran, kind) => {
    const decider = new Decider(StartGate.REQUIRED);
    const [id = ""] = decider.calls("a");
    decider.given(startOf(decider, id), resultOf(id, end, text));
    const state = end === ToolCallState.UNSPECIFIED ? ToolCallState.COMPLETED : end;
    expect(decider.call(id)).toMatchObject({ state, ran, result: { kind } });
    const again = decider.when([resultOf(id, ToolCallState.UNSPECIFIED, "second")]);
    if (kind === ToolResultKind.SYNTHETIC) {
      expect(decider.call(id)).toMatchObject({ state, ran, lateResult: { isError: false } });
      const third = decider.when([resultOf(id, ToolCallState.UNSPECIFIED, "third")]);
      expect(reasonOf(third)).toBe(ErrorReason.RESULT_ALREADY_RECORDED);
    } else {
      expect(reasonOf(again)).toBe(ErrorReason.RESULT_ALREADY_RECORDED);
    }
  });

  test("a late result is taken under the run that ended the call, and changes nothing else", () => {
    const decider = new Decider();
    const [id = ""] = decider.calls("a");
    const { runId } = decider;
    decider.given(endRun(RunOutcome.INTERRUPTED));
    const before = decider.call(id);
    const taken = decider.when([resultOf(id, ToolCallState.UNSPECIFIED, "late")], runId);
    expect(isRefusal(taken)).toBe(false);
    const { lateResult, revision, ...rest } = decider.call(id);
    expect(lateResult?.kind).toBe(ToolResultKind.CANONICAL);
    expect({ ...before, ...rest, revision: before.revision }).toEqual(before);
    expect(revision).toBeGreaterThan(before.revision ?? 0n);
  });

  test("a late result claims no end of its own", () => {
    const decider = new Decider();
    const [id = ""] = decider.calls("a");
    decider.given(endRun(RunOutcome.INTERRUPTED));
    decider.begin(StartGate.OFF);
    const late = decider.when([resultOf(id, ToolCallState.WITHHELD, "not for the model")]);
    expect(reasonOf(late)).toBe(ErrorReason.TOOL_CALL_ENDED);
    expect(decider.call(id).lateResult).toBeUndefined();
  });

  test("a part of a result is no late result", () => {
    const decider = new Decider();
    const [id = ""] = decider.calls("a");
    const { runId } = decider;
    decider.given(endRun(RunOutcome.INTERRUPTED));
    const value = { chunk: new Uint8Array([1]) };
    const result = { case: "provisional" as const, value };
    const part = { case: "recordResult" as const, value: { toolCallId: id, result } };
    expect(reasonOf(decider.when([part], runId))).toBe(ErrorReason.RUN_NOT_ACTIVE);
    decider.begin(StartGate.OFF);
    expect(reasonOf(decider.when([part]))).toBe(ErrorReason.TOOL_CALL_ENDED);
  });

  test("without a recorded start a run that requires one believes only a block", () => {
    const decider = new Decider(StartGate.REQUIRED);
    const [id = ""] = decider.calls("a");
    for (const end of [ToolCallState.UNSPECIFIED, ToolCallState.FAILED, ToolCallState.WITHHELD]) {
      const decided = decider.when([resultOf(id, end, "x")]);
      expect(reasonOf(decided)).toBe(ErrorReason.TOOL_CALL_NOT_STARTED);
    }
    const [published] = decider.given({
      case: "publishHook",
      value: { toolCallId: id, phase: "pre_tool_use", decision: HookDecision.BLOCKED },
    });
    const record = published?.record.record;
    const hookId = record?.case === "hook" ? record.value.hookId : "";
    decider.given({
      case: "recordResult",
      value: {
        toolCallId: id,
        result: {
          case: "canonical",
          value: { end: ToolCallState.BLOCKED, blockedByHookId: hookId },
        },
      },
    });
    expect(decider.call(id)).toMatchObject({
      state: ToolCallState.BLOCKED,
      ran: Ran.NO,
      blockedByHookId: hookId,
    });
  });

  test("only a hook that blocked this very call can have blocked it", () => {
    const decider = new Decider();
    const [blocked = "", other = ""] = decider.calls("a", "b");
    const hooks = decider.given(
      {
        case: "publishHook",
        value: { toolCallId: other, phase: "pre_tool_use", decision: HookDecision.BLOCKED },
      },
      {
        case: "publishHook",
        value: { toolCallId: blocked, phase: "pre_tool_use", decision: HookDecision.INFO },
      },
    );
    for (const { record } of hooks) {
      const hookId = record.record.case === "hook" ? record.record.value.hookId : "";
      const value = { end: ToolCallState.BLOCKED, blockedByHookId: hookId };
      const result = { case: "canonical" as const, value };
      const command = { case: "recordResult" as const, value: { toolCallId: blocked, result } };
      expect(reasonOf(decider.when([command]))).toBe(ErrorReason.REFERENCE_MISMATCH);
    }
  });
});

describe("reconciling", () => {
  test("is the only way out of an unknown outcome and keeps what the model was given", () => {
    const decider = new Decider();
    const [id = ""] = decider.calls("a");
    const { runId } = decider;
    decider.given(endRun(RunOutcome.FAILED));
    const given = decider.call(id).result;
    const command: CommandInit = {
      case: "reconcileToolCall",
      value: { toolCallId: id, end: ToolCallState.COMPLETED, content: data("it ran") },
    };
    expect(isRefusal(decider.when([command], runId))).toBe(false);
    expect(decider.call(id)).toMatchObject({ state: ToolCallState.COMPLETED, ran: Ran.YES });
    expect(decider.call(id).result).toEqual(given);
    expect(reasonOf(decider.when([command], runId))).toBe(ErrorReason.OUTCOME_KNOWN);
  });
});

describe("runs", () => {
  test("a second run is refused with the active one's id, or takes over", () => {
    const decider = new Decider();
    const [id = ""] = decider.calls("a");
    const first = decider.runId;
    expect(decider.begin(StartGate.OFF)).toMatchObject({
      reason: ErrorReason.RUN_ACTIVE,
      metadata: { run_id: first },
    });
    decider.begin(StartGate.OFF, TakeOver.END);
    expect(decider.call(id).state).toBe(ToolCallState.OUTCOME_UNKNOWN);
    const fenced = decider.when([{ case: "acceptTurn", value: { calls: [] } }], first);
    expect(reasonOf(fenced)).toBe(ErrorReason.RUN_NOT_ACTIVE);
    const unknown = decider.when([{ case: "acceptTurn", value: { calls: [] } }], "run_x");
    expect(reasonOf(unknown)).toBe(ErrorReason.RUN_NOT_FOUND);
  });
});

test("a session has only so many calls without a result", () => {
  const decider = new Decider();
  const ids = Array.from({ length: DEFAULT_LIMITS.openCallsPerSession }, () => "");
  decider.calls(...ids);
  const one = { toolName: "bash", arguments: data("{}") };
  const turn: CommandInit = { case: "acceptTurn", value: { calls: [one] } };
  expect(reasonOf(decider.when([turn]))).toBe(ErrorReason.QUOTA_EXCEEDED);
});

describe("Apply", () => {
  test("is all or nothing and names the refused command", () => {
    const decider = new Decider();
    const [id = ""] = decider.calls("a");
    const length = decider.history.length;
    const decided = decider.when([
      resultOf(id, ToolCallState.UNSPECIFIED, "one"),
      resultOf(id, ToolCallState.UNSPECIFIED, "two"),
    ]);
    expect(decided).toMatchObject({
      reason: ErrorReason.RESULT_ALREADY_RECORDED,
      metadata: { command: "1" },
    });
    expect(decider.history.length).toBe(length);
    expect(decider.call(id).state).toBe(ToolCallState.ACCEPTED);
  });

  test("lets a later command use what an earlier one of it settled", () => {
    const decider = new Decider();
    const [id = ""] = decider.calls("a");
    const events = decider.given(resultOf(id, ToolCallState.UNSPECIFIED, "done"), {
      case: "publishHook",
      value: { toolCallId: id, phase: "post_tool_use", decision: HookDecision.INFO },
    });
    expect(events.map(({ kind }) => kind)).toEqual(["RESULT_RECORDED", "HOOK_PUBLISHED"]);
  });
});

test("a second late result is told of the first, also by a run that has ended", () => {
  const decider = new Decider(StartGate.REQUIRED);
  const [id = ""] = decider.calls("a");
  decider.given(startOf(decider, id), endRun(RunOutcome.FAILED));
  const ended = decider.history.flatMap(({ record: { record } }) =>
    record.case === "run" ? [record.value.runId] : [],
  )[0];
  const late = resultOf(id, ToolCallState.UNSPECIFIED, "late");
  expect(isRefusal(decider.when([late], ended))).toBe(false);
  expect(reasonOf(decider.when([late], ended))).toBe(ErrorReason.RESULT_ALREADY_RECORDED);
});

test("the model is told of a recorded start whose outcome nobody knows", () => {
  const decider = new Decider(StartGate.REQUIRED);
  const [id = ""] = decider.calls("a");
  decider.given(startOf(decider, id), endRun(RunOutcome.FAILED));
  const ref = decider.call(id).result?.content?.bodyRef;
  const text = new TextDecoder().decode(decider.bodies.find((body) => body.bodyRef === ref)?.data);
  expect(text).toContain("was started");
});
