import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AskKind, AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { ReceiptPath, SpendState, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  allReceipts,
  answer,
  answerTo,
  listedAsks,
  openAsk,
  settle,
  showAsk,
  startCall,
  withdraw,
} from "../support/asking.js";
import {
  acceptCall,
  acceptTurn,
  allCalls,
  allEvents,
  amendCall,
  freshRequestId,
  given,
  newCall,
  openRun,
  readCall,
  type OpenRun,
} from "../support/conversation.js";
import { expectNothingWritten } from "../support/nothing-written.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { startWatchedService, type WatchedService } from "../support/watched-service.js";
import {
  attemptsOf,
  Callers,
  nextAttempt,
  ordersOf,
  principal,
  secretsIn,
  TWO_WIRES,
  type OneOfTwoWires,
} from "./cases-asks-fixture.js";

const APPROVER = principal("ann", { approver: "tenant" });

let folder: StoreFolder;
let service: WatchedService;
/** For what needs no look into its tables. */
let memory: TestService;
let callers: Callers;

beforeAll(async () => {
  folder = await makeStoreFolder();
  service = await startWatchedService({ store: folder.store, principals: { ann: APPROVER } });
  callers = new Callers(service);
  memory = await startTestService();
});

afterAll(async () => {
  callers.disconnect();
  await service.stop();
  await memory.stop();
  await folder.remove();
});

/** A turn of equal calls, each with an open ask, in the order of the turn. */
async function askAboutEach(clients: Clients, run: OpenRun, count: number): Promise<Ask[]> {
  const calls = await acceptTurn(
    clients,
    run,
    Array.from({ length: count }, () => newCall()),
  );
  const asks: Ask[] = [];
  for (const { toolCallId } of calls) asks.push(await openAsk(clients, run, toolCallId));
  return asks;
}

/** A person's answer is refused, writes nothing, and the log of refused attempts says so. */
async function expectRefusedAndLogged(
  wire: OneOfTwoWires,
  request: ReturnType<typeof answerTo>,
  expected: { readonly reason: string; readonly askId: string },
): Promise<void> {
  const { sessionId = "" } = request;
  const { approvals } = callers.as("ann", wire);
  const known = attemptsOf(service, "ann").length;
  const refusal = await expectNothingWritten(service, sessionId, (requestId) =>
    approvals.answerAsk({ ...request, requestId }),
  );
  expect(refusal).toMatchObject({ code: Code.FailedPrecondition, reason: expected.reason });
  expect(await nextAttempt(service, "ann", known)).toMatchObject({
    method: "toolmark.v1.ApprovalService.AnswerAsk",
    tenant: "default",
    sessionId,
    ...expected,
  });
}

