import { Code } from "@connectrpc/connect";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import type { WatchAsksResponse } from "../../gen/toolmark/v1/approval_service_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { createMemoryStore, type MemoryStoreOptions } from "../../src/store/memory/memory-store.js";
import {
  answer,
  answerTo,
  askAbout,
  askAboutEach,
  AskWatcher,
  openAsk,
  withdraw,
} from "../support/asking.js";
import {
  beginRun,
  freshRequestId,
  given,
  newCall,
  openRun,
  type OpenRun,
} from "../support/conversation.js";
import { refused, type Refused } from "../support/refused.js";
import {
  startTestService,
  WIRES,
  type Clients,
  type TestService,
  type TestServiceOptions,
} from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { CALLER_HEADER, startWatchedService } from "../support/watched-service.js";
import { principal } from "./cases-asks-fixture.js";

const { OPEN, ANSWERED, WITHDRAWN, SUPERSEDED } = AskState;

const principals = {
  ann: principal("ann", { approver: "tenant" }),
  harness: principal("harness", { engine: "tenant" }),
  reader: principal("auditor", { reader: "tenant" }),
  stranger: principal("stranger", { approver: "own" }),
  maker: principal("maker", { engine: "own" }),
};

let folder: StoreFolder;
let service: TestService;
let clients: Clients;
let run: OpenRun;

async function start(options: TestServiceOptions = {}): Promise<void> {
  service = await startWatchedService({ store: folder.store, principals, ...options });
  clients = service.clients();
}

beforeEach(async () => {
  folder = await makeStoreFolder();
  await start();
  run = await openRun(clients);
});

afterEach(async () => {
  await service.stop();
  await folder.remove();
});

/** What a message says of an ask; undefined if it has only a cursor. */
function saidBy({ ask: shown }: WatchAsksResponse): string | undefined {
  return shown?.ask === undefined ? undefined : said(shown.ask, shown.ask.state);
}

function said({ askId }: Ask, state: AskState): string {
  return `${askId} ${AskState[state]}`;
}

async function nextOf(watcher: AskWatcher, count: number): Promise<(string | undefined)[]> {
  const all: (string | undefined)[] = [];
  while (all.length < count) all.push(saidBy(await watcher.next()));
  return all;
}

/** A run of a session that somebody owns. */
async function runOf(ownerSubject: string): Promise<OpenRun> {
  const creation = { requestId: freshRequestId(), kind: SessionKind.MAIN, ownerSubject };
  const { session } = await clients.sessions.createSession(creation);
  return beginRun(clients, given(session, "session").sessionId);
}

function threeCalls() {
  return Array.from({ length: 3 }, () => newCall());
}

