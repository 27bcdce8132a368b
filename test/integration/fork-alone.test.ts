import { toBinary } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { EventSchema, type Event } from "../../gen/toolmark/v1/event_pb.js";
import { RunOutcome } from "../../gen/toolmark/v1/run_pb.js";
import { DelegationKind, SessionKind, SessionState } from "../../gen/toolmark/v1/session_pb.js";
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
  openRun,
  publishHook,
  readCall,
  readSession,
  recordMessage,
} from "../support/conversation.js";
import { copyFaults, fork, readBase } from "../support/forking.js";
import { readBack } from "../support/read-back.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";

let service: TestService;
let clients: Clients;

beforeAll(async () => {
  service = await startTestService({ flags: ["--snapshot-every", "4"] });
  clients = service.clients();
});

afterAll(() => service.stop());

const hexOf = (events: readonly Event[]): string[] =>
  events.map((event) => Buffer.from(toBinary(EventSchema, event)).toString("hex"));

async function expectSound(sessionId: string): Promise<void> {
  const { head } = await clients.sessions.verifySession({ sessionId });
  expect(head).toEqual((await readSession(clients, sessionId)).checkpoint);
}

describe("a fork stands alone", () => {
  test("whatever its source does, it stays as it is, and the reverse", async () => {
    const run = await openRun(clients);
    const { toolCallId } = await acceptCall(clients, run, newCall("call_0"));
    await complete(clients, run, toolCallId);
    const { sessionId } = await fork(clients, run.sessionId);
    const forkEvents = hexOf(await allEvents(clients, sessionId));
    const forkCall = await readCall(clients, sessionId, toolCallId);
    await publishHook(clients, run, toolCallId);
    await endRun(clients, run, { outcome: RunOutcome.COMPLETED });
    await clients.sessions.endSession({ requestId: "end", sessionId: run.sessionId });
    expect(hexOf(await allEvents(clients, sessionId))).toEqual(forkEvents);
    expect(await readCall(clients, sessionId, toolCallId)).toEqual(forkCall);
    expect((await clients.history.listHooks({ sessionId })).hooks).toEqual([]);
    const source = await readBack(clients, run.sessionId, 500);
    const own = await beginRun(clients, sessionId);
    await recordMessage(clients, own);
    await publishHook(clients, own);
    await clients.sessions.endSession({ requestId: "end", sessionId });
    expect(await readBack(clients, run.sessionId, 500)).toEqual(source);
    for (const id of [sessionId, run.sessionId]) await expectSound(id);
  });

  test("of a session that has ended, it is open", async () => {
    const run = await openRun(clients);
    await complete(clients, run, (await acceptCall(clients, run)).toolCallId);
    await clients.sessions.endSession({ requestId: "end", sessionId: run.sessionId });
    const forked = await fork(clients, run.sessionId);
    expect(forked).toMatchObject({ state: SessionState.OPEN });
    expect(forked.endTime).toBeUndefined();
    const events = await allEvents(clients, run.sessionId);
    expect(await copyFaults(clients, { events }, forked)).toEqual([]);
    await publishHook(clients, await beginRun(clients, forked.sessionId));
    await expectSound(forked.sessionId);
  });

  test("of a session that works for another one, it works for nobody", async () => {
    const parent = await openRun(clients);
    const { toolCallId: parentToolCallId } = await acceptCall(clients, parent);
    const { session: made } = await clients.sessions.createSession({
      ...{ requestId: "child of a fork", kind: SessionKind.SUBAGENT, title: "a child" },
      labels: [{ key: "key", value: "value" }],
      delegation: {
        ...{ parentSessionId: parent.sessionId, parentToolCallId, kind: DelegationKind.SUBAGENT },
      },
    });
    const child = given(made, "session");
    expect(child.delegationPath).toHaveLength(1);
    const run = await beginRun(clients, child.sessionId);
    await complete(clients, run, (await acceptCall(clients, run)).toolCallId);
    const forked = await fork(clients, child.sessionId);
    const { title, kind, labels, ownerSubject } = child;
    expect(forked).toMatchObject({ title, kind, labels, ownerSubject, delegationPath: [] });
    expect(forked.delegation).toBeUndefined();
    const ancestorSessionId = parent.sessionId;
    const { sessions } = await clients.sessions.listSessions({ ancestorSessionId });
    expect(sessions.map(({ sessionId }) => sessionId)).toEqual([child.sessionId]);
    await expectSound(forked.sessionId);
  });

  test("it can have children, listed with what it copied, one to a page", async () => {
    const source = await openRun(clients);
    const ids: string[] = [];
    for (let index = 0; index < 2; index += 1) {
      const { toolCallId } = await acceptCall(clients, source);
      await complete(clients, source, toolCallId);
      ids.push(toolCallId);
    }
    const { sessionId } = await fork(clients, source.sessionId);
    const run = await beginRun(clients, sessionId);
    const { toolCallId } = await acceptCall(clients, run);
    const { session } = await clients.sessions.createSession({
      ...{ requestId: freshRequestId(), kind: SessionKind.SUBAGENT },
      delegation: {
        ...{ parentSessionId: sessionId, parentToolCallId: toolCallId },
        kind: DelegationKind.SUBAGENT,
      },
    });
    const child = await beginRun(clients, given(session, "child").sessionId);
    const below = await acceptCall(clients, child);
    const listed: string[] = [];
    let pageToken = "";
    do {
      const page = { sessionId, includeDescendants: true, pageSize: 1, pageToken };
      const reply = await clients.history.listToolCalls(page);
      listed.push(...reply.toolCalls.map((call) => call.toolCallId));
      pageToken = reply.nextPageToken;
    } while (pageToken !== "");
    expect(listed).toEqual([...ids, toolCallId, below.toolCallId]);
  });
});

