import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Ask } from "../../gen/toolmark/v1/ask_pb.js";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import { watchEvents } from "../../src/client/watch-events.js";
import { answer, listedAsks } from "../support/asking.js";
import {
  acceptCall,
  allEvents,
  given,
  openRun,
  publishHook,
  recordMessage,
  type OpenRun,
} from "../support/conversation.js";
import { EventWatcher, isBoundary, type EventWire } from "../support/event-wires.js";
import { seededRandom, seededTitle } from "../support/seed.js";
import {
  clientsOf,
  startTestService,
  transportOf,
  WIRES,
  type Clients,
  type TestService,
} from "../support/service.js";
import { startTcpProxy, type TcpProxy } from "../support/tcp-proxy.js";
import { askingChildren, openChild, openLine, stepsOf, stepsTo } from "../support/trees.js";

/** As is told by the names of the cases; the other wires are in the fault suite. */
const NAMED_WIRES = ["grpc", "connect-json", "sse"] as const;
const HEARTBEAT_MS = 20;
const WATCHES = 100;

let service: TestService;
let clients: Clients;
let watchers: EventWatcher[];
let proxies: TcpProxy[];

beforeEach(async () => {
  watchers = [];
  proxies = [];
  service = await startTestService({ eventHeartbeatMs: HEARTBEAT_MS });
  clients = service.clients();
});

afterEach(async () => {
  for (const watcher of watchers) watcher.stop();
  for (const proxy of proxies) await proxy.close();
  await service.stop();
});

function watch(
  wire: EventWire,
  request: ConstructorParameters<typeof EventWatcher>[2],
): EventWatcher {
  const watcher = new EventWatcher(service, wire, request);
  watchers.push(watcher);
  return watcher;
}

function askOf({ record }: Event): Ask {
  const kept = record?.record;
  return given(kept?.case === "ask" ? kept.value : undefined, "ask");
}

/** Reads on to the next event of a kind. */
async function nextOf(watcher: EventWatcher, kind: string) {
  const taken = await watcher.until(({ event }) => event?.kind === kind);
  return given(taken.at(-1), "message");
}

