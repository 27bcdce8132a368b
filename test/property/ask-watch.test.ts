import { dirname } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { fromBinary } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { ConnectError } from "@connectrpc/connect";
import * as fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { AskCursorSchema } from "../../gen/toolmark/storage/v1/storage_pb.js";
import type { WatchAsksResponse } from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskKind, AskProvenance, AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import { isRefusal } from "../../src/domain/refusal.js";
import { CommitFeed } from "../../src/ledger/commit-feed.js";
import type { DueRecord } from "../../src/ledger/store-port.js";
import { AskWatch } from "../../src/watch/ask-watch.js";
import {
  allEvents,
  createSession,
  given,
  beginRun,
  type OpenRun,
} from "../support/conversation.js";
import { answer, askAbout, AskWatcher, openAsk, withdraw } from "../support/asking.js";
import { APPROVER, AskingLedger, type AskingRun } from "../support/asking-ledger.js";
import { TENANT_CALLER } from "../support/outside-world.js";
import { refused } from "../support/refused.js";
import { RestartingServer } from "../support/restarting-server.js";
import { scaled, testScale } from "../support/scale.js";
import { propertyOptions, seededRandom, seededTitle } from "../support/seed.js";
import { WIRES, type Clients, type Wire } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

const HOUR_MS = 3_600_000;
const NEVER_MS = 2 ** 31 - 1;
const SESSIONS = 3;
const TIMEOUT_MS = { short: 120_000, ci: 600_000, long: 1_800_000 }[testScale()];

/** A message of a watch as it was received. */
interface Frame {
  /** Whether the asks that were open at the start are still being given. */
  readonly isListing: boolean;
  /** Where the cursor stands, and in a listing, where the log stood at the start. */
  readonly position: bigint;
  readonly openUntil: bigint;
  readonly cursor: string;
  readonly ask: Pick<Ask, "askId" | "revision" | "state"> | undefined;
  /** The last position that was committed when it was received. */
  readonly committed: bigint;
}

/** A watch and those that went on with its cursors: what their reader knows, each message once. */
interface Watched {
  /** Empty: every session's asks. */
  readonly sessionId: string;
  readonly streams: readonly (readonly Frame[])[];
}

/** An update of an ask, as the log has it. */
interface Update {
  readonly askId: string;
  readonly sessionId: string;
  readonly revision: bigint | undefined;
  readonly state: AskState;
  readonly position: bigint;
}

function frameOf({ cursor, ask: shown }: WatchAsksResponse, committed: bigint): Frame {
  const place = fromBinary(AskCursorSchema, Buffer.from(cursor, "base64url"));
  const { position, openUntil } = place;
  return { isListing: openUntil > 0n, position, openUntil, cursor, ask: shown?.ask, committed };
}

function updatesOf(events: readonly Event[]): Update[] {
  return events.flatMap(({ position, sessionId, record }) => {
    if (record?.record.case !== "ask") return [];
    const { askId, revision, state } = record.record.value;
    return [{ askId, sessionId, revision, state, position }];
  });
}

function lastByAsk<T extends { readonly askId: string }>(all: readonly T[]): Map<string, T> {
  return new Map(all.map((one) => [one.askId, one]));
}

/** Cursors never go back, and every ask moves them on: in the order of opening, then in that of the changes. */
function orderFaults(frames: readonly Frame[]): string[] {
  return frames.flatMap((frame, at) => {
    const before = frames[at - 1];
    if (before === undefined) return [];
    const goesBack = frame.isListing && !before.isListing;
    const isSame = frame.isListing === before.isListing;
    const lowest = isSame ? before.position + (frame.ask === undefined ? 0n : 1n) : 0n;
    return goesBack || frame.position < lowest ? [`frame ${at} is out of order`] : [];
  });
}

/** Each frame tells what the log has at its place, and had when it was received. */
function truthFaults(frames: readonly Frame[], updates: readonly Update[]): string[] {
  return frames.flatMap(({ ask, isListing, position, committed }) => {
    if (position > committed) return [`position ${position} is told before it is committed`];
    if (ask === undefined) return [];
    const ofAsk = updates.filter(({ askId }) => askId === ask.askId);
    const told = ofAsk.find(({ revision }) => revision === ask.revision);
    const place = isListing ? ofAsk[0]?.position : told?.position;
    const isTrue = told?.state === ask.state && place === position;
    return isTrue ? [] : [`${ask.askId} is told at ${position} otherwise than it is`];
  });
}

