import { toBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import BetterSqlite from "better-sqlite3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  ListToolCallsResponseSchema,
  type ListHooksRequestSchema,
  type ListToolCallsRequestSchema,
  type SessionPlace,
} from "../../gen/toolmark/v1/history_service_pb.js";
import type { Hook } from "../../gen/toolmark/v1/hook_pb.js";
import { SessionKind, SessionState, type Session } from "../../gen/toolmark/v1/session_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { askAbout } from "../support/asking.js";
import {
  acceptCall,
  beginRun,
  freshRequestId,
  given,
  openRun,
  publishHook,
  readSession,
  type OpenRun,
} from "../support/conversation.js";
import { refused } from "../support/refused.js";
import { scaled } from "../support/scale.js";
import { seededRandom, seededTitle } from "../support/seed.js";
import { startTestService, type Clients } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import {
  askingChildren,
  delegateTo,
  idsOf,
  listedSessions,
  openChild,
  openLine,
  stepsOf,
} from "../support/trees.js";
import { startWatchedService, type WatchedService } from "../support/watched-service.js";
import { Callers, principal, TWO_WIRES } from "./cases-asks-fixture.js";

const principals = {
  harness: principal("harness", { engine: "own" }),
  boss: principal("boss", { engine: "tenant" }),
  ann: principal("ann", { reader: "own" }),
  auditor: principal("auditor", { reader: "tenant" }),
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

interface Listed<Item> {
  readonly items: Item[];
  readonly places: SessionPlace[];
  readonly pages: number;
}

/** Every call of a tree, page by page. Each page tells where the sessions of its calls stand, and of no other. */
async function callsBelow(
  { history }: Clients,
  request: MessageInitShape<typeof ListToolCallsRequestSchema>,
): Promise<Listed<ToolCall>> {
  return everyPage(async (pageToken) => {
    const page = { ...request, includeDescendants: true, pageToken };
    const { toolCalls, sessions, nextPageToken } = await history.listToolCalls(page);
    return { items: toolCalls, sessions, nextPageToken };
  });
}

async function hooksBelow(
  { history }: Clients,
  request: MessageInitShape<typeof ListHooksRequestSchema>,
): Promise<Listed<Hook>> {
  return everyPage(async (pageToken) => {
    const page = { ...request, includeDescendants: true, pageToken };
    const { hooks, sessions, nextPageToken } = await history.listHooks(page);
    return { items: hooks, sessions, nextPageToken };
  });
}

async function everyPage<Item extends ToolCall | Hook>(
  read: (pageToken: string) => Promise<{
    readonly items: readonly Item[];
    readonly sessions: readonly SessionPlace[];
    readonly nextPageToken: string;
  }>,
): Promise<Listed<Item>> {
  const items: Item[] = [];
  const places: SessionPlace[] = [];
  let pages = 0;
  let pageToken = "";
  do {
    const page = await read(pageToken);
    const origins = page.items.map(({ origin }) => given(origin, "origin").sessionId);
    expect(idsOf(page.sessions)).toEqual([...new Set(origins)]);
    items.push(...page.items);
    places.push(...page.sessions);
    pageToken = page.nextPageToken;
    pages += 1;
  } while (pageToken !== "");
  return { items, places, pages };
}

/** A root, two below it, and two below the first of these, not created in that order, with calls and hooks of some. */
async function grove() {
  const root = await openRun(clients);
  const a = (await openChild(clients, root)).run;
  const b = (await openChild(clients, root)).run;
  const a1 = (await openChild(clients, a)).run;
  const b1 = (await openChild(clients, b)).run;
  const a2 = (await openChild(clients, a)).run;
  // The other way round than they were created.
  for (const run of [a2, b1, a, root]) {
    await acceptCall(clients, run);
    await publishHook(clients, run);
  }
  await publishHook(clients, a2, (await acceptCall(clients, a2)).toolCallId);
  return { root, a, b, a1, b1, a2 };
}

function idsOfRuns(...runs: readonly OpenRun[]): string[] {
  return runs.map(({ sessionId }) => sessionId);
}

function originsOf(items: readonly (ToolCall | Hook)[]): string[] {
  return items.map(({ origin }) => given(origin, "origin").sessionId);
}

describe.each(TWO_WIRES)("below a session, over %s", (wire) => {
  test("sessions are listed in the order of creation, whatever the size of a page", async () => {
    const by = service.clients(wire);
    const { root, a, b, a1, b1, a2 } = await grove();
    const all = idsOfRuns(a, b, a1, b1, a2);
    for (const pageSize of [0, 1, 5]) {
      const below = async ({ sessionId }: OpenRun) =>
        idsOf(await listedSessions(by, { ancestorSessionId: sessionId, pageSize }));
      expect(await below(root)).toEqual(all);
      expect(await below(a)).toEqual(idsOfRuns(a1, a2));
      expect(await below(b)).toEqual(idsOfRuns(b1));
      expect(await below(b1)).toEqual([]);
    }
    const request = { requestId: freshRequestId(), sessionId: a1.sessionId };
    await by.sessions.endSession(request);
    const ancestorSessionId = root.sessionId;
    const { OPEN, ENDED } = SessionState;
    const open = await listedSessions(by, { ancestorSessionId, state: OPEN, pageSize: 1 });
    expect(idsOf(open)).toEqual(idsOfRuns(a, b, b1, a2));
    const ended = await listedSessions(by, { ancestorSessionId, state: ENDED });
    expect(idsOf(ended)).toEqual(idsOfRuns(a1));
    expect(ended).toEqual([await readSession(by, a1.sessionId)]);
    expect(await listedSessions(by, { ancestorSessionId, ownerSubject: "nobody" })).toEqual([]);
  });

  test("calls and hooks are listed session after session, with the place of each", async () => {
    const by = service.clients(wire);
    const { root, a, b, a1, b1, a2 } = await grove();
    const paths = new Map<string, string[]>();
    for (const { sessionId } of [root, a, b, a1, b1, a2]) {
      paths.set(sessionId, stepsOf((await readSession(by, sessionId)).delegationPath));
    }
    const { sessionId } = root;
    const whole = await callsBelow(by, { sessionId });
    expect(originsOf(whole.items)).toEqual([
      // The delegating calls are among them, in the order of acceptance.
      ...idsOfRuns(root, root, root, a, a, a, b, b1, a2, a2),
    ]);
    const hooks = await hooksBelow(by, { sessionId });
    expect(originsOf(hooks.items)).toEqual(idsOfRuns(root, a, b1, a2, a2));
    for (const { sessionId: id, delegationPath } of [...whole.places, ...hooks.places]) {
      expect(stepsOf(delegationPath)).toEqual(paths.get(id));
    }
    for (const pageSize of [1, 3, 10]) {
      const paged = await callsBelow(by, { sessionId, pageSize });
      expect(paged.items).toEqual(whole.items);
      expect(paged.pages).toBe(Math.ceil(10 / pageSize));
      expect((await hooksBelow(by, { sessionId, pageSize })).items).toEqual(hooks.items);
    }
    const ofA = await callsBelow(by, { sessionId: a.sessionId, pageSize: 2 });
    expect(originsOf(ofA.items)).toEqual(idsOfRuns(a, a, a, a2, a2));
    const alone = await by.history.listToolCalls({ sessionId });
    expect(alone.toolCalls).toEqual(whole.items.slice(0, 3));
    expect(alone.sessions).toEqual([]);
    expect((await by.history.listHooks({ sessionId })).sessions).toEqual([]);
    const toolCallId = given(whole.items[0], "call").toolCallId;
    const both = by.history.listHooks({ sessionId, toolCallId, includeDescendants: true });
    expect(await refused(both)).toMatchObject({
      code: Code.InvalidArgument,
      reason: "FIELD_INVALID",
    });
  });

  test("a page token is of its own query alone", async () => {
    const by = service.clients(wire);
    const { root, a } = await grove();
    const { sessionId } = root;
    const include = { includeDescendants: true, pageSize: 1 };
    const { history, sessions } = by;
    const ofCalls = (await history.listToolCalls({ sessionId, ...include })).nextPageToken;
    const ofHooks = (await history.listHooks({ sessionId, ...include })).nextPageToken;
    const ofRoot = (await history.listToolCalls({ sessionId, pageSize: 1 })).nextPageToken;
    const ancestorSessionId = sessionId;
    const ofBelow = (await sessions.listSessions({ ancestorSessionId, pageSize: 1 })).nextPageToken;
    const ofAll = (await sessions.listSessions({ pageSize: 1 })).nextPageToken;
    const auditor = callers.as("auditor", wire);
    for (const pageToken of [ofCalls, ofHooks, ofRoot, ofBelow, ofAll]) {
      expect(pageToken).not.toBe("");
    }
    const wrong = [
      history.listToolCalls({ sessionId, ...include, pageToken: ofHooks }),
      history.listToolCalls({ sessionId, ...include, pageToken: ofRoot }),
      history.listToolCalls({ sessionId, ...include, pageToken: ofBelow }),
      history.listToolCalls({ sessionId: a.sessionId, ...include, pageToken: ofCalls }),
      history.listToolCalls({ sessionId, pageToken: ofCalls }),
      history.listHooks({ sessionId, ...include, pageToken: ofCalls }),
      history.listHooks({ sessionId, pageToken: ofHooks }),
      sessions.listSessions({ ancestorSessionId, pageToken: ofAll }),
      sessions.listSessions({ pageToken: ofBelow }),
      sessions.listSessions({ ancestorSessionId: a.sessionId, pageToken: ofBelow }),
      sessions.listSessions({ ancestorSessionId, state: SessionState.OPEN, pageToken: ofBelow }),
      history.listToolCalls({ sessionId, ...include, pageToken: `${ofCalls}A` }),
      by.approvals.listAsks({ sessionId, includeDescendants: true, pageToken: ofCalls }),
    ];
    const invalid = { code: Code.InvalidArgument, reason: "PAGE_TOKEN_INVALID" };
    for (const [index, outcome] of (await Promise.allSettled(wrong)).entries()) {
      expect([index, outcome.status]).toEqual([index, "rejected"]);
      expect(await refused(given<Promise<unknown>>(wrong[index], "call"))).toMatchObject(invalid);
    }
    await auditor.history.listToolCalls({ sessionId, ...include, pageToken: ofCalls });
  });

  test("an unknown ancestor is refused, and one that the caller may not see alike", async () => {
    const { root } = await grove();
    const stranger = callers.as("stranger", wire);
    const { sessionId } = root;
    const refusals = await Promise.all(
      [sessionId, "ses_none"].flatMap((id) => [
        refused(stranger.sessions.listSessions({ ancestorSessionId: id })),
        refused(stranger.history.listToolCalls({ sessionId: id, includeDescendants: true })),
        refused(stranger.history.listHooks({ sessionId: id, includeDescendants: true })),
        refused(stranger.approvals.listAsks({ sessionId: id, includeDescendants: true })),
      ]),
    );
    for (const refusal of refusals) expect(refusal).toEqual(refusals[0]);
    expect(refusals[0]).toMatchObject({ code: Code.NotFound, reason: "SESSION_NOT_FOUND" });
  });

  test("callers whose roles reach their own sessions see those and no other", async () => {
    const [harness, boss] = [callers.as("harness", wire), callers.as("boss", wire)];
    const creation = { requestId: freshRequestId(), kind: SessionKind.MAIN, ownerSubject: "ann" };
    const { session } = await harness.sessions.createSession(creation);
    const sessionId = given(session, "session").sessionId;
    const root = await beginRun(harness, sessionId);
    const bossed = (await openChild(boss, root)).run;
    const made = (await openChild(harness, root)).run;
    const deep = (await openChild(boss, made)).run;
    await acceptCall(boss, deep);
    for (const [run, by] of [
      [bossed, boss],
      [made, harness],
      [deep, boss],
    ] as const) {
      await publishHook(by, run);
      await askAbout(by, run);
    }
    const seen = {
      ann: [bossed, made, deep],
      auditor: [bossed, made, deep],
      boss: [bossed, made, deep],
      harness: [made],
    };
    for (const [name, runs] of Object.entries(seen)) {
      const by = callers.as(name, wire);
      const ids = idsOfRuns(...runs);
      expect(idsOf(await listedSessions(by, { ancestorSessionId: sessionId }))).toEqual(ids);
      for (const pageSize of [1, 0]) {
        const calls = await callsBelow(by, { sessionId, pageSize });
        expect([...new Set(originsOf(calls.items))]).toEqual([sessionId, ...ids]);
        const hooks = await hooksBelow(by, { sessionId, pageSize });
        expect(originsOf(hooks.items)).toEqual(ids);
      }
      const { asks } = await by.approvals.listAsks({ sessionId, includeDescendants: true });
      expect(asks.map(({ ask }) => ask?.origin?.sessionId)).toEqual(ids);
    }
    const include = { sessionId, includeDescendants: true, pageSize: 1 };
    const token = (await harness.history.listToolCalls(include)).nextPageToken;
    const foreign = callers.as("ann", wire).history.listToolCalls({ ...include, pageToken: token });
    expect(await refused(foreign)).toMatchObject({ reason: "PAGE_TOKEN_INVALID" });
  });
});

test("pages go on over many sessions without records, and over what is recorded meanwhile", async () => {
  const root = await openRun(clients);
  const { toolCallId } = await acceptCall(clients, root);
  // More than one page looks into.
  const empty: Session[] = [];
  while (empty.length < 110) empty.push(await delegateTo(clients, root.sessionId, toolCallId));
  const last = (await openChild(clients, root, toolCallId)).run;
  const hook = await publishHook(clients, last);
  const { sessionId } = root;
  const none = await clients.history.listHooks({ sessionId, includeDescendants: true });
  expect([none.hooks, none.sessions]).toEqual([[], []]);
  expect(none.nextPageToken).not.toBe("");
  const early = await beginRun(clients, given(empty[3], "session").sessionId);
  await publishHook(clients, early);
  const late = await beginRun(clients, given(empty[109], "session").sessionId);
  const later = await publishHook(clients, late);
  const pageToken = none.nextPageToken;
  const rest = await clients.history.listHooks({ sessionId, includeDescendants: true, pageToken });
  expect(rest.hooks).toEqual([later, hook]);
  expect(rest.nextPageToken).toBe("");
  const whole = await hooksBelow(clients, { sessionId, pageSize: 1 });
  expect(originsOf(whole.items)).toEqual(idsOfRuns(early, late, last));
  const calls = await callsBelow(clients, { sessionId });
  expect(calls.items.map((call) => call.toolCallId)).toEqual([toolCallId]);
});

test.each([
  ["of another branch", "UPDATE sessions SET parent_session_id = @above WHERE session_id = @moved"],
  [
    "of another root",
    "UPDATE sessions SET parent_session_id = @above, root_session_id = @above WHERE session_id = @moved",
  ],
])("nothing %s is given below a session because a row was altered", async (_, sql) => {
  const own = await makeStoreFolder();
  const before = await startTestService({ store: own.store });
  const root = await openRun(before.clients());
  const [above, beside] = await askingChildren(before.clients(), root, 2);
  const moved = await openChild(before.clients(), given(beside, "child").child.run);
  await askAbout(before.clients(), moved.run);
  await publishHook(before.clients(), moved.run);
  await before.stop();
  const { child, ask } = given(above, "child");
  const { sessionId } = child.session;
  const database = new BetterSqlite(own.path);
  database.prepare(sql).run({ above: sessionId, moved: moved.session.sessionId });
  database.close();

  const after = await startTestService({ store: own.store });
  const { history, sessions, approvals } = after.clients();
  const request = { sessionId, includeDescendants: true };
  const lists = [history.listToolCalls(request), history.listHooks(request)];
  // What is not below it by its own root is not found at all.
  const isFound = sql.includes("root_session_id") ? 0 : 2;
  const outcomes = await Promise.allSettled(lists);
  expect(outcomes.filter(({ status }) => status === "rejected").length).toBe(isFound);
  for (const [index, { status }] of outcomes.entries()) {
    if (status === "fulfilled") continue;
    const list = given<Promise<unknown>>(lists[index], "list");
    expect(await refused(list)).toMatchObject({ code: Code.DataLoss, reason: "DATA_DAMAGED" });
  }
  const { asks } = await approvals.listAsks(request);
  expect(asks.map((shown) => shown.ask?.askId).filter((id) => id !== undefined)).toEqual([
    ask.askId,
  ]);
  expect(asks.filter(({ answerToken }) => answerToken !== "").length).toBe(1);
  expect((await sessions.listSessions({ ancestorSessionId: sessionId })).sessions).toEqual([]);
  await after.stop();
  await own.remove();
});

test(seededTitle("random trees are listed as a model of them says"), async () => {
  const random = seededRandom("trees");
  const pick = <T>(all: readonly T[]): T =>
    given(all[Math.floor(random() * all.length)], "one of them");
  for (let round = 0; round < scaled(40); round += 1) {
    const runs: OpenRun[] = [await openRun(clients), await openRun(clients)];
    const parents = new Map<string, string>();
    const hooks: Hook[] = [];
    for (let step = 0; step < 16; step += 1) {
      const run = pick(runs);
      if (random() < 0.6) {
        const child = (await openChild(clients, run)).run;
        parents.set(child.sessionId, run.sessionId);
        runs.push(child);
      } else hooks.push(await publishHook(clients, run));
    }
    const isBelow = (id: string, top: string): boolean => {
      const parent = parents.get(id);
      return parent !== undefined && (parent === top || isBelow(parent, top));
    };
    for (const { sessionId } of runs) {
      const below = idsOfRuns(...runs).filter((id) => isBelow(id, sessionId));
      const pageSize = 1 + Math.floor(random() * 3);
      const listed = await listedSessions(clients, { ancestorSessionId: sessionId, pageSize });
      expect(idsOf(listed)).toEqual(below);
      const expected = [sessionId, ...below].flatMap((id) =>
        hooks.filter(({ origin }) => origin?.sessionId === id),
      );
      expect((await hooksBelow(clients, { sessionId, pageSize })).items).toEqual(expected);
    }
  }
});

test("where sessions stand counts for the size of a page", async () => {
  const { root, last } = await openLine(clients, 60);
  const { toolCallId } = await acceptCall(clients, last);
  const children: string[] = [];
  for (let count = 0; count < 60; count += 1) {
    const { run } = await openChild(clients, last, toolCallId);
    children.push((await acceptCall(clients, run)).toolCallId);
  }
  const { outgoingMessageBytes } = service.config.limits;
  const listed: string[] = [];
  let pageToken = "";
  do {
    const request = {
      sessionId: root.sessionId,
      includeDescendants: true,
      pageSize: 500,
      pageToken,
    };
    const page = await clients.history.listToolCalls(request);
    const sizeBytes = toBinary(ListToolCallsResponseSchema, page).length;
    expect(sizeBytes).toBeLessThanOrEqual(outgoingMessageBytes / 6 + 10_000);
    listed.push(...page.toolCalls.map((call) => call.toolCallId));
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  expect(listed.slice(-60)).toEqual(children);
  expect(new Set(listed).size).toBe(listed.length);
});
