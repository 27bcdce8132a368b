import { createHash } from "node:crypto";
import { existsSync, readFileSync, statSync } from "node:fs";
import { toJsonString } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ShownAskSchema } from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationSchema, AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { HookDecision, HookSchema } from "../../gen/toolmark/v1/hook_pb.js";
import { ActorKind } from "../../gen/toolmark/v1/origin_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionSchema } from "../../gen/toolmark/v1/session_pb.js";
import { Ran, ToolCallSchema, ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  answer,
  answerTo,
  ASK_STATES,
  AskWatcher,
  listedAsks,
  showAsk,
  startCall,
} from "../support/asking.js";
import {
  allCalls,
  allEvents,
  beginRun,
  complete,
  freshRequestId,
  given,
  openRun,
  readSession,
} from "../support/conversation.js";
import { fork, readBytes } from "../support/forking.js";
import {
  askIdOf,
  bytesOfLog,
  bytesOfSnapshot,
  importOld,
  logF,
  OldFolder,
  privateWordsIn,
  readAdoptedBase,
  snapshotA,
  snapshotB,
  snapshotC,
  snapshotD,
  snapshotE,
  type Snapshot,
} from "../support/old-fixtures.js";
import { refused } from "../support/refused.js";
import {
  startTestService,
  type Clients,
  type TestService,
  type TestServiceOptions,
} from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { delegateTo } from "../support/trees.js";
import { startWatchedService } from "../support/watched-service.js";
import { Callers, principal } from "./cases-asks-fixture.js";

const FAR = "2126-09-21T12:00:00Z";
const PAST = "2020-09-21T12:00:00Z";

function fixtures(): Snapshot[] {
  return [
    ...[snapshotA("old A"), snapshotB("old B"), snapshotC("old C", FAR), snapshotD("old D")],
    snapshotE("old E", "old A"),
  ];
}

async function folderOf(snapshots: readonly Snapshot[]): Promise<OldFolder> {
  const folder = await OldFolder.make();
  for (const snapshot of snapshots) await folder.put(snapshot);
  return folder;
}

/** Serves a folder of old sessions with a store of its own while a test looks at it. */
async function mounted(
  snapshots: readonly Snapshot[],
  look: (clients: Clients, service: TestService, folder: OldFolder) => Promise<void>,
  options: TestServiceOptions = {},
): Promise<void> {
  const folder = await folderOf(snapshots);
  const service = await folder.start(options);
  try {
    await look(service.clients(), service, folder);
  } finally {
    await service.stop();
    await folder.remove();
  }
}

async function idsOf(clients: Clients, sessionId: string): Promise<string[]> {
  return (await allCalls(clients, sessionId)).map(({ toolCallId }) => toolCallId);
}

async function kindsOf(clients: Clients, sessionId: string): Promise<string[]> {
  return (await allEvents(clients, sessionId)).map(({ kind }) => kind);
}

