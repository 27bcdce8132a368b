import { setImmediate as turn } from "node:timers/promises";
import { timestampFromMs, timestampMs } from "@bufbuild/protobuf/wkt";
import BetterSqlite from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { ActorKind } from "../../gen/toolmark/v1/origin_pb.js";
import { ReceiptPath, SpendState, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { Ran, ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import type { CommandWrite, CommitResult, Store } from "../../src/ledger/store-port.js";
import { createMemoryDisk } from "../../src/store/memory/memory-disk.js";
import { createMemoryStore } from "../../src/store/memory/memory-store.js";
import {
  allReceipts,
  answerTo,
  askAbout,
  askAboutEach,
  listedAsks,
  openAsk,
  park,
  readAuthorization,
  showAsk,
} from "../support/asking.js";
import {
  acceptCall,
  allEvents,
  given,
  newCall,
  of,
  openRun,
  publishHook,
  readCall,
  type OpenRun,
} from "../support/conversation.js";
import { FaultyStore } from "../support/faulty-store.js";
import { refused } from "../support/refused.js";
import { startTestService, type TestService, type TestServiceOptions } from "../support/service.js";
import { makeStoreFolder } from "../support/store-folder.js";
import { until } from "./listeners-fixture.js";
import { withoutTriggers } from "../support/without-triggers.js";

const START_MS = 1_800_000_000_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** So seldom that no test sees it. */
const NEVER_MS = 1_000_000_000;

const EXPIRIES = new Set(["ASK_EXPIRED", "AUTHORIZATION_SETTLED"]);

/** A clock and one that never jumps; both stand until a test moves them. */
class Clocks {
  #wallMs = START_MS;
  #steadyMs = 0;

  readonly nowMs = (): number => this.#wallMs;
  readonly monotonicMs = (): number => this.#steadyMs;

  pass(timeMs: number): void {
    this.#steadyMs += timeMs;
    this.#wallMs += timeMs;
  }

  jump(byMs: number): void {
    this.#wallMs += byMs;
  }
}

/** The real store, with what the service was seen to do with it. */
class SeenStore extends FaultyStore {
  /** Asks and authorizations whose expiry was committed. */
  expired = 0;
  /** How often it was asked for what is due, and how often for what is due before a jump of the clock. */
  looks = 0;
  looksBeforeJumps = 0;

  constructor(inner: Store) {
    super(inner);
    const { listDue } = this;
    this.listDue = async (query) => {
      const due = await listDue(query);
      this.looks += 1;
      if (query.untilPosition !== undefined) this.looksBeforeJumps += 1;
      return due;
    };
  }

  override async commit(writes: readonly CommandWrite[]): Promise<CommitResult> {
    const result = await super.commit(writes);
    if (result.outcome === "committed") {
      const events = writes.flatMap((write) => write.events);
      this.expired += events.filter(({ row }) => EXPIRIES.has(row.kind)).length;
    }
    return result;
  }

  /** Resolves when whatever was due is expired, if something waits on: otherwise nobody looks again. */
  async untilLooked(): Promise<void> {
    const before = this.looks;
    await until(() => this.looks >= before + 2);
  }
}

/** Where a service keeps its records from one life to the next. */
interface Home {
  readonly options: TestServiceOptions;
  open(store: Store): Store;
  /** Makes it impossible to know what the session's next revision would be. */
  damage(sessionId: string): void;
  remove(): Promise<void>;
}

async function memoryHome(): Promise<Home> {
  const disk = createMemoryDisk();
  return {
    options: {},
    open: () => createMemoryStore({ disk }),
    damage: (sessionId) => {
      const session = given(disk.sessions.get("default")?.get(sessionId), "session");
      session.snapshots = [];
      const row = given(session.events[1], "event");
      session.events[1] = { ...row, payload: new Uint8Array(given(row.payload, "payload").length) };
    },
    remove: async () => undefined,
  };
}

async function sqliteHome(): Promise<Home> {
  const { path, store, remove } = await makeStoreFolder();
  return {
    options: { store },
    open: (inner) => inner,
    damage: (sessionId) => {
      const database = new BetterSqlite(path);
      const here = "session = (SELECT session FROM sessions WHERE session_id = ?)";
      withoutTriggers(database, () => {
        database.prepare(`DELETE FROM snapshots WHERE ${here}`).run(sessionId);
        const zeroed = "UPDATE events SET payload = zeroblob(length(payload))";
        database.prepare(`${zeroed} WHERE sequence = 2 AND ${here}`).run(sessionId);
      });
      database.close();
    },
    remove,
  };
}

const HOMES: readonly (readonly [string, () => Promise<Home>])[] = [
  ["memory", memoryHome],
  ["SQLite", sqliteHome],
];

let home: Home;
let clocks: Clocks;
let store: SeenStore;
let service: TestService;

async function start(options: TestServiceOptions = {}): Promise<void> {
  const { nowMs, monotonicMs } = clocks;
  service = await startTestService({
    ...{ nowMs, monotonicMs },
    ...home.options,
    ...options,
    wrapStore: (inner) => {
      store = new SeenStore(home.open(inner));
      return store;
    },
  });
}

function expiringIn(timeMs: number) {
  return { expireTime: timestampFromMs(clocks.nowMs() + timeMs) };
}

function sessionOf({ origin }: Ask): string {
  return given(origin, "origin").sessionId;
}

async function stateOf(ask: Ask): Promise<AskState> {
  return (await showAsk(service.clients(), sessionOf(ask), ask.askId)).ask.state;
}

const EXPIRED = {
  ...{ verdict: Verdict.EXPIRED, path: ReceiptPath.TIMEOUT, reason: "" },
  ...{ actor: { kind: ActorKind.SYSTEM, subject: "" }, spendState: SpendState.UNSPECIFIED },
};

/** The log and the records say that the ask expired, once, and that the call never ran. */
async function expectExpired(run: OpenRun, ask: Ask, before: number): Promise<void> {
  const clients = service.clients();
  const receipts = await allReceipts(clients, run.sessionId);
  const { askId, toolCallId } = ask;
  expect(receipts).toMatchObject([{ ...EXPIRED, askId, toolCallId }]);
  const [{ receiptId, answerTime }] = receipts as [(typeof receipts)[0]];
  expect(timestampMs(given(answerTime, "time"))).toBe(clocks.nowMs());
  expect(await showAsk(clients, run.sessionId, askId)).toMatchObject({
    answerToken: "",
    ask: { state: AskState.EXPIRED, receiptId },
  });
  expect(await readCall(clients, run.sessionId, toolCallId)).toMatchObject({
    state: ToolCallState.EXPIRED,
    ran: Ran.NO,
  });
  const written = (await allEvents(clients, run.sessionId)).slice(before);
  expect(written.map(({ kind }) => kind)).toEqual([
    "RECEIPT_WRITTEN",
    "ASK_EXPIRED",
    "TOOL_CALL_ENDED",
  ]);
}

async function eventCount({ sessionId }: OpenRun): Promise<number> {
  return (await allEvents(service.clients(), sessionId)).length;
}

describe.each(HOMES)("with a store in %s", (_name, makeHome) => {
  beforeEach(async () => {
    home = await makeHome();
    clocks = new Clocks();
    await start();
  });

  afterEach(async () => {
    await service.stop();
    await home.remove();
  });

  test("an ask expires at its deadline, not before, while nobody calls", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    const ask = await askAbout(clients, run, expiringIn(HOUR_MS));
    const before = await eventCount(run);
    clocks.pass(HOUR_MS - 1);
    await store.untilLooked();
    expect(store.expired).toBe(0);
    clocks.pass(1);
    await until(() => store.expired === 1);
    await expectExpired(run, ask, before);
  });

  test("an ask without a deadline waits for ever", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    const ask = await askAbout(clients, run);
    const due = await askAbout(clients, run, expiringIn(1));
    clocks.pass(400 * DAY_MS);
    await until(() => store.expired === 1);
    expect([await stateOf(ask), await stateOf(due)]).toEqual([AskState.OPEN, AskState.EXPIRED]);
  });

  test("what fell due while the service was down expires at its start", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    const ask = await askAbout(clients, run, expiringIn(HOUR_MS));
    const later = await askAbout(clients, await openRun(clients), expiringIn(3 * HOUR_MS));
    const before = await eventCount(run);
    await service.stop();
    clocks.pass(2 * HOUR_MS);
    await start();
    await until(() => store.expired === 1);
    await expectExpired(run, ask, before);
    await store.untilLooked();
    expect(await stateOf(later)).toBe(AskState.OPEN);
    clocks.pass(HOUR_MS);
    await until(() => store.expired === 2);
  });

  test("a clock that jumps forward expires by the new time", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    const ask = await askAbout(clients, run, expiringIn(300 * DAY_MS));
    const later = await askAbout(clients, await openRun(clients), expiringIn(500 * DAY_MS));
    const before = await eventCount(run);
    clocks.jump(400 * DAY_MS);
    await until(() => store.expired === 1);
    await expectExpired(run, ask, before);
    expect(await stateOf(later)).toBe(AskState.OPEN);
  });

  test("a clock that jumps back leaves open asks the time that they had", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    const ask = await askAbout(clients, run, expiringIn(HOUR_MS));
    const before = await eventCount(run);
    clocks.pass(HOUR_MS / 2);
    await store.untilLooked();
    clocks.jump(-400 * DAY_MS);
    await until(() => store.looksBeforeJumps > 0);
    const after = await askAbout(clients, await openRun(clients), expiringIn(HOUR_MS));
    clocks.pass(HOUR_MS / 2 - 1);
    await store.untilLooked();
    expect(store.expired).toBe(0);
    clocks.pass(1);
    await until(() => store.expired === 1);
    await expectExpired(run, ask, before);
    expect(await stateOf(after)).toBe(AskState.OPEN);
    clocks.pass(HOUR_MS / 2);
    await until(() => store.expired === 2);
    expect(await stateOf(after)).toBe(AskState.EXPIRED);
  });

  test("two hundred asks of fifty sessions that fall due at once get one receipt each", async () => {
    const clients = service.clients();
    const runs = await Promise.all(Array.from({ length: 50 }, () => openRun(clients)));
    const calls = Array.from({ length: 4 }, () => newCall());
    const expiring = expiringIn(HOUR_MS);
    const asks = await Promise.all(runs.map((run) => askAboutEach(clients, run, calls, expiring)));
    clocks.pass(HOUR_MS);
    await until(() => store.expired === 200);
    for (const [index, { sessionId }] of runs.entries()) {
      const receipts = await allReceipts(clients, sessionId);
      const ids = given(asks[index], "asks").map(({ askId }) => askId);
      expect(receipts.map(({ askId }) => askId).sort()).toEqual(ids.sort());
      for (const receipt of receipts) expect(receipt).toMatchObject(EXPIRED);
    }
    expect(store.expired).toBe(200);
    expect(await listedAsks(clients, {})).toEqual([]);
  });

  test.each(["before", "after"] as const)(
    "a commit that fails %s anything is stored is tried again, and makes one receipt",
    async (moment) => {
      const clients = service.clients();
      const run = await openRun(clients);
      const ask = await askAbout(clients, run, expiringIn(HOUR_MS));
      const other = await askAbout(clients, await openRun(clients), expiringIn(HOUR_MS));
      const before = await eventCount(run);
      store.failNext = moment;
      clocks.pass(HOUR_MS);
      while ((await stateOf(ask)) === AskState.OPEN) await turn();
      while ((await stateOf(other)) === AskState.OPEN) await turn();
      expect(service.logged().match(/a commit failed|an invariant broke/g)).toEqual([
        "a commit failed",
      ]);
      await expectExpired(run, ask, before);
      expect(await allReceipts(clients, sessionOf(other))).toMatchObject([EXPIRED]);
    },
  );

  test("a deadline that is set by a commit of unknown outcome is kept", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    const { toolCallId } = await acceptCall(clients, run);
    // It found that nothing waits, and sleeps until it is told of a deadline.
    await until(() => store.looks > 0);
    store.failNext = "after";
    const opening = openAsk(clients, run, toolCallId, expiringIn(HOUR_MS));
    expect(await refused(opening)).toMatchObject({ reason: "COMMIT_UNCERTAIN" });
    clocks.pass(HOUR_MS);
    await until(() => store.expired === 1);
  });

  test("a session that can only be read does not keep others from expiring", async () => {
    const clients = service.clients();
    const broken = await openRun(clients);
    const first = await askAbout(clients, broken, expiringIn(HOUR_MS));
    const sound = await openRun(clients);
    const ask = await askAbout(clients, sound, expiringIn(HOUR_MS));
    const before = await eventCount(sound);
    await service.stop();
    home.damage(broken.sessionId);
    await start();
    const hook = publishHook(service.clients(), broken);
    expect(await refused(hook)).toMatchObject({ reason: "HIGH_WATER_UNAVAILABLE" });
    clocks.pass(HOUR_MS);
    await until(() => store.expired === 1);
    await expectExpired(sound, ask, before);
    await store.untilLooked();
    expect(await stateOf(first)).toBe(AskState.OPEN);
    const later = await askAbout(service.clients(), sound, expiringIn(HOUR_MS));
    clocks.pass(HOUR_MS);
    await until(() => store.expired === 2);
    expect(await stateOf(later)).toBe(AskState.EXPIRED);
  });

  test("an authorization expires with its call, and nothing has run", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    const call = await acceptCall(clients, run);
    const { authorizationId } = await park(clients, run, call.toolCallId, expiringIn(HOUR_MS));
    clocks.pass(HOUR_MS);
    await until(() => store.expired === 1);
    const settled = await readAuthorization(clients, run.sessionId, authorizationId);
    expect(settled.state).toBe(AuthorizationState.EXPIRED);
    const ended = await readCall(clients, run.sessionId, call.toolCallId);
    expect(ended.state).toBe(ToolCallState.EXPIRED);
  });
});

