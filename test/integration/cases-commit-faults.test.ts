import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ApplyResponse } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import type { CommandWrite, CommitResult, Store } from "../../src/ledger/store-port.js";
import { openSqliteStore } from "../../src/store/sqlite/sqlite-store.js";
import {
  allEvents,
  bytes,
  freshRequestId,
  given,
  newCall,
  of,
  openRun,
  publishHook,
  type CommandInit,
  type OpenRun,
} from "../support/conversation.js";
import { openFailing, sqliteError, type Failure } from "../support/failing-sqlite.js";
import { FaultyStore } from "../support/faulty-store.js";
import { HeldStore } from "../support/held-store.js";
import { orderFaults } from "../support/log-checks.js";
import { writtenTo } from "../support/nothing-written.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { until } from "./listeners-fixture.js";

const EVENTS = 15;
const INSERT_EVENT = /^\s*INSERT INTO events\b/;
const INSERT_REQUEST = /^\s*INSERT INTO requests\b/;

/** A message, a turn with its five calls, and eight hooks: fifteen events in one commit. */
function fifteenEvents(): { command: CommandInit }[] {
  const message = { role: MessageRole.USER, content: { data: bytes("hello") } };
  const calls = ["a", "b", "c", "d", ""].map((id) => newCall(id));
  const hook = { phase: "session_start", decision: HookDecision.INFO };
  return [
    { command: { case: "recordMessage", value: message } },
    { command: { case: "acceptTurn", value: { calls } } },
    ...Array.from({ length: 8 }, () => ({
      command: { case: "publishHook" as const, value: hook },
    })),
  ];
}

let folder: StoreFolder;
let service: TestService;
let store: HeldStore;
let failure: Failure = () => undefined;

