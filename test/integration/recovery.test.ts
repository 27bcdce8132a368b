import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import BetterSqlite from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { CommandSchema } from "../../gen/toolmark/engine/v1/command_pb.js";
import {
  ApplyRequestSchema,
  BeginRunRequestSchema,
} from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind, SessionState } from "../../gen/toolmark/v1/session_pb.js";
import { CreateSessionRequestSchema } from "../../gen/toolmark/v1/session_service_pb.js";
import { DEFAULT_LIMITS } from "../../src/domain/limits.js";
import { isRefusal, type Refusal } from "../../src/domain/refusal.js";
import type { Replies } from "../../src/ledger/batch-context.js";
import { Ledger } from "../../src/ledger/ledger.js";
import type { LoadWarning } from "../../src/ledger/load-session.js";
import type { Mutation } from "../../src/ledger/mutation.js";
import { Reader, type ListHooksFilter } from "../../src/ledger/reader.js";
import type { Store } from "../../src/ledger/store-port.js";
import { removeMark } from "../../src/store/sqlite/position-mark.js";
import { openSqliteStore } from "../../src/store/sqlite/sqlite-store.js";
import { FaultyStore } from "../support/faulty-store.js";
import { reseal } from "../support/reseal.js";
import { OutsideWorld, TENANT_CALLER, WAITING } from "../support/outside-world.js";
import { withoutTriggers } from "../support/without-triggers.js";

const SNAPSHOT_EVERY = 10;
const HOOKS = 33;

let folder: string;
let path: string;
let world: OutsideWorld;

/** A ledger on the file, with what it warned of and how often it committed. */
class Opened {
  readonly warnings: LoadWarning[] = [];
  readonly failures: string[] = [];
  readonly ledger: Ledger;
  readonly reader: Reader;
  readonly store: FaultyStore;

  constructor(store: Store) {
    this.store = new FaultyStore(store);
    const options = world.ledgerOptions(this.store, SNAPSHOT_EVERY);
    this.ledger = new Ledger(options, {
      sessionDamaged: (warning) => this.warnings.push(warning),
      commitFailed: ({ cause }) => this.failures.push(cause.message),
    });
    this.reader = new Reader(this.store, DEFAULT_LIMITS);
  }

  async close(): Promise<void> {
    await this.ledger.close();
    await this.store.close();
  }
}

async function open(generation = 0n): Promise<Opened> {
  return new Opened(await openSqliteStore({ path, storeId: "test", generation }));
}

async function taken(opened: Opened, mutation: Mutation): Promise<Replies> {
  const reply = await opened.ledger.submit(TENANT_CALLER, mutation, WAITING);
  if (isRefusal(reply)) throw new Error(reply.message);
  return reply;
}

interface Made {
  readonly sessionId: string;
  readonly runId: string;
}

async function makeSession(opened: Opened, hooks = HOOKS): Promise<Made> {
  const request = create(CreateSessionRequestSchema, { requestId: "c", kind: SessionKind.MAIN });
  const session = (await taken(opened, { kind: "createSession", request }))[0]?.[0]?.record;
  const sessionId = session?.case === "session" ? session.value.sessionId : "";
  const begin = create(BeginRunRequestSchema, {
    sessionId,
    requestId: "b",
    startGate: StartGate.OFF,
  });
  const run = (await taken(opened, { kind: "beginRun", request: begin }))[0]?.[0]?.record;
  const runId = run?.case === "run" ? run.value.runId : "";
  for (let index = 0; index < hooks; index += 1) {
    await taken(opened, hook({ sessionId, runId }, `h${index}`));
  }
  return { sessionId, runId };
}

function hook(made: Made, requestId: string): Mutation {
  const publishHook = { phase: "session_start", decision: HookDecision.INFO, text: requestId };
  const command = create(CommandSchema, { command: { case: "publishHook", value: publishHook } });
  const request = create(ApplyRequestSchema, { ...made, requestId, commands: [command] });
  return { kind: "apply", request };
}

/**
 * Changes rows behind the service's back, past the triggers that would refuse it. The mark goes too: with it, a file
 * that lacks events is not opened at all.
 */
function tamper(sql: string): void {
  removeMark(path);
  const database = new BetterSqlite(path);
  withoutTriggers(database, () => {
    database.exec(sql);
    // What is put to the test here are the checks beyond those of single rows.
    reseal(database);
  });
  database.close();
}

