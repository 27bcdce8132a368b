import {
  connect as connectHttp2,
  type ClientHttp2Session,
  type ClientHttp2Stream,
} from "node:http2";
import { connect as connectTcp } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ApprovalService } from "../../gen/toolmark/v1/approval_service_pb.js";
import { CommitFeed } from "../../src/ledger/commit-feed.js";
import type { Store } from "../../src/ledger/store-port.js";
import { answer, askAbout, askAboutEach, AskWatcher } from "../support/asking.js";
import { newCall, openRun, publishHook, type OpenRun } from "../support/conversation.js";
import { refused } from "../support/refused.js";
import {
  startTestService,
  WIRES,
  type Clients,
  type TestService,
  type Wire,
} from "../support/service.js";
import { pathOf, until } from "./listeners-fixture.js";

/** The service itself listens for deadlines. */
const NOBODY = 1;
const DRAIN_MS = 2000;
const LARGE = "x".repeat(64 * 1024);
/** As many as fit into one request. */
const ASKS_PER_SESSION = 40;
const WATCHERS = 5;
const IDLE_PER_WIRE = 50;
const COMMITS = 10;

let connections: ClientHttp2Session[];
let commits: CommitFeed;
let calls: Map<string, number>;
let service: TestService;
let clients: Clients;

/** The store, with each call of it counted. */
function counted(store: Store): Store {
  return new Proxy(store, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      return (...args: unknown[]): unknown => {
        calls.set(String(name), callsOf(String(name)) + 1);
        return (value as (...args: unknown[]) => unknown).apply(target, args);
      };
    },
  });
}

function callsOf(name: string): number {
  return calls.get(name) ?? 0;
}

beforeEach(async () => {
  connections = [];
  commits = new CommitFeed();
  calls = new Map();
  const flags = ["--drain-timeout-ms", String(DRAIN_MS)];
  service = await startTestService({ commits, wrapStore: counted, flags });
  clients = service.clients();
});

afterEach(async () => {
  for (const connection of connections) connection.destroy();
  await service.stop();
  expect(commits.subscribers).toBe(0);
});

const watching = (): number => commits.subscribers - NOBODY;

/** Opens large asks in so many sessions. The last of their runs. */
async function fill(sessions = 1): Promise<OpenRun> {
  const run = await openRun(clients);
  const large = Array.from({ length: ASKS_PER_SESSION }, () => newCall(undefined, "bash", LARGE));
  await askAboutEach(clients, run, large);
  return sessions === 1 ? run : fill(sessions - 1);
}

/** Waits until nothing more is read for those who do not read. */
async function untilStalled(): Promise<void> {
  let before = -1;
  while (before !== callsOf("readBody")) {
    before = callsOf("readBody");
    await delay(50);
  }
}

const CONTENT_TYPES: Readonly<Record<Wire, string>> = {
  grpc: "application/grpc+proto",
  "connect-binary": "application/connect+proto",
  "connect-json": "application/connect+json",
  "grpc-web": "application/grpc-web+proto",
};

/** Watches over one connection that take nothing, while there is much to take: a client would read ahead. */
async function stalled(wire: Wire): Promise<ClientHttp2Stream[]> {
  const before = callsOf("readBody");
  const address = wire === "grpc" ? service.grpcAddress : service.httpAddress;
  const connection = connectHttp2(`http://${address}`).on("error", () => undefined);
  connections.push(connection);
  const text = wire === "connect-json" ? "{}" : "";
  const request = Buffer.concat([Buffer.from([0, 0, 0, 0, text.length]), Buffer.from(text)]);
  const streams = Array.from({ length: WATCHERS }, () =>
    connection
      .request({
        ":method": "POST",
        ":path": pathOf(ApprovalService.method.watchAsks),
        "content-type": CONTENT_TYPES[wire],
        te: "trailers",
      })
      .on("error", () => undefined),
  );
  for (const stream of streams) stream.pause().end(request);
  await until(() => watching() === WATCHERS);
  await untilStalled();
  expect(watching()).toBe(WATCHERS);
  expect(callsOf("readBody") - before).toBeLessThan(WATCHERS * ASKS_PER_SESSION);
  return streams;
}

