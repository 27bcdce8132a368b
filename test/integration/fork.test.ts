import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Event } from "../../gen/toolmark/v1/event_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { RunOutcome } from "../../gen/toolmark/v1/run_pb.js";
import { DelegationKind, SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  answer,
  answerTo,
  askAbout,
  openAsk,
  park,
  publishReview,
  reviewOf,
  showAsk,
} from "../support/asking.js";
import {
  acceptCall,
  allCalls,
  allEvents,
  beginRun,
  bytes,
  complete,
  endRun,
  freshRequestId,
  given,
  newCall,
  of,
  publishHook,
  readSession,
  type OpenRun,
} from "../support/conversation.js";
import { writeForkSource, type ForkSource } from "../support/fork-source.js";
import {
  copyFaults,
  fork,
  forkedOf,
  highestPoint,
  readBase,
  readLists,
} from "../support/forking.js";
import { readBack, type ReadBack } from "../support/read-back.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";

let service: TestService;
let clients: Clients;

beforeAll(async () => {
  service = await startTestService({ flags: ["--snapshot-every", "4"] });
  clients = service.clients();
});

afterAll(() => service.stop());

function revisionsOf(events: readonly Event[]): bigint[] {
  return events.flatMap(({ revision }) => revision ?? []);
}

async function expectSound(sessionId: string): Promise<void> {
  const { head } = await clients.sessions.verifySession({ sessionId });
  expect(head).toEqual((await readSession(clients, sessionId)).checkpoint);
}