/** No ask is told twice as it was, nor ever as it was before. */
function returnFaults(frames: readonly Frame[]): string[] {
  const highest = new Map<string, bigint>();
  return frames.flatMap(({ ask }) => {
    if (ask === undefined) return [];
    const before = highest.get(ask.askId) ?? 0n;
    const revision = ask.revision ?? 0n;
    highest.set(ask.askId, revision);
    return revision > before ? [] : [`${ask.askId} goes back to ${revision}`];
  });
}

/** One message without an ask in each stream: after the open asks, or once what was missed is given. */
function boundaryFaults(streams: Watched["streams"]): string[] {
  return streams.flatMap((frames, at) => {
    const boundaries = frames.filter(({ ask }) => ask === undefined).length;
    const isLast = at === streams.length - 1;
    const isRight = isLast ? boundaries === 1 : boundaries <= 1;
    const first = frames.findIndex(({ ask }) => ask === undefined);
    const isListingEnd = first < 0 || frames.slice(first).every(({ isListing }) => !isListing);
    return isRight && isListingEnd ? [] : [`stream ${at} has ${boundaries} boundaries`];
  });
}

/** What was open at the start or changed since is known as it is in the end; nothing of other sessions is. */
function finalFaults({ sessionId, streams }: Watched, updates: readonly Update[]): string[] {
  const frames = streams.flat();
  const [first] = frames;
  if (first === undefined) return ["nothing was given"];
  const start = first.isListing ? first.openUntil : first.position;
  const inScope = updates.filter((one) => sessionId === "" || one.sessionId === sessionId);
  const atStart = lastByAsk(inScope.filter(({ position }) => position <= start));
  const expected = [...lastByAsk(inScope).values()].filter(
    ({ askId, position }) => position > start || atStart.get(askId)?.state === AskState.OPEN,
  );
  const told = lastByAsk(frames.flatMap(({ ask }) => (ask === undefined ? [] : [ask])));
  const missed = expected.filter(({ askId, revision }) => told.get(askId)?.revision !== revision);
  const known = new Set(inScope.map(({ askId }) => askId));
  const foreign = [...told.keys()].filter((askId) => !known.has(askId));
  return [
    ...missed.map(({ askId }) => `${askId} is not known as it is`),
    ...foreign.map((askId) => `${askId} is of another session`),
  ];
}

/** Everything that is wrong with what a reader was given. */
function faultsOf(watched: Watched, updates: readonly Update[]): string[] {
  const frames = watched.streams.flat();
  return [
    ...orderFaults(frames),
    ...truthFaults(frames, updates),
    ...returnFaults(frames),
    ...boundaryFaults(watched.streams),
    ...finalFaults(watched, updates),
  ];
}

/** Picks are taken modulo what there is. */
const pick = fc.nat(1000);
const session = fc.nat(SESSIONS - 1);
/** What a history is made of. */
const step = fc.oneof(
  weighing(5, { kind: fc.constant("open" as const), session, expires: fc.boolean() }),
  weighing(5, {
    kind: fc.constantFrom("answer" as const, "withdraw" as const, "supersede" as const),
    pick,
  }),
  weighing(1, { kind: fc.constant("jump" as const) }),
  weighing(2, { kind: fc.constant("settle" as const) }),
  weighing(3, { kind: fc.constant("turn" as const), count: fc.integer({ min: 1, max: 4 }) }),
  weighing(2, {
    kind: fc.constant("start" as const),
    session: fc.option(session, { nil: undefined }),
  }),
  weighing(2, { kind: fc.constant("stop" as const), pick }),
  weighing(3, { kind: fc.constant("resume" as const), pick, back: fc.nat(3) }),
  weighing(6, { kind: fc.constant("read" as const), pick, count: fc.integer({ min: 1, max: 6 }) }),
);

function weighing<T>(weight: number, fields: { [Name in keyof T]: fc.Arbitrary<T[Name]> }) {
  return { weight, arbitrary: fc.record(fields) };
}

type Step = typeof step extends fc.Arbitrary<infer One> ? One : never;

const histories = fc.array(step, { minLength: 10, maxLength: 120, size: "max" });

function picked<T>(from: readonly T[], at: number): T | undefined {
  return from.length === 0 ? undefined : from[at % from.length];
}

