import { setFlagsFromString } from "node:v8";
import { setImmediate as nextTurn, setTimeout as delay } from "node:timers/promises";
import { runInNewContext } from "node:vm";
import { fromBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import type { WatchEventsResponse } from "../../gen/toolmark/v1/history_service_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { CommitFeed } from "../../src/ledger/commit-feed.js";
import { CallsInFlight } from "../../src/rpc/calls-in-flight.js";
import { StalledWatchers } from "../../src/watch/stalled-watchers.js";
import { given, of, openRun, publishHook, type OpenRun } from "../support/conversation.js";
import {
  EVENT_WIRES,
  EventWatcher,
  type EventServer,
  type EventWire,
} from "../support/event-wires.js";
import { refused } from "../support/refused.js";
import { testScale } from "../support/scale.js";
import {
  clientsOf,
  startTestService,
  type Clients,
  type TestService,
  type TestServiceOptions,
} from "../support/service.js";
import { makeStoreFolder } from "../support/store-folder.js";
import { RAW_WIRES, unreadWatches } from "../support/unread-events.js";
import { overriding } from "../mutants/broken-store.js";
import { until } from "./listeners-fixture.js";

/** The service itself listens for deadlines. */
const NOBODY = 1;
const DISCONNECTS = 200;
const PER_ROUND = 40;
const HOOKS_PER_COMMIT = 16;
const COMMITS = 10;
const LARGE = "x".repeat(60 * 1024);
const LAG_MS = 1000;
/** A message of 60 KiB in so long is less than 1 KiB/s by a clock that runs as fast as the limit is shorter. */
const PAUSES = 200;
const PAUSE_MS = 20;
const MIB = 1024 * 1024;
const COLLECTIONS = 4;

let service: TestService;
let clients: Clients;
let commits: CommitFeed;
let reads: number;
let commitCalls: number;
let stalled: StalledWatchers | undefined;
let inFlight: CallsInFlight | undefined;

async function start(options: TestServiceOptions = {}): Promise<void> {
  commits = new CommitFeed();
  const spies = [
    vi.spyOn(StalledWatchers.prototype, "enter"),
    vi.spyOn(CallsInFlight.prototype, "enter"),
  ] as const;
  service = await startTestService({
    commits,
    flags: ["--drain-timeout-ms", "2000"],
    wrapStore: (store) =>
      overriding(store, {
        readEvents: (...args) => {
          reads += 1;
          return store.readEvents(...args);
        },
        commit: (writes) => {
          commitCalls += 1;
          return store.commit(writes);
        },
      }),
    ...options,
  });
  clients = service.clients();
  // One watch shows the objects that know who is there. A spy would keep every call that it sees.
  const first = watch("grpc", await openRun(clients));
  await first.replayed();
  first.stop();
  stalled = spies[0].mock.contexts[0] as StalledWatchers;
  inFlight = spies[1].mock.contexts[0] as CallsInFlight;
  for (const spy of spies) spy.mockRestore();
  await until(() => watching() === 0);
}

beforeEach(() => {
  reads = 0;
  commitCalls = 0;
});

afterEach(async () => {
  await service.stop();
  expect(commits.subscribers).toBe(0);
});

const watching = (): number => commits.subscribers - NOBODY;

/** Publishes hooks in one commit. */
async function publish(run: OpenRun, text: string): Promise<void> {
  const value = { phase: "session_start", decision: HookDecision.BLOCKED, text };
  const command = { command: { case: "publishHook" as const, value } };
  const commands = Array.from({ length: HOOKS_PER_COMMIT }, () => command);
  await clients.runs.apply({ ...of(run), commands });
}

/** A session with more events than any transport takes for a reader that does not read. */
async function filled(): Promise<OpenRun> {
  const run = await openRun(clients);
  for (let count = 0; count < COMMITS; count += 1) await publish(run, LARGE);
  return run;
}

/** Waits until nothing more is read for those who do not read. */
async function untilBlocked(): Promise<void> {
  let before = -1;
  while (before !== reads) {
    before = reads;
    await delay(50);
  }
}

describe.each(RAW_WIRES)("watches over %s that are not read", (wire) => {
  // The kernel takes megabytes for each connection before its writer is blocked.
  const isOfSockets = wire === "SSE" || wire === "Connect over HTTP/1.1";
  const disconnects = isOfSockets && testScale() === "short" ? PER_ROUND : DISCONNECTS;

  test(`leave nothing behind after ${disconnects} abrupt disconnects`, async () => {
    await start();
    const run = await filled();
    for (let done = 0; done < disconnects; done += PER_ROUND) {
      const before = reads;
      const { watches, destroy } = unreadWatches(service, wire, run.sessionId, PER_ROUND);
      await until(() => watching() === PER_ROUND);
      await untilBlocked();
      // Each was blocked before it had everything.
      expect(reads - before).toBeLessThan((PER_ROUND * COMMITS * HOOKS_PER_COMMIT) / 2);
      expect([watching(), stalled?.size]).toEqual([PER_ROUND, PER_ROUND]);
      // Half of them one by one, the others with their connection.
      for (const each of watches.slice(0, PER_ROUND / 2)) each.breakOff();
      await until(() => watching() <= PER_ROUND / 2);
      destroy();
      await until(() => watching() === 0);
      await until(() => inFlight?.size === 0);
      expect(stalled?.size).toBe(0);
    }
    const readsBefore = reads;
    await publishHook(clients, run);
    expect(reads).toBe(readsBefore);
    const ended = service
      .logged()
      .split("\n")
      .filter((line) => line.includes('"call refused"') && line.includes("WatchEvents"));
    expect(ended).toHaveLength(disconnects + 1);
  });
});

function watch(wire: EventWire, run: OpenRun, cursor = ""): EventWatcher {
  return new EventWatcher(service, wire, { sessionId: run.sessionId, cursor });
}

function sequencesOf(messages: readonly WatchEventsResponse[]): bigint[] {
  return messages.flatMap(({ event }) => event?.sequence ?? []);
}

/** Reads a message, waits, and reads the next, until the server has given up; then what is left. */
async function readSlowly(
  watcher: EventWatcher,
  hasEnded: () => boolean,
  taken: WatchEventsResponse[],
): Promise<never> {
  for (;;) {
    taken.push(await watcher.next());
    const pauses = hasEnded() ? 0 : PAUSES;
    for (let count = 0; count < pauses && !hasEnded(); count += 1) await delay(PAUSE_MS);
  }
}

/** Reads what is left of a watch that was ended: the refusal. */
async function endOf(watcher: EventWatcher, taken: WatchEventsResponse[]) {
  return refused(
    (async () => {
      for (;;) taken.push(await watcher.next());
    })(),
  );
}

/** What is in use, once all that is not was thrown away: memory outside the heap is so in later turns only. */
async function bytesInUse(): Promise<number> {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  let least = Infinity;
  for (let turn = 0; turn < COLLECTIONS; turn += 1) {
    collect();
    await nextTurn();
    const { heapUsed, external } = process.memoryUsage();
    least = Math.min(least, heapUsed + external);
  }
  return least;
}

/** Over HTTP/1.1 the client of Connect reads ahead without end: see the raw reader below. */
const PACED_WIRES = ["grpc", "connect over HTTP/2", "sse"] as const;

describe.each(PACED_WIRES)("a slow watch over %s", (name) => {
  const ROUNDS = 12;
  const wire = name === "connect over HTTP/2" ? "connect-json" : name;

  function paced(): EventServer {
    if (name !== "connect over HTTP/2") return service;
    const baseUrl = `http://${service.httpAddress}`;
    // Compressed, all that is published would fit into what a transport takes for a reader that does not read.
    const options = { useBinaryFormat: false, acceptCompression: [] };
    const transport = createConnectTransport({ baseUrl, httpVersion: "2", ...options });
    return { httpAddress: service.httpAddress, clients: () => clientsOf(transport) };
  }

  test("B70 is ended with a cursor to go on after; it keeps little and holds up nobody", async () => {
    const folder = await makeStoreFolder();
    await start({ watchLagMs: LAG_MS, store: folder.store });
    const run = await openRun(clients);
    const server = paced();
    const open = () => new EventWatcher(server, wire, run);
    const never = Array.from({ length: 8 }, open);
    const [slow, fast] = [open(), open()];
    for (const each of [...never, slow, fast]) await each.replayed();
    const before = await bytesInUse();
    const committed = commitCalls;
    const taken: WatchEventsResponse[] = [];
    const slowEnd = refused(readSlowly(slow, () => watching() === 1, taken));
    const heard: bigint[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      await publish(run, LARGE);
      for (let count = 0; count < HOOKS_PER_COMMIT; count += 1) {
        heard.push((await fast.nextEvent()).event.sequence);
      }
    }
    expect(commitCalls - committed).toBe(ROUNDS);
    const all = Array.from({ length: ROUNDS * HOOKS_PER_COMMIT }, (_, index) => BigInt(index + 3));
    expect(heard).toEqual(all);
    // Eight who do not read would else keep 90 MiB.
    expect((await bytesInUse()) - before).toBeLessThan(24 * MIB);
    await until(() => watching() === 1);
    expect(await slowEnd).toMatchObject(LAGGING);
    await expectGoesOn(wire, run, taken, (await slowEnd).metadata["cursor"], all);
    for (const each of never.slice(0, 2)) {
      const got: WatchEventsResponse[] = [];
      const end = await endOf(each, got);
      expect(end).toMatchObject(LAGGING);
      await expectGoesOn(wire, run, got, end.metadata["cursor"], all);
    }
    for (const each of [...never, fast]) each.stop();
    await until(() => watching() === 0);
    expect(stalled?.size).toBe(0);
    await folder.remove();
  }, 120_000);
});

test("B70 a connection over HTTP/1.1 that is not read is told so once it is read again", async () => {
  await start({ watchLagMs: LAG_MS });
  const run = await filled();
  const { watches, destroy } = unreadWatches(service, "Connect over HTTP/1.1", run.sessionId, 1);
  await until(() => watching() === 1);
  await until(() => watching() === 0);
  const text = (await given(watches[0], "watch").readRest()).toString("latin1");
  destroy();
  const [, value] = /"code":"resource_exhausted".*"value":"([^"]+)"/.exec(text) ?? [];
  const info = fromBinary(ErrorInfoSchema, Buffer.from(given(value, "detail"), "base64"));
  expect(info.reason).toBe("WATCH_LAGGING");
  // Hooks are told apart by their order in the log.
  const rest = watch("grpc", run, info.metadata["cursor"]);
  const sequences = (await rest.replayed()).map(({ sequence }) => sequence);
  rest.stop();
  const all = BigInt(COMMITS * HOOKS_PER_COMMIT + 2);
  const got = BigInt(text.split("HOOK_PUBLISHED").length - 1) + 2n;
  expect([sequences.at(0), sequences.at(-1)]).toEqual([got + 1n, all]);
});