describe.each(NAMED_WIRES)("over %s", (wire) => {
  test("gives what ListEvents lists, then each event once it is committed", async () => {
    const run = await openRun(clients);
    await acceptCall(clients, run);
    const watcher = watch(wire, run);
    const listed = await allEvents(clients, run.sessionId);
    expect(await watcher.replayed()).toEqual(listed);
    const hook = await publishHook(clients, run);
    const { event, phase, delegationPath } = await watcher.nextEvent();
    expect([phase, event.kind, delegationPath]).toEqual(["live", "HOOK_PUBLISHED", []]);
    expect(event.record?.record.value).toEqual(hook);
  });

  test("B45 the ask of a session below comes to the root's watch, and its answer goes there alone", async () => {
    const [root, other] = [await openRun(clients), await openRun(clients)];
    const ofRoot = watch(wire, { ...root, includeDescendants: true });
    const ofOther = watch(wire, { ...other, includeDescendants: true });
    const alone = watch(wire, root);
    for (const each of [ofRoot, ofOther, alone]) await each.replayed();
    const asking = await askingChildren(clients, root, 2);
    for (const { child, ask } of asking) {
      const seen = await nextOf(ofRoot, "ASK_OPENED");
      const shown = askOf(given(seen.event, "event"));
      const asked = asking.find((each) => each.ask.askId === shown.askId);
      expect(asked?.ask).toMatchObject({ askId: shown.askId, toolCallId: shown.toolCallId });
      expect(shown.origin).toEqual(asked?.ask.origin);
      expect(seen.event?.sessionId).toBe(shown.origin?.sessionId);
      expect(stepsOf(seen.delegationPath)).toEqual(stepsTo(asked ? [asked.child] : []));
      expect(child.run.sessionId).toBe(ask.origin?.sessionId);
    }
    const [first, second] = asking.map(({ ask }) => ask);
    await answer(clients, given(first, "ask"));
    const settled = await nextOf(ofRoot, "ASK_ANSWERED");
    expect(askOf(given(settled.event, "event")).askId).toBe(first?.askId);
    expect(await listedAsks(clients, {})).toMatchObject([{ ask: { askId: second?.askId } }]);
    for (const each of [root, other]) await publishHook(clients, each);
    // What came to the others is of their own sessions alone.
    for (const [each, run] of [
      [ofOther, other],
      [alone, root],
    ] as const) {
      const taken = await each.until(({ event }) => event?.kind === "HOOK_PUBLISHED");
      const ids = taken.flatMap(({ event }) => (event === undefined ? [] : [event.sessionId]));
      expect(new Set(ids)).toEqual(new Set([run.sessionId]));
    }
  });

  test("a session below is watched with its own path, alone and with those below it", async () => {
    const { line } = await openLine(clients, 3);
    const middle = given(line[1], "child");
    for (const includeDescendants of [false, true]) {
      const watcher = watch(wire, { sessionId: middle.session.sessionId, includeDescendants });
      const taken = await watcher.until(isBoundary);
      const wanted = includeDescendants ? line.slice(1) : [middle];
      const ids = wanted.map(({ session }) => session.sessionId);
      expect([...new Set(taken.flatMap(({ event }) => event?.sessionId ?? []))]).toEqual(ids);
      for (const { event, delegationPath } of taken.slice(0, -1)) {
        const depth = line.findIndex(({ session }) => session.sessionId === event?.sessionId);
        expect(stepsOf(delegationPath)).toEqual(stepsTo(line.slice(0, depth + 1)));
      }
    }
  });

  test("a session that is created below a watched one is taken in, also while kinds are few", async () => {
    const root = await openRun(clients);
    const kinds = ["SESSION_CREATED", "HOOK_PUBLISHED"];
    const watcher = watch(wire, { ...root, includeDescendants: true, kinds });
    expect((await watcher.replayed()).map(({ kind }) => kind)).toEqual(["SESSION_CREATED"]);
    const child = await openChild(clients, root);
    const below = await openChild(clients, child.run);
    await publishHook(clients, below.run);
    const seen: string[] = [];
    while (seen.length < 3) {
      const { event } = await watcher.nextEvent();
      seen.push(`${event.sessionId} ${event.kind}`);
    }
    expect(seen).toEqual([
      `${child.run.sessionId} SESSION_CREATED`,
      `${below.run.sessionId} SESSION_CREATED`,
      `${below.run.sessionId} HOOK_PUBLISHED`,
    ]);
  });

  test(
    seededTitle(`B66 ${WATCHES} watches that begin while events are written miss none`),
    async () => {
      const { root, last, line } = await openLine(clients, 2);
      const random = seededRandom(`B66 ${wire}`);
      const stopped = new AbortController();
      const writing = (async () => {
        while (!stopped.signal.aborted) {
          for (const run of [root, last]) await recordMessage(clients, run);
        }
      })();
      const begun = await beginAtRandom(random, root, last);
      stopped.abort();
      await writing;
      await publishHook(clients, root);
      await publishHook(clients, last);
      const ids = [root.sessionId, ...line.map(({ session }) => session.sessionId)];
      const log = (await Promise.all(ids.map((id) => allEvents(clients, id)))).flat();
      for (const { watcher, run, isTree } of begun) {
        const wanted = log
          .filter(({ sessionId }) => isTree || sessionId === run.sessionId)
          .map(({ position }) => position)
          .sort((one, two) => Number(one - two));
        const taken = await watcher.until(({ event }) => event?.position === wanted.at(-1));
        expect(taken.flatMap(({ event }) => event?.position ?? [])).toEqual(wanted);
        watcher.stop();
      }
    },
  );

  /** Each begins while others are behind in reading. */
  async function beginAtRandom(random: () => number, root: OpenRun, last: OpenRun) {
    const by = service.clients(wire === "sse" ? "grpc" : wire);
    const server = { httpAddress: service.httpAddress, clients: () => by };
    const begun: { watcher: EventWatcher; run: OpenRun; isTree: boolean }[] = [];
    while (begun.length < WATCHES) {
      const isTree = random() < 0.5;
      const run = isTree || random() < 0.5 ? root : last;
      const watcher = new EventWatcher(server, wire, { ...run, includeDescendants: isTree });
      watchers.push(watcher);
      watcher.start();
      begun.push({ watcher, run, isTree });
      if (random() < 0.5) await recordMessage(clients, last);
    }
    return begun;
  }

  test("B72 an idle watch stays open where silence is cut off; its heartbeats are no events", async () => {
    const run = await openRun(clients);
    const idleMs = 10 * HEARTBEAT_MS;
    const watcher = await throughProxy(wire, run, idleMs);
    const before = await watcher.until(isBoundary);
    const { cursor } = watcher;
    for (let count = 0; count < 30; count += 1) {
      const beat = await watcher.next();
      expect(beat).toMatchObject({ phase: "heartbeat", cursor, delegationPath: [] });
      expect(beat.event).toBeUndefined();
    }
    expect(proxies[0]?.idled).toBe(0);
    await publishHook(clients, run);
    expect((await watcher.nextEvent()).event.sequence).toBe(BigInt(before.length));
    const resumed = watch(wire, { ...run, cursor });
    expect((await resumed.replayed()).map(({ kind }) => kind)).toEqual(["HOOK_PUBLISHED"]);
  });

  async function throughProxy(by: EventWire, run: OpenRun, idleMs: number) {
    const { grpcAddress, httpAddress } = service;
    const target = by === "grpc" ? grpcAddress : httpAddress;
    const proxy = await startTcpProxy({ target, idleMs });
    proxies.push(proxy);
    const { address } = proxy;
    const through = by === "sse" ? clients : clientsOf(transportOf(by, address, address));
    const server = { httpAddress: address, clients: () => through };
    const watcher = new EventWatcher(server, by, run);
    watchers.push(watcher);
    return watcher;
  }

  test("heartbeats tell how far a watch is past events that it was not asked for", async () => {
    const run = await openRun(clients);
    const watcher = watch(wire, { ...run, kinds: ["HOOK_PUBLISHED"] });
    expect(await watcher.replayed()).toEqual([]);
    const atFirst = watcher.cursor;
    await recordMessage(clients, run);
    await watcher.until(({ phase, cursor }) => phase === "heartbeat" && cursor !== atFirst);
    const resumed = watch(wire, { ...run, cursor: watcher.cursor });
    expect(await resumed.replayed()).toEqual([]);
    const fromFirst = watch(wire, { ...run, cursor: atFirst });
    expect((await fromFirst.replayed()).map(({ kind }) => kind)).toEqual(["MESSAGE_RECORDED"]);
  });
});

