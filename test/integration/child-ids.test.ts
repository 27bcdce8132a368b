import type { Http2SessionManager } from "@connectrpc/connect-node";
import { afterAll, beforeAll, expect, test } from "vitest";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import type { MintId } from "../../src/domain/identity.js";
import { AskReader } from "../../src/ledger/ask-reader.js";
import { Ledger } from "../../src/ledger/ledger.js";
import { Reader } from "../../src/ledger/reader.js";
import { createLog } from "../../src/server/log.js";
import { composeServices } from "../../src/server/compose.js";
import { startServer, type RunningServer } from "../../src/server/start.js";
import { createValidator } from "../../src/rpc/validate/validator.js";
import { createMemoryStore } from "../../src/store/memory/memory-store.js";
import { AskWatch } from "../../src/watch/ask-watch.js";
import { AwaitAsk } from "../../src/watch/await-ask.js";
import { answerTo, askAbout, AskWatcher, listedAsks, showAsk } from "../support/asking.js";
import {
  acceptCall,
  beginRun,
  freshRequestId,
  given,
  newCall,
  readCall,
  readSession,
  type OpenRun,
} from "../support/conversation.js";
import { eventWatch } from "../support/event-watching.js";
import { OutsideWorld } from "../support/outside-world.js";
import { refused } from "../support/refused.js";
import { clientsOf, transportOf, type Clients } from "../support/service.js";
import { delegateTo, idsOf, listedSessions, stepsOf } from "../support/trees.js";
import { TWO_WIRES } from "./cases-asks-fixture.js";
import { testConfig } from "./listeners-fixture.js";

/** Ids as the older system gave them to sessions of each kind, the longest there may be, and one of many scripts. */
const ROOT = "ses-0";
const SUBAGENT = "subagent-call_0";
const BRANCHES = ["parallel-ses-call_0-0", "parallel-ses-call_0-1"];
const MEMBER = "team-ses-call_0-member:a/b?c=d#%2e";
const LONGEST = `subagent-${"x".repeat(503)}`;
const SCRIPTS = "subagent-ünïcode-电话-🛠";

let server: RunningServer;
/** The ids that the next sessions get. */
const next: string[] = [];
const connections: Http2SessionManager[] = [];

/** A whole service in which sessions get the ids that a test wants. */
beforeAll(async () => {
  const world = new OutsideWorld("older ids");
  const store = createMemoryStore();
  const mintId: MintId = (kind) =>
    kind === "session" ? given(next.shift(), "id") : world.mintId(kind);
  const options = { ...world.ledgerOptions(store), mintId };
  const { limits, commits, details } = options;
  const ledger = new Ledger(options, {
    sessionDamaged: () => undefined,
    commitFailed: () => undefined,
  });
  const asks = new AskReader(options);
  const waiting = { asks, commits, monotonicMs: () => performance.now() };
  const committing = (): Promise<void> | undefined => ledger.committing;
  server = await startServer({
    config: testConfig(),
    log: createLog("error", process.stderr),
    onInvariantBroken: () => undefined,
    validate: createValidator(limits),
    binding: composeServices({
      ...{ version: "0.0.0-test", limits, store, ledger, asks, details },
      reader: new Reader(store, limits),
      watch: new AskWatch({ ...waiting, committing, store, heartbeatMs: 20_000 }),
      awaiting: new AwaitAsk(waiting),
      events: eventWatch({ store, commits }),
    }),
  });
});

afterAll(async () => {
  for (const connection of connections) connection.abort();
  await server.drain();
});

/** A child of this id with a run. */
async function childOf(
  clients: Clients,
  parent: OpenRun,
  toolCallId: string,
  id: string,
): Promise<OpenRun> {
  next.push(id);
  const { sessionId } = await delegateTo(clients, parent.sessionId, toolCallId);
  expect(sessionId).toBe(id);
  return beginRun(clients, sessionId, StartGate.OFF);
}

