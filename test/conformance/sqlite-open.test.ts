import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import BetterSqlite from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { InvariantError } from "../../src/domain/invariant.js";
import type { Store } from "../../src/ledger/store-port.js";
import { openBetterSqlite } from "../../src/store/sqlite/open.js";
import type { OpenDatabase, SqliteDatabase } from "../../src/store/sqlite/sqlite-database.js";
import { openSqliteStore, type SqliteStore } from "../../src/store/sqlite/sqlite-store.js";
import { StoreOpenError, type StoreOpenReason } from "../../src/store/sqlite/store-open-error.js";
import { A, B, expectCommitted, newEvent, write } from "./store-fixture.js";

let folder: string;
let path: string;
const opened: Store[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "toolmark-open-"));
  path = join(folder, "toolmark.db");
});

afterEach(async () => {
  for (const store of opened.splice(0)) await store.close();
  rmSync(folder, { recursive: true, force: true });
});

async function open(
  changes: Partial<Parameters<typeof openSqliteStore>[0]> = {},
): Promise<SqliteStore> {
  const store = await openSqliteStore({ path, storeId: "store-1", ...changes });
  opened.push(store);
  return store;
}

async function refusal(pending: Promise<unknown>): Promise<StoreOpenError> {
  const thrown = await pending.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (thrown instanceof StoreOpenError) return thrown;
  throw new Error(`not a StoreOpenError: ${String(thrown)}`);
}

async function expectRefusal(pending: Promise<unknown>, reason: StoreOpenReason): Promise<void> {
  expect((await refusal(pending)).reason).toBe(reason);
}

/** A driver that does something else for some PRAGMAs. */
function pragmaDriver(
  change: (text: string, database: SqliteDatabase) => { readonly result: unknown } | undefined,
): OpenDatabase {
  return (file, options) => {
    const database = openBetterSqlite(file, options);
    const pragma = (text: string) => {
      const changed = change(text, database);
      return changed === undefined ? database.pragma(text) : changed.result;
    };
    return { ...database, pragma };
  };
}

describe("settings", () => {
  test("the connection is durable, append-only and bounded, as read back from it", async () => {
    const databases: SqliteDatabase[] = [];
    const openDatabase: OpenDatabase = (file, options) => {
      const database = openBetterSqlite(file, options);
      databases.push(database);
      return database;
    };
    await open({ openDatabase });
    const database = databases.at(-1)!;
    expect(database.pragma("journal_mode")).toBe("wal");
    expect(database.pragma("synchronous")).toBe(2);
    expect(database.pragma("recursive_triggers")).toBe(1);
    expect(database.pragma("foreign_keys")).toBe(1);
    expect(database.pragma("secure_delete")).toBe(1);
    expect(database.pragma("wal_autocheckpoint")).toBeGreaterThanOrEqual(1000);
    expect(database.pragma("wal_autocheckpoint")).toBeLessThanOrEqual(4000);
    expect(database.pragma("journal_size_limit")).toBeGreaterThan(0);
  });

  test.each([
    ["synchronous", "NORMAL", "1"],
    ["synchronous", "OFF", "0"],
    ["journal_mode", "DELETE", "delete"],
    ["journal_mode", "MEMORY", "memory"],
    ["recursive_triggers", "OFF", "0"],
    ["foreign_keys", "OFF", "0"],
    ["ignore_check_constraints", "ON", "1"],
    ["secure_delete", "OFF", "0"],
    ["wal_autocheckpoint", "0", "0"],
  ])("a driver that sets %s to %s is refused", async (setting, value, found) => {
    const openDatabase = pragmaDriver((text, database) =>
      text.startsWith(`${setting} =`)
        ? { result: database.pragma(`${setting} = ${value}`) }
        : undefined,
    );
    const error = await refusal(open({ openDatabase }));
    expect(error.reason).toBe("weak_setting");
    expect(error.details).toMatchObject({ setting, found });
    await open();
  });

  test("a driver that takes a setting and reports a weaker one is refused", async () => {
    const openDatabase = pragmaDriver((text) =>
      text === "synchronous" ? { result: 1 } : undefined,
    );
    await expectRefusal(open({ openDatabase }), "weak_setting");
  });
});

