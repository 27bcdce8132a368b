import { setTimeout as delay } from "node:timers/promises";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { AskCursorSchema } from "../../gen/toolmark/storage/v1/storage_pb.js";
import type { WatchAsksResponse } from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import type { Caller } from "../../src/domain/principal.js";
import { isRefusal, type Refusal } from "../../src/domain/refusal.js";
import type { Viewer } from "../../src/ledger/ask-reader.js";
import { AskWatch, type AskWatchRequest } from "../../src/watch/ask-watch.js";
import { APPROVER, AskingLedger, type AskingRun } from "../support/asking-ledger.js";
import { committedWrite, OPEN_ASK } from "../support/committed-write.js";
import { TENANT_CALLER } from "../support/outside-world.js";

type Message = WatchAsksResponse | Refusal;

let asking: AskingLedger;
let run: AskingRun;
let watches: Watched[];

beforeEach(async () => {
  asking = new AskingLedger();
  run = await asking.run();
  watches = [];
});

afterEach(async () => {
  for (const watched of watches) await watched.leave();
  expect(asking.options.commits.subscribers).toBe(0);
});

/** A watch that is read message by message. */
class Watched {
  readonly gone = new AbortController();
  readonly draining = new AbortController();
  readonly #messages: AsyncGenerator<Message, void>;

  constructor(request: Partial<AskWatchRequest> = {}, viewer = APPROVER, heartbeatMs = 60_000) {
    const { commits } = asking.options;
    const monotonicMs = (): number => performance.now();
    const outside = { commits, monotonicMs, committing: () => undefined, heartbeatMs };
    const watch = new AskWatch({ asks: asking.asks, store: asking.store, ...outside });
    const whole = { sessionId: "", includeDescendants: false, cursor: "", ...request };
    const ends = { signal: this.gone.signal, draining: this.draining.signal };
    this.#messages = watch.watch(viewer, whole, ends);
    watches.push(this);
  }

  async next(): Promise<WatchAsksResponse> {
    const { value, done } = await this.#messages.next();
    if (done === true || isRefusal(value)) throw new Error(`ended: ${JSON.stringify(value)}`);
    return value;
  }

  /** The next message's ask and state; undefined for one without an ask. */
  async nextAsk(): Promise<readonly [string, AskState] | undefined> {
    const { ask } = await this.next();
    return ask?.ask === undefined ? undefined : [ask.ask.askId, ask.ask.state];
  }

