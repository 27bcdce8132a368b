import { copyFile } from "node:fs/promises";
import { create } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import BetterSqlite from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { EventSchema, type Event } from "../../gen/toolmark/v1/event_pb.js";
import { HookDecision, HookSchema, type Hook } from "../../gen/toolmark/v1/hook_pb.js";
import type { EventRow, Store } from "../../src/ledger/store-port.js";
import { merge, recordId, type RevisedRecord } from "../../src/domain/merge-law.js";
import {
  acceptCall,
  allEvents,
  freshRequestId,
  given,
  of,
  openRun,
  publishHook,
  readSession,
  type OpenRun,
} from "../support/conversation.js";
import { HeldStore } from "../support/held-store.js";
import { acknowledgementFaults, orderFaults, pollFaults } from "../support/log-checks.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients } from "../support/service.js";
import { spawnServer, type SpawnedServer } from "../support/spawned-server.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { until } from "./listeners-fixture.js";

const TWO_WIRES = ["grpc", "connect-json"] as const;

let folder: StoreFolder;

beforeEach(async () => {
  folder = await makeStoreFolder();
});

afterEach(async () => {
  await folder.remove();
});

describe.each(TWO_WIRES)("over %s", (wire) => {
  test("B51 a hook published twice under one request id is one record", async () => {
    const service = await startTestService();
    const clients = service.clients(wire);
    const run = await openRun(clients);
    const { toolCallId } = await acceptCall(clients, run);
    const requestId = freshRequestId();
    const hook = await publishHook(clients, run, toolCallId, requestId);
    const events = await allEvents(clients, run.sessionId);
    expect(await publishHook(clients, run, toolCallId, requestId)).toEqual(hook);
    expect(await allEvents(clients, run.sessionId)).toEqual(events);
    const { hooks } = await clients.history.listHooks({ sessionId: run.sessionId });
    expect(hooks).toEqual([hook]);
    await service.stop();
  });

  test("B51 two outcomes of one hook run are two records, also at one instant", async () => {
    const service = await startTestService({ nowMs: () => 1_700_000_000_000 });
    const clients = service.clients(wire);
    const run = await openRun(clients);
    const { toolCallId } = await acceptCall(clients, run);
    const publish = async (decision: HookDecision) => {
      const command = { toolCallId, phase: "pre_tool_use", hookName: "guard", decision };
      return given((await clients.evidence.publishHook({ ...of(run), command })).hook, "hook");
    };
    const published = [await publish(HookDecision.MODIFIED), await publish(HookDecision.BLOCKED)];
    const [first, second] = published;
    expect(first?.hookId).not.toBe(second?.hookId);
    expect(first?.createTime).toEqual(second?.createTime);
    const { sessionId } = run;
    const { hooks } = await clients.history.listHooks({ sessionId, toolCallId });
    expect(hooks).toEqual(published);
    await service.stop();
  });
});

describe("B51 the same hook, revision and payload again changes nothing", () => {
  /** Applies deliveries to the records that a reader holds, and keeps what the law said of each. */
  function apply(held: Map<string, RevisedRecord>, deliveries: readonly Event[]) {
    return deliveries.flatMap(({ record }) => {
      const { case: kind, value } = given(record, "record").record;
      if (kind !== "hook" && kind !== "toolCall") return [];
      const outcome = merge(held.get(recordId(value)), value);
      if (outcome === "advanced") held.set(recordId(value), value);
      return [outcome];
    });
  }

  test("in a reader that is told the whole log twice", async () => {
    const service = await startTestService();
    const clients = service.clients();
    const run = await openRun(clients);
    const { toolCallId } = await acceptCall(clients, run);
    for (let index = 0; index < 5; index += 1) await publishHook(clients, run, toolCallId);
    const log = await allEvents(clients, run.sessionId);
    const held = new Map<string, RevisedRecord>();
    expect(new Set(apply(held, log))).toEqual(new Set(["advanced"]));
    const once = new Map(held);
    expect(new Set(apply(held, log))).toEqual(new Set(["repeated"]));
    expect(held).toEqual(once);
    await service.stop();
  });

  test("while another payload under that revision is a conflict", () => {
    const deliver = (text: string): Event => {
      const hook = create(HookSchema, { hookId: "hk_1", revision: 1n, text });
      return create(EventSchema, { record: { record: { case: "hook", value: hook } } });
    };
    const outcomes = apply(new Map(), [deliver("a"), deliver("a"), deliver("b")]);
    expect(outcomes).toEqual(["advanced", "repeated", "conflict"]);
  });
});