async function listedIds({ sessions }: Clients, pageSize = 500): Promise<string[]> {
  const ids: string[] = [];
  let pageToken = "";
  do {
    const page = await sessions.listSessions({ pageSize, pageToken });
    ids.push(...page.sessions.map(({ sessionId }) => sessionId));
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return ids;
}

/** Every record of a session by every method that reads one, field by field; of the session all but its head. */
async function recordsOf(clients: Clients, sessionId: string): Promise<readonly string[]> {
  const { history, approvals } = clients;
  const { checkpoint, highWater, updateTime, ...session } = await readSession(clients, sessionId);
  expect([checkpoint?.sessionId, highWater, updateTime?.$typeName]).toEqual([
    ...[sessionId, 0n, "google.protobuf.Timestamp"],
  ]);
  const read = [toJsonString(SessionSchema, session)];
  for (const call of await allCalls(clients, sessionId)) {
    const { toolCallId, proposed, effective, result } = call;
    const { toolCall } = await history.getToolCall({ sessionId, toolCallId });
    read.push(toJsonString(ToolCallSchema, call));
    read.push(toJsonString(ToolCallSchema, given(toolCall, "call")));
    for (const body of [proposed, effective, result?.content]) {
      if (body === undefined) continue;
      read.push((await readBytes(clients, sessionId, body.bodyRef)).toString("base64"));
    }
  }
  const { hooks } = await history.listHooks({ sessionId });
  for (const hook of hooks) {
    const byId = await history.getHook({ sessionId, hookId: hook.hookId });
    read.push(toJsonString(HookSchema, hook), toJsonString(HookSchema, given(byId.hook, "hook")));
  }
  for (const state of ASK_STATES) {
    for (const shown of await listedAsks(clients, { sessionId, state })) {
      const byId = await showAsk(clients, sessionId, shown.ask.askId);
      read.push(toJsonString(ShownAskSchema, shown), toJsonString(ShownAskSchema, byId));
    }
  }
  const { authorizations } = await history.listAuthorizations({ sessionId });
  for (const { authorizationId } of authorizations) {
    const { authorization } = await history.getAuthorization({ sessionId, authorizationId });
    read.push(toJsonString(AuthorizationSchema, given(authorization, "authorization")));
  }
  read.push(String((await approvals.listReceipts({ sessionId })).receipts.length));
  return read;
}

describe.each(["grpc", "connect-json"] as const)("mounted sessions over %s", (wire) => {
  let folder: OldFolder;
  let service: TestService;
  let clients: Clients;

  beforeAll(async () => {
    folder = await folderOf(fixtures());
    await folder.putBytes("only-log.events.jsonl", bytesOfLog(logF()));
    service = await folder.start();
    clients = service.clients(wire);
  });

  afterAll(async () => {
    await service.stop();
    await folder.remove();
  });

  test("are listed after the stored ones in any pages, and once when they are stored", async () => {
    const { sessionId } = await openRun(clients);
    const listed = await listedIds(clients);
    expect(listed[0]).toBe(sessionId);
    expect(listed.slice(1).sort()).toEqual([...fixtures().map(({ id }) => id), "only-log"].sort());
    for (const pageSize of [1, 2, 3]) expect(await listedIds(clients, pageSize)).toEqual(listed);
    const { sessions } = await clients.sessions.listSessions({ pageSize: 500 });
    for (const each of sessions) expect(each).toEqual(await readSession(clients, each.sessionId));
    expect(sessions.at(-1)?.checkpoint).toMatchObject({ sequence: 0n, position: 0n });
    const adopted = given(listed.at(-1), "session");
    await beginRun(clients, adopted);
    for (const pageSize of [1, 2, 500]) {
      const after = await listedIds(clients, pageSize);
      expect(after).toEqual([sessionId, adopted, ...listed.slice(1, -1)]);
    }
  });

  test.each(fixtures().map(({ id }) => id))(
    "%s has no event until it is adopted, and then every record as before",
    async (id) => {
      const before = await recordsOf(clients, id);
      expect(before.length).toBeGreaterThan(4);
      expect(await recordsOf(clients, id)).toEqual(before);
      expect(await allEvents(clients, id)).toEqual([]);
      // A fork adopts its source, and changes nothing of it.
      const forked = await fork(clients, id);
      expect(await recordsOf(clients, id)).toEqual(before);
      const [adopted, ...others] = await allEvents(clients, id);
      expect(others).toEqual([]);
      expect(adopted).toMatchObject({ kind: "ADOPTED", sequence: 1n });
      expect(adopted?.revision).toBeUndefined();
      expect(adopted?.actor).toMatchObject({ kind: ActorKind.SYSTEM, subject: "" });
      const { occurrences } = await readAdoptedBase(clients, id);
      expect(occurrences.map(({ toolCallId }) => toolCallId)).toEqual(await idsOf(clients, id));
      for (const sessionId of [id, forked.sessionId]) {
        await clients.sessions.verifySession({ sessionId });
      }
      expect(privateWordsIn(before.join("\n"))).toEqual([]);
      expect(privateWordsIn(service.logged())).toEqual([]);
    },
  );
});

describe("the ask of a mounted session", () => {
  test("is watched by its session through the adoption, and is in the inbox only after it", async () => {
    await mounted([snapshotB("old B")], async (clients) => {
      const watcher = new AskWatcher(clients, { sessionId: "old B" });
      const open = await watcher.openOnes();
      expect(open.map(({ ask }) => ask.askId)).toEqual([askIdOf("old B")]);
      expect(await listedAsks(clients, {})).toEqual([]);
      await beginRun(clients, "old B");
      const inbox = await listedAsks(clients, {});
      expect(inbox.map(({ ask }) => ask.askId)).toEqual([askIdOf("old B")]);
      // What was shown before the adoption is what was adopted.
      await clients.approvals.answerAsk(answerTo(open[0]!, Verdict.DENY));
      for (;;) {
        const { ask } = await watcher.nextAsk();
        expect(ask.askId).toBe(askIdOf("old B"));
        if (ask.state === AskState.ANSWERED) break;
      }
      watcher.stop();
      expect(await listedAsks(clients, {})).toEqual([]);
    });
  });

  test("is awaited by its harness through the adoption", async () => {
    await mounted([snapshotB("old B")], async (clients) => {
      const query = { sessionId: "old B", askId: askIdOf("old B") };
      const awaiting = clients.calls.awaitAsk({ ...query, waitMs: 20_000 });
      const { ask } = await showAsk(clients, query.sessionId, query.askId);
      const receipt = await answer(clients, ask);
      expect((await awaiting).receipt).toEqual(receipt);
    });
  });

  test("is answered under its old id, and the engine goes on with the same calls", async () => {
    await mounted([snapshotB("old B")], async (clients) => {
      const [, waiting = "", behind = ""] = await idsOf(clients, "old B");
      const shown = await showAsk(clients, "old B", askIdOf("old B"));
      const { receipt } = await clients.approvals.answerAsk(answerTo(shown));
      expect(receipt).toMatchObject({ askId: askIdOf("old B"), toolCallId: waiting, revision: 1n });
      const kinds = await kindsOf(clients, "old B");
      expect(kinds.slice(0, 3)).toEqual(["ADOPTED", "RECEIPT_WRITTEN", "ASK_ANSWERED"]);
      const run = await beginRun(clients, "old B", StartGate.REQUIRED);
      for (const toolCallId of [waiting, behind]) {
        await startCall(clients, run, toolCallId);
        const ended = await complete(clients, run, toolCallId);
        expect(ended).toMatchObject({ toolCallId, ran: Ran.YES, state: ToolCallState.COMPLETED });
      }
      expect((await idsOf(clients, "old B")).slice(1)).toEqual([waiting, behind]);
      await clients.sessions.verifySession({ sessionId: "old B" });
    });
  });
});

describe("every way to write adopts the session first:", () => {
  const { OFF } = StartGate;
  const sessionId = "old B";
  const head = () => ({ sessionId, requestId: freshRequestId() });
  const shownAsk = (clients: Clients) => showAsk(clients, sessionId, askIdOf(sessionId));
  const writes: readonly (readonly [string, string, (clients: Clients) => Promise<unknown>])[] = [
    [
      "AnswerAsk",
      "RECEIPT_WRITTEN",
      async (clients) => answer(clients, (await shownAsk(clients)).ask),
    ],
    ["BeginRun", "RUN_BEGUN", ({ runs }) => runs.beginRun({ ...head(), startGate: OFF })],
    ["ForkSession", "", ({ sessions }) => sessions.forkSession(head())],
    ["EndSession", "ASK_WITHDRAWN", ({ sessions }) => sessions.endSession(head())],
    [
      "EndSession with all below",
      "ASK_WITHDRAWN",
      ({ sessions }) => sessions.endSession({ ...head(), cancelDescendants: true }),
    ],
  ];

  test.each(writes)("%s", async (_, kind, write) => {
    await mounted([snapshotB(sessionId)], async (clients) => {
      const before = await idsOf(clients, sessionId);
      await write(clients);
      const kinds = await kindsOf(clients, sessionId);
      expect(kinds[0]).toBe("ADOPTED");
      expect(kinds.filter((each) => each === "ADOPTED")).toHaveLength(1);
      if (kind === "") expect(kinds).toHaveLength(1);
      else expect(kinds).toContain(kind);
      expect(await idsOf(clients, sessionId)).toEqual(before);
      expect(await listedIds(clients)).toContain(sessionId);
      await clients.sessions.verifySession({ sessionId });
    });
  });

  test("but not CompactSession: there is no event yet that could be archived", async () => {
    await mounted([snapshotA(sessionId)], async (clients) => {
      const compaction = { ...head(), throughSequence: 1n, summary: "before" };
      const refusal = await refused(clients.sessions.compactSession(compaction));
      expect(refusal.metadata["field"]).toBe("through_sequence");
      expect(await kindsOf(clients, sessionId)).toEqual([]);
    });
  });

  test("ImportSession, by its own event alone", async () => {
    await mounted([snapshotB(sessionId)], async (clients) => {
      const before = await idsOf(clients, sessionId);
      expect((await importOld(clients, snapshotB(sessionId))).isNew).toBe(true);
      const [event, ...others] = await allEvents(clients, sessionId);
      expect([event?.kind, event?.actor?.kind, others]).toEqual([
        ...["ADOPTED", ActorKind.PRINCIPAL, []],
      ]);
      expect(await idsOf(clients, sessionId)).toEqual(before);
    });
  });

  test("a delegation, in the run that was begun before it", async () => {
    await mounted([snapshotB(sessionId)], async (clients) => {
      const [, , behind = ""] = await idsOf(clients, sessionId);
      const [run, child] = await Promise.all([
        beginRun(clients, sessionId),
        delegateTo(clients, sessionId, behind),
      ]);
      expect(child.delegation).toMatchObject({
        ...{ parentSessionId: sessionId, parentToolCallId: behind },
      });
      expect(run.sessionId).toBe(sessionId);
      const kinds = await kindsOf(clients, sessionId);
      expect(kinds).toEqual(["ADOPTED", "RUN_BEGUN", "TOOL_CALL_DELEGATED"]);
      await clients.sessions.verifySession({ sessionId });
    });
  });

  test("two at once adopt it once", async () => {
    await mounted([snapshotB(sessionId)], async (clients, service) => {
      const others = service.clients("connect-json");
      const shown = await shownAsk(clients);
      await Promise.all([
        clients.approvals.answerAsk(answerTo(shown)),
        others.runs.beginRun({ ...head(), startGate: OFF }),
        fork(others, sessionId),
        fork(clients, sessionId),
      ]);
      const kinds = await kindsOf(clients, sessionId);
      expect(kinds.filter((kind) => kind === "ADOPTED")).toHaveLength(1);
      expect(kinds[0]).toBe("ADOPTED");
      expect(kinds).toContain("RUN_BEGUN");
      expect(kinds).toContain("ASK_ANSWERED");
      await clients.sessions.verifySession({ sessionId });
    });
  });

  const refusals: readonly (readonly [string, (clients: Clients) => Promise<unknown>])[] = [
    [
      "an answer with another token",
      async ({ approvals, ...rest }) => {
        const shown = await shownAsk({ approvals, ...rest });
        return approvals.answerAsk(answerTo({ ...shown, answerToken: "token" }));
      },
    ],
    [
      "an answer to an ask that is not there",
      async ({ approvals, ...rest }) => {
        const request = answerTo(await shownAsk({ approvals, ...rest }));
        return approvals.answerAsk({ ...request, askId: "ask_of_nobody" });
      },
    ],
    [
      "Apply of a run that is not active",
      ({ runs }) => {
        const hook = { phase: "session_start", decision: HookDecision.INFO };
        const commands = [{ command: { case: "publishHook" as const, value: hook } }];
        return runs.apply({ ...head(), runId: "run_of_nobody", commands });
      },
    ],
    ...["has ended", "waits for an answer", "has not started"].map(
      (what, index) =>
        [
          `a delegation to a call that ${what}`,
          async (clients: Clients) =>
            delegateTo(clients, sessionId, (await idsOf(clients, sessionId))[index]!),
        ] as const,
    ),
  ];

  test.each(refusals)("not %s, which is refused", async (_, send) => {
    await mounted([snapshotB(sessionId)], async (clients) => {
      const before = await recordsOf(clients, sessionId);
      expect((await refused(send(clients))).reason).not.toBe("FIELD_INVALID");
      expect(await allEvents(clients, sessionId)).toEqual([]);
      expect(await listedAsks(clients, {})).toEqual([]);
      expect(await recordsOf(clients, sessionId)).toEqual(before);
    });
  });
});

test("an authorization whose time is over expires at the first write, and its calls end", async () => {
  await mounted([snapshotC("old C", PAST)], async (clients) => {
    const sessionId = "old C";
    const stateOf = async () =>
      (await clients.history.listAuthorizations({ sessionId })).authorizations[0]?.state;
    expect(await stateOf()).toBe(AuthorizationState.PENDING);
    expect(await allEvents(clients, sessionId)).toEqual([]);
    await beginRun(clients, sessionId);
    expect(await stateOf()).toBe(AuthorizationState.EXPIRED);
    const calls = await allCalls(clients, sessionId);
    expect(calls.map(({ state }) => ToolCallState[state])).toEqual([
      ...["COMPLETED", "EXPIRED", "CANCELLED", "CANCELLED"],
    ]);
    expect(await kindsOf(clients, sessionId)).toEqual([
      ...["ADOPTED", "AUTHORIZATION_SETTLED", "TOOL_CALL_ENDED", "TOOL_CALL_ENDED"],
      ...["TOOL_CALL_ENDED", "RUN_BEGUN"],
    ]);
    await clients.sessions.verifySession({ sessionId });
  });
});

describe("ids are the same", () => {
  let store: StoreFolder;

  beforeAll(async () => {
    store = await makeStoreFolder();
  });

  afterAll(() => store.remove());

  async function allIds(clients: Clients): Promise<Record<string, string[]>> {
    const entries = fixtures().map(async ({ id }) => [id, await idsOf(clients, id)] as const);
    return Object.fromEntries(await Promise.all(entries));
  }

  test("after a restart before and after adoption, whatever clock, store and names of files are", async () => {
    const folder = await folderOf(fixtures());
    let service = await folder.start({ store: store.store });
    const ids = await allIds(service.clients());
    expect(new Set(Object.values(ids).flat()).size).toBe(Object.values(ids).flat().length);
    await service.stop();
    service = await folder.start({ store: store.store });
    expect(await allIds(service.clients())).toEqual(ids);
    for (const { id } of fixtures()) await beginRun(service.clients(), id);
    expect(await allIds(service.clients())).toEqual(ids);
    await service.stop();
    service = await folder.start({ store: store.store });
    expect(await allIds(service.clients())).toEqual(ids);
    await service.stop();
    const renamed = await OldFolder.make();
    for (const [index, snapshot] of fixtures().entries()) {
      await renamed.put(snapshot, `sid-v1/other-${9 - index}.json`);
    }
    const nowMs = () => Date.UTC(1999, 0, 1);
    service = await renamed.start({ nowMs });
    expect(await allIds(service.clients())).toEqual(ids);
    await fork(service.clients(), "old B");
    expect(await allIds(service.clients())).toEqual(ids);
    await service.stop();
    // The same sources, imported, are the same calls.
    service = await startTestService({});
    for (const snapshot of fixtures()) await importOld(service.clients(), snapshot);
    expect(await allIds(service.clients())).toEqual(ids);
    await service.stop();
    await folder.remove();
    await renamed.remove();
  });

  test("and records too, once adopted, if the file is changed, malformed or gone", async () => {
    const own = await makeStoreFolder();
    const folder = await folderOf([snapshotB("old B")]);
    const warnings: number[] = [];
    const served = async (look: (clients: Clients) => Promise<void>): Promise<void> => {
      const service = await folder.start({ store: own.store });
      await look(service.clients()).finally(() => service.stop());
      warnings.push(service.logged().split("changed and are ignored").length - 1);
    };
    let before: readonly string[] = [];
    await served(async (clients) => {
      await fork(clients, "old B");
      before = await recordsOf(clients, "old B");
    });
    await served(async (clients) => {
      expect(await recordsOf(clients, "old B")).toEqual(before);
      await folder.put(snapshotA("old B"));
      expect(await recordsOf(clients, "old B")).toEqual(before);
    });
    const bad = Buffer.from('{"id":');
    const putBad = () => folder.putBytes("old B.session.json", bad);
    const changes = [() => folder.put(snapshotA("old B")), putBad];
    for (const change of changes) {
      await change();
      await served(async (clients) => {
        expect(await recordsOf(clients, "old B")).toEqual(before);
        expect((await listedIds(clients)).filter((id) => id === "old B")).toHaveLength(1);
        await clients.sessions.verifySession({ sessionId: "old B" });
      });
    }
    // Told once in each life of the server, and only once the file was another.
    expect(warnings).toEqual([0, 0, 1, 1]);
    await Promise.all([folder.remove(), own.remove()]);
  });
});

test("a file that cannot be read is told with its place, and keeps no other from being served", async () => {
  const text = `{"id":"bad","state":"idle","messages":[{"role":7}]}`;
  const folder = await folderOf([snapshotA("old A"), snapshotB("old B")]);
  const file = await folder.putBytes("bad.session.json", Buffer.from(text));
  const service = await folder.start();
  const clients = service.clients();
  const where = { file, path: "$.messages[0].role", offset: String(text.indexOf("7")) };
  const { history, approvals, sessions } = clients;
  const sessionId = "bad";
  const reads: (() => Promise<unknown>)[] = [
    () => sessions.getSession({ sessionId }),
    () => history.listToolCalls({ sessionId }),
    () => history.listEvents({ sessionId }),
    () => history.listHooks({ sessionId }),
    () => approvals.listAsks({ sessionId }),
    () => approvals.listReceipts({ sessionId }),
    () => new AskWatcher(clients, { sessionId }).next(),
  ];
  for (const read of [...reads, ...reads]) {
    const refusal = await refused(read());
    expect(refusal).toMatchObject({ reason: "DATA_DAMAGED", metadata: where });
  }
  expect((await refused(beginRun(clients, sessionId))).reason).toBe("HIGH_WATER_UNAVAILABLE");
  expect(await listedIds(clients)).toEqual(["old A", "old B"]);
  expect(await idsOf(clients, "old A")).toHaveLength(2);
  await beginRun(clients, "old B");
  await service.stop();
  await folder.remove();
});

test("an id that would lead out of the folder finds nothing", async () => {
  const folder = await folderOf([snapshotA("old A")]);
  const inside = await OldFolder.make();
  await inside.put(snapshotA("secret"), "secret.session.json");
  const service = await folder.start();
  const { sessions, runs } = service.clients();
  const stem = inside.path.split("/").at(-1) ?? "";
  const ids = ["../x", `../${stem}/secret`, `${inside.path}/secret`, "..", ".", "/"];
  for (const sessionId of [...ids, "old A.session.json", "old A.session", "secret"]) {
    const reading = sessions.getSession({ sessionId });
    expect((await refused(reading)).reason).toBe("SESSION_NOT_FOUND");
    const writing = runs.beginRun({ sessionId, requestId: "x", startGate: StartGate.OFF });
    expect((await refused(writing)).reason).toBe("SESSION_NOT_FOUND");
  }
  await service.stop();
  await folder.remove();
  await inside.remove();
});

test("who sees only own sessions, and other tenants, see nothing of what is mounted", async () => {
  const folder = await folderOf([snapshotB("old B")]);
  const scope = (of: "own" | "tenant") => ({ engine: of, approver: of, reader: of, admin: of });
  const principals = {
    own: principal("own", scope("own")),
    foreign: { tenant: "other", subject: "foreign", roles: scope("tenant") },
    home: { tenant: "home", subject: "home", roles: scope("tenant") },
  };
  const flags = ["--legacy-dir", folder.path, "--legacy-tenant", "home"];
  const service = await startWatchedService({ flags, principals });
  const callers = new Callers(service);
  expect(await listedIds(callers.as("home"))).toEqual(["old B"]);
  const shown = await showAsk(callers.as("home"), "old B", askIdOf("old B"));
  const hidden = async (name: string): Promise<void> => {
    const clients = callers.as(name);
    const sessionId = "old B";
    const attempts: (() => Promise<unknown>)[] = [
      () => clients.sessions.getSession({ sessionId }),
      () => clients.history.listToolCalls({ sessionId }),
      () => clients.approvals.listAsks({ sessionId }),
      () => clients.approvals.answerAsk(answerTo(shown)),
      () => clients.sessions.forkSession({ sessionId, requestId: "x" }),
      () => beginRun(clients, sessionId),
      () => new AskWatcher(clients, { sessionId }).next(),
      () => delegateTo(clients, sessionId, shown.ask.toolCallId),
    ];
    for (const attempt of attempts) {
      expect((await refused(attempt())).reason).toBe("SESSION_NOT_FOUND");
    }
    expect(await listedIds(clients)).toEqual([]);
  };
  for (const name of ["own", "foreign", "anybody"]) await hidden(name);
  expect(await allEvents(callers.as("home"), "old B")).toEqual([]);
  callers.disconnect();
  await service.stop();
  await folder.remove();
});

test("reading every mounted session by every method, again and again, writes no byte", async () => {
  const store = await makeStoreFolder();
  const folder = await folderOf([...fixtures(), snapshotC("old C2", PAST)]);
  await folder.putBytes("bad.session.json", Buffer.from("{"));
  const service = await folder.start({ store: store.store });
  const clients = service.clients();
  const stored = () =>
    [store.path, `${store.path}-wal`].filter(existsSync).map((path) => {
      const sha256 = createHash("sha256").update(readFileSync(path)).digest("hex");
      return { path, sha256, mtimeMs: statSync(path).mtimeMs };
    });
  const files = () =>
    fixtures().map(({ id }) => {
      const path = `${folder.path}/${id}.session.json`;
      return [statSync(path).mtimeMs, readFileSync(path).equals(bytesOfSnapshot(byId(id)))];
    });
  const byId = (id: string) =>
    given(
      fixtures().find((each) => each.id === id),
      "fixture",
    );
  const readAll = async (): Promise<unknown[]> => {
    const all: unknown[] = [await listedIds(clients), await listedAsks(clients, {})];
    for (const id of [...fixtures().map((each) => each.id), "old C2"]) {
      all.push(await recordsOf(clients, id), await allEvents(clients, id));
      const watcher = new AskWatcher(clients, { sessionId: id });
      all.push((await watcher.openOnes()).map(({ ask }) => ask.askId));
      watcher.stop();
      const below = { sessionId: id, includeDescendants: true };
      all.push((await clients.history.listToolCalls(below)).toolCalls.length);
      all.push((await listedAsks(clients, below)).length);
      const ancestor = { ancestorSessionId: id };
      all.push((await clients.sessions.listSessions(ancestor)).sessions.length);
    }
    await refused(clients.sessions.getSession({ sessionId: "bad" }));
    return all;
  };
  const before = stored();
  const filesBefore = files();
  expect(before.length).toBeGreaterThan(0);
  const first = await readAll();
  expect(await readAll()).toEqual(first);
  expect(stored()).toEqual(before);
  expect(files()).toEqual(filesBefore);
  // The same look sees the first write.
  await beginRun(clients, "old A");
  expect(stored()).not.toEqual(before);
  expect(files()).toEqual(filesBefore);
  await service.stop();
  await folder.remove();
  await store.remove();
});
