import { renameSync, statSync, writeFileSync } from "node:fs";
import { Code } from "@connectrpc/connect";
import BetterSqlite from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { StoreFault } from "../../src/ledger/store-port.js";
import { IdleCheckpoint } from "../../src/store/sqlite/idle-checkpoint.js";
import { openBetterSqlite } from "../../src/store/sqlite/open.js";
import { openSqliteStore } from "../../src/store/sqlite/sqlite-store.js";
import { A, B, expectCommitted, newEvent, write } from "../conformance/store-fixture.js";
import { createSession, openRun, publishHook, readSession } from "../support/conversation.js";
import { openFailing, sqliteError } from "../support/failing-sqlite.js";
import { FaultyStore } from "../support/faulty-store.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { allOf, until } from "./listeners-fixture.js";

let folder: StoreFolder;

beforeEach(async () => {
  folder = await makeStoreFolder();
});

afterEach(async () => {
  await folder.remove();
});

/** A store whose COMMIT fails with a code for as long as there is one. */
async function openFailingStore() {
  const planted = { code: "", commits: 0 };
  const openDatabase = openFailing((sql) => {
    if (sql !== "COMMIT") return undefined;
    planted.commits += 1;
    return planted.code === "" ? undefined : sqliteError(planted.code);
  });
  const store = await openSqliteStore({
    ...{ path: folder.path, storeId: "test", busyTimeoutMs: 0 },
    openDatabase,
  });
  return { store, planted };
}

describe("a commit that fails", () => {
  let service: TestService;
  let clients: Clients;
  let planted: { code: string; commits: number };

  beforeEach(async () => {
    const opened = await openFailingStore();
    planted = opened.planted;
    service = await startTestService({ wrapStore: () => opened.store });
    clients = service.clients();
  });

  afterEach(async () => {
    await service.stop();
  });

  const errors = (): string[] =>
    service
      .logged()
      .split("\n")
      .filter((line) => line.includes('"level":"error"'));

  test("for want of room is told as that, reads go on, and writing heals by itself", async () => {
    const sessionId = await createSession(clients);
    planted.code = "SQLITE_FULL";
    for (let attempt = 0; attempt < 3; attempt += 1) {
      expect(await refused(createSession(clients))).toMatchObject({
        code: Code.ResourceExhausted,
        reason: "STORE_FULL",
      });
    }
    expect((await readSession(clients, sessionId)).sessionId).toBe(sessionId);
    expect(errors()).toHaveLength(1);
    planted.code = "";
    await createSession(clients);
    expect(service.logged()).toContain("commits succeed again");
  });

  test("because another process writes is told as that, and writing heals by itself", async () => {
    const other = new BetterSqlite(folder.path);
    other.exec("BEGIN IMMEDIATE");
    expect(await refused(createSession(clients))).toMatchObject({
      code: Code.Unavailable,
      reason: "STORE_BUSY",
    });
    other.exec("ROLLBACK");
    other.close();
    await createSession(clients);
  });

  test("for damage is told as that, and from then on the service only reads", async () => {
    const run = await openRun(clients);
    planted.code = "SQLITE_CORRUPT";
    const damaged = { code: Code.DataLoss, reason: "DATA_DAMAGED" };
    expect(await refused(createSession(clients))).toMatchObject(damaged);
    planted.code = "";
    const commits = planted.commits;
    expect(await refused(createSession(clients))).toMatchObject(damaged);
    expect(await refused(publishHook(clients, run))).toMatchObject(damaged);
    expect((await readSession(clients, run.sessionId)).activeRunId).toBe(run.runId);
    await service.drain();
    expect(planted.commits).toBe(commits);
    expect(errors()).toHaveLength(1);
  });
});