async function refusalOf(opened: Opened, mutation: Mutation): Promise<Refusal> {
  const reply = await opened.ledger.submit(TENANT_CALLER, mutation, WAITING);
  if (!isRefusal(reply)) throw new Error("not refused");
  return reply;
}

async function highWaterOf(opened: Opened, sessionId: string): Promise<bigint | undefined> {
  const session = await opened.reader.getSession(TENANT_CALLER, sessionId);
  return isRefusal(session) ? undefined : session.highWater;
}

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "toolmark-recovery-"));
  path = join(folder, "toolmark.db");
  world = new OutsideWorld("recovery");
});

afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});

describe("loading a session", () => {
  test("goes on after the last committed revision and writes nothing", async () => {
    const first = await open();
    const made = await makeSession(first);
    await first.store.close();

    const database = new BetterSqlite(path);
    const changesBefore = database.pragma("data_version", { simple: true });
    const second = await open();
    expect(await highWaterOf(second, made.sessionId)).toBe(BigInt(HOOKS));
    await refusalOf(second, hook({ ...made, runId: "run_other" }, "loads the session"));
    expect(second.store.commits).toBe(0);
    expect(database.pragma("data_version", { simple: true })).toBe(changesBefore);
    database.close();

    await taken(second, hook(made, "next"));
    expect(await highWaterOf(second, made.sessionId)).toBe(BigInt(HOOKS + 1));
    expect(second.warnings).toEqual([]);
    await second.close();
  });

  test("keeps the last two snapshots and reads only the tail after the newest", async () => {
    const first = await open();
    const made = await makeSession(first);
    const session = { tenant: "default", sessionId: made.sessionId };
    const sequences = (await first.store.readSnapshots(session)).map(({ sequence }) => sequence);
    expect(sequences).toEqual([30n, 20n]);
    await first.store.close();

    const second = await open();
    const asked: bigint[] = [];
    const { readEvents } = second.store;
    second.store.readEvents = (ref, after, limit, maxBytes) => {
      asked.push(after);
      return readEvents(ref, after, limit, maxBytes);
    };
    await taken(second, hook(made, "next"));
    expect(asked[0]).toBe(30n);
    await second.close();
  });

  test("on drain saves what has no snapshot, so that the next load reads no event", async () => {
    const first = await open();
    const made = await makeSession(first);
    await first.close();
    const second = await open();
    let rowsRead = 0;
    const { readEvents } = second.store;
    second.store.readEvents = async (...page) => {
      const rows = await readEvents(...page);
      rowsRead += rows.length;
      return rows;
    };
    await taken(second, hook(made, "next"));
    expect(rowsRead).toBe(0);
    await second.close();
  });

  test.each([
    ["the newest snapshot", 30n, "= 30", 1],
    ["both snapshots", 30n, "> 0", 2],
  ])("falls back past %s if damaged, with a warning", async (_which, _newest, where, warnings) => {
    const first = await open();
    const made = await makeSession(first);
    await first.store.close();
    tamper(`UPDATE snapshots SET state = zeroblob(length(state)) WHERE sequence ${where}`);
    const second = await open();
    await taken(second, hook(made, "next"));
    expect(second.warnings.map(({ warning }) => warning)).toEqual(
      Array.from({ length: warnings }, () => "snapshot_damaged"),
    );
    expect(await highWaterOf(second, made.sessionId)).toBe(BigInt(HOOKS + 1));
    await second.close();
  });

  test("does not trust a stale snapshot's high-water over the committed tail", async () => {
    const first = await open();
    const made = await makeSession(first);
    await first.store.close();
    tamper("DELETE FROM snapshots WHERE sequence = 30");
    const second = await open();
    const reply = await taken(second, hook(made, "next"));
    const record = reply[0]?.[0]?.record;
    expect(record?.case === "hook" && record.value.revision).toBe(BigInt(HOOKS + 1));
    await second.close();
  });

  test("of a later log generation starts above every revision of the earlier ones", async () => {
    const first = await open();
    const made = await makeSession(first, 3);
    await first.store.close();
    tamper("UPDATE meta SET generation = 2");
    const second = await open();
    const reply = await taken(second, hook(made, "next"));
    const record = reply[0]?.[0]?.record;
    expect(record?.case === "hook" && record.value.revision).toBe(2n * 2n ** 32n + 1n);
    await second.store.close();
    const third = await open();
    await taken(third, hook(made, "after"));
    expect(third.warnings).toEqual([]);
    await third.close();
  });
});

