import { toJsonString } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { EventSchema } from "../../gen/toolmark/v1/event_pb.js";
import { LegacyEvidenceKind, LegacySourceFormat } from "../../gen/toolmark/v1/legacy_pb.js";
import { SpendState, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { ReviewJob } from "../../gen/toolmark/v1/review_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { ToolCallState, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  allAsks,
  allReceipts,
  answer,
  answerTo,
  listedAsks,
  publishReview,
  reviewOf,
  settleAuthorization,
  showAsk,
  startCall,
} from "../support/asking.js";
import {
  acceptTurn,
  allCalls,
  allEvents,
  amendCall,
  beginRun,
  complete,
  newCall,
  publishHook,
} from "../support/conversation.js";
import { fork } from "../support/forking.js";
import {
  askIdOf,
  bytesOfLog,
  bytesOfSnapshot,
  calling,
  importOld,
  importRequest,
  logF,
  oldCall,
  oldEvent,
  OldFolder,
  PRIVATE,
  privateWordsIn,
  readAdoptedBase,
  recordsIn,
  resultOf,
  snapshotA,
  snapshotB,
  snapshotC,
  snapshotD,
  sourcesOf,
  textOf,
} from "../support/old-fixtures.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, tableContents, type StoreFolder } from "../support/store-folder.js";

const FAR = "2126-09-21T12:00:00Z";
const { SNAPSHOT } = LegacySourceFormat;

let store: StoreFolder;
let service: TestService;

beforeAll(async () => {
  store = await makeStoreFolder();
  service = await startTestService({ store: store.store });
});

afterAll(async () => {
  await service.stop();
  await store.remove();
});

let sessions = 0;

function freshId(): string {
  sessions += 1;
  return `old-${sessions}`;
}

function importLog(clients: Clients, sessionId: string, log: readonly string[]) {
  const request = importRequest(sessionId, sourcesOf(undefined, log));
  return clients.sessions.importSession(request);
}

function resultsOf(calls: readonly ToolCall[]): (string | undefined)[] {
  return calls.map(({ result }) => result && textOf(result.content));
}

async function evidenceIn(clients: Clients, sessionId: string, kind: LegacyEvidenceKind) {
  const evidence = recordsIn(await readAdoptedBase(clients, sessionId), "legacyEvidence");
  return evidence.filter((each) => each.kind === kind);
}

