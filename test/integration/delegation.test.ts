import { Code } from "@connectrpc/connect";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { EventKind } from "../../src/domain/event-kind.js";
import { AskKind } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { DelegationKind, SessionKind, SessionState } from "../../gen/toolmark/v1/session_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  answer,
  askAbout,
  openAsk,
  park,
  settleAuthorization,
  startCall,
} from "../support/asking.js";
import {
  acceptCall,
  allEvents,
  amendCall,
  complete,
  endRun,
  freshRequestId,
  given,
  newCall,
  openRun,
  readCall,
  readSession,
  type OpenRun,
} from "../support/conversation.js";
import { HeldStore } from "../support/held-store.js";
import { expectNothingWritten } from "../support/nothing-written.js";
import { refused, type Refused } from "../support/refused.js";
import { startTestService, type Clients } from "../support/service.js";
import { spawnServer } from "../support/spawned-server.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import {
  delegatedEvents,
  delegateTo,
  DELEGATIONS,
  delegationOf,
  idsOf,
  listedSessions,
  openChild,
  openLine,
  stepsOf,
  stepsTo,
} from "../support/trees.js";
import { startWatchedService, type WatchedService } from "../support/watched-service.js";
import { Callers, principal, TWO_WIRES } from "./cases-asks-fixture.js";

const MALLORY = principal("mallory", { engine: "own", admin: "own" });
const BOB = principal("bob", { engine: "own" });

let folder: StoreFolder;
let service: WatchedService;
let callers: Callers;
let clients: Clients;

beforeAll(async () => {
  folder = await makeStoreFolder();
  const principals = { mallory: MALLORY, bob: BOB };
  const flags = ["--limit-delegation-depth", "3", "--limit-sessions-per-call", "4"];
  service = await startWatchedService({ store: folder.store, principals, flags });
  callers = new Callers(service);
  clients = service.clients();
});

afterAll(async () => {
  callers.disconnect();
  await service.stop();
  await folder.remove();
});

/** A root with an active run and a call that may be handed over. */
async function calling(): Promise<{ readonly run: OpenRun; readonly toolCallId: string }> {
  const run = await openRun(clients);
  return { run, toolCallId: (await acceptCall(clients, run)).toolCallId };
}

/** A creation is refused, and leaves neither a child nor an event of the parent, nor its request id in use. */
async function expectNoChild(
  parentSessionId: string,
  request: ReturnType<typeof delegationOf>,
  by: Clients = clients,
): Promise<Refused> {
  // No row of any table: neither a session nor the memory of a request.
  return expectNothingWritten(
    service,
    parentSessionId,
    (requestId) => by.sessions.createSession({ ...request, requestId }),
    (requestId) => by.sessions.createSession({ requestId, kind: SessionKind.MAIN }),
  );
}