describe("a fork of a session with records of every kind", () => {
  let source: ForkSource;
  let events: Event[];
  let before: Awaited<ReturnType<typeof readBack>>;

  beforeAll(async () => {
    source = await writeForkSource(clients);
    events = await allEvents(clients, source.run.sessionId);
    before = await readBack(clients, source.run.sessionId, 500);
  });

  /** After every test: whatever was done in forks, the source is as it was. */
  afterAll(async () => {
    expect(await readBack(clients, source.run.sessionId, 500)).toEqual(before);
    await expectSound(source.run.sessionId);
  });

  test("has each settled record as it stood, and begins at the source's chain and high-water", async () => {
    const { sessionId } = source.run;
    const at = (kind: string) => BigInt(events.findIndex((event) => event.kind === kind) + 1);
    const cuts = [0n, at("RESULT_RECORDED") + 2n, at("LATE_RESULT_RECORDED") - 1n];
    for (const cut of cuts) {
      const forked = await fork(clients, sessionId, cut);
      const through = cut === 0n ? BigInt(events.length) : cut;
      const { sequence } = given(forked.forkedFrom, "point");
      expect(sequence).toBe(highestPoint(events, through));
      expect(await copyFaults(clients, { events }, forked)).toEqual([]);
      await expectSound(forked.sessionId);
      const own = await allEvents(clients, forked.sessionId);
      expect(own.map(({ kind, revision }) => [kind, revision])).toEqual([["FORKED", undefined]]);
      const { sourceChain: chain, highWater } = forkedOf(own);
      const { position = 0n } = events[Number(sequence) - 1] ?? {};
      await clients.sessions.verifySession({
        sessionId,
        checkpoint: { sessionId, sequence, position, chain },
      });
      const revisions = revisionsOf(events.slice(0, Number(sequence)));
      expect(highWater).toBe(revisions.at(-1) ?? 0n);
    }
  });

  test("lacks what still waits, and a turn that goes on with all that came after it", async () => {
    const forked = await fork(clients, source.run.sessionId);
    const { sessionId } = forked;
    const turn = events.findLastIndex(({ kind }) => kind === "TURN_ACCEPTED");
    expect(forked.forkedFrom?.sequence).toBe(BigInt(turn));
    const { history, approvals } = clients;
    for (const toolCallId of source.open.callIds) {
      const reading = history.getToolCall({ sessionId, toolCallId });
      expect((await refused(reading)).reason).toBe("TOOL_CALL_NOT_FOUND");
    }
    const [openId = "", allowedId = "", receiptId = "", authorizationId = "", hookId = ""] =
      source.open.recordIds;
    const reads = [
      approvals.getAsk({ sessionId, askId: openId }),
      approvals.getAsk({ sessionId, askId: allowedId }),
      approvals.getReceipt({ sessionId, receiptId }),
      history.getAuthorization({ sessionId, authorizationId }),
      history.getHook({ sessionId, hookId }),
    ];
    for (const reading of reads) expect((await refused(reading)).reason).toMatch(/_NOT_FOUND$/);
    expect((await readSession(clients, sessionId)).activeRunId).toBeUndefined();
    const { records } = await readBase(clients, sessionId);
    const runs = records.filter(({ record }) => record?.record.case === "run");
    expect(runs).toHaveLength(1);
  });

  test("lists copied and own records together, one to a page", async () => {
    const { sessionId } = await fork(clients, source.run.sessionId);
    const run = await beginRun(clients, sessionId);
    const ask = await askAbout(clients, run);
    const { receiptId } = await answer(clients, ask);
    const parked = await acceptCall(clients, run, newCall("call_0"));
    const { authorizationId } = await park(clients, run, parked.toolCallId);
    const { hookId } = await publishHook(clients, run, parked.toolCallId);
    const all = await readLists(clients, sessionId, 500);
    expect(await readLists(clients, sessionId, 1)).toEqual(all);
    const idsOf = (
      read: Omit<ReadBack, "session" | "callsById" | "asks" | "events" | "bodies">,
    ) => ({
      calls: read.calls.map(({ toolCallId }) => toolCallId),
      hooks: read.hooks.map((each) => each.hookId),
      receipts: read.receipts.map((each) => each.receiptId),
      authorizations: read.authorizations.map((each) => each.authorizationId),
    });
    const copied = idsOf(before);
    const settled = (id: string) => !source.open.recordIds.includes(id);
    expect(idsOf(all)).toEqual({
      calls: [
        ...copied.calls.filter((id) => !source.open.callIds.includes(id)),
        ...[ask.toolCallId, parked.toolCallId],
      ],
      hooks: [...copied.hooks.filter(settled), hookId],
      receipts: [...copied.receipts.filter(settled), receiptId],
      authorizations: [...copied.authorizations.filter(settled), authorizationId],
    });
    expect(all.calls[0]).toMatchObject({ inheritedFromSessionId: source.run.sessionId });
    expect(all.calls.at(-1)?.inheritedFromSessionId).toBeUndefined();
    const ofCall = { sessionId, toolCallId: source.allowedId, pageSize: 1 };
    const { hooks, nextPageToken } = await clients.history.listHooks(ofCall);
    const next = await clients.history.listHooks({ ...ofCall, pageToken: nextPageToken });
    expect([...hooks, ...next.hooks].map((hook) => hook.toolCallId)).toEqual([
      ...[source.allowedId, source.allowedId],
    ]);
    expect(next.nextPageToken).toBe("");
    await expectSound(sessionId);
  });

  test("counts on above every copied revision, and names itself in what is new", async () => {
    const { sessionId } = await fork(clients, source.run.sessionId);
    const { highWater } = await readSession(clients, sessionId);
    const copied = (await allCalls(clients, sessionId)).map(({ revision = 0n }) => revision);
    const run = await beginRun(clients, sessionId);
    // The provider's ids of copied calls may come again.
    const call = await acceptCall(clients, run, newCall("call_0"));
    expect(copied.every((revision) => revision < (call.revision ?? 0n))).toBe(true);
    expect(call.revision).toBe((highWater ?? 0n) + 1n);
    expect(call.origin?.sessionId).toBe(sessionId);
    expect(before.calls.map(({ toolCallId }) => toolCallId)).not.toContain(call.toolCallId);
    await complete(clients, run, call.toolCallId);
    await endRun(clients, run, { outcome: RunOutcome.COMPLETED });
    await clients.sessions.endSession({ requestId: "end", sessionId });
    await expectSound(sessionId);
  });

  describe("takes no evidence about a call that it copied:", () => {
    let run: OpenRun;

    beforeAll(async () => {
      run = await beginRun(clients, (await fork(clients, source.run.sessionId)).sessionId);
    });

    const canonical = { case: "canonical" as const, value: { content: { data: bytes("other") } } };
    const provisional = { case: "provisional" as const, value: { chunk: bytes("other") } };
    const about = (id: string, command: object) => ({
      ...of(run),
      command: { toolCallId: id, ...command },
    });
    const { SUBAGENT: kind } = DelegationKind;
    const sends: [string, (id: string) => Promise<unknown>][] = [
      ["a hook", (id) => publishHook(clients, run, id)],
      ["a review", (id) => publishReview(clients, run, reviewOf(id))],
      ["a result", (id) => clients.calls.recordResult(about(id, { result: canonical }))],
      ["output", (id) => clients.calls.recordResult(about(id, { result: provisional }))],
      [
        "an end",
        (id) => {
          const end = { end: ToolCallState.COMPLETED, content: { data: bytes("so") } };
          return clients.calls.reconcileToolCall(about(id, end));
        },
      ],
      [
        "other arguments",
        (id) => clients.calls.amendToolCall(about(id, { effective: { data: bytes("{}") } })),
      ],
      [
        "a start",
        (id) => clients.calls.startToolCall(about(id, { argumentsSha256: new Uint8Array(32) })),
      ],
      ["an ask", (id) => openAsk(clients, run, id)],
      ["a wait", (id) => park(clients, run, id)],
      [
        "a delegation",
        (id) => {
          const delegation = { parentSessionId: run.sessionId, parentToolCallId: id, kind };
          const requestId = freshRequestId();
          return clients.sessions.createSession({
            ...{ requestId, kind: SessionKind.SUBAGENT, delegation },
          });
        },
      ],
    ];

    test.each(sends)("%s", async (_what, send) => {
      const { sessionId } = run;
      const written = await allEvents(clients, sessionId);
      for (const id of [source.allowedId, source.lateId]) {
        const refusal = await refused(send(id));
        expect(refusal).toMatchObject({ reason: "CALL_INHERITED", metadata: { tool_call_id: id } });
      }
      expect(await allEvents(clients, sessionId)).toEqual(written);
    });

    test("a hook that names the source as its origin", async () => {
      const origin = { sessionId: source.run.sessionId };
      const hook = { origin, phase: "pre_tool_use", decision: HookDecision.BLOCKED, text: "no" };
      const { toolCallId } = await acceptCall(clients, run);
      const written = await allEvents(clients, run.sessionId);
      for (const id of [source.allowedId, toolCallId]) {
        const command = { ...hook, toolCallId: id };
        const publishing = clients.evidence.publishHook({ ...of(run), command });
        expect((await refused(publishing)).reason).toMatch(/ORIGIN_MISMATCH|CALL_INHERITED/);
      }
      expect(await allEvents(clients, run.sessionId)).toEqual(written);
    });

    test("an answer to an ask that it copied", async () => {
      const { sessionId } = run;
      const { askId, receiptId } = source;
      const shown = await showAsk(clients, sessionId, askId);
      const origin = { sessionId: source.run.sessionId };
      expect(shown).toMatchObject({ answerToken: "", ask: { origin } });
      const request = { ...answerTo({ ...shown, answerToken: "token" }), sessionId };
      expect(await refused(clients.approvals.answerAsk(request))).toMatchObject({
        ...{ reason: "ASK_NOT_OPEN", metadata: { ask_id: askId, receipt_id: receiptId } },
      });
      const awaited = await clients.calls.awaitAsk({ sessionId, askId, waitMs: 1 });
      expect(awaited).toMatchObject({ ask: { askId }, receipt: { receiptId } });
    });
  });
});