async function rootOf(clients: Clients, id: string): Promise<OpenRun> {
  next.push(id);
  const creation = { requestId: freshRequestId(), kind: SessionKind.MAIN };
  const { session } = await clients.sessions.createSession(creation);
  return beginRun(clients, given(session, "session").sessionId, StartGate.OFF);
}

test.each(TWO_WIRES)("ids of the older system are carried verbatim over %s", async (wire) => {
  const clients = clientsOf(transportOf(wire, server.grpcAddress, server.httpAddress, connections));
  // Each wire in a tree of its own.
  const name = (id: string): string => (wire === "grpc" ? id : id.replace("-", "+"));
  const root = await rootOf(clients, name(ROOT));
  const watcher = new AskWatcher(clients, { sessionId: root.sessionId, includeDescendants: true });
  await watcher.openOnes();
  const { toolCallId } = await acceptCall(clients, root, newCall("call_0"));
  const children: OpenRun[] = [];
  for (const id of [SUBAGENT, ...BRANCHES, MEMBER, LONGEST]) {
    children.push(await childOf(clients, root, toolCallId, name(id)));
  }
  const [subagent] = children as [OpenRun];
  const deeper = await acceptCall(clients, subagent, newCall("call_0"));
  children.push(await childOf(clients, subagent, deeper.toolCallId, name(SCRIPTS)));

  const ids = children.map(({ sessionId }) => sessionId);
  expect(ids).toEqual([SUBAGENT, ...BRANCHES, MEMBER, LONGEST, SCRIPTS].map(name));
  const { sessionId } = root;
  for (const pageSize of [1, 0]) {
    const below = await listedSessions(clients, { ancestorSessionId: sessionId, pageSize });
    expect(idsOf(below)).toEqual(ids);
  }
  const { delegatedSessionIds } = await readCall(clients, sessionId, toolCallId);
  expect(delegatedSessionIds).toEqual(ids.slice(0, 5));
  const steps = [`${sessionId} ${toolCallId}`, `${subagent.sessionId} ${deeper.toolCallId}`];
  for (const [index, child] of children.entries()) {
    const path = index < 5 ? steps.slice(0, 1) : steps;
    const ask = await askAbout(clients, child, {}, newCall("bash:0"));
    const told = await watcher.nextAsk();
    expect(told).toEqual(await showAsk(clients, child.sessionId, ask.askId));
    expect(told.ask.origin?.sessionId).toBe(ids[index]);
    expect(stepsOf(told.ask.delegationPath)).toEqual(path);
    expect(stepsOf((await readSession(clients, child.sessionId)).delegationPath)).toEqual(path);
  }
  watcher.stop();
  const asks = await listedAsks(clients, { sessionId, includeDescendants: true });
  expect(asks.map(({ ask }) => ask.origin?.sessionId)).toEqual(ids);
  const page = { sessionId, includeDescendants: true };
  const { sessions } = await clients.history.listToolCalls(page);
  expect(idsOf(sessions)).toEqual([sessionId, ...ids]);

  const [first, second] = asks.slice(1, 3);
  const { answerToken } = given(second, "ask");
  const click = { ...answerTo(given(first, "ask")), answerToken };
  const crossed = clients.approvals.answerAsk(click);
  expect(await refused(crossed)).toMatchObject({ reason: "ANSWER_TOKEN_INVALID" });
  for (const [index, shown] of asks.entries()) {
    const { receipt } = await clients.approvals.answerAsk(answerTo(shown));
    expect(receipt?.origin?.sessionId).toBe(ids[index]);
  }
  const request = { requestId: freshRequestId(), sessionId, cancelDescendants: true };
  const { descendants } = await clients.sessions.endSession(request);
  expect(descendants.map((cancelled) => cancelled.sessionId)).toEqual(ids);
  for (const id of ids) await clients.sessions.verifySession({ sessionId: id });
});
