import { writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { Code } from "@connectrpc/connect";
import type { Http2SessionManager } from "@connectrpc/connect-node";
import BetterSqlite from "better-sqlite3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AskKind, AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunOutcome } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind, SessionState } from "../../gen/toolmark/v1/session_pb.js";
import type {
  CancelledDescendant,
  EndSessionResponse,
} from "../../gen/toolmark/v1/session_service_pb.js";
import { Ran, ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { EventKind } from "../../src/domain/event-kind.js";
import {
  answer,
  askAbout,
  listedAsks,
  openAsk,
  park,
  readAuthorization,
  startCall,
} from "../support/asking.js";
import {
  acceptCall,
  acceptTurn,
  allCalls,
  allEvents,
  beginRun,
  endRun,
  freshRequestId,
  given,
  newCall,
  openRun,
  readSession,
  recordMessage,
  type OpenRun,
} from "../support/conversation.js";
import { HeldStore } from "../support/held-store.js";
import { expectNothingWritten } from "../support/nothing-written.js";
import { refused } from "../support/refused.js";
import { scaled } from "../support/scale.js";
import { launchServer } from "../support/server-process.js";
import { clientsOf, startTestService, transportOf, type Clients } from "../support/service.js";
import { ROOT } from "../support/source-tree.js";
import { spawnServer } from "../support/spawned-server.js";
import { makeStoreFolder, tableContents, type StoreFolder } from "../support/store-folder.js";
import { askingChildren, delegateTo, openChild, openLine, type Child } from "../support/trees.js";
import { startWatchedService, type WatchedService } from "../support/watched-service.js";
import { Callers, principal, TWO_WIRES } from "./cases-asks-fixture.js";
import { until } from "./listeners-fixture.js";

const KILLED_AT_COMMIT = pathToFileURL(
  join(ROOT, "test/mutants/preload-killed-at-commit.mjs"),
).href;

let folder: StoreFolder;
let service: WatchedService;
let callers: Callers;
let clients: Clients;

beforeAll(async () => {
  folder = await makeStoreFolder();
  const principals = {
    harness: principal("harness", { engine: "own" }),
    boss: principal("boss", { engine: "tenant" }),
  };
  service = await startWatchedService({ store: folder.store, principals });
  callers = new Callers(service);
  clients = service.clients();
});

afterAll(async () => {
  callers.disconnect();
  await service.stop();
  await folder.remove();
});

/** Ends a session and what is unfinished below it. */
async function cancel(
  by: Clients,
  sessionId: string,
  requestId = freshRequestId(),
): Promise<EndSessionResponse> {
  return by.sessions.endSession({ requestId, sessionId, cancelDescendants: true });
}

/** What a report says of each session, in its order. */
function told(descendants: readonly CancelledDescendant[]) {
  return descendants.map(({ sessionId, runId, endedToolCallCount, withdrawnAskCount }) => [
    ...[sessionId, runId, endedToolCallCount, withdrawnAskCount],
  ]);
}

async function openAskIds(by: Clients, sessionId: string): Promise<string[]> {
  const asks = await listedAsks(by, { sessionId, includeDescendants: true });
  return asks.map(({ ask }) => ask.askId);
}

/** The store-wide place of the event that ended a session's run. */
async function endedAt(by: Clients, { sessionId }: OpenRun): Promise<bigint> {
  const events = await allEvents(by, sessionId);
  const [end, ...more] = events.filter(({ kind }) => kind === EventKind.runEnded);
  expect(more).toEqual([]);
  return given(end, "end of the run").position;
}

/** Has nothing unfinished: no active run, no open call, no open ask. */
async function expectFinished(by: Clients, sessionId: string): Promise<void> {
  expect((await readSession(by, sessionId)).activeRunId).toBeUndefined();
  for (const { result } of await allCalls(by, sessionId)) expect(result).toBeDefined();
  expect(await listedAsks(by, { sessionId })).toEqual([]);
}

describe.each(TWO_WIRES)("cancel_descendants over %s", (wire) => {
  test("settles what is below, deepest first, reports each and leaves them open", async () => {
    const by = service.clients(wire);
    const { root, line } = await openLine(by, 3);
    const [first, second, third] = line as [Child, Child, Child];
    const beside = await openChild(by, root);
    const asks = [
      await askAbout(by, second.run),
      await askAbout(by, third.run),
      await askAbout(by, third.run),
    ];
    const { sessionId } = root;
    expect(await openAskIds(by, sessionId)).toEqual(asks.map(({ askId }) => askId));

    const requestId = freshRequestId();
    const reply = await cancel(by, sessionId, requestId);
    expect(reply.session).toMatchObject({ sessionId, state: SessionState.ENDED });
    expect(told(reply.descendants)).toEqual([
      // In the order of creation. The delegating call is one of those that end.
      [first.session.sessionId, first.run.runId, 1, 0],
      [second.session.sessionId, second.run.runId, 2, 1],
      [third.session.sessionId, third.run.runId, 2, 2],
      [beside.session.sessionId, beside.run.runId, 0, 0],
    ]);
    const [atThird, atSecond, atFirst, atBeside, atRoot] = await Promise.all(
      [third.run, second.run, first.run, beside.run, root].map((run) => endedAt(by, run)),
    );
    const order = [atThird, atSecond, atFirst, atRoot].map((at) => given(at, "place"));
    expect(order).toEqual(order.toSorted((left, right) => (left < right ? -1 : 1)));
    expect(given(atBeside, "place")).toBeGreaterThan(given(atSecond, "place"));
    expect(given(atBeside, "place")).toBeLessThan(given(atRoot, "place"));
    expect(await openAskIds(by, sessionId)).toEqual([]);
    for (const { session } of [...line, beside]) {
      await expectFinished(by, session.sessionId);
      const { state } = await readSession(by, session.sessionId);
      expect(state).toBe(SessionState.OPEN);
      await by.sessions.verifySession({ sessionId: session.sessionId });
    }
    // The repeat is the same, without a word in any log.
    const runs = [root, beside.run, ...line.map(({ run }) => run)];
    const logs = () => Promise.all(runs.map((run) => allEvents(by, run.sessionId)));
    const before = await logs();
    expect(await cancel(service.clients(), sessionId, requestId)).toEqual(reply);
    expect(await logs()).toEqual(before);
    // Those below go on, if their harness wants to.
    const again = await beginRun(by, third.session.sessionId);
    await answer(by, await askAbout(by, again));
    expect(await cancel(by, sessionId, requestId)).toEqual(reply);
  });

  test("is not done without being asked for", async () => {
    const by = service.clients(wire);
    const { root, last } = await openLine(by, 2);
    const ask = await askAbout(by, last);
    const requestId = freshRequestId();
    const { sessionId } = root;
    const reply = await by.sessions.endSession({ requestId, sessionId });
    expect(reply.descendants).toEqual([]);
    expect(await openAskIds(by, sessionId)).toEqual([ask.askId]);
    const other = cancel(by, sessionId, requestId);
    expect(await refused(other)).toMatchObject({ reason: "REQUEST_ID_REUSED" });
    expect(await refused(cancel(by, sessionId))).toMatchObject({
      code: Code.FailedPrecondition,
      reason: "SESSION_ENDED",
    });
    expect(await openAskIds(by, sessionId)).toEqual([ask.askId]);
    expect((await answer(by, ask)).verdict).toBe(Verdict.ALLOW_ONCE);
  });

  test("ends nothing under a request id that names another request", async () => {
    const by = service.clients(wire);
    const { root, last } = await openLine(by, 1);
    const ask = await askAbout(by, last);
    const requestId = freshRequestId();
    await recordMessage(by, root, requestId);
    const refusal = await refused(cancel(by, root.sessionId, requestId));
    expect(refusal).toMatchObject({ reason: "REQUEST_ID_REUSED" });
    expect(await openAskIds(by, root.sessionId)).toEqual([ask.askId]);
    // The same id in the child is another one.
    await recordMessage(by, last, requestId);
  });
});

describe("what is ended by the end of a session above", () => {
  test("is ended by EndRun's rules, whatever it waits for", async () => {
    const { root, last } = await openLine(clients, 1);
    const { sessionId } = last;
    const [parked, deferred] = (await acceptTurn(clients, last, [newCall(), newCall()])).map(
      ({ toolCallId }) => toolCallId,
    ) as [string, string];
    const authorization = await park(clients, last, parked, { deferredToolCallIds: [deferred] });
    const denied = await askAbout(clients, last);
    await answer(clients, denied, Verdict.DENY);
    const started = (await acceptCall(clients, last)).toolCallId;
    await startCall(clients, last, started);
    const held = (await acceptCall(clients, last)).toolCallId;
    await startCall(clients, last, held);
    const kind = AskKind.RESULT_RELEASE;
    await openAsk(clients, last, held, {
      ...{ kind, heldSha256: new Uint8Array(32).fill(7), heldSizeBytes: 12n },
    });
    const reply = await cancel(clients, root.sessionId);
    expect(told(reply.descendants)).toEqual([[sessionId, last.runId, 5, 1]]);
    const calls = await allCalls(clients, sessionId);
    expect(calls.map(({ state, ran }) => [ToolCallState[state], Ran[ran]])).toEqual([
      ["OUTCOME_UNKNOWN", "UNKNOWN"],
      ["OUTCOME_UNKNOWN", "UNKNOWN"],
      ["DENIED", "NO"],
      ["OUTCOME_UNKNOWN", "UNKNOWN"],
      ["WITHHELD", "YES"],
    ]);
    await expectFinished(clients, sessionId);
    const { authorizationId } = authorization;
    const { state } = await readAuthorization(clients, sessionId, authorizationId);
    expect(state).toBe(AuthorizationState.CLOSED);
  });

  test("is also what a parked run left behind, and nothing in a session without work", async () => {
    const { root, last } = await openLine(clients, 1);
    const ask = await askAbout(clients, last);
    await endRun(clients, last, { outcome: RunOutcome.PARKED });
    const idle = await openChild(clients, root);
    await endRun(clients, idle.run, { outcome: RunOutcome.COMPLETED });
    const fresh = await delegateTo(
      clients,
      root.sessionId,
      (await acceptCall(clients, root)).toolCallId,
    );
    const before = await readSession(clients, fresh.sessionId);
    const reply = await cancel(clients, root.sessionId);
    expect(told(reply.descendants)).toEqual([[last.sessionId, undefined, 1, 1]]);
    expect((await listedAsks(clients, { sessionId: last.sessionId })).length).toBe(0);
    const settled = { sessionId: last.sessionId, state: AskState.WITHDRAWN };
    expect((await listedAsks(clients, settled)).map(({ ask: { askId } }) => askId)).toEqual([
      ask.askId,
    ]);
    expect(await readSession(clients, fresh.sessionId)).toEqual(before);
    for (const { sessionId } of [last, idle.run, fresh]) {
      await clients.sessions.verifySession({ sessionId });
    }
  });

  test("is not what has ended before, and is what goes on below that", async () => {
    const { root, line } = await openLine(clients, 3);
    const [first, second, third] = line as [Child, Child, Child];
    const ask = await askAbout(clients, third.run);
    for (const { sessionId } of [first.session, second.session]) {
      await clients.sessions.endSession({ requestId: freshRequestId(), sessionId });
    }
    const reply = await cancel(clients, root.sessionId);
    expect(told(reply.descendants)).toEqual([[third.session.sessionId, third.run.runId, 1, 1]]);
    const settled = { sessionId: third.session.sessionId, state: AskState.WITHDRAWN };
    expect((await listedAsks(clients, settled)).map(({ ask: { askId } }) => askId)).toEqual([
      ask.askId,
    ]);
  });

  test("of a session in the middle is what is below it, not beside or above", async () => {
    const { root, line } = await openLine(clients, 2);
    const [middle, below] = line as [Child, Child];
    const [beside] = await askingChildren(clients, root, 1);
    const own = await askAbout(clients, root);
    const deep = await askAbout(clients, below.run);
    const reply = await cancel(clients, middle.session.sessionId);
    expect(told(reply.descendants)).toEqual([[below.session.sessionId, below.run.runId, 1, 1]]);
    const open = await openAskIds(clients, root.sessionId);
    expect(open).toEqual([beside?.ask.askId, own.askId]);
    expect(open).not.toContain(deep.askId);
    const call = await readSession(clients, root.sessionId);
    expect(call.activeRunId).toBe(root.runId);
  });

  test("is ended for whoever may end the session, whoever made those below", async () => {
    const [harness, boss] = [callers.as("harness"), callers.as("boss")];
    const creation = { requestId: freshRequestId(), kind: SessionKind.MAIN, ownerSubject: "ann" };
    const { session } = await harness.sessions.createSession(creation);
    const { sessionId } = given(session, "session");
    const root = await beginRun(harness, sessionId);
    const { toolCallId } = await acceptCall(harness, root);
    const child = await openChild(boss, root, toolCallId);
    await askAbout(boss, child.run);
    expect(await refused(readSession(harness, child.session.sessionId))).toMatchObject({
      reason: "SESSION_NOT_FOUND",
    });
    const reply = await cancel(harness, sessionId);
    expect(told(reply.descendants)).toEqual([[child.session.sessionId, child.run.runId, 1, 1]]);
    await expectFinished(boss, child.session.sessionId);
  });

  test("is nothing if the session is not the caller's", async () => {
    const { root, last } = await openLine(clients, 1);
    const ask = await askAbout(clients, last);
    const refusal = await expectNothingWritten(service, last.sessionId, (requestId) =>
      cancel(callers.as("harness"), root.sessionId, requestId),
    );
    expect(refusal).toMatchObject({ code: Code.NotFound, reason: "SESSION_NOT_FOUND" });
    expect(await openAskIds(clients, root.sessionId)).toEqual([ask.askId]);
  });
});

describe("where one session can only be read", () => {
  /** Starts anew after something was done to a root, or to one of its two asking children. */
  async function restartWith(damagedOf: (ids: readonly [string, ...string[]]) => string) {
    const own = await makeStoreFolder();
    const before = await startTestService({ store: own.store });
    const root = await openRun(before.clients());
    const asking = await askingChildren(before.clients(), root, 2);
    await before.stop();
    const { sessionId } = root;
    const children = asking.map(({ child }) => child.session.sessionId);
    const damaged = damagedOf([sessionId, ...children]);
    const database = new BetterSqlite(own.path);
    // A snapshot ahead of the log: what the session published may be missing.
    const sql = `UPDATE snapshots SET sequence = sequence + 100
      WHERE session = (SELECT session FROM sessions WHERE session_id = ?)`;
    expect(database.prepare(sql).run(damaged).changes).toBeGreaterThan(0);
    database.close();
    return { own, after: await startTestService({ store: own.store }), sessionId, damaged };
  }

  test.each([
    ["the first below", 1],
    ["the last below", 2],
    ["the root itself", 0],
  ])("nothing is ended below the root: %s", async (_, index) => {
    const { own, after, sessionId, damaged } = await restartWith((ids) => given(ids[index], "id"));
    const by = after.clients();
    const before = tableContents(own.path);
    const requestId = freshRequestId();
    expect(await refused(cancel(by, sessionId, requestId))).toMatchObject({
      code: Code.FailedPrecondition,
      reason: "HIGH_WATER_UNAVAILABLE",
      ...(index > 0 && { metadata: { session_id: damaged } }),
    });
    expect(tableContents(own.path)).toEqual(before);
    if (index > 0) {
      // The request id is not used up by what was refused, and the root can be ended alone.
      const { session } = await by.sessions.endSession({ requestId, sessionId });
      expect(session?.state).toBe(SessionState.ENDED);
    }
    await after.stop();
    await own.remove();
  });
});

describe("a cancellation that is cut off", () => {
  /** A service whose commits can be held back. */
  async function heldService() {
    let store: HeldStore | undefined;
    const slow = await startTestService({ wrapStore: (inner) => (store = new HeldStore(inner)) });
    return { service: slow, held: given(store, "store"), done: () => slow.stop() };
  }

  /** Its caller goes away while the first session's commit goes on. */
  async function cutOffAfterOne(
    by: Clients,
    held: HeldStore,
    sessionId: string,
    requestId: string,
  ) {
    const commits = held.sizes.length;
    held.hold();
    const leaving = new AbortController();
    const request = { requestId, sessionId, cancelDescendants: true };
    const cutOff = by.sessions.endSession(request, { signal: leaving.signal });
    const outcome = refused(cutOff);
    await until(() => held.waiting === 1);
    leaving.abort();
    expect(await outcome).toMatchObject({ code: Code.Canceled });
    // Once a later call of the connection is answered, the service knows of it.
    await readSession(by, sessionId);
    held.release();
    await until(() => held.waiting === 0);
    await readSession(by, sessionId);
    expect(held.sizes.length).toBe(commits + 1);
  }

  test("when its caller goes away goes on when it is sent again, and reports all", async () => {
    const { service: slow, held, done } = await heldService();
    const by = slow.clients();
    const root = await openRun(by);
    const asking = await askingChildren(by, root, scaled(200));
    const requestId = freshRequestId();
    await cutOffAfterOne(by, held, root.sessionId, requestId);
    const left = asking.slice(1).map(({ ask }) => ask.askId);
    expect(await openAskIds(by, root.sessionId)).toEqual(left);
    expect((await readSession(by, root.sessionId)).state).toBe(SessionState.OPEN);

    const reply = await cancel(by, root.sessionId, requestId);
    expect(told(reply.descendants)).toEqual(
      asking.map(({ child: { session, run } }) => [session.sessionId, run.runId, 1, 1]),
    );
    expect(await openAskIds(by, root.sessionId)).toEqual([]);
    // Nothing was ended twice.
    for (const { child } of asking) await endedAt(by, child.run);
    expect(await cancel(by, root.sessionId, requestId)).toEqual(reply);
    await done();
  });

  test.each(["active", "parked"])(
    "finds a run that was begun below meanwhile and is %s",
    async (how) => {
      const { service: slow, held, done } = await heldService();
      const by = slow.clients();
      const root = await openRun(by);
      const [first, second] = await askingChildren(by, root, 2);
      const requestId = freshRequestId();
      await cutOffAfterOne(by, held, root.sessionId, requestId);
      const { session, run } = given(first, "child").child;
      const next = await beginRun(by, session.sessionId);
      const ask = await askAbout(by, next);
      if (how === "parked") await endRun(by, next, { outcome: RunOutcome.PARKED });
      expect(await openAskIds(by, root.sessionId)).toEqual([second?.ask.askId, ask.askId]);

      const { descendants } = await cancel(by, root.sessionId, requestId);
      expect(await openAskIds(by, root.sessionId)).toEqual([]);
      await expectFinished(by, session.sessionId);
      expect(
        descendants.map(({ sessionId, withdrawnAskCount }) => [sessionId, withdrawnAskCount]),
      ).toEqual([
        [session.sessionId, 2],
        [second?.child.session.sessionId, 1],
      ]);
      expect(run.runId).not.toBe(next.runId);
      await done();
    },
  );

  test("by kill -9 goes on after it, and reports all", async () => {
    const own = await makeStoreFolder();
    const trigger = `${own.path}.kill`;
    const killed = await launchServer(dirname(own.path), own.store, {
      preload: KILLED_AT_COMMIT,
      environment: { KILLED_AT_COMMIT: trigger },
    });
    const connections: Http2SessionManager[] = [];
    const before = clientsOf(
      transportOf("grpc", killed.grpcAddress, killed.httpAddress, connections),
    );
    const root = await openRun(before);
    const { sessionId } = root;
    const asking = await askingChildren(before, root, 12);
    const requestId = freshRequestId();
    await writeFile(trigger, "5");
    expect(await refused(cancel(before, sessionId, requestId))).toMatchObject({ reason: "" });
    expect(await killed.exited).toBeNull();
    for (const connection of connections) connection.abort();

    const server = await spawnServer(own.path);
    const by = server.clients();
    const left = asking.slice(5).map(({ ask }) => ask.askId);
    expect((await openAskIds(by, sessionId)).toSorted()).toEqual(left.toSorted());
    expect((await readSession(by, sessionId)).state).toBe(SessionState.OPEN);
    const reply = await cancel(by, sessionId, requestId);
    expect(told(reply.descendants)).toEqual(
      asking.map(({ child: { session, run } }) => [session.sessionId, run.runId, 1, 1]),
    );
    expect(await openAskIds(by, sessionId)).toEqual([]);
    for (const { child } of asking) {
      await endedAt(by, child.run);
      await by.sessions.verifySession({ sessionId: child.session.sessionId });
    }
    expect(await cancel(by, sessionId, requestId)).toEqual(reply);
    await server.stop();
    await own.remove();
  });
});