/** Reads watches one after the other, each with a cursor of the one before, as fast as it is told. */
class Reading {
  readonly streams: Frame[][] = [];
  isLive = false;
  #allowed = 0;
  #allow = (): void => undefined;
  #ended: Promise<void> = Promise.resolve();
  #stop = new AbortController();

  constructor(
    readonly sessionId: string,
    readonly asking: AskingLedger,
    readonly watch: AskWatch,
  ) {}

  /** Goes on after the message before the last `back`, which are forgotten. */
  start(back = 0): void {
    for (let count = 0; count < back; count += 1) {
      while (this.streams.at(-1)?.length === 0) this.streams.pop();
      this.streams.at(-1)?.pop();
    }
    const cursor = this.streams.flat().at(-1)?.cursor ?? "";
    this.isLive = true;
    this.#allowed = 0;
    this.#stop = new AbortController();
    const frames: Frame[] = [];
    this.streams.push(frames);
    this.#ended = this.#read(frames, cursor, this.#stop.signal);
  }

  async #read(frames: Frame[], cursor: string, signal: AbortSignal): Promise<void> {
    const request = { sessionId: this.sessionId, includeDescendants: false, cursor };
    const draining = new AbortController().signal;
    const messages = this.watch.watch(APPROVER, request, { signal, draining });
    const isOver = (): boolean => signal.aborted;
    while (!isOver()) {
      if (this.#allowed === 0) {
        await new Promise<void>((resolve) => {
          this.#allow = resolve;
        });
        continue;
      }
      const { value, done } = await messages.next();
      if (done === true || isOver()) break;
      if (isRefusal(value)) throw new Error(value.message);
      this.#allowed -= 1;
      frames.push(frameOf(value, await this.asking.store.lastPosition()));
    }
    await messages.return(undefined);
  }

  read(count: number): void {
    this.#allowed += count;
    this.#allow();
  }

  async stop(): Promise<void> {
    this.isLive = false;
    this.#stop.abort();
    this.#allow();
    await this.#ended;
  }
}

/** How a watch is made: right, or wrong in a way that the checks must find. */
type MakeWatch = (asking: AskingLedger) => AskWatch;

function watchWith({ asks, store }: AskingLedger, commits: CommitFeed): AskWatch {
  const monotonicMs = (): number => performance.now();
  const outside = { commits, monotonicMs, committing: () => undefined, heartbeatMs: NEVER_MS };
  return new AskWatch({ asks, store, ...outside });
}

const rightWatch: MakeWatch = (asking) => watchWith(asking, asking.options.commits);

interface OpenOne {
  readonly ask: Ask;
  readonly run: AskingRun;
  readonly expires: boolean;
}

/** A ledger in memory, what is open in it, and those who watch. */
class World {
  readonly asking = new AskingLedger();
  readonly readings: Reading[] = [];
  readonly #runs: AskingRun[] = [];
  readonly #watch: AskWatch;
  #open: OpenOne[] = [];
  #underway: Promise<void>[] = [];

  constructor(make: MakeWatch) {
    this.#watch = make(this.asking);
  }

  get frameCount(): number {
    return this.readings.flatMap(({ streams }) => streams.flat()).length;
  }