describe.each(WIRES)("a watch over %s", (wire) => {
  test("gives the open asks, one message without, and then each change in order", async () => {
    const [first, second, third] = (await askAboutEach(clients, run, threeCalls())) as [
      Ask,
      Ask,
      Ask,
    ];
    const other = await askAbout(clients, await openRun(clients));
    await answer(clients, second);
    const watcher = new AskWatcher(service.clients(wire), {});
    expect(await nextOf(watcher, 4)).toEqual([
      said(first, OPEN),
      said(third, OPEN),
      said(other, OPEN),
      undefined,
    ]);
    const newest = await askAbout(clients, run);
    await answer(clients, first);
    await withdraw(clients, run, third.askId);
    const newer = await openAsk(clients, run, newest.toolCallId);
    await answer(clients, other);
    const changes = [said(newest, OPEN), said(first, ANSWERED), said(third, WITHDRAWN)];
    const rest = [said(newest, SUPERSEDED), said(newer, OPEN), said(other, ANSWERED)];
    const seen = await untilSaid(watcher, said(other, ANSWERED));
    // Whoever is not quick enough gets an ask that changed twice once, as it is.
    const all = [...changes, ...rest];
    expect([all, all.slice(1)]).toContainEqual(seen);
    watcher.stop();
  });

  test("of nothing begins with the message without an ask, and is of its session only", async () => {
    const other = await openRun(clients);
    await askAbout(clients, other);
    const watcher = new AskWatcher(service.clients(wire), { sessionId: run.sessionId });
    expect(await nextOf(watcher, 1)).toEqual([undefined]);
    await askAbout(clients, other);
    const ask = await askAbout(clients, run);
    expect(await nextOf(watcher, 1)).toEqual([said(ask, OPEN)]);
    watcher.stop();
  });

  test("shows tokens that answer, to those who may, while the ask is open", async () => {
    const by = service.clients(wire);
    const as = (name: string) => new AskWatcher(by, {}, { [CALLER_HEADER]: name });
    const watchers = { ann: as("ann"), harness: as("harness"), reader: as("reader") };
    const before = await askAbout(clients, run);
    for (const watcher of Object.values(watchers)) {
      // Whether it is open at the start or opens after it.
      while (saidBy(await watcher.next()) !== said(before, OPEN));
    }
    const ask = await askAbout(clients, run);
    const shown = await watchers.ann.nextAsk();
    expect(shown.ask.askId).toBe(ask.askId);
    expect(shown.answerToken).not.toBe("");
    expect((await watchers.harness.nextAsk()).answerToken).toBe("");
    expect((await watchers.reader.nextAsk()).answerToken).toBe("");
    await clients.approvals.answerAsk(answerTo(shown));
    for (const watcher of Object.values(watchers)) {
      expect(await watcher.nextAsk()).toMatchObject({ ask: { state: ANSWERED }, answerToken: "" });
      watcher.stop();
    }
  });

  test("gives owners and makers of sessions what they may see, from the start and later", async () => {
    const by = service.clients(wire);
    await askAbout(clients, run);
    const owned = await runOf("stranger");
    const headers = { [CALLER_HEADER]: "maker" };
    const creation = { requestId: freshRequestId(), kind: SessionKind.MAIN };
    const { session } = await clients.sessions.createSession(creation, { headers });
    const made = await beginRun(clients, given(session, "session").sessionId);
    for (const [name, own] of [
      ["stranger", owned],
      ["maker", made],
    ] as const) {
      const first = await askAbout(clients, own);
      const watcher = new AskWatcher(by, {}, { [CALLER_HEADER]: name });
      expect(await nextOf(watcher, 2)).toEqual([said(first, OPEN), undefined]);
      await askAbout(clients, run);
      await answer(clients, first);
      expect(await nextOf(watcher, 1)).toEqual([said(first, ANSWERED)]);
      watcher.stop();
    }
  });

  test("is refused for a session that its caller may not see", async () => {
    const headers = { [CALLER_HEADER]: "stranger" };
    const by = service.clients(wire);
    for (const sessionId of [run.sessionId, "ses_none"]) {
      const foreign = new AskWatcher(by, { sessionId }, headers);
      const refusal = { code: Code.NotFound, reason: "SESSION_NOT_FOUND" };
      expect(await refused(foreign.next())).toMatchObject(refusal);
    }
  });

  test("sends a cursor of use whenever it was silent for a while", async () => {
    await service.stop();
    await start({ askHeartbeatMs: 20 });
    const [first, second, third] = (await askAboutEach(clients, run, threeCalls())) as [
      Ask,
      Ask,
      Ask,
    ];
    const watcher = new AskWatcher(service.clients(wire), {});
    await watcher.openOnes();
    expect(await nextOf(watcher, 3)).toEqual([undefined, undefined, undefined]);
    await answer(clients, first);
    expect((await watcher.nextAsk()).ask.askId).toBe(first.askId);
    expect(await nextOf(watcher, 1)).toEqual([undefined]);
    const { cursor } = watcher;
    watcher.stop();
    await answer(clients, second);
    const resumed = new AskWatcher(service.clients(wire), { cursor });
    expect((await resumed.nextAsk()).ask.askId).toBe(second.askId);
    expect(await nextOf(resumed, 1)).toEqual([undefined]);
    await answer(clients, third);
    expect((await resumed.nextAsk()).ask.askId).toBe(third.askId);
    resumed.stop();
  });

  test("ends with DRAINING when the server shuts down, and its last cursor goes on", async () => {
    const ask = await askAbout(clients, run);
    const idle = new AskWatcher(service.clients(wire), {});
    await idle.openOnes();
    const end = refused(idle.next());
    await service.drain();
    expect(await end).toMatchObject({ code: Code.Unavailable, reason: "DRAINING" });
    await service.stop();
    await start();
    await answer(clients, ask);
    const resumed = new AskWatcher(service.clients(wire), { cursor: idle.cursor });
    expect(await nextOf(resumed, 1)).toEqual([said(ask, ANSWERED)]);
    resumed.stop();
  });
});