describe.each(HOMES)("with a store in %s, before the clock is looked at", (_name, makeHome) => {
  beforeEach(async () => {
    home = await makeHome();
    clocks = new Clocks();
    await start({ expiryCheckMs: NEVER_MS });
  });

  afterEach(async () => {
    await service.stop();
    await home.remove();
  });

  test("an answer at the very deadline is refused with the receipt of the expiry", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    const ask = await askAbout(clients, run, expiringIn(HOUR_MS));
    const answer = answerTo(await showAsk(clients, run.sessionId, ask.askId));
    const before = await eventCount(run);
    clocks.pass(HOUR_MS);
    const refusal = await refused(clients.approvals.answerAsk(answer));
    expect(refusal).toMatchObject({ reason: "ASK_EXPIRED", metadata: { ask_id: ask.askId } });
    await expectExpired(run, ask, before);
    const [receipt] = await allReceipts(clients, run.sessionId);
    expect(refusal.metadata["receipt_id"]).toBe(receipt?.receiptId);
    expect(await refused(clients.approvals.answerAsk(answer))).toEqual(refusal);
    expect(await eventCount(run)).toBe(before + 3);
  });

  test("an answer a millisecond before the deadline holds", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    const ask = await askAbout(clients, run, expiringIn(HOUR_MS));
    const answer = answerTo(await showAsk(clients, run.sessionId, ask.askId));
    clocks.pass(HOUR_MS - 1);
    const { receipt } = await clients.approvals.answerAsk(answer);
    expect(receipt).toMatchObject({ verdict: Verdict.ALLOW_ONCE, path: ReceiptPath.HUMAN });
    clocks.pass(HOUR_MS);
    expect((await clients.approvals.answerAsk(answer)).receipt).toEqual(receipt);
    expect(await stateOf(ask)).toBe(AskState.ANSWERED);
  });

  test("a command about another call records the expiry of what is due as well", async () => {
    const clients = service.clients();
    const run = await openRun(clients);
    const ask = await askAbout(clients, run, expiringIn(HOUR_MS));
    const other = await acceptCall(clients, run);
    clocks.pass(HOUR_MS);
    await clients.calls.amendToolCall({
      ...of(run),
      command: { toolCallId: other.toolCallId, effective: { data: Buffer.from("{}") } },
    });
    expect(await stateOf(ask)).toBe(AskState.EXPIRED);
    expect(await allReceipts(clients, run.sessionId)).toMatchObject([EXPIRED]);
  });
});

test("an ask expires by the system's own clocks too", async () => {
  home = await memoryHome();
  store = new SeenStore(createMemoryStore());
  const wrapStore = (): Store => store;
  service = await startTestService({ wrapStore });
  const clients = service.clients();
  const expireTime = timestampFromMs(Date.now() + 500);
  const run = await openRun(clients);
  const ask = await askAbout(clients, run, { expireTime });
  await until(() => store.expired === 1);
  expect(Date.now()).toBeGreaterThanOrEqual(timestampMs(expireTime));
  expect(await stateOf(ask)).toBe(AskState.EXPIRED);
  await service.stop();
});