describe.each(TWO_WIRES)("over %s", (wire) => {
  const connect = () => service.clients(wire);

  describe("B30 a stale answer never approves the newer call", () => {
    type Settling = (clients: Clients, run: OpenRun, ask: Ask) => Promise<unknown>;
    const endings: readonly (readonly [string, string, Settling])[] = [
      ["withdrawn", "ASK_NOT_OPEN", (clients, run, ask) => withdraw(clients, run, ask.askId)],
      ["answered", "ASK_NOT_OPEN", (clients, _run, ask) => answer(clients, ask, Verdict.DENY)],
      [
        "superseded by amended arguments",
        "ASK_SUPERSEDED",
        (clients, run, ask) => amendCall(clients, run, ask.toolCallId, "{}"),
      ],
      [
        "replaced by a newer one",
        "ASK_SUPERSEDED",
        (clients, run, ask) => openAsk(clients, run, ask.toolCallId),
      ],
    ];

    test.each(endings)("once its ask is %s", async (_how, reason, end) => {
      const clients = connect();
      const person = callers.as("ann", wire);
      const run = await openRun(clients);
      const older = await acceptCall(clients, run);
      const stale = await showAsk(
        person,
        run.sessionId,
        (await openAsk(clients, run, older.toolCallId)).askId,
      );
      await end(clients, run, stale.ask);
      const newer = await acceptCall(clients, run);
      const pending = await openAsk(clients, run, newer.toolCallId);
      const shown = await showAsk(clients, run.sessionId, pending.askId);

      await expectRefusedAndLogged(wire, answerTo(stale), { reason, askId: stale.ask.askId });
      expect(await showAsk(clients, run.sessionId, pending.askId)).toEqual(shown);
      const receipts = await allReceipts(clients, run.sessionId);
      expect(receipts.filter(({ toolCallId }) => toolCallId === newer.toolCallId)).toEqual([]);
      const tokens = [stale.answerToken, shown.answerToken];
      expect(tokens.map((token) => token.length)).toEqual([43, 43]);
      expect(secretsIn(service.logged(), tokens)).toEqual([]);
    });

    test("nor if it names the newer ask, or the newer ask and call", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const [older, newer] = await askAboutEach(clients, run, 2);
      const { askId, toolCallId } = given(newer, "ask");
      const stale = await showAsk(clients, run.sessionId, given(older, "ask").askId);
      await withdraw(clients, run, stale.ask.askId);
      const click = { ...answerTo(stale), askId };
      await expectRefusedAndLogged(wire, click, { reason: "ANSWER_MISMATCH", askId });
      const reason = "ANSWER_TOKEN_INVALID";
      await expectRefusedAndLogged(wire, { ...click, toolCallId }, { reason, askId });
      const open = await listedAsks(clients, { sessionId: run.sessionId });
      expect(open.map(({ ask }) => ask.askId)).toEqual([askId]);
    });
  });

  describe("B31 an answer settles its own ask alone", () => {
    test.each([
      ["ALLOW_ONCE", Verdict.ALLOW_ONCE],
      ["ALLOW_ALWAYS", Verdict.ALLOW_ALWAYS],
    ])("%s of the second of three", async (_name, verdict) => {
      const clients = connect();
      const run = await openRun(clients);
      const asks = await askAboutEach(clients, run, 3);
      const receipt = await answer(clients, given(asks[1], "ask"), verdict);

      expect(receipt).toMatchObject({ verdict, path: ReceiptPath.HUMAN, askId: asks[1]?.askId });
      expect(await allReceipts(clients, run.sessionId)).toEqual([receipt]);
      const open = await listedAsks(clients, { sessionId: run.sessionId });
      expect(open.map(({ ask }) => ask.askId)).toEqual([asks[0]?.askId, asks[2]?.askId]);
      const calls = await allCalls(clients, run.sessionId);
      expect(calls.map(({ state }) => ToolCallState[state])).toEqual([
        "AWAITING_ANSWER",
        "ACCEPTED",
        "AWAITING_ANSWER",
      ]);
      const early = await refused(startCall(clients, run, given(asks[0], "ask").toolCallId));
      expect(early).toMatchObject({
        reason: "START_NOT_ALLOWED",
        metadata: { ask_id: asks[0]?.askId },
      });
    });

    test("what follows from ALLOW_ALWAYS is a receipt of its own that names the rule", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const [first, second, third] = await askAboutEach(clients, run, 3);
      const said = await answer(clients, given(second, "ask"), Verdict.ALLOW_ALWAYS);
      const rule = `bash is allowed, says ${said.receiptId}`;
      const followed = [];
      for (const ask of [first, third]) {
        const command = { path: ReceiptPath.RULE, rule, verdict: Verdict.ALLOW_ONCE };
        const { askId } = given(ask, "ask");
        followed.push(await settle(clients, run, { askId, ...command }));
      }

      const receipts = await allReceipts(clients, run.sessionId);
      expect(receipts).toEqual([said, ...followed]);
      expect(
        receipts.map(({ askId, rule: by, path, verdict }) => [askId, by, path, verdict]),
      ).toEqual([
        [second?.askId, undefined, ReceiptPath.HUMAN, Verdict.ALLOW_ALWAYS],
        [first?.askId, rule, ReceiptPath.RULE, Verdict.ALLOW_ONCE],
        [third?.askId, rule, ReceiptPath.RULE, Verdict.ALLOW_ONCE],
      ]);
      expect(await listedAsks(clients, { sessionId: run.sessionId })).toEqual([]);
    });
  });

  describe("B32 every verdict reaches its own call and question", () => {
    const HELD = { heldSha256: new Uint8Array(32).fill(7), heldSizeBytes: 12n };
    /** What is answered to the release of the first call's result, and to each of its siblings. */
    const VERDICTS = [Verdict.ALLOW_ONCE, Verdict.DENY, Verdict.ALLOW_ALWAYS, Verdict.DENY];

    /** A call that was asked about twice, and three siblings: four open asks, and the settled one. */
    async function askAboutAll(clients: Clients, run: OpenRun) {
      const [first, ...siblings] = await askAboutEach(clients, run, 4);
      const action = given(first, "ask");
      await answer(clients, action);
      await startCall(clients, run, action.toolCallId);
      const kind = AskKind.RESULT_RELEASE;
      const release = await openAsk(clients, run, action.toolCallId, { kind, ...HELD });
      return { action, asks: [release, ...siblings] };
    }

    async function expectEachItsOwn(
      clients: Clients,
      { sessionId }: OpenRun,
      { action, asks }: Awaited<ReturnType<typeof askAboutAll>>,
    ): Promise<void> {
      expect(new Set([action, ...asks].map(({ askId }) => askId)).size).toBe(5);
      const receipts = await allReceipts(clients, sessionId);
      const { ANSWERED: state } = AskState;
      const answered = (await listedAsks(clients, { sessionId, state })).map(({ ask }) => ask);
      expect(answered.length).toBe(5);
      const calls = await allCalls(clients, sessionId);
      for (const [index, { askId, toolCallId, kind, presented }] of asks.entries()) {
        const ofAsk = receipts.filter((receipt) => receipt.askId === askId);
        expect(ofAsk).toMatchObject([
          { toolCallId, verdict: VERDICTS[index], presentedSha256: presented?.sha256 },
        ]);
        const settled = answered.find((ask) => ask.askId === askId);
        expect(settled).toMatchObject({ state, toolCallId, kind });
        expect(settled?.receiptId).toBe(ofAsk[0]?.receiptId);
      }
      expect(calls.map((call) => ToolCallState[call.state])).toEqual([
        "STARTED",
        "DENIED",
        "ACCEPTED",
        "DENIED",
      ]);
    }

    async function shownOf(clients: Clients, sessionId: string, asks: readonly Ask[]) {
      const shown = await listedAsks(clients, { sessionId });
      return asks.map(({ askId }) =>
        given(
          shown.find(({ ask }) => ask.askId === askId),
          "ask",
        ),
      );
    }

    test("in all 24 orders", async () => {
      const clients = memory.clients(wire);
      for (const order of ordersOf([0, 1, 2, 3])) {
        const run = await openRun(clients);
        const asked = await askAboutAll(clients, run);
        const shown = await shownOf(clients, run.sessionId, asked.asks);
        for (const place of order) {
          const request = answerTo(given(shown[place], "ask"), VERDICTS[place]);
          const { receipt } = await clients.approvals.answerAsk(request);
          expect(receipt?.askId).toBe(asked.asks[place]?.askId);
        }
        await expectEachItsOwn(clients, run, asked);
      }
    });

    test("when all are answered at once", async () => {
      const clients = memory.clients(wire);
      const run = await openRun(clients);
      const asked = await askAboutAll(clients, run);
      const shown = await shownOf(clients, run.sessionId, asked.asks);
      const replies = await Promise.all(
        shown.map((one, place) =>
          memory.clients(wire).approvals.answerAsk(answerTo(one, VERDICTS[place])),
        ),
      );
      expect(replies.map(({ receipt }) => receipt?.askId)).toEqual(
        asked.asks.map(({ askId }) => askId),
      );
      await expectEachItsOwn(clients, run, asked);
    });

    test("and an answer with the call of another is refused", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const { action, asks } = await askAboutAll(clients, run);
      const [release, sibling] = await shownOf(clients, run.sessionId, asks);
      const { toolCallId } = given(sibling, "ask").ask;
      const crossed = { ...answerTo(given(release, "ask")), toolCallId };
      const settled = { ...answerTo(given(release, "ask")), askId: action.askId };
      const reasons: string[] = [];
      for (const request of [crossed, settled]) {
        const refusal = await expectNothingWritten(service, run.sessionId, (requestId) =>
          clients.approvals.answerAsk({ ...request, requestId }),
        );
        reasons.push(refusal.reason);
      }
      expect(reasons).toEqual(["ANSWER_MISMATCH", "ASK_NOT_OPEN"]);
    });
  });

  test("B37 of fifty answers at once one makes a receipt, and the others are told which", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const { toolCallId } = await acceptCall(clients, run);
    const { askId } = await openAsk(clients, run, toolCallId);
    const shown = await showAsk(clients, run.sessionId, askId);
    const tabs = Array.from({ length: 5 }, connect);
    const requests = Array.from({ length: 50 }, (_, index) =>
      answerTo(shown, index % 2 === 0 ? Verdict.ALLOW_ONCE : Verdict.DENY),
    );
    const sent = requests.map((request, index) =>
      given(tabs[index % tabs.length], "tab").approvals.answerAsk(request),
    );
    const outcomes = await Promise.allSettled(sent);

    const won = outcomes.flatMap((outcome, index) =>
      outcome.status === "fulfilled" ? [{ index, receipt: outcome.value.receipt }] : [],
    );
    const [winner] = won;
    const receipt = given(winner?.receipt, "receipt");
    expect(won.length).toBe(1);
    const request = given(requests[given(winner, "winner").index], "request");
    expect(receipt).toMatchObject({ askId, toolCallId, verdict: request.verdict });
    expect(await allReceipts(clients, run.sessionId)).toEqual([receipt]);
    const notOpen = {
      code: Code.FailedPrecondition,
      reason: "ASK_NOT_OPEN",
      metadata: { ask_id: askId, receipt_id: receipt.receiptId },
    };
    for (const [index, call] of sent.entries()) {
      if (index !== winner?.index) expect(await refused(call)).toMatchObject(notOpen);
    }
    const { state } = await readCall(clients, run.sessionId, toolCallId);
    const isAllowed = receipt.verdict === Verdict.ALLOW_ONCE;
    expect(state).toBe(isAllowed ? ToolCallState.ACCEPTED : ToolCallState.DENIED);

    // Whoever sends its answer again is told the same again.
    const events = await allEvents(clients, run.sessionId);
    expect((await clients.approvals.answerAsk(request)).receipt).toEqual(receipt);
    const loser = given(requests[(given(winner, "winner").index + 1) % 50], "request");
    expect(await refused(clients.approvals.answerAsk(loser))).toMatchObject(notOpen);
    expect(await allEvents(clients, run.sessionId)).toEqual(events);
  });
});