describe.each(["grpc", "connect-json"] as const)("over %s", (wire) => {
  let clients: Clients;

  beforeAll(() => {
    clients = service.clients(wire);
  });

  describe("B09 ids that were made of the tool's name", () => {
    const byName = "call-get_weather";
    const ask = (city: string) => oldCall(byName, "get_weather", { city });

    test("in turns after another are calls of their own, each with its own result", async () => {
      const id = freshId();
      const messages = ["Rome", "Oslo", "Rome"].flatMap((city) => [
        ...[calling(ask(city)), resultOf(byName, `weather of ${city}`)],
      ]);
      await importOld(clients, snapshotA(id, { messages }));
      const calls = await allCalls(clients, id);
      expect(new Set(calls.map(({ toolCallId }) => toolCallId)).size).toBe(3);
      expect(resultsOf(calls)).toEqual([
        ...["weather of Rome", "weather of Oslo", "weather of Rome"],
      ]);
    });

    test("in one turn are both there, and a result is of neither rather than of the wrong one", async () => {
      const id = freshId();
      const messages = [
        calling(ask("Rome"), ask("Oslo"), oldCall("call-read", "read")),
        ...[resultOf(byName, "sunny"), resultOf("call-read", "text"), resultOf(byName, "snow")],
      ];
      await importOld(clients, snapshotA(id, { messages }));
      const calls = await allCalls(clients, id);
      expect(calls.map(({ toolName }) => toolName)).toEqual([
        ...["get_weather", "get_weather", "read"],
      ]);
      expect(calls.map(({ state }) => ToolCallState[state])).toEqual([
        ...["RESULT_MISSING", "RESULT_MISSING", "COMPLETED"],
      ]);
      expect(resultsOf(calls)[2]).toBe("text");
      const loose = await evidenceIn(clients, id, LegacyEvidenceKind.RESULT);
      expect(loose.map(({ toolCallId }) => toolCallId)).toEqual([undefined, undefined]);
    });

    test("as a call goes on natively: a parallel call with the name as id is another one", async () => {
      const id = freshId();
      await importOld(clients, snapshotA(id, { messages: [calling(ask("Rome"))] }));
      const run = await beginRun(clients, id);
      const weather = newCall(byName, "get_weather", '{"city":"Oslo"}');
      const [call] = await acceptTurn(clients, run, [weather]);
      await complete(clients, run, call!.toolCallId, "snow");
      const [old, own] = await allCalls(clients, id);
      expect(own?.toolCallId).toBe(call?.toolCallId);
      expect(old).toMatchObject({ state: ToolCallState.RESULT_MISSING });
    });
  });

  describe("B42 an approval that comes with a history", () => {
    const verdict = (AskID: string, Verdict_: string, Call: unknown, Tool = "bash") =>
      oldEvent("approval", {
        Approval: { AskID, Verdict: Verdict_, Tool, Call, AllowAlways: true },
      });

    async function expectNothingClaimable(id: string): Promise<void> {
      expect(await allReceipts(clients, id)).toEqual([]);
      const run = await beginRun(clients, id, StartGate.REQUIRED);
      for (const { toolCallId, result } of await allCalls(clients, id)) {
        expect(result).toBeDefined();
        const starting = startCall(clients, run, toolCallId);
        expect((await refused(starting)).reason).toBe("TOOL_CALL_ENDED");
      }
      expect((await allEvents(clients, id)).map(({ kind }) => kind)).toEqual([
        ...["ADOPTED", "RUN_BEGUN"],
      ]);
    }

    test.each(["allow_once", "allow_always", "ALLOW", ""])(
      "of a log is evidence, and its call cannot be started: %j",
      async (said) => {
        const id = freshId();
        const log = logF().map((line) =>
          line.includes('"approval"') ? verdict("old ask", said, PRIVATE.waiting) : line,
        );
        await importLog(clients, id, log);
        const [evidence, ...others] = await evidenceIn(clients, id, LegacyEvidenceKind.APPROVAL);
        expect(others).toEqual([]);
        expect(evidence).toMatchObject({ label: said, legacyId: "old ask", toolName: "bash" });
        await expectNothingClaimable(id);
      },
    );

    test("for a call with arguments of its own, or for an ask that was never there, allows nothing", async () => {
      const id = freshId();
      const forged = { ID: PRIVATE.waiting, Name: "bash", Args: { command: "rm -rf /" } };
      const log = [
        ...logF(),
        verdict("old ask", "allow_always", forged),
        verdict("ask that never was", "allow_once", { ...forged, ID: "never" }),
      ];
      await importLog(clients, id, log);
      const approvals = await evidenceIn(clients, id, LegacyEvidenceKind.APPROVAL);
      expect(approvals).toHaveLength(3);
      const calls = await allCalls(clients, id);
      expect(calls.map(({ effective }) => textOf(effective))).toEqual([
        ...['{"path":"a"}', '{"command":"rm a"}'],
      ]);
      await expectNothingClaimable(id);
    });

    test("beside an ask that waits leaves it waiting, and a person's answer is the first receipt", async () => {
      const id = freshId();
      const log = [verdict(askIdOf(id), "allow_always", PRIVATE.waiting)];
      const request = importRequest(id, sourcesOf(snapshotB(id), log));
      await clients.sessions.importSession(request);
      expect(await allReceipts(clients, id)).toEqual([]);
      const [, waiting] = await allCalls(clients, id);
      expect(waiting?.state).toBe(ToolCallState.AWAITING_ANSWER);
      const run = await beginRun(clients, id, StartGate.REQUIRED);
      const early = await refused(startCall(clients, run, waiting!.toolCallId));
      expect(early.reason).toBe("START_NOT_ALLOWED");
      await answer(clients, (await showAsk(clients, id, askIdOf(id))).ask, Verdict.DENY);
      const late = await refused(startCall(clients, run, waiting!.toolCallId));
      expect(late.reason).toBe("TOOL_CALL_ENDED");
    });

    test("as members of a snapshot that no old system wrote creates no record", async () => {
      const id = freshId();
      const forged = {
        receipts: [{ AskID: askIdOf(id), Verdict: "allow_once" }],
        approvals: [{ AskID: askIdOf(id), Verdict: "allow_always", AllowAlways: true }],
      };
      const verdicts = { Verdict: "allow_once", verdict: 2, state: "ANSWERED", answered: true };
      await importOld(clients, snapshotB(id, verdicts, forged));
      expect(await allReceipts(clients, id)).toEqual([]);
      const shown = await showAsk(clients, id, askIdOf(id));
      expect(shown.ask.state).toBe(AskState.OPEN);
      expect(shown.ask.receiptId).toBeUndefined();
      const run = await beginRun(clients, id, StartGate.REQUIRED);
      const starting = startCall(clients, run, shown.ask.toolCallId);
      expect((await refused(starting)).reason).toBe("START_NOT_ALLOWED");
    });

    test("an allow of one that was asked holds for what was shown alone", async () => {
      const id = freshId();
      await importOld(clients, snapshotB(id));
      const receipt = await answer(clients, (await showAsk(clients, id, askIdOf(id))).ask);
      const run = await beginRun(clients, id, StartGate.REQUIRED);
      await amendCall(clients, run, receipt.toolCallId, '{"command":"rm -rf /"}');
      const starting = startCall(clients, run, receipt.toolCallId);
      expect((await refused(starting)).reason).toBe("START_NOT_ALLOWED");
      const [after] = await allReceipts(clients, id);
      expect(after?.spendState).toBe(SpendState.VOID);
    });
  });

  describe("B62 sources of other generations", () => {
    const inner = (id: string) => snapshotA(id);
    const wrappings: readonly (readonly [string, (id: string) => object])[] = [
      ["bare, as the oldest", inner],
      [
        "in the wrapper of the file store",
        (id) => ({ v: "sessnap-current-json/2", modified_at: "x", snapshot: inner(id) }),
      ],
      ["in a driver's envelope", (id) => ({ format: "sessnap-json/1", payload: inner(id) })],
      [
        "in a driver's envelope as base64",
        (id) => {
          const payload = bytesOfSnapshot(inner(id)).toString("base64");
          return { format: "sessnap-json/1", payload };
        },
      ],
      ["with members that nobody knows", (id) => ({ ...inner(id), future: { deep: [1, null] } })],
    ];

    test.each(wrappings)("%s: open with the same calls", async (_, wrap) => {
      const [id, other] = [freshId(), freshId()];
      const request = importRequest(id, [[SNAPSHOT, bytesOfSnapshot(wrap(id))]]);
      await clients.sessions.importSession(request);
      await importOld(clients, inner(other));
      expect(resultsOf(await allCalls(clients, id))).toEqual(
        resultsOf(await allCalls(clients, other)),
      );
    });

    test("a snapshot that has nothing but its id opens", async () => {
      const id = freshId();
      const { summary } = await importOld(clients, { id, messages: [] });
      expect(summary).toMatchObject({ toolCalls: 0, messages: 0 });
      const bare = freshId();
      const source = Buffer.from(JSON.stringify({ id: bare }));
      await clients.sessions.importSession(importRequest(bare, [[SNAPSHOT, source]]));
      await beginRun(clients, bare);
    });

    test("events of a kind that is not known, or without newer members, keep none from opening", async () => {
      const id = freshId();
      const log = [
        JSON.stringify({ v: "eventlog-gen/1", g: "0123456789abcdef" }),
        oldEvent("tool.future", { Future: { of: 1 } }, { Text: "later" }),
        JSON.stringify({ Type: "tool.call", ToolCall: { ID: "x", Name: "read", Args: null } }),
        JSON.stringify({ Type: "tool.result", ToolResult: { CallID: "x", Content: "old" } }),
        JSON.stringify({ Type: "" }),
      ];
      await importLog(clients, id, log);
      expect(resultsOf(await allCalls(clients, id))).toEqual(["old"]);
      const unknown = await evidenceIn(clients, id, LegacyEvidenceKind.EVENT);
      expect(unknown.map(({ label, text }) => [label, text])).toEqual([
        ["tool.future", "later"],
        ["", ""],
      ]);
    });

    test("a last line that a crash cut off keeps no other line from being read", async () => {
      const id = freshId();
      const cut = Buffer.concat([bytesOfLog(logF()), Buffer.from('{"Type":"tool.ca')]);
      const { EVENT_LOG } = LegacySourceFormat;
      await clients.sessions.importSession(importRequest(id, [[EVENT_LOG, cut]]));
      expect(await allCalls(clients, id)).toHaveLength(2);
      const gaps = await evidenceIn(clients, id, LegacyEvidenceKind.GAP);
      expect(gaps.map(({ label }) => label)).toEqual([
        ...["append failed", "the last line is cut off"],
      ]);
    });
  });

  describe("the plan's acceptance list:", () => {
    test("unique public ids despite repeated completed provider ids across turns, sessions and children", async () => {
      const ids = [freshId(), freshId(), `parallel-${freshId()}-1`];
      for (const id of ids) await importOld(clients, snapshotA(id));
      const calls = (await Promise.all(ids.map((id) => allCalls(clients, id)))).flat();
      expect(new Set(calls.map(({ toolCallId }) => toolCallId)).size).toBe(6);
    });

    test("active malformed duplicates are rejected before effects", async () => {
      const id = freshId();
      await importOld(clients, snapshotD(id, true));
      expect(await listedAsks(clients, { sessionId: id })).toEqual([]);
      const run = await beginRun(clients, id);
      const turn = [newCall("same"), newCall("same")];
      const before = await allEvents(clients, id);
      const { reason } = await refused(acceptTurn(clients, run, turn));
      expect(reason).toBe("DUPLICATE_PROVIDER_CALL_ID");
      expect(await allEvents(clients, id)).toEqual(before);
    });

    test("identity preserved across changed arguments, a pause, results and a fork", async () => {
      const id = freshId();
      await importOld(clients, snapshotC(id, FAR));
      const [, parked] = await allCalls(clients, id);
      const toolCallId = parked!.toolCallId;
      const run = await beginRun(clients, id, StartGate.REQUIRED);
      const [authorization] = (await clients.history.listAuthorizations({ sessionId: id }))
        .authorizations;
      const { GRANTED } = AuthorizationState;
      await settleAuthorization(clients, run, authorization!.authorizationId, GRANTED);
      await amendCall(clients, run, toolCallId, '{"to":"other"}');
      const started = await startCall(clients, run, toolCallId);
      const ended = await complete(clients, run, toolCallId);
      expect([started.toolCallId, ended.toolCallId]).toEqual([toolCallId, toolCallId]);
      const revisions = [started.revision ?? 0n, ended.revision ?? 0n];
      expect(revisions[0]).toBeGreaterThan(0n);
      expect(revisions[1]).toBeGreaterThan(revisions[0]!);
      const turn = (await allCalls(clients, id)).slice(2);
      for (const each of turn) {
        await startCall(clients, run, each.toolCallId);
        await complete(clients, run, each.toolCallId);
      }
      const forked = await fork(clients, id);
      const copied = (await allCalls(clients, forked.sessionId)).map((each) => each.toolCallId);
      expect(copied).toContain(toolCallId);
      const [fresh] = await acceptTurn(clients, await beginRun(clients, forked.sessionId), [
        newCall(PRIVATE.waiting, "mail"),
      ]);
      expect(copied).not.toContain(fresh?.toolCallId);
    });

    test("disjoint ordinary and review namespaces beside old hooks, each record its own", async () => {
      const id = freshId();
      const log = [...logF()];
      await importLog(clients, id, log);
      const { hooks: old } = await clients.history.listHooks({ sessionId: id });
      const run = await beginRun(clients, id);
      const [call] = await acceptTurn(clients, run, [newCall()]);
      const hook = await publishHook(clients, run, call?.toolCallId);
      const reviews = [];
      for (const job of [ReviewJob.ACTION, ReviewJob.INBOUND, ReviewJob.PERMISSION]) {
        reviews.push(await publishReview(clients, run, reviewOf(call!.toolCallId, { job })));
      }
      const ids = [...old, hook, ...reviews].map(({ hookId }) => hookId);
      expect(ids.map((hookId) => hookId.split("_")[0])).toEqual([
        ...["hkl", "hkl", "hk", "rv", "rv", "rv"],
      ]);
      expect(new Set(ids).size).toBe(6);
      const { hooks } = await clients.history.listHooks({ sessionId: id });
      expect(hooks.map(({ hookId }) => hookId)).toEqual(ids);
    });

    test("a stale, wrong or foreign reply cannot authorize another ask", async () => {
      const [id, other] = [freshId(), freshId()];
      for (const each of [id, other]) {
        await importOld(clients, snapshotB(each, { AskID: "one id of both" }));
      }
      const shown = await showAsk(clients, id, "one id of both");
      const shownThere = await showAsk(clients, other, "one id of both");
      const [own, foreign] = [answerTo(shown), answerTo(shownThere)];
      expect(own.toolCallId).not.toBe(foreign.toolCallId);
      const wrong: ReturnType<typeof answerTo>[] = [
        { ...foreign, sessionId: id },
        answerTo({ ...shown, answerToken: shownThere.answerToken }),
        { ...own, toolCallId: (await allCalls(clients, id))[2]!.toolCallId },
        { ...own, reviewId: "review-1" },
        { ...own, presentedSha256: new Uint8Array(32) },
      ];
      for (const answering of wrong) {
        const refusal = await refused(clients.approvals.answerAsk(answering));
        expect(refusal.reason).toMatch(/^ANSWER_(MISMATCH|TOKEN_INVALID)$/);
      }
      await clients.approvals.answerAsk(own);
      expect((await allReceipts(clients, other)).length).toBe(0);
      const [open] = await listedAsks(clients, { sessionId: other });
      expect(open?.ask.state).toBe(AskState.OPEN);
    });

    test("mixed snapshot and log continuation follows no ordinal and no provider id", async () => {
      const id = freshId();
      // The log tells of the same turn; equal ids, names and order prove nothing.
      const log = [
        ...snapshotB(id).messages.slice(1, 2).flatMap(toldByLog),
        oldEvent("hook", {
          Hook: { Phase: "PreToolUse", Tool: "bash", Decision: "info", CallID: PRIVATE.waiting },
        }),
      ];
      const request = importRequest(id, sourcesOf(snapshotB(id), log));
      const { summary } = await clients.sessions.importSession(request);
      expect(summary).toMatchObject({ toolCalls: 3, attachedHooks: 0, standaloneHooks: 1 });
      const [ask] = await allAsks(clients, id);
      expect(ask?.toolCallId).toBe((await allCalls(clients, id))[1]?.toolCallId);
      const told = await evidenceIn(clients, id, LegacyEvidenceKind.CALL);
      expect(told.map(({ toolCallId }) => toolCallId)).toEqual([undefined, undefined, undefined]);
      const { hooks } = await clients.history.listHooks({ sessionId: id });
      expect(hooks.map(({ toolCallId }) => toolCallId)).toEqual([undefined]);
    });

    function toldByLog(message: object): string[] {
      const { tool_calls: calls } = message as { tool_calls: object[] };
      return calls.map((ToolCall) => oldEvent("tool.call", { ToolCall }));
    }

    test("revisions begin above nothing, and rise over what came without one", async () => {
      const id = freshId();
      await importOld(clients, snapshotB(id));
      const shown = await showAsk(clients, id, askIdOf(id));
      await clients.approvals.answerAsk(answerTo(shown));
      const revisions = (await allEvents(clients, id)).flatMap(({ revision }) => revision ?? []);
      expect(revisions).toEqual([1n, 2n, 3n]);
      const [done, asked] = await allCalls(clients, id);
      expect(done?.revision).toBeUndefined();
      expect(asked?.revision).toBe(3n);
    });

    test("historical joins only from explicit references: an old receipt stays alone", async () => {
      const id = freshId();
      const Approval = { AskID: "unknown", Verdict: "deny", Tool: "bash", Call: "not there" };
      await importLog(clients, id, [...logF(), oldEvent("approval", { Approval })]);
      const [, loose] = await evidenceIn(clients, id, LegacyEvidenceKind.APPROVAL);
      expect(loose).toMatchObject({ legacyId: "unknown", label: "deny" });
      expect(loose?.toolCallId).toBeUndefined();
      expect(await allReceipts(clients, id)).toEqual([]);
    });

    test("pending, effective and deferred pairing is that of the occurrence in its own turn", async () => {
      const id = freshId();
      await importOld(clients, snapshotC(id, FAR));
      const [earlier, parked, again, behind] = await allCalls(clients, id);
      const { authorizations } = await clients.history.listAuthorizations({ sessionId: id });
      expect(authorizations.map((each) => [each.toolCallId, each.deferredToolCallIds])).toEqual([
        [parked?.toolCallId, [again?.toolCallId, behind?.toolCallId]],
      ]);
      expect(earlier?.toolCallId).not.toBe(again?.toolCallId);
      expect(earlier?.state).toBe(ToolCallState.COMPLETED);
    });
  });
});