  async begin(): Promise<void> {
    while (this.#runs.length < SESSIONS) this.#runs.push(await this.asking.run());
  }

  async take(one: Step): Promise<void> {
    switch (one.kind) {
      case "open":
        this.#underway.push(this.#openOne(given(this.#runs[one.session], "run"), one.expires));
        break;
      case "answer":
      case "withdraw":
      case "supersede":
        this.#underway.push(this.#settleOne(one.kind, one.pick));
        break;
      case "jump":
        await this.#jump();
        break;
      case "settle":
        await this.#settle();
        break;
      case "turn":
        for (let count = 0; count < one.count; count += 1) await turn();
        break;
      default:
        await this.#takeAsReader(one);
    }
  }

  async #takeAsReader(
    one: Extract<Step, { readonly kind: "start" | "stop" | "resume" | "read" }>,
  ): Promise<void> {
    const live = this.readings.filter(({ isLive }) => isLive);
    switch (one.kind) {
      case "start": {
        const run = one.session === undefined ? undefined : this.#runs[one.session];
        const reading = new Reading(run?.sessionId ?? "", this.asking, this.#watch);
        this.readings.push(reading);
        reading.start();
        break;
      }
      case "stop":
        await picked(live, one.pick)?.stop();
        break;
      case "resume": {
        const stopped = this.readings.filter(({ isLive }) => !isLive);
        picked(stopped, one.pick)?.start(one.back);
        break;
      }
      case "read":
        picked(live, one.pick)?.read(one.count);
        break;
    }
  }

  /** Lets everybody read to the end. What each was given. */
  async end(): Promise<void> {
    await this.#settle();
    for (const reading of this.readings) {
      if (!reading.isLive) reading.start();
      reading.read(Infinity);
    }
    await this.#untilQuiet();
  }

  async faults(): Promise<string[]> {
    const updates = updatesOf(await this.#events());
    const faults = this.readings.flatMap((reading) => faultsOf(reading, updates));
    for (const reading of this.readings) await reading.stop();
    return faults;
  }

  async #settle(): Promise<void> {
    await Promise.all(this.#underway);
    this.#underway = [];
  }

  async #openOne(run: AskingRun, expires: boolean): Promise<void> {
    const expireTime = timestampFromMs(this.asking.world.timeMs + HOUR_MS);
    const ask = await this.asking.ask(run, expires ? { expireTime } : {});
    this.#open.push({ ask, run, expires });
  }

  async #settleOne(kind: "answer" | "withdraw" | "supersede", at: number): Promise<void> {
    const one = picked(this.#open, at);
    if (one === undefined) return;
    this.#open = this.#open.filter((other) => other !== one);
    const { ask, run } = one;
    const { askId, toolCallId } = ask;
    if (kind === "answer") await this.asking.answer(run, ask);
    else if (kind === "withdraw") {
      await this.asking.command(run, { case: "withdrawAsk", value: { askId } }, "receipt");
    } else {
      const asked = { kind: AskKind.ACTION, provenance: AskProvenance.PERMISSION };
      const value = { toolCallId, ...asked };
      const newer = await this.asking.command(run, { case: "openAsk", value }, "ask");
      this.#open.push({ ask: newer, run, expires: false });
    }
  }

  /** The clock jumps, and what is due then expires. */
  async #jump(): Promise<void> {
    await this.#settle();
    this.asking.world.timeMs += HOUR_MS;
    this.#open = this.#open.filter(({ expires }) => !expires);
    const query = { untilMs: this.asking.world.timeMs, untilPosition: undefined, after: undefined };
    const due: DueRecord[] = await this.asking.store.listDue({ ...query, limit: 1000 });
    for (const { session: ref, recordId } of due) {
      this.#underway.push(this.asking.ledger.expire(ref, [recordId]).then(() => undefined));
    }
  }

  async #untilQuiet(): Promise<void> {
    let before = -1;
    while (before !== this.frameCount) {
      before = this.frameCount;
      for (let count = 0; count < 8; count += 1) await turn();
    }
  }

  async #events(): Promise<Event[]> {
    const all: Event[] = [];
    for (const { sessionId } of this.#runs) {
      let pageToken = "";
      do {
        const page = { pageSize: 500, pageToken };
        const events = await this.asking.reader.listEvents(TENANT_CALLER, sessionId, 0n, page);
        if (isRefusal(events)) throw new Error(events.message);
        all.push(...events.items);
        pageToken = events.nextPageToken;
      } while (pageToken !== "");
    }
    return all.sort((left, right) => (left.position < right.position ? -1 : 1));
  }
}

let framesChecked = 0;

/** Plays a history; what is wrong with what the watchers were given. */
async function play(steps: readonly Step[], make = rightWatch): Promise<string[]> {
  const world = new World(make);
  await world.begin();
  for (const one of steps) await world.take(one);
  await world.end();
  framesChecked += world.frameCount;
  const faults = await world.faults();
  if (make === rightWatch) expect(world.asking.options.commits.subscribers).toBe(0);
  return faults;
}