describe("a lost commit", () => {
  test.each(["SQLITE_IOERR_FSYNC", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHORT_READ"])(
    "by %s is the last: every later one is answered so and touches nothing",
    async (code) => {
      const { store, planted } = await openFailingStore();
      await expectCommitted(store, write(A, [newEvent(1n, 1n)]));
      planted.code = code;
      const lost = { outcome: "failed", reason: "lost" };
      expect(await store.commit([write(A, [newEvent(2n, 2n)])])).toMatchObject(lost);
      planted.code = "";
      expect(await store.commit([write(B, [newEvent(1n, 2n)])])).toMatchObject(lost);
      expect(planted.commits).toBe(2);
      expect(await store.lastPosition()).toBe(1n);
      await store.close();
      // Not closed: the log is as it was.
      expect(statSync(`${folder.path}-wal`).size).toBeGreaterThan(0);
    },
  );

  test.each(["", "-wal", ".lock"])(
    "is one after which toolmark.db%s is another file",
    async (file) => {
      const { store, planted } = await openFailingStore();
      await expectCommitted(store, write(A, [newEvent(1n, 1n)]));
      const path = folder.path + file;
      renameSync(path, `${path}.away`);
      const lost = { outcome: "failed", reason: "lost" };
      if (file !== "") writeFileSync(path, "");
      expect(await store.commit([write(A, [newEvent(2n, 2n)])])).toMatchObject(lost);
      renameSync(`${path}.away`, path);
      expect(await store.commit([write(A, [newEvent(2n, 2n)])])).toMatchObject(lost);
      expect(planted.commits).toBe(2);
      await store.close();
    },
  );
});

describe("a read that fails", () => {
  const REASONS = [
    ["damaged", "DATA_DAMAGED", Code.DataLoss],
    ["busy", "STORE_BUSY", Code.Unavailable],
    ["unreadable", "STORE_UNREADABLE", Code.Unavailable],
  ] as const;

  test.each(REASONS)("because the store is %s is refused as %s, wherever", async (...args) => {
    const [reason, name, code] = args;
    let store: FaultyStore | undefined;
    const service = await startTestService({
      wrapStore: (inner) => (store = new FaultyStore(inner)),
    });
    const clients = service.clients();
    const run = await openRun(clients);
    const fault = () => Promise.reject(new StoreFault(reason, new Error("secret path")));
    const failing = { findSession: fault, findRequests: fault, lastPosition: fault };
    Object.assign(store!, failing);
    const { sessionId } = run;
    const bodyRef = "body";
    for (const call of [
      () => readSession(clients, sessionId),
      () => publishHook(clients, run),
      () => allOf(clients.approvals.watchAsks({ sessionId })),
      () => allOf(clients.history.readBody({ sessionId, bodyRef })),
    ]) {
      const refusal = await refused(call());
      expect(refusal).toMatchObject({ code, reason: name });
      expect(refusal.message).not.toContain("secret");
    }
    expect(service.logged()).toContain('"StoreFault"');
    await service.stop();
  });

  test("in deciding is refused in the same way, and the next command is decided again", async () => {
    let store: FaultyStore | undefined;
    const service = await startTestService({
      wrapStore: (inner) => (store = new FaultyStore(inner)),
    });
    const clients = service.clients();
    const run = await openRun(clients);
    const { findCreation } = store!;
    store!.findCreation = () => Promise.reject(new StoreFault("unreadable", new Error("x")));
    expect(await refused(createSession(clients))).toMatchObject({ reason: "STORE_UNREADABLE" });
    await publishHook(clients, run);
    store!.findCreation = findCreation;
    await createSession(clients);
    await service.stop();
  });
});

describe("B74 the log of a store that is idle", () => {
  const sizeBytes = (): number => statSync(`${folder.path}-wal`).size;

  function writtenDatabase() {
    const database = openBetterSqlite(folder.path, { busyTimeoutMs: 5000 });
    database.pragma("journal_mode = WAL");
    database.exec("CREATE TABLE t (x); INSERT INTO t VALUES (zeroblob(100000))");
    const faults: Error[] = [];
    const idle = new IdleCheckpoint({
      ...{
        database,
        logPath: `${folder.path}-wal`,
        busyTimeoutMs: 5000,
        quietMs: 5,
        logBytesMin: 0,
      },
      onFault: (error) => faults.push(error),
    });
    return { database, idle, faults };
  }

  test("is emptied, and its connection waits for locks as before", async () => {
    const { database, idle } = writtenDatabase();
    expect(sizeBytes()).toBeGreaterThan(100_000);
    idle.committed();
    await until(() => sizeBytes() === 0);
    expect(database.pragma("busy_timeout")).toBe(5000);
    idle.stop();
    database.close();
  });

  test("is emptied once a reader that holds it has gone, who is not waited for", async () => {
    const { database, idle } = writtenDatabase();
    const reader = new BetterSqlite(folder.path, { readonly: true });
    const rows = reader.prepare("SELECT 1 FROM t UNION ALL SELECT 2").iterate();
    rows.next();
    database.exec("INSERT INTO t VALUES (1)");
    let attempts = 0;
    const { pragma } = database;
    let longestMs = 0;
    database.pragma = (text) => {
      if (text.startsWith("wal_checkpoint")) attempts += 1;
      const startMs = performance.now();
      const answer = pragma.call(database, text);
      longestMs = Math.max(longestMs, performance.now() - startMs);
      return answer;
    };
    idle.committed();
    await until(() => attempts >= 2);
    expect(sizeBytes()).toBeGreaterThan(0);
    expect(longestMs).toBeLessThan(1000);
    rows.return?.();
    reader.close();
    await until(() => sizeBytes() === 0);
    idle.stop();
    database.close();
  });

  test("that cannot be emptied for an error of the disk is told", async () => {
    const { database, idle, faults } = writtenDatabase();
    const { pragma } = database;
    database.pragma = (text) => {
      if (text.startsWith("wal_checkpoint")) throw sqliteError("SQLITE_IOERR_FSYNC");
      return pragma.call(database, text);
    };
    idle.committed();
    await until(() => faults.length > 0);
    idle.stop();
    database.close();
  });
});