  /** What ended the watch: a refusal, or nothing. */
  async end(): Promise<ErrorReason | undefined> {
    const { value, done } = await this.#messages.next();
    if (done === true) return undefined;
    if (!isRefusal(value)) throw new Error("not ended");
    expect((await this.#messages.next()).done).toBe(true);
    return value.reason;
  }

  async leave(): Promise<void> {
    this.gone.abort();
    await this.#messages.return(undefined);
  }
}

async function openAsks(count: number, of = run): Promise<Ask[]> {
  const asks: Ask[] = [];
  for (let index = 0; index < count; index += 1) asks.push(await asking.ask(of));
  return asks;
}

const { OPEN, ANSWERED } = AskState;

describe("a watch without a cursor", () => {
  test("of nothing begins with a message that has a cursor only", async () => {
    const empty = new Watched({ sessionId: run.sessionId });
    const { ask, cursor } = await empty.next();
    expect(ask).toBeUndefined();
    expect(cursor).not.toBe("");
    const opened = await asking.ask(run);
    expect(await empty.nextAsk()).toEqual([opened.askId, OPEN]);
  });

  test("gives open asks, the boundary, then what opens or settles", async () => {
    const [first, second] = (await openAsks(2)) as [Ask, Ask];
    const settled = await asking.ask(run);
    await asking.answer(run, settled);
    const watched = new Watched();
    const { ask } = await watched.next();
    expect(ask?.ask?.askId).toBe(first.askId);
    expect(ask?.answerToken).not.toBe("");
    expect(ask?.ask?.presented?.data).toEqual(new Uint8Array(2));
    expect(await watched.nextAsk()).toEqual([second.askId, OPEN]);
    expect(await watched.nextAsk()).toBeUndefined();
    await asking.answer(run, first);
    const change = await watched.next();
    expect(change.ask?.ask).toMatchObject({ askId: first.askId, state: ANSWERED });
    expect(change.ask?.answerToken).toBe("");
    const third = await asking.ask(run);
    expect(await watched.nextAsk()).toEqual([third.askId, OPEN]);
  });

  test("gives an ask that changed several times while nobody read once, as it is", async () => {
    const watched = new Watched();
    await watched.next();
    const [first, second] = (await openAsks(2)) as [Ask, Ask];
    await asking.answer(run, first);
    expect(await watched.nextAsk()).toEqual([second.askId, OPEN]);
    expect(await watched.nextAsk()).toEqual([first.askId, ANSWERED]);
  });

  test("misses and doubles none, whatever settles while the open asks are given", async () => {
    const asks = await openAsks(70);
    const watched = new Watched();
    const given: (readonly [string, AskState])[] = [];
    const settled = new Set<string>();
    const settle = async (ask: Ask | undefined): Promise<void> => {
      if (ask === undefined || settled.has(ask.askId)) return;
      settled.add(ask.askId);
      await asking.answer(run, ask);
    };
    for (;;) {
      const message = await watched.nextAsk();
      if (message === undefined) break;
      given.push(message);
      if (given.length % 3 === 0) await settle(asks[given.length - 3]);
      if (given.length % 5 === 0) await settle(asks[given.length + 40]);
    }
    const inListing = given.map(([askId]) => askId);
    expect(new Set(inListing).size).toBe(inListing.length);
    expect(given.every(([, state]) => state === OPEN)).toBe(true);

    const changes = new Set<string>();
    while (changes.size < settled.size) {
      const change = await watched.nextAsk();
      expect(change?.[1]).toBe(ANSWERED);
      expect(changes.has(change?.[0] ?? "")).toBe(false);
      changes.add(change?.[0] ?? "");
    }
    expect(changes).toEqual(settled);
    const known = new Set([...inListing, ...changes]);
    expect(asks.filter(({ askId }) => !known.has(askId))).toEqual([]);
    const last = await asking.ask(run);
    expect(await watched.nextAsk()).toEqual([last.askId, OPEN]);
  });

  test("does not list an ask that opens after its start, but gives it as a change", async () => {
    const [first, second] = (await openAsks(2)) as [Ask, Ask];
    const watched = new Watched();
    expect(await watched.nextAsk()).toEqual([first.askId, OPEN]);
    const later = await asking.ask(run);
    expect(await watched.nextAsk()).toEqual([second.askId, OPEN]);
    expect(await watched.nextAsk()).toBeUndefined();
    expect(await watched.nextAsk()).toEqual([later.askId, OPEN]);
  });

  test("misses no commit between any two of its reads", async () => {
    const read = asking.store.listAskChanges;
    const opened: string[] = [];
    asking.store.listAskChanges = async (query) => {
      const rows = await read(query);
      if (opened.length < 5) opened.push((await asking.ask(run)).askId);
      return rows;
    };
    const watched = new Watched();
    await watched.next();
    const given: string[] = [];
    while (given.length < 5) given.push((await watched.nextAsk())?.[0] ?? "");
    expect(given).toEqual(opened);
  });

  test("reads no further than one page while nobody takes it", async () => {
    await openAsks(70);
    let rows = 0;
    const read = asking.store.listAsks;
    asking.store.listAsks = async (query) => {
      const page = await read(query);
      rows += page.length;
      return page;
    };
    const watched = new Watched();
    await watched.next();
    expect(rows).toBeLessThanOrEqual(32);
  });
});

describe("a cursor", () => {
  async function cursorsOf(count: number, request: Partial<AskWatchRequest> = {}) {
    const watched = new Watched(request);
    const cursors: string[] = [];
    for (let index = 0; index < count; index += 1) cursors.push((await watched.next()).cursor);
    await watched.leave();
    return cursors;
  }

  test("in the middle of the open asks goes on with them", async () => {
    const [first, second, third] = (await openAsks(3)) as [Ask, Ask, Ask];
    const [cursor] = await cursorsOf(1);
    await asking.answer(run, second);
    const later = await asking.ask(run);
    const resumed = new Watched({ cursor: cursor ?? "" });
    expect(await resumed.nextAsk()).toEqual([third.askId, OPEN]);
    expect(await resumed.nextAsk()).toBeUndefined();
    expect(await resumed.nextAsk()).toEqual([second.askId, ANSWERED]);
    expect(await resumed.nextAsk()).toEqual([later.askId, OPEN]);
    expect(first.askId).not.toBe(second.askId);
  });

  test("of the last open ask and of the boundary go on after them", async () => {
    const [first] = (await openAsks(1)) as [Ask];
    const [last, boundary] = await cursorsOf(2);
    await asking.answer(run, first);
    const fromLast = new Watched({ cursor: last ?? "" });
    expect(await fromLast.nextAsk()).toBeUndefined();
    expect(await fromLast.nextAsk()).toEqual([first.askId, ANSWERED]);
    const fromBoundary = new Watched({ cursor: boundary ?? "" });
    expect(await fromBoundary.nextAsk()).toEqual([first.askId, ANSWERED]);
  });

  test("of a change goes on with the next", async () => {
    const watched = new Watched();
    await watched.next();
    const [first, second] = (await openAsks(2)) as [Ask, Ask];
    const { cursor, ask } = await watched.next();
    expect(ask?.ask?.askId).toBe(first.askId);
    const resumed = new Watched({ cursor });
    expect(await resumed.nextAsk()).toEqual([second.askId, OPEN]);
  });

  async function refusalOf(request: Partial<AskWatchRequest>, viewer?: Viewer) {
    return new Watched(request, viewer).end();
  }

  test("with nothing after it is answered at once, by a message that has a cursor only", async () => {
    const [cursor = ""] = await cursorsOf(1);
    const watched = new Watched({ cursor });
    expect(await watched.nextAsk()).toBeUndefined();
    const opened = await asking.ask(run);
    expect(await watched.nextAsk()).toEqual([opened.askId, OPEN]);
  });

  test("that is damaged in any way is malformed", async () => {
    await openAsks(2);
    const [cursor = ""] = await cursorsOf(1);
    const bytes = Buffer.from(cursor, "base64url");
    const damaged = [
      cursor.slice(0, -1),
      cursor.slice(1),
      `${cursor}A`,
      `${cursor}=`,
      ` ${cursor}`,
      Buffer.from(bytes).toString("base64"),
      Buffer.concat([bytes, Buffer.from([0x28, 0x01])]).toString("base64url"),
      Buffer.concat([bytes, bytes]).toString("base64url"),
      "%%%",
      "\ud800",
    ].filter((text) => text !== cursor);
    for (const text of damaged) {
      expect(await refusalOf({ cursor: text })).toBe(ErrorReason.CURSOR_MALFORMED);
    }
  });

  test("of another watch is malformed", async () => {
    await openAsks(2);
    const other = await asking.run();
    const [cursor = ""] = await cursorsOf(1);
    const foreign: [Partial<AskWatchRequest>, Viewer?][] = [
      [{ sessionId: other.sessionId }],
      [{ includeDescendants: true }],
      [{}, { caller: { ...TENANT_CALLER, scope: "own" }, approver: undefined }],
      [{}, { caller: { ...TENANT_CALLER, tenant: "other" }, approver: undefined }],
    ];
    for (const [request, viewer] of foreign) {
      expect(await refusalOf({ cursor, ...request }, viewer)).toBe(ErrorReason.CURSOR_MALFORMED);
    }
  });

  const changedCursor = (cursor: string, change: object): string => {
    const decoded = fromBinary(AskCursorSchema, Buffer.from(cursor, "base64url"));
    const bytes = toBinary(AskCursorSchema, Object.assign(decoded, change));
    return Buffer.from(bytes).toString("base64url");
  };

  test("of a place that the log has not come to is malformed", async () => {
    await openAsks(2);
    const [cursor = ""] = await cursorsOf(1);
    const last = await asking.store.lastPosition();
    const beyond = [
      { position: last + 1n, openUntil: 0n },
      { openUntil: last + 1n },
      { position: 2n, openUntil: 1n },
      { position: 2n ** 64n - 1n, openUntil: 0n },
    ];
    for (const change of beyond) {
      const changed = changedCursor(cursor, change);
      expect(await refusalOf({ cursor: changed })).toBe(ErrorReason.CURSOR_MALFORMED);
    }
    const within = new Watched({
      cursor: changedCursor(cursor, { position: last, openUntil: 0n }),
    });
    const later = await asking.ask(run);
    expect(await within.nextAsk()).toEqual([later.askId, OPEN]);
  });

  test.each([0n, 2n, 7n])(
    "of generation %d, when the log has another, is expired",
    async (given) => {
      await openAsks(1);
      const [cursor = ""] = await cursorsOf(1);
      const generation = 1n;
      Object.defineProperty(asking.store, "generation", { value: generation });
      const changed = changedCursor(cursor, { generation: given, position: 1_000_000n });
      expect(await refusalOf({ cursor: changed })).toBe(ErrorReason.CURSOR_EXPIRED);
    },
  );
});

describe("whose asks a watch gives", () => {
  const OWN: Caller = { tenant: "default", subject: "me", scope: "own" };

  test("is decided by its session", async () => {
    const other = await asking.run();
    const watched = new Watched({ sessionId: run.sessionId });
    await watched.next();
    await asking.ask(other);
    const mine = await asking.ask(run);
    expect(await watched.nextAsk()).toEqual([mine.askId, OPEN]);
  });

  test("is decided by its caller", async () => {
    const own = await asking.run(OWN);
    const watched = new Watched({}, { caller: OWN, approver: undefined });
    await watched.next();
    await asking.ask(run);
    const mine = await asking.ask(own);
    const { ask } = await watched.next();
    expect(ask?.ask?.askId).toBe(mine.askId);
    expect(ask?.answerToken).toBe("");
  });

  test.each([
    ["unknown", APPROVER, "ses_none"],
    ["foreign", { caller: OWN, approver: OWN }, undefined],
  ])("ends at once for a session that is %s", async (_, viewer, sessionId) => {
    const watched = new Watched({ sessionId: sessionId ?? run.sessionId }, viewer);
    expect(await watched.end()).toBe(ErrorReason.SESSION_NOT_FOUND);
  });

  test("ends with a damaged ask of its session, and shows it bare among others", async () => {
    const [damaged, sound] = (await openAsks(2)) as [Ask, Ask];
    const read = asking.store.listAsks;
    asking.store.listAsks = async (query) => {
      const rows = await read(query);
      return rows.map((row) => (row.askId === damaged.askId ? { ...row, event: undefined } : row));
    };
    const one = new Watched({ sessionId: run.sessionId });
    expect(await one.end()).toBe(ErrorReason.DATA_DAMAGED);
    const all = new Watched();
    const bare = await all.next();
    expect(bare.ask).toMatchObject({ answerToken: "", ask: { askId: damaged.askId } });
    expect(bare.ask?.ask?.createTime).toBeUndefined();
    expect(await all.nextAsk()).toEqual([sound.askId, OPEN]);
  });
});

describe("a watch that waits", () => {
  test("sends a cursor whenever it was silent for a while", async () => {
    const watched = new Watched({}, APPROVER, 20);
    await watched.next();
    const startMs = performance.now();
    const { ask, cursor } = await watched.next();
    expect(ask).toBeUndefined();
    expect(performance.now() - startMs).toBeGreaterThanOrEqual(15);
    const opened = await asking.ask(run);
    expect(await watched.nextAsk()).toEqual([opened.askId, OPEN]);
    expect(await watched.nextAsk()).toBeUndefined();
    const resumed = new Watched({ cursor });
    expect(await resumed.nextAsk()).toEqual([opened.askId, OPEN]);
  });

  test("is kept from no heartbeat by rings that bring nothing", async () => {
    const watched = new Watched({}, APPROVER, 100);
    await watched.next();
    const beat = new AbortController();
    const message = watched.next().finally(() => {
      beat.abort();
    });
    const startMs = performance.now();
    while (!beat.signal.aborted && performance.now() - startMs < 2000) {
      asking.options.commits.publish([committedWrite("default", "ses_x", [{ ask: OPEN_ASK }])]);
      await delay(1);
    }
    expect((await message).ask).toBeUndefined();
    expect(performance.now() - startMs).toBeLessThan(2000);
  });

  /** Counts the reads of changes, once everybody waits. */
  async function countReads(): Promise<{ count: number }> {
    await delay(10);
    const read = asking.store.listAskChanges;
    const reads = { count: 0 };
    asking.store.listAskChanges = async (query) => {
      reads.count += 1;
      return read(query);
    };
    return reads;
  }

  test("reads once for a change", async () => {
    const watching = Array.from({ length: 20 }, () => new Watched());
    for (const watched of watching) await watched.next();
    const told = watching.map((watched) => watched.nextAsk());
    const reads = await countReads();
    const { askId } = await asking.ask(run);
    expect(await Promise.all(told)).toEqual(watching.map(() => [askId, OPEN]));
    const after = watching.map((watched) => watched.nextAsk());
    await delay(10);
    expect(reads.count).toBe(20);
    const { askId: next } = await asking.ask(run);
    expect(await Promise.all(after)).toEqual(watching.map(() => [next, OPEN]));
  });

  test.each([31, 32, 33, 64])("gives all of %i changes that wait for it", async (count) => {
    const watched = new Watched();
    await watched.next();
    const first = watched.nextAsk();
    const { askId } = await asking.ask(run);
    expect((await first)?.[0]).toBe(askId);
    const asks = await openAsks(count);
    for (const ask of asks) expect((await watched.nextAsk())?.[0]).toBe(ask.askId);
    const last = watched.nextAsk();
    const opened = await asking.ask(run);
    expect((await last)?.[0]).toBe(opened.askId);
  });

  test("of its own sessions reads nothing for asks of strangers", async () => {
    const own: Caller = { tenant: "default", subject: "me", scope: "own" };
    const mine = await asking.run(own);
    const watched = new Watched({}, { caller: own, approver: undefined });
    await watched.next();
    const told = watched.nextAsk();
    const reads = await countReads();
    for (let count = 0; count < 5; count += 1) await asking.answer(run, await asking.ask(run));
    await delay(10);
    expect(reads.count).toBe(0);
    const { askId } = await asking.ask(mine);
    expect(await told).toEqual([askId, OPEN]);
    expect(reads.count).toBe(1);
  });

  test("ends with DRAINING when the server drains", async () => {
    const watched = new Watched();
    await watched.next();
    const end = watched.end();
    watched.draining.abort();
    expect(await end).toBe(ErrorReason.DRAINING);
    expect(asking.options.commits.subscribers).toBe(0);
  });

  test("ends without a word when its caller goes, and is not told of commits any more", async () => {
    const watched = new Watched();
    await watched.next();
    const end = watched.end();
    expect(asking.options.commits.subscribers).toBe(1);
    watched.gone.abort();
    expect(await end).toBeUndefined();
    expect(asking.options.commits.subscribers).toBe(0);
  });
});

describe("a watch that is left", () => {
  test("while it gives open asks ends, with DRAINING if that is why", async () => {
    await openAsks(3);
    const draining = new Watched();
    await draining.next();
    draining.draining.abort();
    expect(await draining.end()).toBe(ErrorReason.DRAINING);
    const gone = new Watched();
    await gone.next();
    gone.gone.abort();
    expect(await gone.end()).toBeUndefined();
    expect(asking.options.commits.subscribers).toBe(0);
  });

  test("by its reader at any message is not told of commits any more", async () => {
    await openAsks(3);
    for (const count of [0, 1, 3, 4]) {
      const watched = new Watched();
      for (let index = 0; index < count; index += 1) await watched.next();
      await watched.leave();
      expect(asking.options.commits.subscribers).toBe(0);
    }
  });

  test("by a fault of the store is not told of commits any more", async () => {
    const watched = new Watched();
    await watched.next();
    asking.store.listAskChanges = () => Promise.reject(new Error("planted"));
    await expect(watched.next()).rejects.toThrow("planted");
    expect(asking.options.commits.subscribers).toBe(0);
  });
});