describe("one writer", () => {
  test("a second opener in this process is refused within a second, the first goes on", async () => {
    const store = await open();
    const startMs = performance.now();
    await expectRefusal(open(), "locked");
    expect(performance.now() - startMs).toBeLessThan(1000);
    await expectCommitted(store, write(A, [newEvent(1n, 1n)]));
  });

  test("a link to the file leads to the same lock", async () => {
    await open();
    const link = join(folder, "link.db");
    symlinkSync(path, link);
    await expectRefusal(open({ path: link }), "locked");
  });

  test("another process cannot take the lock while the store is open, and can afterwards", async () => {
    const store = await open();
    expect(spawnSync(process.execPath, ["-e", takeLock(path, "")]).status).toBe(1);
    opened.pop();
    await store.close();
    expect(spawnSync(process.execPath, ["-e", takeLock(path, "")]).status).toBe(0);
  });

  test("the lock of a process killed by -9 is free within a second", async () => {
    await (await open()).close();
    opened.pop();
    const script = takeLock(path, "setInterval(() => 0, 1000); console.log('held');");
    const holder = spawn(process.execPath, ["-e", script], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await once(holder.stdout, "data");
    await expectRefusal(open(), "locked");
    holder.kill("SIGKILL");
    await once(holder, "exit");
    const startMs = performance.now();
    await open();
    expect(performance.now() - startMs).toBeLessThan(1000);
  });
});

/** A program that takes the lock as a store does. Ends with 1 if it is held. */
function takeLock(databasePath: string, then: string): string {
  return `const Database = require(${JSON.stringify(join(process.cwd(), "node_modules/better-sqlite3"))});
    const lock = new Database(${JSON.stringify(`${databasePath}.lock`)}, { timeout: 0 });
    try { lock.exec("BEGIN EXCLUSIVE"); } catch (error) { process.exit(1); }
    ${then}`;
}

describe("files", () => {
  test.each(["", ":memory:", "file:x.db"])("path %j names no file and is refused", async (name) => {
    await expectRefusal(open({ path: name }), "path_invalid");
  });

  test("a folder that is missing is made, and the files are the owner's alone", async () => {
    const deep = join(folder, "a", "b", "toolmark.db");
    await open({ path: deep });
    for (const file of [deep, `${deep}-wal`, `${deep}.lock`]) {
      expect(statSync(file).mode & 0o777).toBe(0o600);
    }
  });

  test("a path that cannot be a file is refused", async () => {
    await expectRefusal(open({ path: folder }), "unavailable");
    writeFileSync(path, "");
    await expectRefusal(open({ path: join(path, "below.db") }), "unavailable");
  });

  test("a file that is no database is refused and left alone", async () => {
    const content = "no database ".repeat(1000);
    writeFileSync(path, content);
    await expectRefusal(open(), "unreadable");
    expect(readFileSync(path, "utf8")).toBe(content);
  });

  test("another program's database is refused and left alone", async () => {
    const other = new BetterSqlite(path);
    other.exec("CREATE TABLE theirs (x)");
    other.close();
    const before = readFileSync(path);
    await expectRefusal(open(), "foreign_file");
    expect(readFileSync(path).equals(before)).toBe(true);
  });

  test.each([
    [
      "a trigger that is gone",
      "DROP TRIGGER events_never_go",
      "trigger events_never_go is missing",
    ],
    [
      "a trigger that was added",
      "CREATE TRIGGER extra AFTER INSERT ON events BEGIN SELECT 1; END",
      "trigger extra is not this program's",
    ],
    ["an index that is gone", "DROP INDEX events_by_revision", "index events_by_revision"],
  ])("a file with %s is refused: it would not refuse what it must", async (_what, sql, fault) => {
    await (await open()).close();
    opened.length = 0;
    const file = new BetterSqlite(path);
    file.exec(sql);
    file.close();
    const { reason, message } = await refusal(open());
    expect(reason).toBe("unreadable");
    expect(message).toContain(fault);
  });

  test("opening an up-to-date file and reading it writes nothing to it", async () => {
    const first = await open();
    await expectCommitted(first, write(A, [newEvent(1n, 1n)]));
    opened.pop();
    await first.close();
    const before = readFileSync(path);
    const databases: SqliteDatabase[] = [];
    const openDatabase: OpenDatabase = (file, options) => {
      databases.push(openBetterSqlite(file, options));
      return databases.at(-1)!;
    };
    const store = await open({ openDatabase });
    expect(await store.readEvent(A, 1n)).toBeDefined();
    const { changes } = databases
      .at(-1)!
      .prepare<{ changes: number }>("SELECT total_changes() AS changes")
      .get()!;
    expect(changes).toBe(0);
    opened.pop();
    await store.close();
    expect(readFileSync(path).equals(before)).toBe(true);
  });

  test("a file keeps the id and generation that it was made with", async () => {
    const first = await open({ storeId: "made-with", generation: 3n });
    expect([first.storeId, first.generation]).toEqual(["made-with", 3n]);
    opened.pop();
    await first.close();
    const again = await open({ storeId: "another", generation: 9n });
    expect([again.storeId, again.generation]).toEqual(["made-with", 3n]);
  });
});

describe("failures of a commit", () => {
  async function openTapped(change?: (database: SqliteDatabase) => SqliteDatabase) {
    const databases: SqliteDatabase[] = [];
    const openDatabase: OpenDatabase = (file, options) => {
      const database = openBetterSqlite(file, options);
      databases.push(database);
      return change && !file.endsWith(".lock") ? change(database) : database;
    };
    const store = await open({ openDatabase, busyTimeoutMs: 0 });
    return { store, database: databases.at(-1)! };
  }

  test("a full disk fails the group as full, keeps nothing of it, and heals", async () => {
    const { store, database } = await openTapped();
    await expectCommitted(store, write(A, [newEvent(1n, 1n)]));
    const pages = Number(database.pragma("page_count"));
    database.pragma(`max_page_count = ${pages}`);
    const large = write(A, [newEvent(2n, 2n), newEvent(3n, 3n, { payload: new Uint8Array(1e6) })]);
    expect(await store.commit([large])).toMatchObject({ outcome: "failed", reason: "full" });
    expect(await store.lastPosition()).toBe(1n);
    expect(await store.readEvent(A, 2n)).toBeUndefined();
    database.pragma("max_page_count = 100000");
    await expectCommitted(store, large);
  });

  test("another connection's write lock fails the group as busy, until it is released", async () => {
    const { store } = await openTapped();
    const other = new BetterSqlite(path);
    other.exec("BEGIN IMMEDIATE");
    const group = write(A, [newEvent(1n, 1n)]);
    expect(await store.commit([group])).toMatchObject({ outcome: "failed", reason: "busy" });
    other.exec("ROLLBACK");
    other.close();
    await expectCommitted(store, group);
  });

  test("a failed COMMIT fails the group as a whole and leaves nothing open", async () => {
    let failing = false;
    const { store, database } = await openTapped((inner) => failOn(inner, "COMMIT", () => failing));
    failing = true;
    const group = write(A, [newEvent(1n, 1n)]);
    expect(await store.commit([group])).toMatchObject({ outcome: "failed", reason: "other" });
    expect(database.inTransaction).toBe(false);
    expect(await store.findSession(A)).toBeUndefined();
    failing = false;
    await expectCommitted(store, group);
  });

  test("a failed ROLLBACK breaks an invariant, and nothing is answered any more", async () => {
    const { store } = await openTapped((inner) => failOn(inner, "ROLLBACK", () => true));
    const group = [write(A, [newEvent(1n, 1n)]), write(A, [newEvent(1n, 1n)])];
    await expect(store.commit(group)).rejects.toThrow(InvariantError);
    await expect(store.readEvent(A, 1n)).rejects.toThrow();
    const next = await store.commit([write(B, [newEvent(1n, 1n)])]);
    expect(next).toMatchObject({ outcome: "failed", reason: "other" });
  });

  function failOn(inner: SqliteDatabase, sql: string, when: () => boolean): SqliteDatabase {
    return {
      get inTransaction() {
        return inner.inTransaction;
      },
      exec: (text) => {
        inner.exec(text);
      },
      pragma: (text) => inner.pragma(text),
      close: () => {
        inner.close();
      },
      prepare: <Row>(text: string) => {
        const statement = inner.prepare<Row>(text);
        if (text !== sql) return statement;
        const run: typeof statement.run = (...parameters) => {
          if (when()) throw Object.assign(new Error("out of memory"), { code: "SQLITE_NOMEM" });
          return statement.run(...parameters);
        };
        return new Proxy(statement, {
          get: (target, key): unknown => (key === "run" ? run : Reflect.get(target, key, target)),
        });
      },
    };
  }
});