beforeAll(async () => {
  folder = await makeStoreFolder();
  const openDatabase = openFailing((sql, parameters) => failure(sql, parameters));
  const opened = await openSqliteStore({ path: folder.path, storeId: "test", openDatabase });
  store = new HeldStore(opened);
  const started = await startTestService({ wrapStore: () => store });
  const config = { ...started.config, store: { kind: "sqlite" as const, path: folder.path } };
  service = { ...started, config };
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

describe("B56 a commit that fails leaves nothing, and the same request then succeeds", () => {
  test.each(Array.from({ length: EVENTS }, (_, index) => index + 1))(
    "if event %i of 15 cannot be written",
    async (failing) => {
      let inserted = 0;
      const arm = (): void => {
        failure = (sql) =>
          INSERT_EVENT.test(sql) && ++inserted === failing
            ? sqliteError("SQLITE_NOMEM")
            : undefined;
      };
      expect(await faultsOfFailure(service, arm)).toEqual([]);
    },
  );

  test.each([
    ["the request row", INSERT_REQUEST],
    ["the beginning of the transaction", /^\s*BEGIN IMMEDIATE\b/],
    ["the end of the transaction", /^\s*COMMIT\b/],
  ])("if %s fails", async (_what, statement) => {
    const arm = (): void => {
      let writes = false;
      failure = (sql) => {
        writes ||= /^\s*BEGIN IMMEDIATE\b/.test(sql);
        return writes && statement.test(sql) ? sqliteError("SQLITE_NOMEM") : undefined;
      };
    };
    expect(await faultsOfFailure(service, arm)).toEqual([]);
  });

  test("if the store fails before it has stored anything", async () => {
    const arm = (): void => {
      store.failNext = "before";
    };
    expect(await faultsOfFailure(service, arm)).toEqual([]);
  });

  test("and a request id that is claimed before its events is reported", async () => {
    let claiming: ClaimFirstStore | undefined;
    const planted = await startTestService({
      wrapStore: (inner) => (claiming = new ClaimFirstStore(inner)),
    });
    const arm = (): void => {
      given(claiming, "store").failNext = "before";
    };
    const faults = await faultsOfFailure(planted, arm);
    await planted.stop();
    expect(faults.length).toBeGreaterThan(0);
    expect(faults.join()).toMatch(/the retry/);
  });

  test("and rows that stay behind are reported", async () => {
    let leaking: FaultyStore | undefined;
    const planted = await startTestService({
      wrapStore: (inner) => (leaking = new FaultyStore(inner)),
    });
    const arm = (): void => {
      given(leaking, "store").failNext = "after";
    };
    expect(await faultsOfFailure(planted, arm)).toContain("something was left behind");
    await planted.stop();
  });
});

test("B56 a commit that was stored and not acknowledged is told by a retry and not repeated", async () => {
  const clients = service.clients();
  const run = await openRun(clients);
  const request = { ...of(run), commands: fifteenEvents() };
  const before = await allEvents(clients, run.sessionId);
  store.failNext = "after";
  const refusal = await refused(clients.runs.apply(request));
  expect(refusal).toMatchObject({ code: Code.Unavailable, reason: "COMMIT_UNCERTAIN" });
  const stored = await writtenTo(service, clients, run.sessionId);
  expect(stored.events).toBe(before.length + EVENTS);
  const reply = await clients.runs.apply(request);
  expect(idsOf(reply).length).toBe(EVENTS);
  expect(await writtenTo(service, clients, run.sessionId)).toEqual(stored);
});

describe("B56 one command that the database refuses", () => {
  test("fails alone: the others of its batch are stored as if it had not been there", async () => {
    const clients = service.clients();
    const [ours, other] = await Promise.all([openRun(clients), openRun(clients)]);
    const poison = freshRequestId();
    failure = (sql, parameters) =>
      INSERT_REQUEST.test(sql) && parameters.some((parameter) => parameter === poison)
        ? sqliteError("SQLITE_CONSTRAINT_CHECK")
        : undefined;

    const batch = await inOneBatch(clients, ours, [
      () => publishHook(clients, ours),
      () => publishHook(clients, other),
      async () => refused(publishHook(clients, ours, undefined, poison)),
      () => publishHook(clients, ours),
      () => publishHook(clients, other),
    ]);
    failure = () => undefined;

    const refusal = batch[2];
    expect(refusal).toMatchObject({ code: Code.Internal, reason: "INTERNAL" });
    expect(JSON.stringify(refusal)).not.toContain("SQLITE");
    const hooks = [batch[0], batch[1], batch[3], batch[4]].map(hookIdOf);
    for (const { sessionId } of [ours, other]) {
      expect(orderFaults(await allEvents(clients, sessionId))).toEqual([]);
    }
    expect(await hooksOf(clients, ours)).toEqual(expect.arrayContaining([hooks[0], hooks[2]]));
    expect(await hooksOf(clients, other)).toEqual([hooks[1], hooks[3]]);

    const retried = await publishHook(clients, ours, undefined, poison);
    expect((await hooksOf(clients, ours)).at(-1)).toBe(retried.hookId);
  });

  test("as an Apply leaves none of its commands", async () => {
    const poison = (): void => {
      let inserted = 0;
      failure = (sql) =>
        INSERT_EVENT.test(sql) && ++inserted === EVENTS
          ? sqliteError("SQLITE_CONSTRAINT_UNIQUE")
          : undefined;
    };
    expect(await faultsOfFailure(service, poison, Code.Internal)).toEqual([]);
  });

  /** Sends commands that are decided and committed together: they wait behind a commit that is held. */
  async function inOneBatch(
    clients: Clients,
    run: OpenRun,
    sends: readonly (() => Promise<unknown>)[],
  ): Promise<unknown[]> {
    store.hold();
    const first = publishHook(clients, run);
    await until(() => store.waiting === 1);
    const answers = sends.map((send) => send());
    // A read that is answered on the same connection was sent after all of them.
    for (let read = 0; read < 2; read += 1) await clients.info.getServerInfo({});
    const commits = store.sizes.length;
    store.release();
    await first;
    const settled = await Promise.all(answers);
    expect(store.sizes.slice(commits)).toEqual([sends.length, sends.length - 1]);
    return settled;
  }
});

/**
 * Sends an Apply of fifteen events whose commit fails, and then sends it again. What is wrong with the outcome, one
 * line each: something must be all there or not at all, and whoever was refused must be able to try again.
 */
async function faultsOfFailure(
  { clients: connect, ...rest }: TestService,
  arm: () => void,
  code = Code.Unavailable,
): Promise<string[]> {
  const clients = connect();
  const run = await openRun(clients);
  const { sessionId } = run;
  const request = { ...of(run), commands: fifteenEvents() };
  const written = () => writtenTo({ clients: connect, ...rest }, clients, sessionId);
  const before = await written();
  arm();
  const refusal = await refused(clients.runs.apply(request));
  failure = () => undefined;

  const faults = refusal.code === code ? [] : [`the refusal is ${JSON.stringify(refusal)}`];
  const after = await written();
  if (JSON.stringify(after) !== JSON.stringify(before)) faults.push("something was left behind");
  const retried = await clients.runs.apply(request).catch((fault: unknown) => String(fault));
  if (typeof retried === "string") return [...faults, `the retry failed: ${retried}`];
  const log = await allEvents(clients, sessionId);
  if (log.length !== before.events + EVENTS) faults.push(`the retry left ${log.length} events`);
  const again = await clients.runs.apply(request);
  if (idsOf(again).join() !== idsOf(retried).join()) faults.push("a later retry differs");
  return [...faults, ...orderFaults(log)];
}

/** The ids of everything that an Apply wrote. */
function idsOf({ results }: ApplyResponse): (string | undefined)[] {
  return results.flatMap(({ result }) => {
    if (result.case === "recordMessage") return [result.value.message?.messageId];
    if (result.case === "publishHook") return [result.value.hook?.hookId];
    if (result.case !== "acceptTurn") return [];
    const { turn, toolCalls } = result.value;
    return [turn?.turnId, ...toolCalls.map(({ toolCallId }) => toolCallId)];
  });
}

async function hooksOf({ history }: Clients, { sessionId }: OpenRun): Promise<string[]> {
  const { hooks } = await history.listHooks({ sessionId, pageSize: 500 });
  return hooks.map(({ hookId }) => hookId);
}

function hookIdOf(reply: unknown): string {
  if (typeof reply === "object" && reply !== null && "hookId" in reply) return String(reply.hookId);
  throw new Error(`no hook: ${JSON.stringify(reply)}`);
}

/** Stores the request ids of a commit on their own, and only then what the requests led to. */
class ClaimFirstStore extends FaultyStore {
  readonly #inner: Store;

  constructor(inner: Store) {
    super(inner);
    this.#inner = inner;
  }

  override async commit(writes: readonly CommandWrite[]): Promise<CommitResult> {
    const nothing = {
      events: [],
      bodies: [],
      pairings: [],
      creation: undefined,
      snapshot: undefined,
    };
    for (const write of writes) {
      const session = await this.#inner.findSession(write);
      if (session !== undefined) await this.#inner.commit([{ ...write, ...nothing, session }]);
    }
    return super.commit(writes.map((write) => ({ ...write, request: undefined })));
  }
}