test("the plan's acceptance list: old fixtures load, the same at every load, with no save", async () => {
  const own = await makeStoreFolder();
  const folder = await OldFolder.make();
  const snapshots = [snapshotA("A"), snapshotB("B"), snapshotC("C", FAR), snapshotD("D")];
  for (const snapshot of snapshots) await folder.put(snapshot);
  await folder.putBytes("F.events.jsonl", bytesOfLog(logF()));
  const loads: unknown[] = [];
  let saved: object | undefined;
  for (let load = 0; load < 2; load += 1) {
    const served = await folder.start({ store: own.store });
    const before = tableContents(own.path);
    saved ??= before;
    const all = [...snapshots.map(({ id }) => id), "F"].map((id) => allCalls(served.clients(), id));
    loads.push(await Promise.all(all));
    expect(tableContents(own.path)).toEqual(saved);
    await served.stop();
  }
  expect(loads[1]).toEqual(loads[0]);
  await folder.remove();
  await own.remove();
});

test("the plan's acceptance list: a normal save keeps the ids, whatever becomes of the source", async () => {
  const own = await makeStoreFolder();
  const folder = await OldFolder.make();
  await folder.put(snapshotB("B"));
  let served = await folder.start({ store: own.store });
  const ids = (await allCalls(served.clients(), "B")).map(({ toolCallId }) => toolCallId);
  await beginRun(served.clients(), "B");
  await served.stop();
  await folder.remove();
  served = await startTestService({ store: own.store });
  const after = await allCalls(served.clients(), "B");
  expect(after.map(({ toolCallId }) => toolCallId)).toEqual(ids);
  const { events } = await served.clients().history.listEvents({ sessionId: "B" });
  expect(privateWordsIn(events.map((event) => toJsonString(EventSchema, event)).join())).toEqual(
    [],
  );
  await served.stop();
  await own.remove();
});