describe("B54 a fresh process goes on where the log ends", () => {
  const APPENDS = 100;
  const FLAGS = ["--snapshot-every", "16"];
  const names = (prefix: string) => Array.from({ length: APPENDS }, (_, at) => `${prefix} ${at}`);

  /** Eight writers share a list of request ids; each stops when its server is gone. */
  async function append(
    server: SpawnedServer,
    run: OpenRun,
    requestIds: readonly string[],
    onAcknowledged: (requestId: string, hook: Hook) => void,
  ): Promise<void> {
    const waiting = [...requestIds];
    const write = async (clients: Clients): Promise<void> => {
      for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) {
        try {
          onAcknowledged(id, await publishHook(clients, run, undefined, id));
        } catch (fault) {
          if (fault instanceof ConnectError && server.isEnding) return;
          throw fault;
        }
      }
    };
    const [one, two] = [server.clients(), server.clients()];
    await Promise.all(Array.from({ length: 8 }, (_, at) => write(at % 2 === 0 ? one : two)));
  }

  test("after kill -9 in the middle of a batch", async () => {
    let server = await spawnServer(folder.path, ...FLAGS);
    const run = await openRun(server.clients());
    const told = new Map<string, Hook>();
    let killed: Promise<void> | undefined;
    await append(server, run, names("first"), (id, hook) => {
      told.set(id, hook);
      if (told.size === APPENDS / 2) killed = server.kill();
    });
    await killed;
    expect(told.size).toBeLessThan(APPENDS);

    server = await spawnServer(folder.path, ...FLAGS);
    const answers = new Map<string, Hook>();
    const answered = (id: string, hook: Hook) => answers.set(id, hook);
    await append(server, run, names("first"), answered);
    for (const [id, hook] of told) expect(answers.get(id)).toEqual(hook);
    const before = await readSession(server.clients(), run.sessionId);
    await append(server, run, names("second"), answered);

    const log = await allEvents(server.clients(), run.sessionId);
    const acknowledged = [...answers.values()].map(({ hookId: id, revision }) => ({
      id,
      revision,
    }));
    expect(acknowledged.length).toBe(2 * APPENDS);
    expect(orderFaults(log)).toEqual([]);
    expect(acknowledgementFaults(acknowledged, log)).toEqual([]);
    const second = names("second").map((id) => answers.get(id)?.revision ?? 0n);
    expect(second.every((revision) => revision > (before.highWater ?? 0n))).toBe(true);
    await server.kill();
  });

  test("with the high-water of the log if that is above the snapshot's, and of both if equal", async () => {
    let server = await spawnServer(folder.path, ...FLAGS);
    const run = await openRun(server.clients());
    await append(server, run, names("first"), () => undefined);
    await server.kill();
    const [snapshot, logged] = highWaters();
    expect(snapshot).toBeGreaterThan(0n);
    expect(logged).toBe(BigInt(APPENDS));
    expect(snapshot).toBeLessThan(logged);

    server = await spawnServer(folder.path, ...FLAGS);
    const next = await publishHook(server.clients(), run);
    expect(next.revision).toBe(logged + 1n);
    await server.stop();
    expect(highWaters()).toEqual([logged + 1n, logged + 1n]);

    server = await spawnServer(folder.path, ...FLAGS);
    expect((await publishHook(server.clients(), run)).revision).toBe(logged + 2n);
    await server.kill();
  });

  /** What the newest snapshot says, and what the log says. */
  function highWaters(): [bigint, bigint] {
    const database = new BetterSqlite(folder.path, { readonly: true });
    const read = (sql: string) => database.prepare<[], bigint>(sql).pluck().safeIntegers().get();
    const snapshot = read("SELECT max(high_water) FROM snapshots") ?? 0n;
    const logged = read("SELECT max(revision) FROM events") ?? 0n;
    database.close();
    return [snapshot, logged];
  }

  test.each([
    ["sequence", "session, sequence, NULL", "events.session, events.sequence"],
    ["revision", "session, sequence + 1000, revision", "events.session, events.revision"],
  ])("and the database refuses a second event with a known %s", async (_what, key, unique) => {
    const service = await startTestService({ store: folder.store });
    await publishHook(service.clients(), await openRun(service.clients()));
    await service.stop();
    const insert = `INSERT INTO events
      (session, sequence, revision, position, kind, time_ms, commitment, chain)
      SELECT ${key}, position + 1000, kind, time_ms, commitment, chain FROM events
      WHERE revision IS NOT NULL`;
    const database = new BetterSqlite(folder.path);
    expect(() => database.exec(insert)).toThrow(/is not higher than every earlier one/);
    database.close();

    // The constraint holds by itself, not by the trigger alone.
    const copy = `${folder.path}.copy`;
    await copyFile(folder.path, copy);
    const bare = new BetterSqlite(copy);
    bare.exec("DROP TRIGGER events_only_append");
    expect(() => bare.exec(insert)).toThrow(`UNIQUE constraint failed: ${unique}`);
    bare.close();
  });

  test("and the checks report a process that began again at 0", () => {
    const place = (sequence: bigint, position: bigint, revision: bigint) => {
      const hook = create(HookSchema, { hookId: `hk_${position}` });
      const record = { record: { case: "hook" as const, value: hook } };
      return create(EventSchema, { sequence, position, revision, record });
    };
    const log = [place(1n, 1n, 1n), place(2n, 2n, 2n)];
    const restarted = [...log, place(1n, 3n, 1n), place(2n, 4n, 2n)];
    expect(orderFaults(log)).toEqual([]);
    expect(orderFaults(restarted)).toEqual([
      "1 stands where 3 must",
      "revision 1 does not rise",
      "2 stands where 4 must",
    ]);
    expect(acknowledgementFaults([{ id: "hk_1", revision: 1n }], log.slice(1)).length).toBe(2);
    expect(acknowledgementFaults([{ id: "hk_1", revision: 2n }], log.slice(0, 1)).length).toBe(1);
  });
});