describe("those who watch asks that open, settle and expire", () => {
  test(
    seededTitle("P10: are given all of them in order, once, whenever they come, go and return"),
    async () => {
      const property = fc.asyncProperty(histories, async (steps) => {
        expect(await play(steps)).toEqual([]);
      });
      await fc.assert(property, propertyOptions(2000));
      process.stdout.write(`ask watch: ${framesChecked} frames checked\n`);
    },
    TIMEOUT_MS,
  );

  /** Begins to listen some turns after it was asked to: after the first reads. */
  class LateFeed extends CommitFeed {
    readonly #inner: CommitFeed;

    constructor(inner: CommitFeed) {
      super();
      this.#inner = inner;
    }

    override onAsksChanged(...[asks, wake]: Parameters<CommitFeed["onAsksChanged"]>): () => void {
      const state = { isOver: false, stop: (): void => undefined };
      const listen = async (): Promise<void> => {
        for (let count = 0; count < 3; count += 1) await turn();
        if (!state.isOver) state.stop = this.#inner.onAsksChanged(asks, wake);
      };
      void listen();
      return () => {
        state.isOver = true;
        state.stop();
      };
    }
  }

  /** Tells of each commit before it is made. */
  function earlyFeed({ store }: AskingLedger): CommitFeed {
    const early = new CommitFeed();
    const commit = store.commit.bind(store);
    store.commit = async (writes) => {
      early.publish(writes);
      await turn();
      return commit(writes);
    };
    return early;
  }

  /** Gives changes in the order of opening. */
  function unorderedWatch(asking: AskingLedger): AskWatch {
    const { listAskChanges } = asking.store;
    asking.store.listAskChanges = async (query) => {
      const rows = await listAskChanges(query);
      return rows.sort((left, right) => (left.position < right.position ? -1 : 1));
    };
    return rightWatch(asking);
  }

  const WRONG: readonly (readonly [string, RegExp, MakeWatch])[] = [
    [
      "subscribes after it has read",
      /not known as it is/,
      (asking) => watchWith(asking, new LateFeed(asking.options.commits)),
    ],
    [
      "is told of a commit before it is made",
      /not known as it is/,
      (asking) => watchWith(asking, earlyFeed(asking)),
    ],
    ["gives changes in another order", /out of order/, unorderedWatch],
  ];

  test.each(WRONG)("or it is found out: one that %s", async (_, pattern, make) => {
    const property = fc.asyncProperty(histories, async (steps) => {
      const faults = await play(steps, make);
      return !faults.some((fault) => pattern.test(fault));
    });
    const { failed } = await fc.check(property, { numRuns: 300, seed: 1, endOnFailure: true });
    expect(failed).toBe(true);
  });
});

describe("the checks of what a watcher was given find", () => {
  const update = (askId: string, revision: bigint, state: AskState): Update => {
    return { askId, sessionId: "s", revision, state, position: revision };
  };
  const { OPEN, ANSWERED } = AskState;
  const updates = [update("a", 1n, OPEN), update("b", 2n, OPEN), update("a", 3n, ANSWERED)];
  const base = { isListing: false, openUntil: 0n, cursor: "", ask: undefined, committed: 3n };
  const told = (askId: string, revision: bigint, state: AskState): Frame => {
    return { ...base, position: revision, ask: { askId, revision, state } };
  };
  const boundary: Frame = { ...base, position: 0n };
  const sound = [boundary, told("b", 2n, OPEN), told("a", 3n, ANSWERED)];

  const WRONG: readonly (readonly [string, Frame[], RegExp])[] = [
    ["nothing in what is sound", sound, /^$/],
    ["a lost ask", sound.slice(0, 2), /^a is not known as it is$/],
    [
      "a state that was skipped back to",
      [...sound, told("a", 1n, OPEN)],
      /out of order.*a goes back/,
    ],
    ["a doubled message", [...sound, told("a", 3n, ANSWERED)], /out of order.*a goes back to 3/],
    ["another order", [boundary, told("a", 3n, ANSWERED), told("b", 2n, OPEN)], /out of order/],
    ["two boundaries", [boundary, ...sound], /stream 0 has 2 boundaries/],
    ["no boundary", [told("a", 1n, OPEN), ...sound.slice(1)], /stream 0 has 0 boundaries/],
    ["what is not in the log", [...sound, told("c", 4n, OPEN)], /before it is committed/],
    ["what is told too early", sound.map((one) => ({ ...one, committed: 2n })), /3 is told before/],
    ["another state than the log has", [...sound.slice(0, 2), told("a", 3n, OPEN)], /otherwise/],
  ];

  test.each(WRONG)("%s", (_, frames, pattern) => {
    const faults = faultsOf({ sessionId: "s", streams: [frames] }, updates);
    expect(faults.join(", ")).toMatch(pattern);
  });
});