describe.each(TWO_WIRES)("a delegation over %s", (wire) => {
  test.each(DELEGATIONS)(
    "as %s makes a child that the call names in the same commit",
    async (_, kind, sessionKind) => {
      const by = service.clients(wire);
      const { run, toolCallId } = await calling();
      const before = await readCall(by, run.sessionId, toolCallId);
      const delegation = {
        parentSessionId: run.sessionId,
        parentToolCallId: toolCallId,
        kind,
      };
      const child = await delegateTo(by, run.sessionId, toolCallId, {
        kind: sessionKind,
        delegation,
        title: "look it up",
        labels: [{ key: "team", value: "red" }],
      });
      expect(child).toMatchObject({
        ...{ kind: sessionKind, delegation, state: SessionState.OPEN, title: "look it up" },
        labels: [{ key: "team", value: "red" }],
        delegationPath: [{ sessionId: run.sessionId, toolCallId }],
      });
      expect(await readSession(by, child.sessionId)).toMatchObject(child);

      const [event, ...more] = await delegatedEvents(by, run.sessionId);
      expect(more).toEqual([]);
      const created = given((await allEvents(by, child.sessionId))[0], "event");
      expect(created.kind).toBe(EventKind.sessionCreated);
      expect(created.position).toBe(given(event, "event").position + 1n);
      const call = await readCall(by, run.sessionId, toolCallId);
      const delegatedSessionIds = [child.sessionId];
      expect(call).toEqual({ ...before, revision: event?.revision, delegatedSessionIds });
      const recorded = event?.record?.record;
      expect(recorded?.case === "toolCall" && recorded.value.delegatedSessionIds).toEqual(
        delegatedSessionIds,
      );
    },
  );

  test("has the kind that it says, both ways", async () => {
    const by = service.clients(wire);
    const { run, toolCallId } = await calling();
    const { UNSPECIFIED, MAIN, SUBAGENT, PARALLEL_BRANCH, TEAM_MEMBER, SCHEDULED, DEBUG } =
      SessionKind;
    const kinds = [UNSPECIFIED, MAIN, SUBAGENT, PARALLEL_BRANCH, TEAM_MEMBER, SCHEDULED, DEBUG];
    const delegationKinds = [DelegationKind.UNSPECIFIED, ...DELEGATIONS.map(([, kind]) => kind)];
    const agreeing = new Set(DELEGATIONS.map(([, kind, session]) => `${kind} ${session}`));
    for (const kind of kinds) {
      for (const delegationKind of delegationKinds) {
        if (agreeing.has(`${delegationKind} ${kind}`)) continue;
        const delegation = {
          parentSessionId: run.sessionId,
          parentToolCallId: toolCallId,
          kind: delegationKind,
        };
        const request = delegationOf(run.sessionId, toolCallId, { kind, delegation });
        const refusal = await refused(by.sessions.createSession(request));
        expect(refusal).toMatchObject({ code: Code.InvalidArgument, reason: "FIELD_INVALID" });
      }
    }
    expect(await delegatedEvents(clients, run.sessionId)).toEqual([]);
  });

  test("that is sent again makes the same child, also once the parent has ended", async () => {
    const by = service.clients(wire);
    const { run, toolCallId } = await calling();
    const request = delegationOf(run.sessionId, toolCallId);
    const { session } = await by.sessions.createSession(request);
    await openChild(by, run, toolCallId);
    expect((await by.sessions.createSession(request)).session).toEqual(session);
    await complete(by, run, toolCallId);
    await by.sessions.endSession({ requestId: freshRequestId(), sessionId: run.sessionId });
    expect((await by.sessions.createSession(request)).session).toEqual(session);
    expect((await delegatedEvents(by, run.sessionId)).length).toBe(2);
    const other = await acceptCall(by, await openRun(by));
    const reused = { ...request, ...{ title: "another" } };
    expect(await refused(by.sessions.createSession(reused))).toMatchObject({
      code: Code.AlreadyExists,
      reason: "REQUEST_ID_REUSED",
    });
    const moved = delegationOf(run.sessionId, other.toolCallId, { requestId: request.requestId! });
    expect(await refused(by.sessions.createSession(moved))).toMatchObject({
      reason: "REQUEST_ID_REUSED",
    });
  });
});