describe("B58 order is the server's, given in the commit, and time is data only", () => {
  const WRITES = 60;

  test("for readers that poll during the commits of two writers with clocks 20 s apart", async () => {
    let reads = 0;
    // Every other commit is stamped ten seconds early, every other ten seconds late.
    const nowMs = (): number => Date.now() + (++reads % 2 === 0 ? -10_000 : 10_000);
    const service = await startTestService({ store: folder.store, nowMs });
    const run = await openRun(service.clients());
    const { sessionId } = run;
    const acknowledged: { id: string; revision: bigint | undefined }[] = [];
    let writing = true;
    const writers = TWO_WIRES.map(async (wire) => {
      const clients = service.clients(wire);
      for (let index = 0; index < WRITES; index += 1) {
        const { hookId: id, revision } = await publishHook(clients, run);
        acknowledged.push({ id, revision });
      }
    });
    const pollers = TWO_WIRES.map((wire) =>
      pollWhile(service.clients(wire), sessionId, () => writing),
    );
    await Promise.all(writers);
    writing = false;

    const log = await allEvents(service.clients(), sessionId);
    expect(orderFaults(log)).toEqual([]);
    expect(acknowledgementFaults(acknowledged, log)).toEqual([]);
    expect(timeInversions(log)).toBeGreaterThan(0);
    for (const polls of await Promise.all(pollers)) {
      expect(polls.length).toBeGreaterThan(2);
      expect(pollFaults(polls, log)).toEqual([]);
    }
    expect(pollFaults(pollsByTime(log), log)).not.toEqual([]);
    await service.stop();
  });

  test("and a list that was fed before the commit is reported", async () => {
    let dirty: DirtyStore | undefined;
    const service = await startTestService({
      wrapStore: (store) => (dirty = new DirtyStore(store)),
    });
    const store = given(dirty, "store");
    const clients = service.clients();
    const run = await openRun(clients);
    const { sessionId } = run;
    const first = await allEvents(clients, sessionId);
    const seenSoFar = BigInt(first.length);

    store.failNext = "before";
    store.hold();
    const lost = refused(publishHook(clients, run));
    await until(() => store.waiting === 1);
    const early = await allEvents(clients, sessionId, seenSoFar);
    store.release();
    expect((await lost).reason).toBe("COMMIT_UNCERTAIN");
    await publishHook(clients, run);

    const log = await allEvents(clients, sessionId);
    expect(orderFaults(log)).toEqual([]);
    expect(early.length).toBe(1);
    expect(pollFaults([first, early], log)).toEqual(["3 was told otherwise than it is logged"]);
    await service.stop();
  });

  /** Reads on from where it stands until nothing more can come. */
  async function pollWhile(
    clients: Clients,
    sessionId: string,
    goesOn: () => boolean,
  ): Promise<Event[][]> {
    const polls: Event[][] = [];
    let after = 0n;
    for (let last = false; !last;) {
      last = !goesOn();
      const poll = await allEvents(clients, sessionId, after);
      after = poll.at(-1)?.sequence ?? after;
      polls.push(poll);
    }
    return polls;
  }

  /** What a reader is told that takes the time of the last event that it saw as its place. */
  function pollsByTime(log: readonly Event[]): Event[][] {
    let after = 0n;
    return log.map((_, at) => {
      const poll = log.slice(0, at + 1).filter((event) => timeOf(event) > after);
      for (const event of poll) if (timeOf(event) > after) after = timeOf(event);
      return poll;
    });
  }

  const timeOf = ({ recordTime }: Event): bigint =>
    (recordTime?.seconds ?? 0n) * 1000n + BigInt((recordTime?.nanos ?? 0) / 1_000_000);

  function timeInversions(log: readonly Event[]): number {
    return log.filter((event, at) => at > 0 && timeOf(event) < timeOf(log[at - 1] ?? event)).length;
  }
});

/** Serves events before they are committed. */
class DirtyStore extends HeldStore {
  readonly #inner: Store;
  #uncommitted: readonly EventRow[] = [];

  constructor(inner: Store) {
    super(inner);
    this.#inner = inner;
  }

  override commit: Store["commit"] = async (writes) => {
    this.#uncommitted = writes.flatMap(({ events }) => events.map(({ row }) => row));
    const result = await super.commit(writes);
    this.#uncommitted = [];
    return result;
  };

  override readEvents: Store["readEvents"] = async (session, after, limit, maxBytes) => {
    const committed = await this.#inner.readEvents(session, after, limit, maxBytes);
    return [...committed, ...this.#uncommitted.filter(({ sequence }) => sequence > after)];
  };
}