describe("what these tests look with", () => {
  test("sees an answer that was written before the refusal", async () => {
    const clients = memory.clients();
    const run = await openRun(clients);
    const [first, second] = await askAboutEach(clients, run, 2);
    const leaky = async (requestId: string): Promise<void> => {
      await answer(clients, given(first, "ask"));
      const shown = await showAsk(clients, run.sessionId, given(second, "ask").askId);
      await clients.approvals.answerAsk({ ...answerTo(shown), requestId, toolCallId: "tc_other" });
    };
    const checked = expectNothingWritten(memory, run.sessionId, leaky);
    await expect(checked).rejects.toThrow(/to deeply/);
    const receipts = await allReceipts(clients, run.sessionId);
    expect(receipts.map(({ spendState }) => spendState)).toEqual([SpendState.UNSPENT]);
  });

  test("sees a token in a log", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    const [ask] = await askAboutEach(clients, run, 1);
    const { answerToken } = await showAsk(clients, run.sessionId, given(ask, "ask").askId);
    // An id is logged, so a token that is sent for one is found.
    const asId = { sessionId: run.sessionId, askId: answerToken };
    const known = attemptsOf(service, "ann").length;
    expect((await refused(callers.as("ann").approvals.getAsk(asId))).reason).toBe("ASK_NOT_FOUND");
    await nextAttempt(service, "ann", known);
    expect(secretsIn(service.logged(), [answerToken, freshRequestId()])).toEqual([answerToken]);
  });
});