describe("a delegation is refused and leaves no trace", () => {
  const MISSING = { code: Code.NotFound, reason: "SESSION_NOT_FOUND", metadata: {} };

  test("of an unknown session, and of one that the caller may not see, alike", async () => {
    const { run, toolCallId } = await calling();
    const mallory = callers.as("mallory");
    const foreign = await expectNoChild(
      run.sessionId,
      delegationOf(run.sessionId, toolCallId),
      mallory,
    );
    const absent = await expectNoChild(
      run.sessionId,
      delegationOf("ses_none", toolCallId),
      mallory,
    );
    expect(absent).toMatchObject(MISSING);
    expect(foreign).toEqual(absent);
  });

  test("of an ended session", async () => {
    const { run, toolCallId } = await calling();
    const { sessionId } = run;
    await clients.sessions.endSession({ requestId: freshRequestId(), sessionId });
    expect(await expectNoChild(sessionId, delegationOf(sessionId, toolCallId))).toMatchObject({
      code: Code.FailedPrecondition,
      reason: "SESSION_ENDED",
    });
  });

  type Prepare = (run: OpenRun) => Promise<string>;
  const accepted = async (run: OpenRun) => (await acceptCall(clients, run)).toolCallId;
  const calls: readonly (readonly [string, StartGate, string, Prepare])[] = [
    ["an unknown one", StartGate.OFF, "TOOL_CALL_NOT_FOUND", async () => Promise.resolve("tc_x")],
    [
      "one of another session",
      StartGate.OFF,
      "TOOL_CALL_NOT_FOUND",
      async () => accepted(await openRun(clients)),
    ],
    [
      "an ask instead of a call",
      StartGate.OFF,
      "TOOL_CALL_NOT_FOUND",
      async (run) => (await askAbout(clients, run)).askId,
    ],
    [
      "one with its result",
      StartGate.OFF,
      "TOOL_CALL_ENDED",
      async (run) => {
        const toolCallId = await accepted(run);
        await complete(clients, run, toolCallId);
        return toolCallId;
      },
    ],
    [
      "one that was denied",
      StartGate.OFF,
      "TOOL_CALL_ENDED",
      async (run) => {
        const ask = await askAbout(clients, run);
        await answer(clients, ask, Verdict.DENY);
        return ask.toolCallId;
      },
    ],
    [
      "one that waits for an answer",
      StartGate.OFF,
      "START_NOT_ALLOWED",
      async (run) => (await askAbout(clients, run)).toolCallId,
    ],
    [
      "one that waits for an authorization",
      StartGate.OFF,
      "START_NOT_ALLOWED",
      async (run) => {
        const toolCallId = await accepted(run);
        await park(clients, run, toolCallId);
        return toolCallId;
      },
    ],
    [
      "one whose authorization was denied",
      StartGate.OFF,
      "TOOL_CALL_ENDED",
      async (run) => {
        const toolCallId = await accepted(run);
        const { authorizationId } = await park(clients, run, toolCallId);
        await settleAuthorization(clients, run, authorizationId, AuthorizationState.DENIED);
        return toolCallId;
      },
    ],
    [
      "one whose arguments changed under its question",
      StartGate.OFF,
      "START_NOT_ALLOWED",
      async (run) => {
        const { toolCallId } = await askAbout(clients, run);
        await amendCall(clients, run, toolCallId, '{"command":"rm -r"}');
        return toolCallId;
      },
    ],
    [
      "one whose allow was voided",
      StartGate.OFF,
      "START_NOT_ALLOWED",
      async (run) => {
        const ask = await askAbout(clients, run);
        await answer(clients, ask);
        await amendCall(clients, run, ask.toolCallId, '{"command":"rm -r"}');
        return ask.toolCallId;
      },
    ],
    [
      "one whose result is held",
      StartGate.REQUIRED,
      "RESULT_HELD",
      async (run) => {
        const toolCallId = await accepted(run);
        await startCall(clients, run, toolCallId);
        const held = { heldSha256: new Uint8Array(32).fill(7), heldSizeBytes: 12n };
        await openAsk(clients, run, toolCallId, { kind: AskKind.RESULT_RELEASE, ...held });
        return toolCallId;
      },
    ],
    ["one that has not started but must", StartGate.REQUIRED, "TOOL_CALL_NOT_STARTED", accepted],
    [
      "one that is allowed but has not started",
      StartGate.REQUIRED,
      "TOOL_CALL_NOT_STARTED",
      async (run) => {
        const ask = await askAbout(clients, run);
        await answer(clients, ask);
        return ask.toolCallId;
      },
    ],
    [
      "one that its run left unstarted when it was parked",
      StartGate.REQUIRED,
      "TOOL_CALL_NOT_STARTED",
      async (run) => {
        const toolCallId = await accepted(run);
        await endRun(clients, run, { outcome: RunOutcome.PARKED });
        return toolCallId;
      },
    ],
  ];

  test.each(calls)("of a call: %s", async (_, startGate, reason, prepare) => {
    const run = await openRun(clients, startGate);
    const toolCallId = await prepare(run);
    const refusal = await expectNoChild(run.sessionId, delegationOf(run.sessionId, toolCallId));
    expect(refusal.reason).toBe(reason);
    expect(await delegatedEvents(clients, run.sessionId)).toEqual([]);
  });

  test("for another owner than the parent's, and taken for the same", async () => {
    const creation = { requestId: freshRequestId(), kind: SessionKind.MAIN };
    const { session } = await clients.sessions.createSession({ ...creation, ownerSubject: "bob" });
    const { sessionId } = given(session, "session");
    const bob = callers.as("bob");
    const startGate = StartGate.OFF;
    const begin = { requestId: freshRequestId(), sessionId, startGate };
    const { runId } = given((await bob.runs.beginRun(begin)).run, "run");
    const { toolCallId } = await acceptCall(bob, { sessionId, runId });
    for (const ownerSubject of ["mallory", "loopback", "Bob"]) {
      const request = delegationOf(sessionId, toolCallId, { ownerSubject });
      expect(await expectNoChild(sessionId, request)).toMatchObject({
        code: Code.InvalidArgument,
        reason: "FIELD_INVALID",
        metadata: { field: "owner_subject" },
      });
    }
    // Whoever makes it, it is its parent's owner's.
    const made = [
      await delegateTo(clients, sessionId, toolCallId),
      await delegateTo(clients, sessionId, toolCallId, { ownerSubject: "bob" }),
      await delegateTo(bob, sessionId, toolCallId),
    ];
    expect(made.map(({ ownerSubject }) => ownerSubject)).toEqual(["bob", "bob", "bob"]);
    for (const child of made) await readSession(bob, child.sessionId);
  });

  test("beyond the sessions that one call may have, which is a limit of the call alone", async () => {
    const { run, toolCallId } = await calling();
    for (let count = 0; count < 4; count += 1) await delegateTo(clients, run.sessionId, toolCallId);
    const refusal = await expectNoChild(run.sessionId, delegationOf(run.sessionId, toolCallId));
    expect(refusal).toMatchObject({
      code: Code.ResourceExhausted,
      reason: "QUOTA_EXCEEDED",
      metadata: { field: "delegation", limit: "4" },
    });
    await openChild(clients, run);
  });

  test("deeper than the limit", async () => {
    const { line, last } = await openLine(clients, 3);
    const { sessionId } = last;
    const { toolCallId } = await acceptCall(clients, last);
    expect(await expectNoChild(sessionId, delegationOf(sessionId, toolCallId))).toMatchObject({
      code: Code.ResourceExhausted,
      reason: "QUOTA_EXCEEDED",
      metadata: { field: "delegation", limit: "3" },
    });
    const paths = line.map(({ session }) => stepsOf(session.delegationPath));
    expect(paths).toEqual(line.map((_, index) => stepsTo(line.slice(0, index + 1))));
  });

  test("for a request that was cut off", async () => {
    const { run, toolCallId } = await calling();
    const request = delegationOf(run.sessionId, toolCallId);
    const call = clients.sessions.createSession(request, { timeoutMs: 1 });
    const made = await call.then(
      ({ session }) => session,
      () => undefined,
    );
    // Whether it was decided or not: sent again it is carried out once.
    const { session } = await clients.sessions.createSession(request);
    if (made !== undefined) expect(session).toEqual(made);
    const { delegatedSessionIds } = await readCall(clients, run.sessionId, toolCallId);
    expect(delegatedSessionIds).toEqual([session?.sessionId]);
  });
});