describe("a high-water that cannot be established", () => {
  const faults: readonly [string, string, string][] = [
    [
      "the last event is missing",
      "DELETE FROM events WHERE sequence = (SELECT max(sequence) FROM events)",
      "missing",
    ],
    ["an event of the tail is missing", "DELETE FROM events WHERE sequence = 33", "missing"],
    [
      "a payload of the tail is changed",
      "UPDATE events SET payload = zeroblob(length(payload)) WHERE sequence = 34",
      "damaged",
    ],
    [
      "a revision of the tail is changed",
      "UPDATE events SET revision = 900 WHERE sequence = 34",
      "damaged",
    ],
    ["the head is behind", "UPDATE sessions SET sequence = 34, high_water = 32", "chain"],
    ["the head's high-water is raised", "UPDATE sessions SET high_water = 900", "high-water"],
    [
      "the snapshot is ahead of the last row",
      "UPDATE sessions SET sequence = 25; DELETE FROM events WHERE sequence > 25",
      "ahead",
    ],
  ];

  test.each(faults)("%s: reads go on, publishing is refused", async (_fault, sql, cause) => {
    const first = await open();
    const made = await makeSession(first);
    await first.store.close();
    tamper(sql);

    const second = await open();
    const commits = second.store.commits;
    const refusal = await refusalOf(second, hook(made, "next"));
    expect(refusal.reason).toBe(ErrorReason.HIGH_WATER_UNAVAILABLE);
    expect(second.store.commits).toBe(commits);
    expect(second.warnings).toMatchObject([
      { sessionId: made.sessionId, warning: "high_water_unavailable" },
    ]);
    expect(second.warnings[0]?.cause).toContain(cause);
    const session = await second.reader.getSession(TENANT_CALLER, made.sessionId);
    expect(isRefusal(session)).toBe(false);
    const page = { pageSize: 20, pageToken: "" };
    const events = await second.reader.listEvents(TENANT_CALLER, made.sessionId, 0n, page);
    expect(isRefusal(events)).toBe(false);
    await second.close();
  });

  test("leaves other sessions writable", async () => {
    const first = await open();
    const made = await makeSession(first);
    await first.store.close();
    tamper("DELETE FROM events WHERE sequence = 33");
    const second = await open();
    await refusalOf(second, hook(made, "next"));
    const request = create(CreateSessionRequestSchema, { requestId: "o", kind: SessionKind.MAIN });
    await taken(second, { kind: "createSession", request });
    await second.close();
  });
});

describe("provider pairings", () => {
  async function acceptCall(
    opened: Opened,
    made: Made,
    requestId: string,
  ): Promise<Replies | Refusal> {
    const call = {
      toolName: "bash",
      arguments: { data: new Uint8Array([123, 125]) },
      pairing: { providerCallId: "outstanding" },
    };
    const value = { calls: [call] };
    const command = create(CommandSchema, { command: { case: "acceptTurn", value } });
    const request = create(ApplyRequestSchema, { ...made, requestId, commands: [command] });
    return opened.ledger.submit(TENANT_CALLER, { kind: "apply", request }, WAITING);
  }

  test("of open calls are outstanding after a restart", async () => {
    const first = await open();
    const made = await makeSession(first, 0);
    await acceptCall(first, made, "one");
    await first.close();
    const second = await open();
    expect(await acceptCall(second, made, "two")).toMatchObject({
      reason: ErrorReason.PROVIDER_CALL_ID_OUTSTANDING,
    });
    await second.close();
  });

  test.each([
    ["lost", "DELETE FROM pairings"],
    ["changed", "UPDATE pairings SET pairing = zeroblob(length(pairing))"],
  ])("that are %s leave nothing to guess: the session is read-only", async (_how, sql) => {
    const first = await open();
    const made = await makeSession(first, 0);
    await acceptCall(first, made, "one");
    await first.close();
    tamper(sql);
    const second = await open();
    expect(await acceptCall(second, made, "two")).toMatchObject({
      reason: ErrorReason.HIGH_WATER_UNAVAILABLE,
    });
    await second.close();
  });
});