async function untilSaid(watcher: AskWatcher, last: string): Promise<(string | undefined)[]> {
  const seen: (string | undefined)[] = [];
  while (seen.at(-1) !== last) seen.push(saidBy(await watcher.next()));
  return seen;
}

/** A message as it was received. */
interface Frame {
  readonly cursor: string;
  readonly said: string | undefined;
}

async function framesUntil(watcher: AskWatcher, last: string): Promise<Frame[]> {
  const frames: Frame[] = [];
  while (frames.at(-1)?.said !== last) {
    const message = await watcher.next();
    frames.push({ cursor: message.cursor, said: saidBy(message) });
  }
  return frames;
}

/** Watches a history of which some happens while the open asks are given. Every message, up to a last ask. */
async function watched(by: Clients): Promise<{ readonly frames: Frame[]; readonly last: string }> {
  const other = await openRun(clients);
  const asks = [
    ...(await askAboutEach(clients, run, threeCalls())),
    ...(await askAboutEach(clients, other, threeCalls())),
  ] as [Ask, Ask, Ask, Ask, Ask, Ask];
  const watcher = new AskWatcher(by, {});
  const frames = await framesUntil(watcher, said(asks[0], OPEN));
  const tell = async (ask: Ask, state: AskState): Promise<void> => {
    frames.push(...(await framesUntil(watcher, said(ask, state))));
  };
  await answer(clients, asks[1]);
  await withdraw(clients, other, asks[4].askId);
  const opened = await askAbout(clients, run);
  await tell(opened, OPEN);
  await answer(clients, opened);
  await tell(opened, ANSWERED);
  const newer = await openAsk(clients, run, asks[0].toolCallId);
  await tell(newer, OPEN);
  await answer(clients, asks[5]);
  await tell(asks[5], ANSWERED);
  const last = await askAbout(clients, other);
  await tell(last, OPEN);
  watcher.stop();
  return { frames, last: said(last, OPEN) };
}

/** The last that was said of each ask. */
function lastSaid(frames: readonly Frame[]): Record<string, string> {
  const texts = frames.flatMap(({ said: text }) => (text === undefined ? [] : [text]));
  return Object.fromEntries(texts.map((text) => [text.split(" ")[0] ?? "", text]));
}

/** A watch with any cursor that was given goes on after its message: nothing is missed, nothing doubled. */
async function expectEveryCursorGoesOn(
  by: Clients,
  frames: readonly Frame[],
  last: string,
): Promise<void> {
  const cursors = frames.slice(0, -1).map(({ cursor }) => cursor);
  expect(new Set(cursors).size).toBe(cursors.length);
  const isBoundary = ({ said: text }: Frame): boolean => text === undefined;
  for (const [at, cursor] of cursors.entries()) {
    const watcher = new AskWatcher(by, { cursor });
    const resumed = await framesUntil(watcher, last);
    watcher.stop();
    const all = [...frames.slice(0, at + 1), ...resumed];
    const saidInAll = all.map(({ said: text }) => text);
    expect(new Set(saidInAll).size).toBe(saidInAll.length);
    expect(all.filter(isBoundary).length).toBe(1);
    expect(lastSaid(all)).toEqual(lastSaid(frames));
    const stillTrue = new Set([undefined, ...Object.values(lastSaid(frames))]);
    const expected = frames.slice(at + 1).filter(({ said: text }) => stillTrue.has(text));
    expect(resumed).toEqual(expected);
  }
}

test.each(WIRES)("every cursor given over %s goes on after its message", async (wire) => {
  const { frames, last } = await watched(service.clients(wire));
  await expectEveryCursorGoesOn(service.clients(wire), frames, last);
  await service.stop();
  await start();
  await expectEveryCursorGoesOn(service.clients(wire), frames, last);
});