describe("what a call was handed over to", () => {
  test("is kept through everything that happens to the call", async () => {
    const run = await openRun(clients);
    const { toolCallId } = await acceptCall(clients, run);
    const first = await delegateTo(clients, run.sessionId, toolCallId);
    const named = async () =>
      (await readCall(clients, run.sessionId, toolCallId)).delegatedSessionIds;
    const ids = [first.sessionId];
    await amendCall(clients, run, toolCallId, '{"command":"pwd"}');
    expect(await named()).toEqual(ids);
    const expireTime = timestampFromMs(Date.now() + 3_600_000);
    const ask = await openAsk(clients, run, toolCallId, { expireTime });
    expect(await named()).toEqual(ids);
    await answer(clients, ask);
    ids.push((await delegateTo(clients, run.sessionId, toolCallId)).sessionId);
    expect(await named()).toEqual(ids);
    await startCall(clients, run, toolCallId);
    ids.push((await delegateTo(clients, run.sessionId, toolCallId)).sessionId);
    expect(await named()).toEqual(ids);
    const done = await complete(clients, run, toolCallId);
    expect(done).toMatchObject({ state: ToolCallState.COMPLETED, delegatedSessionIds: ids });
    expect(await named()).toEqual(ids);
  });

  test("a second delegation whose provider call id repeats gets its own call and child", async () => {
    const run = await openRun(clients);
    const { toolCallId: firstCall } = await acceptCall(clients, run, newCall("call_0"));
    const first = await openChild(clients, run, firstCall);
    await complete(clients, run, firstCall);
    const { toolCallId: secondCall } = await acceptCall(clients, run, newCall("call_0"));
    const second = await openChild(clients, run, secondCall);
    expect(secondCall).not.toBe(firstCall);
    expect(second.session.sessionId).not.toBe(first.session.sessionId);
    for (const [toolCallId, child] of [
      [firstCall, first],
      [secondCall, second],
    ] as const) {
      const { delegatedSessionIds } = await readCall(clients, run.sessionId, toolCallId);
      expect(delegatedSessionIds).toEqual([child.session.sessionId]);
    }
  });
});