describe.each(WIRES)("a watch over %s", (wire) => {
  test("whose caller leaves frees everything", async () => {
    const ask = await askAbout(clients, await openRun(clients));
    const by = service.clients(wire);
    const watchers = Array.from({ length: WATCHERS }, () => new AskWatcher(by, {}));
    await Promise.all(watchers.map((watcher) => watcher.openOnes()));
    expect(watching()).toBe(WATCHERS);
    for (const watcher of watchers.slice(1)) watcher.stop();
    await until(() => watching() === 1);
    await answer(clients, ask);
    expect((await watchers[0]?.nextAsk())?.ask.askId).toBe(ask.askId);
    watchers[0]?.stop();
    await until(() => watching() === 0);
  });

  test("whose caller leaves while it does not read frees everything", async () => {
    const run = await fill();
    const streams = await stalled(wire);
    for (const stream of streams) stream.close();
    await until(() => watching() === 0);
    const before = callsOf("readBody");
    await publishHook(clients, run);
    expect(callsOf("readBody")).toBe(before);
  });

  test("whose connection breaks while nobody reads frees everything", async () => {
    await fill();
    await stalled(wire);
    for (const connection of connections) connection.destroy();
    await until(() => watching() === 0);
  });

  test("that is not read holds up no writer and no reader, and goes on where it was", async () => {
    const run = await fill();
    const before = callsOf("readBody");
    const streams = await stalled(wire);
    const ask = await askAbout(clients, run);
    const other = new AskWatcher(service.clients(wire), { sessionId: run.sessionId });
    expect((await other.openOnes()).at(-1)?.ask.askId).toBe(ask.askId);
    other.stop();
    for (const stream of streams) stream.resume();
    const taken = (WATCHERS + 1) * (ASKS_PER_SESSION + 1);
    await until(() => callsOf("readBody") - before >= taken);
    expect(watching()).toBeGreaterThanOrEqual(WATCHERS);
  });

  test("that is not read does not hold up a shutdown", async () => {
    await fill();
    await stalled(wire);
    const beganMs = performance.now();
    await service.drain();
    expect(performance.now() - beganMs).toBeLessThan(2 * DRAIN_MS);
    expect(commits.subscribers).toBe(0);
  });

  test("that is refused leaves nothing behind", async () => {
    const by = service.clients(wire);
    await refused(new AskWatcher(by, { sessionId: "ses_none" }).next());
    await refused(new AskWatcher(by, { cursor: "damaged" }).next());
    await until(() => watching() === 0);
  });
});

test("a connection over HTTP/1.1 that breaks frees its unread watch", async () => {
  await fill(2);
  const [host, port] = service.httpAddress.split(":");
  const socket = connectTcp(Number(port), host).pause();
  const before = callsOf("readBody");
  socket.write(
    `POST ${pathOf(ApprovalService.method.watchAsks)} HTTP/1.1\r\nhost: localhost\r\n` +
      "content-type: application/connect+proto\r\ncontent-length: 5\r\n\r\n",
  );
  socket.write(new Uint8Array(5));
  await until(() => watching() === 1);
  await untilStalled();
  expect(callsOf("readBody") - before).toBeLessThan(2 * ASKS_PER_SESSION);
  socket.destroy();
  await until(() => watching() === 0);
});

describe(`${IDLE_PER_WIRE * WIRES.length} idle watches`, () => {
  async function watchers(sessionId: string): Promise<AskWatcher[]> {
    const before = callsOf("listAskChanges");
    const all = WIRES.flatMap((wire) => {
      const by = service.clients(wire);
      return Array.from({ length: IDLE_PER_WIRE }, () => new AskWatcher(by, { sessionId }));
    });
    await Promise.all(all.map((watcher) => watcher.openOnes()));
    expect(watching()).toBe(all.length);
    // Each looks once for what happened since it began.
    await until(() => callsOf("listAskChanges") === before + all.length);
    return all;
  }

  /** What commits cost, in calls of the store by name. */
  async function costOf(commit: () => Promise<unknown>): Promise<Record<string, number>> {
    const before = new Map(calls);
    for (let count = 0; count < COMMITS; count += 1) await commit();
    const counts = [...calls].map(
      ([name, count]) => [name, count - (before.get(name) ?? 0)] as const,
    );
    return Object.fromEntries(counts.filter(([, count]) => count > 0));
  }

  test("of every session cost nothing when something else is committed", async () => {
    const run = await openRun(clients);
    const alone = await costOf(() => publishHook(clients, run));
    const all = await watchers("");
    expect(await costOf(() => publishHook(clients, run))).toEqual(alone);
    const ask = await askAbout(clients, run);
    const told = await Promise.all(all.map((watcher) => watcher.nextAsk()));
    expect(new Set(told.map((shown) => shown.ask.askId))).toEqual(new Set([ask.askId]));
    for (const watcher of all) watcher.stop();
    await until(() => watching() === 0);
  });

  test("of one session cost nothing when asks of another open and settle", async () => {
    const [run, other] = [await openRun(clients), await openRun(clients)];
    const openAndSettle = async () => answer(clients, await askAbout(clients, other));
    const alone = await costOf(openAndSettle);
    const all = await watchers(run.sessionId);
    expect(await costOf(openAndSettle)).toEqual(alone);
    const ask = await askAbout(clients, run);
    const told = await Promise.all(all.map((watcher) => watcher.nextAsk()));
    expect(new Set(told.map((shown) => shown.ask.askId))).toEqual(new Set([ask.askId]));
    for (const watcher of all) watcher.stop();
    await until(() => watching() === 0);
  });
});