const LAGGING = { code: Code.ResourceExhausted, reason: "WATCH_LAGGING" };

async function expectGoesOn(
  wire: EventWire,
  run: OpenRun,
  got: readonly WatchEventsResponse[],
  cursor: string | undefined,
  all: readonly bigint[],
): Promise<void> {
  const further = watch(wire, run, given(cursor, "cursor"));
  const rest = await further.replayed();
  further.stop();
  const sequences = [...sequencesOf(got), ...rest.map(({ sequence }) => sequence)];
  expect(sequences).toEqual(all);
}

describe.each(EVENT_WIRES)("a watch over %s", (wire) => {
  test("ends with DRAINING when the server shuts down, after a cursor that goes on in its next life", async () => {
    const folder = await makeStoreFolder();
    try {
      await start({ store: folder.store });
      const run = await openRun(clients);
      const watcher = watch(wire, run);
      await watcher.replayed();
      await publishHook(clients, run);
      const stopping = service.drain();
      const got: WatchEventsResponse[] = [];
      expect(await endOf(watcher, got)).toMatchObject({
        code: Code.Unavailable,
        reason: "DRAINING",
      });
      await stopping;
      await service.stop();
      await start({ store: folder.store });
      await publishHook(clients, run);
      await expectGoesOn(wire, run, got, watcher.cursor, [3n, 4n]);
    } finally {
      await folder.remove();
    }
  });
});