describe("a fork that is forked and compacted", () => {
  test("keeps what was copied first, with its origin, through any number of forks", async () => {
    const run = await openRun(clients);
    const { toolCallId } = await acceptCall(clients, run, newCall("call_0"));
    await complete(clients, run, toolCallId);
    await recordMessage(clients, run);
    let sourceId = run.sessionId;
    let base: Awaited<ReturnType<typeof readBase>> | undefined;
    let highest = 0n;
    for (let generation = 1; generation <= 3; generation += 1) {
      const events = await allEvents(clients, sourceId);
      const forked = await fork(clients, sourceId);
      expect(await copyFaults(clients, { events, base }, forked)).toEqual([]);
      const call = await readCall(clients, forked.sessionId, toolCallId);
      expect(call.inheritedFromSessionId).toBe(sourceId);
      expect(call.origin?.sessionId).toBe(run.sessionId);
      base = await readBase(clients, forked.sessionId);
      const own = await beginRun(clients, forked.sessionId);
      const next = await acceptCall(clients, own, newCall("call_0"));
      expect(next.revision ?? 0n).toBeGreaterThan(highest);
      const done = await complete(clients, own, next.toolCallId, `done ${generation}`);
      highest = done.revision ?? 0n;
      await endRun(clients, own, { outcome: RunOutcome.COMPLETED });
      await expectSound(forked.sessionId);
      sourceId = forked.sessionId;
    }
    expect(await allCalls(clients, sourceId)).toHaveLength(4);
  });

  test("says how many of its records were archived where they come from, and by which text", async () => {
    const run = await openRun(clients);
    const archived = await acceptCall(clients, run, newCall("call_0"));
    await complete(clients, run, archived.toolCallId);
    const through = given((await readSession(clients, run.sessionId)).checkpoint, "head").sequence;
    const summary = "It listed files.";
    await clients.sessions.compactSession({
      ...{ requestId: "compact", sessionId: run.sessionId, throughSequence: through, summary },
    });
    const events = await allEvents(clients, run.sessionId);
    const early = await fork(clients, run.sessionId, through);
    expect(await readBase(clients, early.sessionId)).toMatchObject({
      ...{ archivedRecordCount: 0, summary: "" },
    });
    const forked = await fork(clients, run.sessionId);
    const base = await readBase(clients, forked.sessionId);
    // The turn and its call: the run goes on.
    expect(base).toMatchObject({ archivedRecordCount: 2, summary });
    const own = await beginRun(clients, forked.sessionId);
    await complete(clients, own, (await acceptCall(clients, own)).toolCallId);
    const again = await fork(clients, forked.sessionId);
    expect(await readBase(clients, again.sessionId)).toMatchObject({
      ...{ archivedRecordCount: 2, summary },
    });
    await clients.sessions.compactSession({
      ...{
        requestId: "compact",
        sessionId: forked.sessionId,
        throughSequence: 1n,
        summary: "All.",
      },
    });
    const third = await fork(clients, forked.sessionId);
    expect(await readBase(clients, third.sessionId)).toMatchObject({
      ...{ archivedRecordCount: 2, summary: "All." },
    });
    expect(await copyFaults(clients, { events }, forked)).toEqual([]);
    for (const { sessionId } of [early, forked, again, third]) await expectSound(sessionId);
  });
});