test("B72 a watch without heartbeats is cut off there", async () => {
  const quiet = await startTestService({ eventHeartbeatMs: 60_000 });
  try {
    const run = await openRun(quiet.clients());
    const proxy = await startTcpProxy({ target: quiet.httpAddress, idleMs: 10 * HEARTBEAT_MS });
    proxies.push(proxy);
    const watcher = new EventWatcher(
      { httpAddress: proxy.address, clients: () => clients },
      "sse",
      run,
    );
    await expect(watcher.untilEnded()).rejects.toThrow();
    expect(proxy.idled).toBe(1);
  } finally {
    await quiet.stop();
  }
});

describe.each(WIRES)("a client that resumes over %s", (wire) => {
  test("B64 is given the events that came while its link was down, each once and in order", async () => {
    const run = await openRun(clients);
    const { grpcAddress, httpAddress } = service;
    const target = wire === "grpc" ? grpcAddress : httpAddress;
    const proxy = await startTcpProxy({ target });
    proxies.push(proxy);
    const { history } = clientsOf(transportOf(wire, proxy.address, proxy.address));
    const stop = new AbortController();
    const retries: string[] = [];
    const onRetry = ({ message }: Error): void => {
      retries.push(message);
    };
    const options = { signal: stop.signal, retryMs: 5, retryMaxMs: 20, onRetry };
    const sequences: bigint[] = [];
    const hear = async (): Promise<void> => {
      for await (const { event } of watchEvents(history, run, options)) {
        if (event !== undefined) sequences.push(event.sequence);
        if (event?.kind === "RUN_ENDED") return;
      }
    };
    const heard = hear();
    for (let round = 0; round < 3; round += 1) {
      await recordMessage(clients, run);
      await expect.poll(() => sequences.length, { interval: 1 }).toBe(3 + 3 * round);
      proxy.breakDown();
      for (let count = 0; count < 2; count += 1) await recordMessage(clients, run);
      await expect.poll(() => retries.length, { interval: 1 }).toBeGreaterThan(3 * round);
      proxy.mend();
      await expect.poll(() => sequences.length, { interval: 1 }).toBe(5 + 3 * round);
    }
    stop.abort();
    await heard;
    expect(sequences).toEqual(Array.from({ length: 11 }, (_, index) => BigInt(index + 1)));
  });
});
