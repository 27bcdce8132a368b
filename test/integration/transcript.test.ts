import { create, toBinary, toJson, toJsonString } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import BetterSqlite from "better-sqlite3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AskSchema } from "../../gen/toolmark/v1/ask_pb.js";
import {
  GetTranscriptResponseSchema,
  TranscriptEntrySchema,
  type TranscriptCall,
  type TranscriptEntry,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { MessageRole, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind, SessionState } from "../../gen/toolmark/v1/session_pb.js";
import { answer, answerTo, openAsk, showAsk } from "../support/asking.js";
import {
  acceptCall,
  allEvents,
  beginRun,
  bytes,
  complete,
  freshRequestId,
  given,
  newCall,
  of,
  openRun,
  publishHook,
  recordMessage,
} from "../support/conversation.js";
import { writeForkSource } from "../support/fork-source.js";
import { fork, readBase } from "../support/forking.js";
import {
  importOld,
  OldFolder,
  readAdoptedBase,
  snapshotB,
  snapshotD,
} from "../support/old-fixtures.js";
import { refused } from "../support/refused.js";
import { startTestService, WIRES, type Clients } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { accountByLog, accountOf, allEntries } from "../support/transcript-account.js";
import { openChild } from "../support/trees.js";
import { startWatchedService, type WatchedService } from "../support/watched-service.js";
import { withoutTriggers } from "../support/without-triggers.js";
import { Callers, principal, TWO_WIRES } from "./cases-asks-fixture.js";
import { compact, compactAll } from "./compaction-fixture.js";

const MIB = 1024 * 1024;

const principals = {
  boss: principal("boss", { engine: "tenant" }),
  harness: principal("harness", { engine: "own" }),
  stranger: principal("stranger", { reader: "own" }),
};

let folder: StoreFolder;
let service: WatchedService;
let callers: Callers;
let clients: Clients;

beforeAll(async () => {
  folder = await makeStoreFolder();
  service = await startWatchedService({ store: folder.store, principals });
  callers = new Callers(service);
  clients = service.clients();
});

afterAll(async () => {
  callers.disconnect();
  await service.stop();
  await folder.remove();
});

function entriesOf(
  { history }: Clients,
  sessionId: string,
  pageSize = 500,
): Promise<TranscriptEntry[]> {
  return allEntries((pageToken) => history.getTranscript({ sessionId, pageSize, pageToken }));
}

function kindsOf(entries: readonly TranscriptEntry[]): (string | undefined)[] {
  return entries.map(({ entry }) => entry.case);
}

function callsIn(entries: readonly TranscriptEntry[]): TranscriptCall[] {
  return entries.flatMap(({ entry }) => (entry.case === "call" ? [entry.value] : []));
}

function textsOf(entries: readonly TranscriptEntry[]): string[] {
  return entries.map((entry) => toJsonString(TranscriptEntrySchema, entry));
}

async function expectTold(by: Clients, sessionId: string): Promise<TranscriptEntry[]> {
  const entries = await entriesOf(by, sessionId);
  expect(accountOf(entries)).toEqual(accountByLog(await allEvents(by, sessionId)));
  return entries;
}

describe.each(WIRES)("over %s", (wire) => {
  test("a session with records of every kind is told in order, page by page or at once", async () => {
    const by = service.clients(wire);
    const { run, allowedId, hookId, askId, receiptId } = await writeForkSource(by);
    const { sessionId } = run;
    const whole = await expectTold(by, sessionId);
    for (const pageSize of [1, 2, 3, whole.length]) {
      expect(textsOf(await entriesOf(by, sessionId, pageSize))).toEqual(textsOf(whole));
    }
    const told = given(
      callsIn(whole).find(({ toolCall }) => toolCall?.toolCallId === allowedId),
      "call",
    );
    const { toolCall } = await by.history.getToolCall({ sessionId, toolCallId: allowedId });
    expect(told.toolCall).toEqual(toolCall);
    expect(told.hooks[0]?.hookId).toBe(hookId);
    const { ask } = await showAsk(by, sessionId, askId);
    expect(toJson(AskSchema, given(told.asks[0], "ask"))).toEqual(toJson(AskSchema, ask));
    expect(told.receipts.map((receipt) => receipt.receiptId)).toEqual([receiptId]);
    expect(told.truncated).toBe(false);
  });

  test("what is written between pages neither hides nor repeats an entry", async () => {
    const by = service.clients(wire);
    const run = await openRun(by);
    const { sessionId } = run;
    const { toolCallId } = await acceptCall(by, run);
    for (let count = 0; count < 3; count += 1) await recordMessage(by, run);
    let rounds = 0;
    const walked = await allEntries(async (pageToken) => {
      const page = await by.history.getTranscript({ sessionId, pageSize: 2, pageToken });
      rounds += 1;
      if (rounds > 4) return page;
      await publishHook(by, run, toolCallId);
      await recordMessage(by, run);
      await publishHook(by, run);
      return page;
    });
    const whole = await entriesOf(by, sessionId);
    expect(rounds).toBeGreaterThan(4);
    // The walk is told of everything that was there when its last page was read.
    expect(walked.map(({ sequence }) => sequence)).toEqual(whole.map(({ sequence }) => sequence));
  });
});

describe.each(TWO_WIRES)("over %s", (wire) => {
  test("no session of another caller is told, and one that is not there alike", async () => {
    const run = await openRun(callers.as("harness", wire));
    const stranger = callers.as("stranger", wire);
    const told = await Promise.all(
      [run.sessionId, "ses_none"].map((sessionId) =>
        refused(stranger.history.getTranscript({ sessionId })),
      ),
    );
    expect(told[0]).toEqual(told[1]);
    expect(told[0]).toMatchObject({ code: Code.NotFound, reason: "SESSION_NOT_FOUND" });
    const own = callers.as("harness", wire);
    expect(kindsOf(await entriesOf(own, run.sessionId))).toEqual(["run"]);
  });
});

test("a page token is of its own session and list alone", async () => {
  const [one, other] = [await openRun(clients), await openRun(clients)];
  for (const run of [one, other]) await recordMessage(clients, run);
  const { sessionId } = one;
  await acceptCall(clients, one);
  await acceptCall(clients, one);
  const ofOne = (await clients.history.getTranscript({ sessionId, pageSize: 1 })).nextPageToken;
  const ofCalls = (await clients.history.listToolCalls({ sessionId, pageSize: 1 })).nextPageToken;
  const wrong = [
    clients.history.getTranscript({ sessionId: other.sessionId, pageToken: ofOne }),
    clients.history.getTranscript({ sessionId, pageToken: ofCalls }),
    clients.history.getTranscript({ sessionId, pageToken: `${ofOne}A` }),
    clients.history.listToolCalls({ sessionId, pageToken: ofOne }),
  ];
  for (const call of wrong) expect((await refused(call)).reason).toBe("PAGE_TOKEN_INVALID");
});

test("sessions that work for a call are named in order, those that the caller sees", async () => {
  const [harness, boss] = [callers.as("harness"), callers.as("boss")];
  const creation = { requestId: freshRequestId(), kind: SessionKind.MAIN, ownerSubject: "ann" };
  const root = given((await harness.sessions.createSession(creation)).session, "session");
  const run = await beginRun(harness, root.sessionId, StartGate.OFF);
  const { toolCallId } = await acceptCall(harness, run);
  const made = (await openChild(harness, run, toolCallId)).session;
  const bossed = (await openChild(boss, run, toolCallId)).session;
  await publishHook(boss, (await openChild(boss, run, toolCallId)).run);
  const end = { requestId: freshRequestId(), sessionId: bossed.sessionId };
  await boss.sessions.endSession(end);
  const [seen] = callsIn(await entriesOf(harness, run.sessionId));
  expect(seen?.children.map((child) => child.sessionId)).toEqual([made.sessionId]);
  const [all] = callsIn(await entriesOf(boss, run.sessionId));
  expect(all?.children.map(({ sessionId }) => sessionId)).toEqual(
    all?.toolCall?.delegatedSessionIds,
  );
  expect(all?.children.map(({ state }) => state)).toEqual([
    ...[SessionState.OPEN, SessionState.ENDED, SessionState.OPEN],
  ]);
  expect(all?.children[0]).toMatchObject({ kind: SessionKind.SUBAGENT, title: "" });
  // What was recorded below is told below.
  expect(kindsOf(await entriesOf(boss, run.sessionId))).toEqual(["run", "call"]);
});

test("what a summary stands for is marked, also in a fork, where the summary follows it", async () => {
  const run = await openRun(clients);
  const { sessionId } = run;
  await recordMessage(clients, run);
  const { toolCallId } = await acceptCall(clients, run);
  await complete(clients, run, toolCallId);
  const through = await compactAll(clients, sessionId);
  await publishHook(clients, run, toolCallId);
  await recordMessage(clients, run);
  const whole = await expectTold(clients, sessionId);
  expect(whole.map(({ archived }) => archived)).toEqual([true, true, true, false, false]);
  expect(kindsOf(whole)).toEqual(["run", "message", "call", "compaction", "message"]);
  expect(callsIn(whole)[0]?.hooks.length).toBe(1);
  expect(textsOf(await entriesOf(clients, sessionId, 1))).toEqual(textsOf(whole));

  const copy = await fork(clients, sessionId);
  const copied = await entriesOf(clients, copy.sessionId);
  const base = await readBase(clients, copy.sessionId);
  const events = await allEvents(clients, copy.sessionId);
  expect(accountOf(copied)).toEqual(accountByLog(events, base));
  expect(kindsOf(copied)).toEqual(["message", "call", "compaction", "message", "origin"]);
  expect(copied.map(({ archived }) => archived)).toEqual([true, true, false, false, false]);
  expect(copied[2]?.entry.value).toMatchObject({ summary: `all up to ${through}` });
  expect(textsOf(await entriesOf(clients, copy.sessionId, 1))).toEqual(textsOf(copied));
  const again = await beginRun(clients, copy.sessionId);
  await recordMessage(clients, again);
  await compact(clients, copy.sessionId, 1);
  const shortened = await entriesOf(clients, copy.sessionId);
  expect(shortened.map(({ archived }) => archived)).toEqual([
    ...[true, true, true, true, true, false, false, false],
  ]);
});

test("an old session is told where it lies, and the same once it was brought in", async () => {
  const old = await OldFolder.make();
  const snapshots = [snapshotB("old B"), snapshotD("old D")];
  for (const snapshot of snapshots) await old.put(snapshot);
  const mounting = await old.start();
  const by = mounting.clients();
  for (const snapshot of snapshots) {
    const { id } = snapshot;
    const lying = await entriesOf(by, id);
    expect(lying.every(({ sequence }) => sequence === 0n)).toBe(true);
    expect(lying.at(-1)?.entry.case).toBe("origin");
    expect(textsOf(await entriesOf(by, id, 1))).toEqual(textsOf(lying));
    await importOld(clients, snapshot);
    const brought = await entriesOf(clients, id);
    const base = await readAdoptedBase(clients, id);
    expect(accountOf(brought)).toEqual(accountByLog(await allEvents(clients, id), base));
    const unplaced = brought.map((entry) => ({ ...entry, sequence: 0n }));
    const isOrigin = ({ entry }: TranscriptEntry): boolean => entry.case === "origin";
    const same = (entries: readonly TranscriptEntry[]) =>
      textsOf(entries.filter((entry) => !isOrigin(entry)));
    expect(same(unplaced)).toEqual(same(lying));
  }
  await mounting.stop();
  await old.remove();
});

test("no reply is larger than may be sent, and a call with too much about it is cut", async () => {
  const run = await openRun(clients);
  const { sessionId } = run;
  const large = `"${"\u0001".repeat(48 * 1024)}"`;
  const { toolCallId } = await acceptCall(clients, run, newCall("call_0", "bash", large));
  const ask = await openAsk(clients, run, toolCallId, { display: "\u0007".repeat(1000) });
  await answer(clients, ask, Verdict.ALLOW_ONCE);
  const hookIds: string[] = [];
  for (let count = 0; count < 80; count += 1) {
    const text = `${count} ${"\u0002".repeat(16 * 1024 - 10)}`;
    const command = { phase: "pre_tool_use", decision: HookDecision.INFO, text, toolCallId };
    const { hook } = await clients.evidence.publishHook({ ...of(run), command });
    hookIds.push(given(hook, "hook").hookId);
  }
  await complete(clients, run, toolCallId, large);
  const content = { data: bytes("m".repeat(60 * 1024)) };
  for (let count = 0; count < 8; count += 1) {
    await clients.evidence.recordMessage({
      ...of(run),
      command: { role: MessageRole.USER, content },
    });
  }
  for (const wire of WIRES) {
    const walked = await allEntries(async (pageToken) => {
      const request = { sessionId, pageSize: 500, pageToken };
      const page = await service.clients(wire).history.getTranscript(request);
      const reply = create(GetTranscriptResponseSchema, page);
      expect(toBinary(GetTranscriptResponseSchema, reply).length).toBeLessThanOrEqual(MIB);
      const json = Buffer.byteLength(toJsonString(GetTranscriptResponseSchema, reply));
      expect(json).toBeLessThanOrEqual(MIB);
      return page;
    });
    expect(kindsOf(walked)).toEqual(["run", "call", ...Array<string>(8).fill("message")]);
    const [cut] = callsIn(walked);
    expect(cut?.truncated).toBe(true);
    expect(cut?.asks.length).toBe(1);
    expect(cut?.receipts.length).toBe(1);
    const told = given(cut, "call").hooks.map(({ hookId }) => hookId);
    expect(told.length).toBeGreaterThan(2);
    expect(told).toEqual(hookIds.slice(0, told.length));
  }
});

test("many records about calls of earlier pages are gone past in bounded pages", async () => {
  const run = await openRun(clients);
  const { toolCallId } = await acceptCall(clients, run);
  const value = { toolCallId, phase: "pre_tool_use", decision: HookDecision.INFO, text: "fine" };
  const commands = Array.from({ length: 250 }, () => ({
    command: { case: "publishHook" as const, value },
  }));
  for (let count = 0; count < 5; count += 1) await clients.runs.apply({ ...of(run), commands });
  await recordMessage(clients, run);
  const { sessionId } = run;
  const pages: (string | undefined)[][] = [];
  await allEntries(async (pageToken) => {
    const page = await clients.history.getTranscript({ sessionId, pageToken });
    pages.push(kindsOf(page.entries));
    return page;
  });
  // What is told about the call fills a page of its own, and the next one finds nothing else yet.
  expect(pages.flat()).toEqual(["run", "call", "message"]);
  expect(pages.length).toBeGreaterThan(2);
});

describe("damage", () => {
  test.each([
    ["a call", "TOOL_CALL%", 1],
    ["a hook record about a call", "HOOK%", 1],
    ["a message", "MESSAGE%", 2],
  ])("of %s is told where it stands, and what stands before is told", async (_, kind, before) => {
    const own = await makeStoreFolder();
    const writing = await startTestService({ store: own.store });
    const by = writing.clients();
    const run = await openRun(by);
    const { toolCallId } = await acceptCall(by, run);
    await publishHook(by, run, toolCallId);
    await recordMessage(by, run);
    await writing.stop();
    const database = new BetterSqlite(own.path);
    withoutTriggers(database, () => {
      const sql = "UPDATE events SET payload = zeroblob(length(payload)) WHERE kind LIKE ?";
      expect(database.prepare(sql).run(kind).changes).toBe(1);
    });
    database.close();
    const reading = await startTestService({ store: own.store });
    const { history } = reading.clients();
    const { sessionId } = run;
    const told = await refused(history.getTranscript({ sessionId }));
    expect(told).toMatchObject({ code: Code.DataLoss, reason: "DATA_DAMAGED" });
    const page = await history.getTranscript({ sessionId, pageSize: before });
    expect(page.entries.length).toBe(before);
    await reading.stop();
    await own.remove();
  });
});

test("an ask is told with what it presented, and without its token", async () => {
  const run = await openRun(clients);
  const { toolCallId } = await acceptCall(clients, run);
  const ask = await openAsk(clients, run, toolCallId);
  const shown = await showAsk(clients, run.sessionId, ask.askId);
  const [open] = callsIn(await entriesOf(clients, run.sessionId));
  const asks = open?.asks.map((one) => toJson(AskSchema, one));
  expect(asks).toEqual([toJson(AskSchema, shown.ask)]);
  expect(textsOf(await entriesOf(clients, run.sessionId)).join()).not.toContain(shown.answerToken);
  await clients.approvals.answerAsk(answerTo(shown, Verdict.DENY));
  const [denied] = callsIn(await expectTold(clients, run.sessionId));
  expect(denied?.receipts[0]?.verdict).toBe(Verdict.DENY);
});
