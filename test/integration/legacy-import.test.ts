import { toJsonString } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AskKind, AskProvenance, AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { LegacyEvidenceKind } from "../../gen/toolmark/v1/legacy_pb.js";
import { ActorKind } from "../../gen/toolmark/v1/origin_pb.js";
import { SpendState, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind, SessionState } from "../../gen/toolmark/v1/session_pb.js";
import {
  IdentitySource,
  Ran,
  ToolCallSchema,
  ToolCallState,
  ToolResultKind,
  type ToolCall,
} from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  allAsks,
  answer,
  answerTo,
  listedAsks,
  settleAuthorization,
  showAsk,
  startCall,
} from "../support/asking.js";
import {
  acceptCall,
  acceptTurn,
  allCalls,
  allEvents,
  beginRun,
  complete,
  freshRequestId,
  given,
  newCall,
  readSession,
} from "../support/conversation.js";
import { readBytes } from "../support/forking.js";
import {
  askIdOf,
  AUTHORIZATION_ID,
  bytesOfSnapshot,
  calling,
  EXACT_ARGUMENTS,
  importOld,
  importRequest,
  logF,
  oldCall,
  oldEvent,
  PENDING,
  PRIVATE,
  readAdoptedBase,
  recordsIn,
  RUN,
  snapshotA,
  snapshotB,
  snapshotC,
  snapshotD,
  snapshotE,
  sourcesOf,
  textOf,
} from "../support/old-fixtures.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, tableContents, type StoreFolder } from "../support/store-folder.js";

const FAR = "2126-09-21T12:00:00Z";
const LEGACY_ID = /^tcl_[0-9a-hjkmnp-tv-z]{26}$/;

let folder: StoreFolder;
let service: TestService;

