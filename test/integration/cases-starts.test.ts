import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AskKind, AskProvenance, AskState } from "../../gen/toolmark/v1/ask_pb.js";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { SpendState, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import {
  Ran,
  ToolCallState,
  ToolResultKind,
  type ToolCall,
} from "../../gen/toolmark/v1/tool_call_pb.js";
import { sha256 } from "../../src/domain/sha256.js";
import { allReceipts, answer, answerTo, openAsk, showAsk, startCall } from "../support/asking.js";
import {
  acceptCall,
  acceptTurn,
  allCalls,
  allEvents,
  amendCall,
  beginRun,
  bytes,
  complete,
  endRun,
  given,
  newCall,
  of,
  openRun,
  publishHook,
  readCall,
  type OpenRun,
} from "../support/conversation.js";
import { expectNothingWritten } from "../support/nothing-written.js";
import { refused } from "../support/refused.js";
import type { Clients } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { startTestService, type TestService } from "../support/service.js";
import { MovableClock, TWO_WIRES } from "./cases-asks-fixture.js";

const HOUR_MS = 3_600_000;
const V1 = '{"command":"rm -r build"}';
const V2 = '{"command":"rm -r build --dry-run"}';
const V3 = '{"command":"ls build"}';

let folder: StoreFolder;
let service: TestService;
let clock: MovableClock;

beforeAll(async () => {
  folder = await makeStoreFolder();
  clock = new MovableClock();
  service = await startTestService({ store: folder.store, nowMs: clock.nowMs });
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

function textOf(call: Pick<ToolCall, "result">): string {
  return new TextDecoder().decode(call.result?.content?.data);
}

/** What a call came to, in words. */
function endOf(call: ToolCall): readonly [string, string] {
  return [ToolCallState[call.state], Ran[call.ran]];
}

const OPEN_STATES = new Set([
  ToolCallState.ACCEPTED,
  ToolCallState.AWAITING_ANSWER,
  ToolCallState.AWAITING_AUTHORIZATION,
  ToolCallState.STARTED,
]);

/** Calls that an ended run left open or without a result, and blocked ones that name no hook. */
function unsettledOf(calls: readonly ToolCall[]): string[] {
  return calls
    .filter(({ state, result, blockedByHookId }) => {
      const blockedByNobody = state === ToolCallState.BLOCKED && blockedByHookId === undefined;
      return OPEN_STATES.has(state) || result === undefined || blockedByNobody;
    })
    .map(({ toolCallId }) => toolCallId);
}

async function recordEnd(
  clients: Clients,
  run: OpenRun,
  toolCallId: string,
  value: { readonly end: ToolCallState; readonly blockedByHookId?: string },
): Promise<ToolCall> {
  const result = { case: "canonical" as const, value };
  const request = { ...of(run), command: { toolCallId, result } };
  return given((await clients.calls.recordResult(request)).toolCall, "call");
}

/** A turn of equal calls. */
function turnOf(clients: Clients, run: OpenRun, count: number): Promise<ToolCall[]> {
  return acceptTurn(
    clients,
    run,
    Array.from({ length: count }, () => newCall(undefined, "bash", V1)),
  );
}

/** The ids of a turn's calls. */
async function idsOfTurn(clients: Clients, run: OpenRun, count: number): Promise<string[]> {
  return (await turnOf(clients, run, count)).map(({ toolCallId }) => toolCallId);
}

describe.each(TWO_WIRES)("over %s", (wire) => {
  const connect = () => service.clients(wire);

  describe("B23 what is cut off ends with a result of its own", () => {
    test("and a late result stays evidence beside it", async () => {
      const clients = connect();
      const run = await openRun(clients, StartGate.REQUIRED);
      const { sessionId } = run;
      const ids = await idsOfTurn(clients, run, 3);
      for (const id of ids) await startCall(clients, run, id);
      const [first = "", second = "", third = ""] = ids;
      await complete(clients, run, first, "the real one");
      const outcome = RunOutcome.INTERRUPTED;
      const ended = await endRun(clients, run, {
        outcome,
        interruptedToolCallIds: [second, third],
      });
      expect(ended).toEqual([second, third]);

      const calls = await allCalls(clients, sessionId);
      expect(calls.map(endOf)).toEqual([
        ["COMPLETED", "YES"],
        ["INTERRUPTED", "YES"],
        ["INTERRUPTED", "YES"],
      ]);
      const { CANONICAL, SYNTHETIC } = ToolResultKind;
      expect(calls.map(({ result }) => result?.kind)).toEqual([CANONICAL, SYNTHETIC, SYNTHETIC]);

      await complete(clients, run, second, "late, but real");
      const late = await readCall(clients, sessionId, second);
      const { lateResult, revision, ...rest } = late;
      const before = given(calls[1], "call");
      expect(rest).toEqual({ ...before, revision: undefined });
      expect(revision).toBeGreaterThan(given(before.revision, "revision"));
      expect(textOf({ result: given(lateResult, "late result") })).toBe("late, but real");
      expect((await allEvents(clients, sessionId)).at(-1)?.kind).toBe("LATE_RESULT_RECORDED");
      expect(await readCall(clients, sessionId, third)).toEqual(calls[2]);

      const next = await beginRun(clients, sessionId);
      for (const id of [first, second]) {
        const again = await refused(complete(clients, next, id, "once more"));
        expect(again).toMatchObject({ reason: "RESULT_ALREADY_RECORDED" });
      }
      expect(await readCall(clients, sessionId, second)).toEqual(late);
    });

    test("and what the harness lists against a recorded start is refused", async () => {
      const clients = connect();
      const run = await openRun(clients, StartGate.REQUIRED);
      const [started = "", unstarted = ""] = await idsOfTurn(clients, run, 2);
      await startCall(clients, run, started);
      const { INTERRUPTED: outcome } = RunOutcome;
      const lists = [
        { outcome, notRunToolCallIds: [started] },
        { outcome, interruptedToolCallIds: [unstarted] },
      ];
      for (const command of lists) {
        const refusal = await expectNothingWritten(service, run.sessionId, (requestId) =>
          clients.runs.endRun({ ...of(run, requestId), command }),
        );
        expect(refusal.reason).toBe("RUN_END_CONTRADICTS_START");
      }
    });
  });

  describe("B24 denied, interrupted, blocked and timed out are four different ends", () => {
    test("each with what is known of its running and a text of its own", async () => {
      const clients = connect();
      const run = await openRun(clients, StartGate.REQUIRED);
      const [denied = "", cutOff = "", blocked = "", slow = ""] = await idsOfTurn(clients, run, 4);
      await answer(clients, await openAsk(clients, run, denied), Verdict.DENY);
      for (const id of [cutOff, slow]) await startCall(clients, run, id);
      const { hookId: blockedByHookId } = await publishHook(clients, run, blocked);
      await recordEnd(clients, run, blocked, { end: ToolCallState.BLOCKED, blockedByHookId });
      await recordEnd(clients, run, slow, { end: ToolCallState.TIMED_OUT });
      const outcome = RunOutcome.INTERRUPTED;
      await endRun(clients, run, { outcome, interruptedToolCallIds: [cutOff] });

      const calls = await allCalls(clients, run.sessionId);
      expect(calls.map(endOf)).toEqual([
        ["DENIED", "NO"],
        ["INTERRUPTED", "YES"],
        ["BLOCKED", "NO"],
        ["TIMED_OUT", "UNKNOWN"],
      ]);
      const texts = calls.map(textOf);
      expect(texts).toEqual([
        "The call was denied. It did not run.",
        "The call was interrupted while it ran. It may have had effects.",
        "The call was blocked by a hook before it started. It did not run.",
        "The call did not finish in time. It is not known whether it had effects.",
      ]);
      const claims = texts.map((text) => text.includes("did not run"));
      expect(claims).toEqual(calls.map(({ ran }) => ran === Ran.NO));
      expect(calls.every(({ result }) => result?.kind === ToolResultKind.SYNTHETIC)).toBe(true);
    });

    test.each([
      ["OFF", StartGate.OFF],
      ["REQUIRED", StartGate.REQUIRED],
    ])("and no denial reaches a call whose start is recorded, gate %s", async (_name, gate) => {
      const clients = connect();
      const run = await openRun(clients, gate);
      const { toolCallId } = await acceptCall(clients, run);
      await startCall(clients, run, toolCallId);
      const { hookId } = await publishHook(clients, run, toolCallId);
      const canonical = (value: { end: ToolCallState; blockedByHookId?: string }) => ({
        command: { toolCallId, result: { case: "canonical" as const, value } },
      });
      const ask = { toolCallId, kind: AskKind.ACTION, provenance: AskProvenance.PERMISSION };
      const sends: readonly (readonly [string, (requestId: string) => Promise<unknown>])[] = [
        ["TOOL_CALL_STARTED", (id) => clients.calls.openAsk({ ...of(run, id), command: ask })],
        [
          "TOOL_CALL_STARTED",
          (id) =>
            clients.calls.recordResult({
              ...of(run, id),
              ...canonical({ end: ToolCallState.BLOCKED, blockedByHookId: hookId }),
            }),
        ],
        [
          "FIELD_INVALID",
          (id) =>
            clients.calls.recordResult({
              ...of(run, id),
              ...canonical({ end: ToolCallState.DENIED }),
            }),
        ],
        [
          "RUN_END_CONTRADICTS_START",
          (id) =>
            clients.runs.endRun({
              ...of(run, id),
              command: { outcome: RunOutcome.COMPLETED, notRunToolCallIds: [toolCallId] },
            }),
        ],
      ];
      for (const [reason, send] of sends) {
        const refusal = await expectNothingWritten(service, run.sessionId, send);
        expect(refusal.reason).toBe(reason);
      }
      // A denial of the result is none of the call: it ran.
      const kind = AskKind.RESULT_RELEASE;
      const held = { kind, heldSha256: sha256(bytes("secret")), heldSizeBytes: 6n };
      await answer(clients, await openAsk(clients, run, toolCallId, held), Verdict.DENY);
      expect(endOf(await readCall(clients, run.sessionId, toolCallId))).toEqual(["STARTED", "YES"]);
      await endRun(clients, run, { outcome: RunOutcome.COMPLETED });
      const end = await readCall(clients, run.sessionId, toolCallId);
      expect(endOf(end)).toEqual(["WITHHELD", "YES"]);
    });

    test("and a call cannot start while the question is open, nor after the denial", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const { toolCallId } = await acceptCall(clients, run);
      const ask = await openAsk(clients, run, toolCallId);
      const waiting = await refused(startCall(clients, run, toolCallId));
      expect(waiting).toMatchObject({
        reason: "START_NOT_ALLOWED",
        metadata: { tool_call_id: toolCallId, ask_id: ask.askId },
      });
      await answer(clients, ask, Verdict.DENY);
      const denied = await refused(startCall(clients, run, toolCallId));
      expect(denied).toMatchObject({
        reason: "TOOL_CALL_ENDED",
        metadata: { tool_call_id: toolCallId, state: "DENIED" },
      });
    });
  });

  describe("B26 a closed turn leaves no call open", () => {
    test.each([
      [
        "the run ends",
        (clients: Clients, run: OpenRun) => endRun(clients, run, { outcome: RunOutcome.COMPLETED }),
      ],
      [
        "the session ends",
        (clients: Clients, { sessionId }: OpenRun) =>
          clients.sessions.endSession({ sessionId, requestId: "end" }),
      ],
    ])("when %s", async (_how, close) => {
      const clients = connect();
      const run = await openRun(clients, StartGate.REQUIRED);
      const ids = await idsOfTurn(clients, run, 6);
      const [done = "", blocked = "", denied = "", crashed = "", asked = "", idle = ""] = ids;
      for (const id of [done, crashed]) await startCall(clients, run, id);
      await complete(clients, run, done);
      const { hookId } = await publishHook(clients, run, blocked);
      const end = ToolCallState.BLOCKED;
      await recordEnd(clients, run, blocked, { end, blockedByHookId: hookId });
      await answer(clients, await openAsk(clients, run, denied), Verdict.DENY);
      const open = await openAsk(clients, run, asked);
      expect(unsettledOf(await allCalls(clients, run.sessionId))).toEqual([
        denied,
        crashed,
        asked,
        idle,
      ]);
      await close(clients, run);

      const calls = await allCalls(clients, run.sessionId);
      expect(unsettledOf(calls)).toEqual([]);
      expect(calls.map(endOf)).toEqual([
        ["COMPLETED", "YES"],
        ["BLOCKED", "NO"],
        ["DENIED", "NO"],
        ["OUTCOME_UNKNOWN", "UNKNOWN"],
        ["CANCELLED", "NO"],
        ["CANCELLED", "NO"],
      ]);
      const byHook = calls.map(({ blockedByHookId }) => blockedByHookId);
      expect(byHook).toEqual([undefined, hookId, ...Array.from({ length: 4 }, () => undefined)]);
      const { ask } = await showAsk(clients, run.sessionId, open.askId);
      expect(ask.state).toBe(AskState.WITHDRAWN);
    });

    test("and a block that names no hook of the call is refused", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const [one = "", other = ""] = await idsOfTurn(clients, run, 2);
      const { hookId } = await publishHook(clients, run, other);
      const { BLOCKED: end } = ToolCallState;
      const refusals = [];
      for (const blockedByHookId of [hookId, "hk_00000000000000000000000000", undefined]) {
        const value = blockedByHookId === undefined ? { end } : { end, blockedByHookId };
        const result = { case: "canonical" as const, value };
        const refusal = await expectNothingWritten(service, run.sessionId, (requestId) =>
          clients.calls.recordResult({
            ...of(run, requestId),
            command: { toolCallId: one, result },
          }),
        );
        refusals.push(refusal.reason);
      }
      expect(refusals).toEqual(["REFERENCE_MISMATCH", "HOOK_NOT_FOUND", "FIELD_INVALID"]);
    });
  });

  describe("B39 an allow is good for one call, one digest, once, in time", () => {
    const startWith = (clients: Clients, run: OpenRun, toolCallId: string, text: string) => {
      const command = { toolCallId, argumentsSha256: sha256(bytes(text)) };
      return (requestId: string) => clients.calls.startToolCall({ ...of(run, requestId), command });
    };

    test("another digest is refused and spends nothing, the same one starts it, once", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const { toolCallId } = await acceptCall(clients, run, newCall(undefined, "bash", V1));
      const receipt = await answer(clients, await openAsk(clients, run, toolCallId));
      expect(receipt).toMatchObject({
        toolCallId,
        toolName: "bash",
        presentedSha256: new Uint8Array(sha256(bytes(V1))),
        spendState: SpendState.UNSPENT,
      });
      const other = startWith(clients, run, toolCallId, V2);
      const refusal = await expectNothingWritten(service, run.sessionId, other);
      expect(refusal).toMatchObject({
        code: Code.FailedPrecondition,
        reason: "ARGUMENTS_MISMATCH",
        metadata: { tool_call_id: toolCallId },
      });
      expect(await allReceipts(clients, run.sessionId)).toEqual([receipt]);

      const same = startWith(clients, run, toolCallId, V1);
      const { toolCall } = await same("start");
      expect(toolCall).toMatchObject({ state: ToolCallState.STARTED, ran: Ran.YES });
      const spent = await allReceipts(clients, run.sessionId);
      expect(spent.map(({ spendState }) => spendState)).toEqual([SpendState.SPENT]);
      const again = await expectNothingWritten(service, run.sessionId, same);
      expect(again.reason).toBe("TOOL_CALL_STARTED");
      // The first request again is the first start, not another.
      expect((await same("start")).toolCall).toEqual(toolCall);
    });

    test("arguments that changed after the answer make it void", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const { toolCallId } = await acceptCall(clients, run, newCall(undefined, "bash", V1));
      await answer(clients, await openAsk(clients, run, toolCallId), Verdict.ALLOW_ALWAYS);
      await amendCall(clients, run, toolCallId, V2);
      const states = async () =>
        (await allReceipts(clients, run.sessionId)).map(({ spendState }) => SpendState[spendState]);
      expect(await states()).toEqual(["VOID"]);
      const reasons = [];
      for (const text of [V1, V2]) {
        const send = startWith(clients, run, toolCallId, text);
        reasons.push((await expectNothingWritten(service, run.sessionId, send)).reason);
      }
      expect(reasons).toEqual(["ARGUMENTS_MISMATCH", "START_NOT_ALLOWED"]);
      await amendCall(clients, run, toolCallId, V1);
      const back = await refused(startCall(clients, run, toolCallId));
      expect(back.reason).toBe("START_NOT_ALLOWED");
      await answer(clients, await openAsk(clients, run, toolCallId));
      await startCall(clients, run, toolCallId);
      expect(await states()).toEqual(["VOID", "SPENT"]);
    });

    test("an ask that expired starts nothing, nor does the allow of an equal sibling", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const [late = "", allowed = "", sibling = ""] = await idsOfTurn(clients, run, 3);
      const expireTime = timestampFromMs(clock.nowMs() + HOUR_MS);
      const expiring = await openAsk(clients, run, late, { expireTime });
      await answer(clients, await openAsk(clients, run, allowed));
      const waiting = await openAsk(clients, run, sibling);
      clock.aheadMs += HOUR_MS;
      const sends = [startWith(clients, run, late, V1), startWith(clients, run, sibling, V1)];
      const expired = await refused(given(sends[0], "send")("late start"));
      expect(expired).toMatchObject({
        reason: "TOOL_CALL_ENDED",
        metadata: { tool_call_id: late, state: "EXPIRED" },
      });
      const refusal = await expectNothingWritten(service, run.sessionId, given(sends[1], "send"));
      expect(refusal).toMatchObject({
        reason: "START_NOT_ALLOWED",
        metadata: { tool_call_id: sibling, ask_id: waiting.askId },
      });
      const { ask } = await showAsk(clients, run.sessionId, expiring.askId);
      expect(ask.state).toBe(AskState.EXPIRED);
      await startCall(clients, run, allowed);
    });
  });

  test("B40 proposed, presented and effective arguments stay apart", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const { sessionId } = run;
    const { toolCallId } = await acceptCall(clients, run, newCall(undefined, "bash", V1));
    const command = { toolCallId, phase: "pre_tool_use", decision: HookDecision.MODIFIED };
    await clients.evidence.publishHook({ ...of(run), command });
    const mutated = await amendCall(clients, run, toolCallId, V2);
    expect(mutated.toolCallId).toBe(toolCallId);
    const first = await openAsk(clients, run, toolCallId);
    const shown = await showAsk(clients, sessionId, first.askId);
    expect(dataOf(shown.ask.presented)).toBe(V2);
    expect(shown.ask.presented?.sha256).toEqual(new Uint8Array(sha256(bytes(V2))));

    await amendCall(clients, run, toolCallId, V3);
    const call = await readCall(clients, sessionId, toolCallId);
    const { ask: superseded } = await showAsk(clients, sessionId, first.askId);
    const apart = [call.proposed, superseded.presented, call.effective].map(dataOf);
    expect(apart).toEqual([V1, V2, V3]);
    expect(superseded).toMatchObject({ state: AskState.SUPERSEDED });
    expect([superseded.receiptId, superseded.supersededByAskId]).toEqual([undefined, undefined]);
    const stale = answerTo(shown);
    const refusal = await expectNothingWritten(service, sessionId, (requestId) =>
      clients.approvals.answerAsk({ ...stale, requestId }),
    );
    expect(refusal).toMatchObject({
      reason: "ASK_SUPERSEDED",
      metadata: { ask_id: first.askId },
    });
    expect((await refused(startCall(clients, run, toolCallId))).reason).toBe("START_NOT_ALLOWED");

    const second = await openAsk(clients, run, toolCallId);
    expect(dataOf((await showAsk(clients, sessionId, second.askId)).ask.presented)).toBe(V3);
    const { ask: replaced } = await showAsk(clients, sessionId, first.askId);
    expect(replaced.supersededByAskId).toBe(second.askId);
    const again = await refused(clients.approvals.answerAsk(answerTo(shown)));
    expect(again.metadata).toEqual({ ask_id: first.askId, superseded_by_ask_id: second.askId });
    const { presentedSha256 } = await answer(clients, second);
    expect(presentedSha256).toEqual(new Uint8Array(sha256(bytes(V3))));
    await startCall(clients, run, toolCallId);
    const started = await readCall(clients, sessionId, toolCallId);
    expect([started.proposed, started.effective].map(dataOf)).toEqual([V1, V3]);
  });
});

function dataOf(body: Body | undefined): string {
  return new TextDecoder().decode(body?.data);
}