describe("at once", () => {
  test("many creations for one call are all named by it, in the order of creation, up to its limit", async () => {
    const { run, toolCallId } = await calling();
    const sent = Array.from({ length: 12 }, (_, index) =>
      service
        .clients(TWO_WIRES[index % 2])
        .sessions.createSession(delegationOf(run.sessionId, toolCallId)),
    );
    const made: string[] = [];
    const reasons: string[] = [];
    for (const [index, outcome] of (await Promise.allSettled(sent)).entries()) {
      if (outcome.status === "rejected") {
        reasons.push((await refused(given(sent[index], "call"))).reason);
      } else made.push(given(outcome.value.session, "session").sessionId);
    }
    expect(made.length).toBe(4);
    expect(reasons).toEqual(Array.from({ length: 8 }, () => "QUOTA_EXCEEDED"));
    const below = await listedSessions(clients, { ancestorSessionId: run.sessionId });
    expect(idsOf(below).toSorted()).toEqual(made.toSorted());
    const { delegatedSessionIds } = await readCall(clients, run.sessionId, toolCallId);
    expect(delegatedSessionIds).toEqual(idsOf(below));
    expect((await delegatedEvents(clients, run.sessionId)).length).toBe(4);
  });

  test("one request sent many times makes one child", async () => {
    const { run, toolCallId } = await calling();
    const request = delegationOf(run.sessionId, toolCallId);
    const replies = await Promise.all(
      Array.from({ length: 10 }, () => clients.sessions.createSession(request)),
    );
    expect(new Set(replies.map(({ session }) => session?.sessionId)).size).toBe(1);
    expect((await delegatedEvents(clients, run.sessionId)).length).toBe(1);
  });

  test("creations and the parent's end: every child is named, and nothing comes after the end", async () => {
    for (let round = 0; round < 5; round += 1) {
      const { run, toolCallId } = await calling();
      const { sessionId } = run;
      const create = () => clients.sessions.createSession(delegationOf(sessionId, toolCallId));
      const before = [create(), create()];
      const end = clients.sessions.endSession({ requestId: freshRequestId(), sessionId });
      const after = service.clients().sessions.createSession(delegationOf(sessionId, toolCallId));
      const outcomes = await Promise.allSettled([...before, after]);
      await end;
      const made = outcomes.flatMap((outcome) =>
        outcome.status === "fulfilled" ? [given(outcome.value.session, "session").sessionId] : [],
      );
      const { delegatedSessionIds, state } = await readCall(clients, sessionId, toolCallId);
      expect(delegatedSessionIds.toSorted()).toEqual(made.toSorted());
      expect(state).toBe(ToolCallState.OUTCOME_UNKNOWN);
      const below = await listedSessions(clients, { ancestorSessionId: sessionId });
      expect(idsOf(below).toSorted()).toEqual(made.toSorted());
      expect((await allEvents(clients, sessionId)).at(-1)?.kind).toBe(EventKind.sessionEnded);
    }
  });
});

