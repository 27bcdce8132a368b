import { toBinary, toJsonString, type DescMessage, type MessageShape } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { BaseStateSchema } from "../../gen/toolmark/v1/base_state_pb.js";
import { EventSchema } from "../../gen/toolmark/v1/event_pb.js";
import { LegacySourceFormat } from "../../gen/toolmark/v1/legacy_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunOutcome } from "../../gen/toolmark/v1/run_pb.js";
import { SessionSchema } from "../../gen/toolmark/v1/session_pb.js";
import {
  ImportSessionResponseSchema,
  ListSessionsResponseSchema,
} from "../../gen/toolmark/v1/session_service_pb.js";
import { ToolCallSchema, ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { archiveRef } from "../../src/domain/identity.js";
import { sha256 } from "../../src/domain/sha256.js";
import {
  allAsks,
  answer,
  answerTo,
  listedAsks,
  readAuthorization,
  showAsk,
} from "../support/asking.js";
import {
  acceptCall,
  allCalls,
  allEvents,
  beginRun,
  complete,
  endRun,
  freshRequestId,
  given,
  newCall,
  of,
  openRun,
  readSession,
} from "../support/conversation.js";
import { fork, readBase, readBytes } from "../support/forking.js";
import {
  askIdOf,
  AUTHORIZATION_ID,
  bytesOfSnapshot,
  calling,
  importOld,
  importRequest,
  logF,
  oldCall,
  PRIVATE,
  privateWordsIn,
  readAdopted,
  readAdoptedBase,
  recordsIn,
  resultOf,
  said,
  snapshotA,
  snapshotB,
  snapshotC,
  snapshotD,
  snapshotE,
  sourcesOf,
  textOf,
  type Snapshot,
} from "../support/old-fixtures.js";
import { readBack } from "../support/read-back.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, tableContents, type StoreFolder } from "../support/store-folder.js";
import { storedValues } from "../support/stored-tables.js";

const FAR = "2126-09-21T12:00:00Z";

let folder: StoreFolder;
let service: TestService;
let clients: Clients;

beforeAll(async () => {
  folder = await makeStoreFolder();
  service = await startTestService({ store: folder.store, flags: ["--snapshot-every", "3"] });
  clients = service.clients();
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

let sessions = 0;

function freshId(): string {
  sessions += 1;
  return `old:${sessions}`;
}

async function expectSound(sessionId: string): Promise<void> {
  const { head } = await clients.sessions.verifySession({ sessionId });
  expect(head).toEqual((await readSession(clients, sessionId)).checkpoint);
}

async function idsOf(sessionId: string): Promise<string[]> {
  return (await allCalls(clients, sessionId)).map(({ toolCallId }) => toolCallId);
}

async function statesOf(sessionId: string): Promise<string[]> {
  return (await allCalls(clients, sessionId)).map(({ state }) => ToolCallState[state]);
}

/** A snapshot after more messages. */
function grown(before: Snapshot, messages: readonly object[], more: object = {}): Snapshot {
  return { ...before, messages: [...before.messages, ...messages], ...more };
}

/** B once its calls were carried out in the older system. */
function snapshotBDone(id: string): Snapshot {
  const results = [resultOf(PRIVATE.waiting, "removed a"), resultOf(PRIVATE.behind, "removed b")];
  return grown(snapshotB(id), results, { state: "completed", pending: null });
}

/** Whether the store has a body, whoever may read it. */
function isStored(bodyRef: string): boolean {
  for (const { value } of storedValues(folder.path)) {
    if (value.equals(Buffer.from(bodyRef))) return true;
  }
  return false;
}

/** An import that is refused, and of which nothing is stored. */
async function refusedImport(snapshot: Snapshot, requestId = freshRequestId()) {
  const before = tableContents(folder.path);
  const refusal = await refused(importOld(clients, snapshot, requestId));
  expect(tableContents(folder.path)).toEqual(before);
  return refusal;
}

describe.each(["grpc", "connect-binary"] as const)("the same again over %s", (wire) => {
  test("with the same request id is answered equally, and writes nothing", async () => {
    const own = service.clients(wire);
    const id = freshId();
    const first = await importOld(own, snapshotB(id), "once");
    const before = tableContents(folder.path);
    expect(await importOld(own, snapshotB(id), "once")).toEqual(first);
    const { parts, ...bare } = importRequest(id, sourcesOf(snapshotB(id)), "once");
    expect(parts).toHaveLength(1);
    expect(await own.sessions.importSession(bare)).toEqual(first);
    expect(tableContents(folder.path)).toEqual(before);
  });

  test("with another request id brings nothing new, and writes nothing", async () => {
    const own = service.clients(wire);
    const id = freshId();
    const first = await importOld(own, snapshotB(id));
    const before = tableContents(folder.path);
    const events = await allEvents(own, id);
    const again = await importOld(own, snapshotB(id));
    expect(again).toEqual({ ...first, isNew: false });
    expect(tableContents(folder.path)).toEqual(before);
    expect(await allEvents(own, id)).toEqual(events);
  });

  test("a request id is not taken for other sources, or for another owner", async () => {
    const own = service.clients(wire);
    const id = freshId();
    await importOld(own, snapshotB(id), "taken");
    const other = await refusedImport(snapshotBDone(id), "taken");
    expect(other.reason).toBe("REQUEST_ID_REUSED");
    const request = importRequest(id, sourcesOf(snapshotB(id)), "taken");
    const importing = own.sessions.importSession({ ...request, ownerSubject: "ann" });
    expect((await refused(importing)).reason).toBe("REQUEST_ID_REUSED");
  });
});

test("imports of one session at once write it once", async () => {
  const id = freshId();
  const importing = Array.from({ length: 8 }, () => importOld(clients, snapshotB(id)));
  const outcomes = await Promise.allSettled(importing);
  const done = outcomes.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  expect(done.filter(({ isNew }) => isNew)).toHaveLength(1);
  for (const each of outcomes) {
    if (each.status === "fulfilled") continue;
    expect((await refused(Promise.reject(each.reason as Error))).reason).toBe("STORE_BUSY");
  }
  expect((await allEvents(clients, id)).map(({ kind }) => kind)).toEqual(["ADOPTED"]);
  expect((await importOld(clients, snapshotB(id))).isNew).toBe(false);
});

describe("a snapshot that has grown", () => {
  test("adds what is new; ids, order and pairings stay, and the ask that is gone is withdrawn", async () => {
    const id = freshId();
    await importOld(clients, snapshotB(id));
    const ids = await idsOf(id);
    const shown = await showAsk(clients, id, askIdOf(id));
    const turn = calling(oldCall(PRIVATE.waiting, "bash", { command: "ls" }));
    const later = grown(snapshotBDone(id), [said("user", "and now?"), turn], { title: "later" });
    const { isNew, summary } = await importOld(clients, later);
    expect(isNew).toBe(true);
    expect(summary).toMatchObject({ toolCalls: 4, joinedResults: 3, openAsks: 0, openCalls: 0 });
    const calls = await allCalls(clients, id);
    expect(calls.map(({ toolCallId }) => toolCallId).slice(0, 3)).toEqual(ids);
    const results = calls.map(({ result }) => textOf(result?.content));
    expect(results.slice(0, 3)).toEqual(["content of a", "removed a", "removed b"]);
    expect(calls.map(({ revision }) => revision)).toEqual(calls.map(() => undefined));
    const [ask, ...others] = await allAsks(clients, id);
    expect(others).toEqual([]);
    expect(ask).toMatchObject({ askId: askIdOf(id), state: AskState.WITHDRAWN });
    expect(ask?.toolCallId).toBe(ids[1]);
    const inbox = await listedAsks(clients, {});
    expect(inbox.filter((each) => each.ask.origin?.sessionId === id)).toEqual([]);
    const late = await refused(clients.approvals.answerAsk(answerTo(shown)));
    expect(late.reason).toBe("ASK_NOT_OPEN");
    const { occurrences } = await readAdoptedBase(clients, id);
    expect(occurrences.map(({ toolCallId }) => toolCallId)).toEqual(await idsOf(id));
    expect((await readSession(clients, id)).title).toBe("later");
    expect((await allEvents(clients, id)).map(({ kind }) => kind)).toEqual(["ADOPTED", "ADOPTED"]);
    await expectSound(id);
  });

  test("with a consent that is gone closes it", async () => {
    const id = freshId();
    await importOld(clients, snapshotC(id, FAR));
    const done = { state: "idle", pending_authorization: null };
    await importOld(clients, { ...snapshotC(id, FAR), ...done });
    const { state } = await readAuthorization(clients, id, AUTHORIZATION_ID);
    expect(state).toBe(AuthorizationState.CLOSED);
    expect((await statesOf(id)).slice(1)).toEqual(Array(3).fill("RESULT_MISSING"));
    await expectSound(id);
  });

  test("with a new ask can be answered, and the one before it cannot", async () => {
    const id = freshId();
    await importOld(clients, snapshotB(id));
    const next = calling(oldCall("toolu_next", "bash", { command: "mv" }));
    const pending = {
      ...{ AskID: "the next", Tool: "bash", Args: { command: "mv" }, Reason: "may it move?" },
      ...{ call: "toolu_next", origin: "permission" },
    };
    await importOld(clients, grown(snapshotBDone(id), [next], { state: "awaiting", pending }));
    const open = await listedAsks(clients, { sessionId: id });
    expect(open.map(({ ask }) => ask.askId)).toEqual(["the next"]);
    const receipt = await answer(clients, open[0]!.ask, Verdict.DENY);
    expect(receipt.toolCallId).toBe((await idsOf(id))[3]);
    expect((await statesOf(id))[3]).toBe("DENIED");
    await expectSound(id);
  });

  test("keeps the reply of the first import for its request", async () => {
    const id = freshId();
    const first = await importOld(clients, snapshotB(id), "first of two");
    await importOld(clients, snapshotBDone(id), "second of two");
    expect(await importOld(clients, snapshotB(id), "first of two")).toEqual(first);
    expect(await statesOf(id)).toEqual(["COMPLETED", "COMPLETED", "COMPLETED"]);
  });

  test("and a log that joins later adds evidence, and changes no call", async () => {
    const id = freshId();
    await importOld(clients, snapshotB(id));
    const before = await allCalls(clients, id);
    const request = importRequest(id, sourcesOf(snapshotB(id), logF()));
    const { summary } = await clients.sessions.importSession(request);
    expect(await allCalls(clients, id)).toEqual(before);
    expect(summary?.attachedEvidence).toBe(0);
    expect(summary?.standaloneEvidence).toBeGreaterThan(4);
    expect((await listedAsks(clients, { sessionId: id })).map(({ ask }) => ask.askId)).toEqual([
      askIdOf(id),
    ]);
    await expectSound(id);
  });
});

describe("is refused as diverged", () => {
  const changes: readonly (readonly [string, number, (before: Snapshot) => Snapshot])[] = [
    ["a call with other arguments", 0, (before) => withMessage(before, 1, { path: "other" })],
    ["a call with another private id", 1, (before) => withMessage(before, 3, { path: "b" }, "x")],
    [
      "a history that lost its last call",
      1,
      (before) => ({ ...before, messages: before.messages.slice(0, 3) }),
    ],
    [
      "a history whose calls moved",
      0,
      (before) => ({ ...before, messages: [said("user", "before"), ...before.messages] }),
    ],
  ];

  function withMessage(before: Snapshot, at: number, args: object, id: string = PRIVATE.again) {
    const item = at === 1 ? PRIVATE.item : "";
    const changed = calling(oldCall(id, "list", args, item));
    return { ...before, messages: before.messages.with(at, changed) };
  }

  test.each(changes)("%s: the call is named, and nothing is written", async (_, index, change) => {
    const id = freshId();
    await importOld(clients, snapshotA(id));
    const [named] = (await idsOf(id)).slice(index);
    const refusal = await refusedImport(change(snapshotA(id)));
    expect(refusal.reason).toBe("SESSION_DIVERGED");
    expect(refusal.metadata).toEqual({ tool_call_id: named });
    expect(privateWordsIn(JSON.stringify(refusal))).toEqual([]);
    // What it was refused for is no reason to refuse what fits.
    expect((await importOld(clients, snapshotA(id))).isNew).toBe(false);
  });

  test("a session that was written to since: the first event of its own is named", async () => {
    const id = freshId();
    await importOld(clients, snapshotB(id));
    await answer(clients, { origin: { sessionId: id } as Ask["origin"], askId: askIdOf(id) });
    const refusal = await refusedImport(snapshotBDone(id));
    expect(refusal).toMatchObject({ reason: "SESSION_DIVERGED", metadata: { sequence: "2" } });
    // The same sources say nothing against it.
    expect((await importOld(clients, snapshotB(id))).isNew).toBe(false);
  });

  test("a session that was made here, and one that was forked", async () => {
    const { sessionId } = await openRun(clients);
    const made = await refusedImport(snapshotA(sessionId));
    expect(made.reason).toBe("SESSION_DIVERGED");
    const id = freshId();
    await importOld(clients, snapshotA(id));
    const forked = await fork(clients, id);
    expect((await refusedImport(snapshotA(forked.sessionId))).reason).toBe("SESSION_DIVERGED");
    expect((await importOld(clients, grown(snapshotA(id), [said("user", "x")]))).isNew).toBe(true);
  });
});

describe("an imported session lives on", () => {
  test("across a restart, with every answer equal", async () => {
    const own = await makeStoreFolder();
    let served = await startTestService({ store: own.store });
    const snapshots = [
      ...[snapshotA("s:A"), snapshotB("s:B"), snapshotC("s:C", FAR), snapshotD("s:D", true)],
      ...[snapshotD("s:D2"), snapshotE("s:E", "s:A"), snapshotBDone("s:B")],
    ];
    for (const [index, snapshot] of snapshots.entries()) {
      await importOld(served.clients(), snapshot, `import ${index}`);
    }
    const ids = [...new Set(snapshots.map(({ id }) => id))];
    const read = async () => {
      const all: unknown[] = [await served.clients().sessions.listSessions({ pageSize: 500 })];
      for (const id of ids) {
        all.push(await readBack(served.clients(), id, 1));
        all.push(await readAdoptedBase(served.clients(), id));
      }
      all.push(await listedAsks(served.clients(), {}));
      return all;
    };
    const before = await read();
    const token = await showAsk(served.clients(), "s:E", "s:E:0:first");
    await served.stop();
    served = await startTestService({ store: own.store });
    expect(await read()).toEqual(before);
    for (const sessionId of ids) await served.clients().sessions.verifySession({ sessionId });
    expect((await importOld(served.clients(), snapshotA("s:A"), "import 0")).isNew).toBe(true);
    expect((await importOld(served.clients(), snapshotA("s:A"), "other")).isNew).toBe(false);
    await served.clients().approvals.answerAsk(answerTo(token));
    const run = await beginRun(served.clients(), "s:C");
    const turn = newCall(PRIVATE.behind);
    const repeated = await refused(acceptCall(served.clients(), run, turn));
    expect(repeated.reason).toBe("PROVIDER_CALL_ID_OUTSTANDING");
    await served.stop();
    await own.remove();
  });

  test("in a fork with the same ids, without the turn that goes on", async () => {
    const id = freshId();
    const before = grown(snapshotA(id), snapshotB(id).messages, {
      ...{ state: "awaiting", pending: snapshotB(id)["pending"] },
    });
    await importOld(clients, before);
    const ids = await idsOf(id);
    expect(ids).toHaveLength(5);
    const forked = await fork(clients, id);
    expect(await idsOf(forked.sessionId)).toEqual(ids.slice(0, 2));
    const copied = await allCalls(clients, forked.sessionId);
    for (const call of copied) {
      expect(call).toMatchObject({ inheritedFromSessionId: id, origin: { sessionId: id } });
      expect(call.revision).toBeUndefined();
    }
    expect(await allAsks(clients, forked.sessionId)).toEqual([]);
    const turns = recordsIn(await readBase(clients, forked.sessionId), "turn");
    expect(turns.map(({ toolCallIds }) => toolCallIds)).toEqual(
      ids.slice(0, 2).map((one) => [one]),
    );
    expect(await idsOf(id)).toEqual(ids);
    const run = await beginRun(clients, forked.sessionId);
    await complete(clients, run, (await acceptCall(clients, run)).toolCallId);
    await expectSound(forked.sessionId);
    await expectSound(id);
  });

  test("in a compaction, behind which its ids still resolve, but not while a turn goes on", async () => {
    const id = freshId();
    await importOld(clients, snapshotB(id));
    const ids = await idsOf(id);
    const compact = (throughSequence: bigint) =>
      clients.sessions.compactSession({
        ...{ requestId: freshRequestId(), sessionId: id, throughSequence, summary: "before" },
      });
    expect((await refused(compact(1n))).reason).toBe("NOTHING_TO_COMPACT");
    await answer(
      clients,
      { origin: { sessionId: id } as Ask["origin"], askId: askIdOf(id) },
      Verdict.DENY,
    );
    const run = await beginRun(clients, id);
    await complete(clients, run, ids[2]!);
    await endRun(clients, run, { outcome: RunOutcome.COMPLETED });
    const { checkpoint } = await readSession(clients, id);
    const { throughSequence } = await compact(given(checkpoint, "checkpoint").sequence);
    expect(throughSequence).toBe(checkpoint?.sequence);
    expect(await idsOf(id)).toEqual(ids);
    for (const toolCallId of ids) {
      await clients.history.getToolCall({ sessionId: id, toolCallId });
    }
    const forked = await fork(clients, id);
    expect(await idsOf(forked.sessionId)).toEqual(ids);
    await expectSound(id);
    await expectSound(forked.sessionId);
  });
});

describe("what was private stays so", () => {
  const FIXTURES = [
    ["A", (id: string) => snapshotA(id)],
    ["B", (id: string) => snapshotB(id)],
    ["C", (id: string) => snapshotC(id, FAR)],
    ["D", (id: string) => snapshotD(id)],
    ["D that is asked about", (id: string) => snapshotD(id, true)],
    ["E", (id: string) => snapshotE(id, "old parent")],
  ] as const;

  function plain<D extends DescMessage>(schema: D, message: MessageShape<D>): string {
    return Buffer.from(toBinary(schema, message)).toString() + toJsonString(schema, message);
  }

  test.each(FIXTURES)(
    "%s: no id of the provider is in a reply, event, body or log line",
    async (_, make) => {
      const id = freshId();
      const reply = await importOld(clients, make(id));
      const { calls, events, session, ...rest } = await readBack(clients, id, 500);
      const listed = await clients.sessions.listSessions({ pageSize: 500 });
      const base = await readAdoptedBase(clients, id);
      const shown = [
        plain(ImportSessionResponseSchema, reply),
        plain(SessionSchema, session),
        plain(ListSessionsResponseSchema, listed),
        plain(BaseStateSchema, base),
        ...calls.map((call) => plain(ToolCallSchema, call)),
        ...events.map((event) => plain(EventSchema, event)),
        ...[...rest.bodies.values()].map((data) => data.toString()),
        JSON.stringify([rest.asks, rest.authorizations, rest.hooks], (_key, value: unknown) =>
          typeof value === "bigint" ? String(value) : value,
        ),
      ].join("\n");
      expect(shown).toContain(id);
      expect(privateWordsIn(shown)).toEqual([]);
      expect(privateWordsIn(service.logged())).toEqual([]);
      // The sources have them, so that the search can find something.
      expect(privateWordsIn(JSON.stringify(make(id)))).not.toEqual([]);
    },
  );

  test("the bytes of a source are kept, and neither read nor named by anybody", async () => {
    const id = freshId();
    const { session } = await importOld(clients, snapshotA(id));
    const digest = sha256(bytesOfSnapshot(snapshotA(id)));
    const { sources } = await readAdopted(clients, id);
    expect(sources.map(({ format, sha256: of_ }) => [format, Buffer.from(of_)])).toEqual([
      [LegacySourceFormat.SNAPSHOT, Buffer.from(digest)],
    ]);
    const bodyRef = archiveRef(given(session, "session").sessionId, digest);
    expect((await refused(readBytes(clients, id, bodyRef))).reason).toBe("BODY_NOT_FOUND");
    const run = await beginRun(clients, id);
    const { toolCallId } = await acceptCall(clients, run);
    const before = await allEvents(clients, id);
    const named = { content: { bodyRef } };
    const recording = clients.calls.recordResult({
      ...{ ...of(run), command: { toolCallId, result: { case: "canonical", value: named } } },
    });
    expect((await refused(recording)).reason).toBe("BODY_NOT_FOUND");
    const amending = clients.calls.amendToolCall({
      ...{ ...of(run), command: { toolCallId, effective: { bodyRef } } },
    });
    expect((await refused(amending)).reason).toBe("BODY_NOT_FOUND");
    expect(await allEvents(clients, id)).toEqual(before);
    const forked = await fork(clients, id);
    const inFork = archiveRef(forked.sessionId, digest);
    for (const ref of [bodyRef, inFork]) {
      const reading = readBytes(clients, forked.sessionId, ref);
      expect((await refused(reading)).reason).toBe("BODY_NOT_FOUND");
    }
    expect(isStored(bodyRef)).toBe(true);
  });
});