describe("those who watch a server that is killed and started again", () => {
  const ROUNDS = scaled(40);
  const CHANGES_MAX = 30;

  /** Reads a watch until its server is gone. */
  class WireReading implements Watched {
    readonly sessionId = "";
    readonly streams: Frame[][] = [];
    /** Why streams ended, except that their server was gone. */
    readonly refusals: string[] = [];

    constructor(readonly wire: Wire) {}

    /** Whether everything was given up to a position, and then the message that says so. */
    hasCaughtUp(position: bigint): boolean {
      const last = this.streams.at(-1)?.at(-1);
      return last !== undefined && last.ask === undefined && last.position >= position;
    }

    start(clients: Clients): AskWatcher {
      const cursor = this.streams.flat().at(-1)?.cursor ?? "";
      const frames: Frame[] = [];
      this.streams.push(frames);
      const watcher = new AskWatcher(clients, { cursor });
      const read = async (): Promise<void> => {
        // A position that is given was committed: a killed server keeps no more.
        for (;;) frames.push(frameOf(await watcher.next(), 2n ** 63n));
      };
      void refused(read()).then(({ reason }) => {
        if (reason !== "") this.refusals.push(reason);
      });
      return watcher;
    }
  }

  /** Changes asks one after the other, and counts those that are acknowledged. */
  class Writer {
    acknowledged = 0;
    readonly #open: Ask[] = [];

    constructor(
      readonly clients: Clients,
      readonly run: OpenRun,
      readonly random: () => number,
    ) {}

    /** Until the server is gone. */
    async write(): Promise<void> {
      try {
        for (;;) {
          await this.#change();
          this.acknowledged += 1;
        }
      } catch (fault) {
        if (!(fault instanceof ConnectError)) throw fault;
      }
    }

    async #change(): Promise<void> {
      const { clients, run, random } = this;
      const dice = random();
      const at = Math.floor(random() * this.#open.length);
      const ask = this.#open[at];
      if (ask === undefined || dice < 0.5) {
        this.#open.push(await askAbout(clients, run));
        return;
      }
      this.#open.splice(at, 1);
      if (dice < 0.7) await answer(clients, ask);
      else if (dice < 0.85) await withdraw(clients, run, ask.askId);
      else this.#open.push(await openAsk(clients, run, ask.toolCallId));
    }
  }

  let folder: StoreFolder;
  let server: RestartingServer;

  beforeEach(async () => {
    folder = await makeStoreFolder();
    server = new RestartingServer(dirname(folder.path), folder.store);
  });

  afterEach(async () => {
    await server.stop("SIGKILL");
    await folder.remove();
  });

  /** Lets asks change and be watched until the server is killed. The number of acknowledged changes. */
  async function round(
    readings: readonly WireReading[],
    run: OpenRun,
    random: () => number,
  ): Promise<number> {
    const life = await server.life();
    for (const reading of readings) reading.start(life.clients(reading.wire));
    const writer = new Writer(life.clients("grpc"), run, random);
    const writing = writer.write();
    const target = Math.ceil(random() * CHANGES_MAX);
    while (writer.acknowledged < target) await turn();
    await server.restart("SIGKILL");
    await writing;
    return writer.acknowledged;
  }

  /** Reads on until everything is given. */
  async function finish(readings: readonly WireReading[], position: bigint): Promise<void> {
    const life = await server.life();
    const watchers = readings.map((reading) => reading.start(life.clients(reading.wire)));
    const isDone = ({ refusals }: WireReading): boolean => refusals.length > 0;
    while (!readings.every((one) => isDone(one) || one.hasCaughtUp(position))) await turn();
    for (const watcher of watchers) watcher.stop();
  }

  test(
    seededTitle("P10: are given all asks in order, once, over every wire"),
    async () => {
      const random = seededRandom("ask watch");
      const readings = WIRES.map((wire) => new WireReading(wire));
      const before = (await server.life()).clients("grpc");
      const sessionId = await createSession(before);
      const run = await beginRun(before, sessionId);
      let acknowledged = 0;
      for (let rounds = 0; rounds < ROUNDS; rounds += 1) {
        acknowledged += await round(readings, run, random);
      }
      const after = (await server.life()).clients("grpc");
      await askAbout(after, run);
      const updates = updatesOf(await allEvents(after, sessionId));
      await finish(readings, given(updates.at(-1), "update").position);
      const frames = readings.flatMap(({ streams }) => streams.flat()).length;
      const told = `${acknowledged} changes acknowledged, ${frames} frames`;
      process.stdout.write(`ask watch: ${ROUNDS} kills, ${told}\n`);
      expect(readings.flatMap(({ refusals }) => refusals)).toEqual([]);
      expect(readings.flatMap((reading) => faultsOf(reading, updates))).toEqual([]);
    },
    TIMEOUT_MS,
  );
});