beforeAll(async () => {
  folder = await makeStoreFolder();
  service = await startTestService({ store: folder.store });
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

let sessions = 0;

function freshId(): string {
  sessions += 1;
  return `old session/${sessions}`;
}

function asJson(calls: readonly ToolCall[]): string[] {
  return calls.map((call) => toJsonString(ToolCallSchema, call));
}

function statesOf(calls: readonly ToolCall[]): string[] {
  return calls.map(({ state }) => ToolCallState[state]);
}

async function expectSound({ sessions: service_ }: Clients, sessionId: string): Promise<void> {
  const { head } = await service_.verifySession({ sessionId });
  const { session } = await service_.getSession({ sessionId });
  expect(head).toEqual(session?.checkpoint);
}

/** Whatever it does, nothing of it is stored. */
async function expectNothingStored(act: () => Promise<unknown>): Promise<void> {
  const before = tableContents(folder.path);
  await act();
  expect(tableContents(folder.path)).toEqual(before);
}

async function evidenceOf(clients: Clients, sessionId: string) {
  const evidence = recordsIn(await readAdoptedBase(clients, sessionId), "legacyEvidence");
  return evidence.map(({ kind, occurrence, toolCallId, legacyId, label }) => ({
    ...{ kind: LegacyEvidenceKind[kind], occurrence, toolCallId, legacyId, label },
  }));
}

describe.each(["grpc", "connect-json", "grpc-web"] as const)("over %s", (wire) => {
  let clients: Clients;

  beforeAll(() => {
    clients = service.clients(wire);
  });

  describe("A: completed turns", () => {
    test("are calls of their own in order, with their results, without revisions", async () => {
      const id = freshId();
      const { session, summary, isNew, progress } = await importOld(clients, snapshotA(id));
      const calls = await allCalls(clients, id);
      expect(calls.map(({ result }) => textOf(result?.content))).toEqual([
        ...["two files", "no such folder"],
      ]);
      expect(calls.map(({ result }) => result?.isError)).toEqual([false, true]);
      expect(calls.map(({ proposed }) => textOf(proposed))).toEqual([
        ...['{"path":"a"}', '{"path":"b"}'],
      ]);
      expect(new Set(calls.map(({ toolCallId }) => toolCallId)).size).toBe(2);
      for (const call of calls) {
        expect(call.toolCallId).toMatch(LEGACY_ID);
        expect(call).toMatchObject({
          ...{ origin: { sessionId: id }, toolName: "list", state: ToolCallState.COMPLETED },
          ...{ ran: Ran.UNKNOWN, identitySource: IdentitySource.LEGACY },
          result: { kind: ToolResultKind.CANONICAL },
        });
        for (const absent of [call.revision, call.createTime, call.endTime, call.startTime]) {
          expect(absent).toBeUndefined();
        }
        const { toolCallId } = call;
        const { toolCall } = await clients.history.getToolCall({ sessionId: id, toolCallId });
        expect(asJson([toolCall!])).toEqual(asJson([call]));
      }
      expect(summary).toMatchObject({ toolCalls: 2, joinedResults: 2, openCalls: 0, messages: 2 });
      expect([isNew, progress.map(({ receivedBytes }) => receivedBytes)]).toEqual([
        ...[true, [BigInt(bytesOfSnapshot(snapshotA(id)).length)]],
      ]);
      expect(await readSession(clients, id)).toMatchObject({ ...session, highWater: 0n });
    });

    test("are one event that says where each call stood, and a session under its old id", async () => {
      const id = freshId();
      await importOld(clients, snapshotA(id));
      const events = await allEvents(clients, id);
      expect(events.map(({ kind, revision, sequence }) => [kind, revision, sequence])).toEqual([
        ["ADOPTED", undefined, 1n],
      ]);
      expect(events[0]?.actor).toMatchObject({ subject: "loopback", kind: ActorKind.PRINCIPAL });
      const { occurrences } = await readAdoptedBase(clients, id);
      const ids = (await allCalls(clients, id)).map(({ toolCallId }) => toolCallId);
      expect(occurrences.map(({ occurrence }) => occurrence)).toEqual([
        ...["snapshot/1/0", "snapshot/3/0"],
      ]);
      expect(occurrences.map(({ toolCallId }) => toolCallId)).toEqual(ids);
      const read = await readSession(clients, id);
      expect(read).toMatchObject({
        ...{ sessionId: id, ownerSubject: "", kind: SessionKind.MAIN, title: `title of ${id}` },
        ...{ state: SessionState.OPEN, labels: [{ key: "legacy_state", value: "completed" }] },
        createTime: { seconds: BigInt(Date.UTC(2026, 8, 21, 12) / 1000), nanos: 500_000_000 },
      });
      expect(await allAsks(clients, id)).toEqual([]);
      const listed = await clients.sessions.listSessions({ pageSize: 500 });
      expect(listed.sessions).toContainEqual(read);
      await expectSound(clients, id);
    });

    test("give the private id of a completed call to a new one, which is another call", async () => {
      const id = freshId();
      await importOld(clients, snapshotA(id));
      const old = asJson(await allCalls(clients, id));
      const run = await beginRun(clients, id);
      const call = await acceptCall(clients, run, newCall(PRIVATE.again, "list"));
      expect(call.toolCallId).toMatch(/^tc_/);
      expect(call.revision).toBe(1n);
      await complete(clients, run, call.toolCallId);
      expect(asJson(await allCalls(clients, id)).slice(0, 2)).toEqual(old);
      await expectSound(clients, id);
    });
  });

  describe("B: an ask that waits", () => {
    test("can be answered under its old id, and its call is then carried out", async () => {
      const id = freshId();
      const { summary } = await importOld(clients, snapshotB(id));
      expect(summary).toMatchObject({ toolCalls: 3, joinedResults: 1, openCalls: 2, openAsks: 1 });
      const [done, waiting, behind] = await allCalls(clients, id);
      expect(statesOf([done!, waiting!, behind!])).toEqual([
        ...["COMPLETED", "AWAITING_ANSWER", "ACCEPTED"],
      ]);
      const shown = await showAsk(clients, id, askIdOf(id));
      expect(shown.ask).toMatchObject({
        ...{ askId: askIdOf(id), toolCallId: waiting?.toolCallId, prompt: "may it run?" },
        ...{ kind: AskKind.ACTION, provenance: AskProvenance.PERMISSION, state: AskState.OPEN },
        ...{ origin: { sessionId: id }, runId: RUN, toolName: "bash", delegationPath: [] },
      });
      expect(shown.ask.revision).toBeUndefined();
      const inbox = await listedAsks(clients, {});
      expect(inbox.filter(({ ask }) => ask.origin?.sessionId === id)).toEqual([shown]);
      expect(await listedAsks(clients, { sessionId: id })).toEqual([shown]);
      const receipt = await answer(clients, shown.ask);
      expect(receipt).toMatchObject({ askId: askIdOf(id), spendState: SpendState.UNSPENT });
      const run = await beginRun(clients, id, StartGate.REQUIRED);
      const started = await startCall(clients, run, waiting!.toolCallId);
      expect(started).toMatchObject({ toolCallId: waiting?.toolCallId, ran: Ran.YES });
      const ended = await complete(clients, run, waiting!.toolCallId, "removed");
      expect(ended.state).toBe(ToolCallState.COMPLETED);
      await startCall(clients, run, behind!.toolCallId);
      const { receipts } = await clients.approvals.listReceipts({ sessionId: id });
      expect(receipts.map(({ spendState }) => spendState)).toEqual([SpendState.SPENT]);
      await expectSound(clients, id);
    });

    test.each([
      ["B2, of which nobody knows who asked", PENDING.B2, AskProvenance.UNSPECIFIED],
      ["B4, for the release of a result that is gone", PENDING.B4, AskProvenance.HOOK_GUARDRAIL],
    ])("%s: can be denied, and no allow is taken", async (_, pending, provenance) => {
      const id = freshId();
      await importOld(clients, snapshotB(id, pending));
      const shown = await showAsk(clients, id, askIdOf(id));
      expect(shown.ask).toMatchObject({ provenance, allowedVerdicts: [Verdict.DENY] });
      for (const verdict of [Verdict.ALLOW_ONCE, Verdict.ALLOW_ALWAYS]) {
        await expectNothingStored(async () => {
          const refusal = await refused(clients.approvals.answerAsk(answerTo(shown, verdict)));
          expect(refusal.reason).toBe("VERDICT_NOT_ALLOWED");
        });
      }
      const { askId } = shown.ask;
      const { receipt } = await clients.approvals.answerAsk(answerTo(shown, Verdict.DENY));
      expect(receipt).toMatchObject({ askId, spendState: SpendState.UNSPECIFIED });
      const [, call] = await allCalls(clients, id);
      expect(call?.state).not.toBe(ToolCallState.ACCEPTED);
      const run = await beginRun(clients, id, StartGate.REQUIRED);
      const starting = startCall(clients, run, call!.toolCallId);
      expect((await refused(starting)).reason).toMatch(/^TOOL_CALL_(ENDED|STARTED)$/);
      await expectSound(clients, id);
    });

    test("B3: of a review is answered only with that review", async () => {
      const id = freshId();
      await importOld(clients, snapshotB(id, PENDING.B3));
      const shown = await showAsk(clients, id, askIdOf(id));
      expect(shown.ask).toMatchObject({ reviewId: "review-1", kind: AskKind.ACTION });
      const right = answerTo(shown);
      for (const reviewId of ["", "review-2", "old:action"]) {
        const wrong = { ...right, reviewId };
        expect((await refused(clients.approvals.answerAsk(wrong))).reason).toMatch(
          /^(ANSWER_MISMATCH|FIELD_INVALID)$/,
        );
      }
      const { receipt } = await clients.approvals.answerAsk(right);
      expect(receipt).toMatchObject({ reviewId: "review-1", verdict: Verdict.ALLOW_ONCE });
    });

    test("B5: that names none of two waiting calls is evidence, and neither can be started", async () => {
      const id = freshId();
      const { summary } = await importOld(clients, snapshotB(id, PENDING.B5));
      expect(summary).toMatchObject({ openAsks: 0, openCalls: 0, standaloneEvidence: 1 });
      expect(await evidenceOf(clients, id)).toEqual([
        {
          ...{ kind: "ASK", occurrence: "snapshot/pending", toolCallId: undefined },
          ...{ legacyId: askIdOf(id), label: "" },
        },
      ]);
      expect(await allAsks(clients, id)).toEqual([]);
      const calls = await allCalls(clients, id);
      expect(statesOf(calls)).toEqual(["COMPLETED", "OUTCOME_UNKNOWN", "OUTCOME_UNKNOWN"]);
      const answering = clients.approvals.answerAsk({
        ...{ requestId: freshRequestId(), sessionId: id, askId: askIdOf(id) },
        ...{ answerToken: "token", toolCallId: calls[1]!.toolCallId, verdict: Verdict.ALLOW_ONCE },
      });
      expect((await refused(answering)).reason).toBe("ASK_NOT_FOUND");
      const run = await beginRun(clients, id);
      for (const { toolCallId } of calls) {
        const starting = startCall(clients, run, toolCallId);
        expect((await refused(starting)).reason).toBe("TOOL_CALL_ENDED");
      }
    });

    test("a new turn that repeats the private id of the waiting call is refused whole", async () => {
      const id = freshId();
      await importOld(clients, snapshotB(id));
      const run = await beginRun(clients, id);
      const before = await allEvents(clients, id);
      const turn = [newCall("toolu_new"), newCall(PRIVATE.waiting)];
      const { reason, message } = await refused(acceptTurn(clients, run, turn));
      expect(reason).toBe("PROVIDER_CALL_ID_OUTSTANDING");
      expect(message).not.toContain(PRIVATE.waiting);
      expect(await allEvents(clients, id)).toEqual(before);
    });
  });

  describe("C: a call that waits for a consent", () => {
    test("goes on with the exact bytes when it is granted, and so do those behind it", async () => {
      const id = freshId();
      const { summary } = await importOld(clients, snapshotC(id, FAR));
      expect(summary).toMatchObject({ openCalls: 3, pendingAuthorizations: 1, openAsks: 0 });
      const calls = await allCalls(clients, id);
      const [, parked, again, behind] = calls;
      const awaiting = "AWAITING_AUTHORIZATION";
      expect(statesOf(calls)).toEqual(["COMPLETED", awaiting, awaiting, awaiting]);
      const query = { sessionId: id, authorizationId: AUTHORIZATION_ID };
      const { authorization } = await clients.history.getAuthorization(query);
      expect(authorization).toMatchObject({
        ...{ toolCallId: parked?.toolCallId, state: AuthorizationState.PENDING },
        ...{ displayName: "Mail", runId: RUN, expireTime: { nanos: 0 } },
        deferredToolCallIds: [again?.toolCallId, behind?.toolCallId],
      });
      expect(textOf(parked?.effective)).toBe(EXACT_ARGUMENTS);
      expect(textOf(parked?.proposed)).toBe('{"to":"original"}');
      const { bodyRef } = parked!.effective!;
      expect((await readBytes(clients, id, bodyRef)).toString()).toBe(EXACT_ARGUMENTS);
      const run = await beginRun(clients, id, StartGate.REQUIRED);
      const early = await refused(startCall(clients, run, parked!.toolCallId));
      expect(early.reason).not.toBe("");
      await settleAuthorization(clients, run, AUTHORIZATION_ID, AuthorizationState.GRANTED);
      for (const { toolCallId } of [parked!, again!, behind!]) {
        await startCall(clients, run, toolCallId);
        await complete(clients, run, toolCallId);
      }
      await expectSound(clients, id);
    });

    test("ends with those behind it when it is denied, and the call of the earlier turn stays", async () => {
      const id = freshId();
      await importOld(clients, snapshotC(id, FAR));
      const [first] = await allCalls(clients, id);
      const run = await beginRun(clients, id);
      await settleAuthorization(clients, run, AUTHORIZATION_ID, AuthorizationState.DENIED);
      const calls = await allCalls(clients, id);
      expect(statesOf(calls)).toEqual(["COMPLETED", "DENIED", "CANCELLED", "CANCELLED"]);
      expect(asJson(calls.slice(0, 1))).toEqual(asJson([first!]));
      await expectSound(clients, id);
    });
  });

  describe("D: two calls of a turn with one id", () => {
    test("are two calls, and their one result is of neither", async () => {
      const id = freshId();
      const { summary } = await importOld(clients, snapshotD(id));
      expect(summary).toMatchObject({ toolCalls: 2, joinedResults: 0, standaloneEvidence: 1 });
      expect(statesOf(await allCalls(clients, id))).toEqual(["RESULT_MISSING", "RESULT_MISSING"]);
      const [evidence] = recordsIn(await readAdoptedBase(clients, id), "legacyEvidence");
      expect(evidence).toMatchObject({
        ...{ kind: LegacyEvidenceKind.RESULT, occurrence: "snapshot/1", isError: false },
        ...{ origin: { sessionId: id } },
      });
      expect(evidence?.toolCallId).toBeUndefined();
      const content = await readBytes(clients, id, given(evidence?.content, "content").bodyRef);
      expect(content.toString()).toBe("of one of them");
      await expectSound(clients, id);
    });

    test("keep a question about a third call of their turn from being answered", async () => {
      const id = freshId();
      const twin = oldCall(PRIVATE.twin);
      const messages = [calling(twin, twin, oldCall(PRIVATE.waiting))];
      await importOld(clients, snapshotB(id, {}, { messages }));
      expect(await allAsks(clients, id)).toEqual([]);
      expect((await evidenceOf(clients, id)).map(({ kind }) => kind)).toEqual(["ASK"]);
      const states = statesOf(await allCalls(clients, id));
      expect(states).toEqual(["OUTCOME_UNKNOWN", "OUTCOME_UNKNOWN", "OUTCOME_UNKNOWN"]);
    });

    test("that wait for an answer cannot be answered, nor started", async () => {
      const id = freshId();
      await importOld(clients, snapshotD(id, true));
      expect(await allAsks(clients, id)).toEqual([]);
      expect((await evidenceOf(clients, id)).map(({ kind }) => kind)).toEqual(["ASK"]);
      const run = await beginRun(clients, id);
      for (const { toolCallId, state } of await allCalls(clients, id)) {
        expect(state).toBe(ToolCallState.OUTCOME_UNKNOWN);
        const starting = startCall(clients, run, toolCallId);
        expect((await refused(starting)).reason).toBe("TOOL_CALL_ENDED");
      }
    });
  });

  test("E: a branch keeps its id and its ask, and its card is never the parent's", async () => {
    const parent = freshId();
    const id = `parallel-${parent}-2`;
    const turn = [{ role: "assistant", tool_calls: [{ ID: PRIVATE.parent, Name: "branch" }] }];
    await importOld(clients, snapshotA(parent, { messages: turn }));
    await importOld(clients, snapshotE(id, parent));
    const [card] = await allCalls(clients, parent);
    const [call] = await allCalls(clients, id);
    expect(call?.origin).toMatchObject({ sessionId: id });
    expect(call?.toolCallId).not.toBe(card?.toolCallId);
    const read = await readSession(clients, id);
    expect(read.kind).toBe(SessionKind.PARALLEL_BRANCH);
    expect(read.labels.map(({ key, value }) => `${key}=${value}`)).toEqual([
      "legacy_branch_index=2",
      `legacy_parent_session_id=${parent}`,
      "legacy_state=awaiting",
    ]);
    const below = await clients.sessions.listSessions({ ancestorSessionId: parent });
    expect(below.sessions).toEqual([]);
    expect(await listedAsks(clients, { sessionId: parent, includeDescendants: true })).toEqual([]);
    const receipt = await answer(clients, {
      ...{ origin: { sessionId: id } as Ask["origin"], askId: `${id}:0:first` },
    });
    expect(receipt.toolCallId).toBe(call?.toolCallId);
  });

  test("F: a log without a snapshot is a history; its verdict and its ask are evidence", async () => {
    const id = freshId();
    const request = importRequest(id, sourcesOf(undefined, logF()));
    const { summary } = await clients.sessions.importSession(request);
    expect(summary).toMatchObject({ toolCalls: 2, joinedResults: 1, openCalls: 0, openAsks: 0 });
    const [done, approved] = await allCalls(clients, id);
    expect(statesOf([done!, approved!])).toEqual(["COMPLETED", "OUTCOME_UNKNOWN"]);
    const kinds = (await evidenceOf(clients, id)).map(({ kind }) => kind);
    expect(kinds).toEqual(["ASK", "APPROVAL", "GAP", "EVENT"]);
    const { hooks } = await clients.history.listHooks({ sessionId: id });
    expect(hooks.map(({ text }) => text)).toEqual(["cut", "long"]);
    expect(new Set(hooks.map(({ hookId }) => hookId)).size).toBe(2);
    expect(hooks.map(({ revision }) => revision)).toEqual([undefined, undefined]);
    expect((await clients.approvals.listReceipts({ sessionId: id })).receipts).toEqual([]);
    await expectSound(clients, id);
  });

  test("G: a log beside a snapshot is joined with nothing of it", async () => {
    const id = freshId();
    const alone = await importOld(clients, snapshotA(id));
    const log = [
      oldEvent("tool.call", { ToolCall: { ID: PRIVATE.again, Name: "list", Args: {} } }),
      oldEvent("tool.call", { ToolCall: { ID: PRIVATE.again, Name: "other", Args: {} } }),
      oldEvent("tool.result", { ToolResult: { CallID: PRIVATE.again, Content: "x" } }),
    ];
    const before = asJson(await allCalls(clients, id));
    const request = importRequest(id, sourcesOf(snapshotA(id), log));
    const { summary } = await clients.sessions.importSession(request);
    expect(summary).toMatchObject({
      ...{ toolCalls: alone.summary?.toolCalls, joinedResults: alone.summary?.joinedResults },
      ...{ standaloneEvidence: 3, attachedEvidence: 0 },
    });
    expect(asJson(await allCalls(clients, id))).toEqual(before);
    const evidence = await evidenceOf(clients, id);
    expect(evidence.map(({ occurrence }) => occurrence)).toEqual(["log/1", "log/2", "log/3"]);
  });
});