function hooksOf({ sessionId }: { readonly sessionId: string }): ListHooksFilter {
  return { sessionId, toolCallId: "", includeDescendants: false };
}

describe("a damaged row", () => {
  test("of a record is told as damage, not as absence", async () => {
    const first = await open();
    const made = await makeSession(first, 5);
    const page = { pageSize: 50, pageToken: "" };
    const hooks = await first.reader.listHooks(TENANT_CALLER, hooksOf(made), page);
    const [hookId = ""] = isRefusal(hooks) ? [] : hooks.items.map((item) => item.hookId);
    await first.close();
    tamper("DELETE FROM events WHERE sequence = 3");
    const second = await open();
    const damaged = { reason: ErrorReason.DATA_DAMAGED, metadata: { sequence: "3" } };
    const { reader } = second;
    expect(await reader.getHook(TENANT_CALLER, made.sessionId, hookId)).toMatchObject(damaged);
    const list = await reader.listHooks(TENANT_CALLER, hooksOf(made), page);
    expect(list).toMatchObject(damaged);
    await second.close();
  });

  test("of another record under the same id is not served", async () => {
    const first = await open();
    const made = await makeSession(first, 5);
    await first.close();
    tamper("UPDATE records SET last_sequence = 4 WHERE last_sequence = 3");
    const second = await open();
    const page = { pageSize: 50, pageToken: "" };
    const list = await second.reader.listHooks(TENANT_CALLER, hooksOf(made), page);
    expect(list).toMatchObject({ reason: ErrorReason.DATA_DAMAGED });
    await second.close();
  });

  test("of a session leaves it in the list with what is known, and the others whole", async () => {
    const first = await open();
    const made = await makeSession(first, 2);
    const other = create(CreateSessionRequestSchema, { requestId: "o", kind: SessionKind.MAIN });
    await taken(first, { kind: "createSession", request: other });
    await first.close();
    tamper("UPDATE events SET payload = zeroblob(length(payload)) WHERE position = 1");
    const second = await open();
    const state = SessionState.UNSPECIFIED;
    const filter = { ownerSubject: "", state, ancestorSessionId: "" };
    const page = { pageSize: 50, pageToken: "" };
    const sessions = await second.reader.listSessions(TENANT_CALLER, filter, page);
    expect(isRefusal(sessions) ? sessions : sessions.items).toMatchObject([
      { sessionId: made.sessionId, kind: SessionKind.UNSPECIFIED, highWater: 2n },
      { kind: SessionKind.MAIN },
    ]);
    await second.close();
  });

  test("is not served, and names its place", async () => {
    const first = await open();
    const made = await makeSession(first, 5);
    await first.close();
    tamper("UPDATE events SET payload = zeroblob(length(payload)) WHERE sequence = 4");
    const second = await open();
    const page = { pageSize: 50, pageToken: "" };
    const events = await second.reader.listEvents(TENANT_CALLER, made.sessionId, 0n, page);
    expect(events).toMatchObject({
      reason: ErrorReason.DATA_DAMAGED,
      metadata: { sequence: "4" },
    });
    const before = await second.reader.listEvents(TENANT_CALLER, made.sessionId, 4n, page);
    expect(isRefusal(before)).toBe(false);
    await second.close();
  });

  test("in the middle of a list is not skipped when it is gone", async () => {
    const first = await open();
    const made = await makeSession(first, 5);
    await first.close();
    tamper("DELETE FROM events WHERE sequence = 4");
    const second = await open();
    const page = { pageSize: 50, pageToken: "" };
    const events = await second.reader.listEvents(TENANT_CALLER, made.sessionId, 0n, page);
    expect(events).toMatchObject({ reason: ErrorReason.DATA_DAMAGED });
    await second.close();
  });
});

test("a failed commit loses nothing that was acknowledged and is retried by its request id", async () => {
  const opened = await open();
  const made = await makeSession(opened, 3);
  for (const mode of ["before", "after"] as const) {
    opened.store.failNext = mode;
    const refusal = await refusalOf(opened, hook(made, mode));
    expect(refusal.reason).toBe(ErrorReason.COMMIT_UNCERTAIN);
    await taken(opened, hook(made, mode));
  }
  expect(await highWaterOf(opened, made.sessionId)).toBe(5n);
  expect(opened.failures).toEqual(["planted commit failure", "planted commit failure"]);
  await opened.close();
});