describe("a commit that fails", () => {
  test.each(["before", "after"] as const)("%s it is stored keeps both or neither", async (when) => {
    const own = await makeStoreFolder();
    let store: HeldStore | undefined;
    const failing = await startTestService({
      store: own.store,
      wrapStore: (inner) => (store = new HeldStore(inner)),
    });
    const by = failing.clients();
    const run = await openRun(by);
    const { toolCallId } = await acceptCall(by, run);
    const request = delegationOf(run.sessionId, toolCallId);
    given(store, "store").failNext = when;
    expect(await refused(by.sessions.createSession(request))).toMatchObject({
      reason: "COMMIT_UNCERTAIN",
    });
    const stored = when === "after" ? 1 : 0;
    expect((await delegatedEvents(by, run.sessionId)).length).toBe(stored);
    const below = { ancestorSessionId: run.sessionId };
    expect((await listedSessions(by, below)).length).toBe(stored);
    const { session } = await by.sessions.createSession(request);
    expect(idsOf(await listedSessions(by, below))).toEqual([session?.sessionId]);
    expect((await readCall(by, run.sessionId, toolCallId)).delegatedSessionIds).toEqual([
      session?.sessionId,
    ]);
    await failing.stop();
    await own.remove();
  });
});

test("a delegation that is sent again after kill -9 makes no second child", async () => {
  const own = await makeStoreFolder();
  let server = await spawnServer(own.path);
  let by = server.clients();
  const run = await openRun(by);
  const { toolCallId } = await acceptCall(by, run);
  const known = delegationOf(run.sessionId, toolCallId);
  const { session } = await by.sessions.createSession(known);
  const unknown = Array.from({ length: 8 }, () => delegationOf(run.sessionId, toolCallId));
  const first = by.sessions.createSession(given(unknown[0], "request"));
  const cutOff = unknown.slice(1).map((request) => by.sessions.createSession(request));
  const all = Promise.allSettled(cutOff);
  await first;
  await server.kill();
  await all;

  server = await spawnServer(own.path);
  by = server.clients();
  expect((await by.sessions.createSession(known)).session).toEqual(session);
  for (const request of unknown) await by.sessions.createSession(request);
  const below = await listedSessions(by, { ancestorSessionId: run.sessionId });
  expect(below.length).toBe(9);
  const { delegatedSessionIds } = await readCall(by, run.sessionId, toolCallId);
  expect(delegatedSessionIds).toEqual(idsOf(below));
  expect((await delegatedEvents(by, run.sessionId)).length).toBe(9);
  for (const sessionId of [run.sessionId, ...idsOf(below)]) {
    await by.sessions.verifySession({ sessionId });
  }
  await server.stop();
  await own.remove();
});