describe("a cursor", () => {
  async function cursorOf(by = clients): Promise<string> {
    await askAbout(clients, run);
    const watcher = new AskWatcher(by, {});
    await watcher.openOnes();
    watcher.stop();
    return watcher.cursor;
  }

  test("that is damaged is malformed", async () => {
    const cursor = await cursorOf();
    const middle = Math.floor(cursor.length / 2);
    const swapped = cursor[middle] === "A" ? "B" : "A";
    const damaged = [
      cursor.slice(1),
      cursor.slice(0, -1),
      `${cursor}AA`,
      cursor.slice(0, middle) + swapped + cursor.slice(middle + 1),
      "0",
      "not a cursor",
    ];
    for (const wire of WIRES) {
      for (const text of damaged) {
        const watcher = new AskWatcher(service.clients(wire), { cursor: text });
        const refusal = { code: Code.InvalidArgument, reason: "CURSOR_MALFORMED" };
        expect(await refused(watcher.next())).toMatchObject(refusal);
      }
    }
  });

  test("of another scope is malformed", async () => {
    const cursor = await cursorOf();
    const { sessionId } = run;
    const headers = { [CALLER_HEADER]: "stranger" };
    for (const wire of WIRES) {
      const by = service.clients(wire);
      for (const watcher of [
        new AskWatcher(by, { cursor, sessionId }),
        new AskWatcher(by, { cursor, includeDescendants: true }),
        new AskWatcher(by, { cursor }, headers),
      ]) {
        expect(await refused(watcher.next())).toMatchObject({ reason: "CURSOR_MALFORMED" });
      }
      // One who sees the same may go on with it.
      const colleague = new AskWatcher(by, { cursor }, { [CALLER_HEADER]: "reader" });
      expect(saidBy(await colleague.next())).toBeUndefined();
      colleague.stop();
    }
  });

  /** A cursor from a service with one store, as a service with another takes it. */
  async function takenOver(
    from: MemoryStoreOptions,
    to: MemoryStoreOptions,
  ): Promise<Pick<Refused, "code" | "reason">[]> {
    const first = await startTestService({ wrapStore: () => createMemoryStore(from) });
    await openRun(first.clients());
    const watcher = new AskWatcher(first.clients(), {});
    const { cursor } = await watcher.next();
    await first.stop();
    const second = await startTestService({ wrapStore: () => createMemoryStore(to) });
    const refusals: Pick<Refused, "code" | "reason">[] = [];
    for (const wire of WIRES) {
      const { code, reason } = await refused(
        new AskWatcher(second.clients(wire), { cursor }).next(),
      );
      refusals.push({ code, reason });
    }
    await second.stop();
    return refusals;
  }

  const storeId = "store";
  const EXPIRED = { code: Code.FailedPrecondition, reason: "CURSOR_EXPIRED" };
  const MALFORMED = { code: Code.InvalidArgument, reason: "CURSOR_MALFORMED" };

  test.each([
    ["another generation", { storeId, generation: 1n }, { storeId, generation: 2n }, EXPIRED],
    ["an older generation", { storeId, generation: 2n }, { storeId, generation: 1n }, EXPIRED],
    ["another store", { storeId }, { storeId: "other" }, MALFORMED],
    ["a place that the log has not come to", { storeId }, { storeId }, MALFORMED],
  ])("of %s is refused", async (_, from, to, refusal) => {
    expect(await takenOver(from, to)).toEqual(WIRES.map(() => refusal));
  });

  test("that goes on after the open asks tells when it has caught up, once", async () => {
    const cursor = await cursorOf();
    const ask = await askAbout(clients, run);
    for (const wire of WIRES) {
      const resumed = new AskWatcher(service.clients(wire), { cursor });
      expect(await nextOf(resumed, 2)).toEqual([said(ask, OPEN), undefined]);
      resumed.stop();
      const again = new AskWatcher(service.clients(wire), { cursor: resumed.cursor });
      expect(await nextOf(again, 1)).toEqual([undefined]);
      again.stop();
    }
  });
});
