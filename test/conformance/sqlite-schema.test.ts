import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import BetterSqlite from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ROW_RULES } from "../../src/ledger/row-rules.js";
import {
  migrateDown,
  migrateUp,
  planMigration,
  readMigrations,
  schemaVersion,
} from "../../src/store/sqlite/migrate.js";
import { openBetterSqlite } from "../../src/store/sqlite/open.js";
import type { SqliteDatabase } from "../../src/store/sqlite/sqlite-database.js";
import { downgradeSqliteStore, openSqliteStore } from "../../src/store/sqlite/sqlite-store.js";
import { READ_SQL } from "../../src/store/sqlite/statements.js";
import { StoreOpenError } from "../../src/store/sqlite/store-open-error.js";
import {
  A,
  askEvent,
  B,
  bodyRow,
  eventRow,
  expectCommitted,
  hook,
  newEvent,
  pairingRow,
  requestRow,
  snapshotRow,
  write,
} from "./store-fixture.js";

let folder: string;
let path: string;
let raw: BetterSqlite.Database;

/** A file as a store left it, then opened past the store. */
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "toolmark-schema-"));
  path = join(folder, "toolmark.db");
  const store = await openSqliteStore({ path, storeId: "store-1" });
  const lastRow = eventRow(1n, 3n, { revision: 1n });
  await expectCommitted(
    store,
    write(A, [newEvent(1n, 1n, { revision: 1n }, hook("hk_1", "tc_1"))], {
      bodies: [bodyRow("body_1", "{}")],
      pairings: [pairingRow("tc_1")],
      request: requestRow("r1"),
      snapshot: snapshotRow(1n),
    }),
    write(A, [newEvent(2n, 2n, { revision: 2n })]),
    write(B, [{ ...askEvent(1n, 3n, "ask_1"), row: lastRow, deadline: { timeMs: 5 } }]),
  );
  await store.close();
  raw = new BetterSqlite(path);
});

afterEach(() => {
  raw.close();
  rmSync(folder, { recursive: true, force: true });
});

const COLUMNS = "position, session, sequence, revision, kind, time_ms, commitment, chain";
const VALUES = (position: number | string, sequence: number, revision: number | null) =>
  `(${position}, 1, ${sequence}, ${revision}, 'k', 1, x'01', x'02')`;

function allRows(database: BetterSqlite.Database): Record<string, unknown[]> {
  const tables = database
    .prepare<[], string>("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    .pluck()
    .all();
  return Object.fromEntries(
    tables.map((table) => [table, database.prepare(`SELECT * FROM ${table}`).all()]),
  );
}

describe("the database itself keeps events as they were written", () => {
  const attempts: readonly (readonly [string, string])[] = [
    ["an update of the payload", "UPDATE events SET payload = x'00' WHERE position = 1"],
    ["an update of the kind", "UPDATE events SET kind = 'x' WHERE position = 1"],
    ["an update of the time", "UPDATE events SET time_ms = 0"],
    ["an update of the revision", "UPDATE events SET revision = NULL WHERE position = 2"],
    ["an update of the chain", "UPDATE events SET chain = x'00' WHERE position = 1"],
    ["an update of the commitment", "UPDATE events SET commitment = x'00' WHERE position = 1"],
    ["an update of the position", "UPDATE events SET position = 9 WHERE position = 3"],
    ["an update of the rowid", "UPDATE events SET rowid = 9 WHERE rowid = 3"],
    ["an update of the session", "UPDATE events SET session = 2, sequence = 9 WHERE position = 1"],
    ["an update to null", "UPDATE events SET kind = NULL WHERE position = 1"],
    ["UPDATE OR REPLACE", "UPDATE OR REPLACE events SET sequence = 2 WHERE position = 1"],
    ["UPDATE OR IGNORE", "UPDATE OR IGNORE events SET kind = 'x' WHERE position = 1"],
    ["erasing the payload alone", "UPDATE events SET payload = NULL WHERE position = 1"],
    ["erasing the salt alone", "UPDATE events SET salt = NULL WHERE position = 1"],
    [
      "erasing together with another change",
      "UPDATE events SET payload = NULL, salt = NULL, kind = 'x' WHERE position = 1",
    ],
    ["a delete", "DELETE FROM events WHERE position = 3"],
    ["a delete of all", "DELETE FROM events"],
    ["a delete of a session", "DELETE FROM sessions"],
    ["a second position", `INSERT INTO events (${COLUMNS}) VALUES ${VALUES(3, 9, null)}`],
    ["an earlier position", `INSERT INTO events (${COLUMNS}) VALUES ${VALUES(-5, 9, null)}`],
    ["no position", `INSERT INTO events (${COLUMNS}) VALUES ${VALUES("NULL", 9, null)}`],
    ["a second sequence", `INSERT INTO events (${COLUMNS}) VALUES ${VALUES(9, 2, null)}`],
    ["a second revision", `INSERT INTO events (${COLUMNS}) VALUES ${VALUES(9, 9, 2)}`],
    [
      "an unknown session",
      `INSERT INTO events (${COLUMNS}) VALUES (9, 77, 1, 1, 'k', 1, x'', x'')`,
    ],
    ["a value of another type", `INSERT INTO events (${COLUMNS}) VALUES ${VALUES("'x'", 9, 9)}`],
    ...["INSERT OR REPLACE", "REPLACE", "INSERT OR IGNORE"].flatMap((verb): [string, string][] => [
      [`${verb} on a position`, `${verb} INTO events (${COLUMNS}) VALUES ${VALUES(1, 9, 9)}`],
      [`${verb} on a sequence`, `${verb} INTO events (${COLUMNS}) VALUES ${VALUES(9, 1, 9)}`],
      [`${verb} on a revision`, `${verb} INTO events (${COLUMNS}) VALUES ${VALUES(9, 9, 1)}`],
    ]),
    [
      "an upsert that changes",
      `INSERT INTO events (${COLUMNS}) VALUES ${VALUES(1, 1, 1)}
       ON CONFLICT (position) DO UPDATE SET kind = 'x'`,
    ],
    [
      "an upsert that does nothing",
      `INSERT INTO events (${COLUMNS}) VALUES ${VALUES(9, 1, 9)} ON CONFLICT DO NOTHING`,
    ],
  ];

  test.each(attempts)("%s is refused", (_name, sql) => {
    const before = allRows(raw);
    expect(() => raw.exec(sql)).toThrow(/^(events: |.*constraint failed|datatype mismatch)/);
    expect(allRows(raw)).toEqual(before);
  });

  test("REPLACE is refused also where triggers on its deletes do not run", () => {
    raw.pragma("recursive_triggers = OFF");
    const before = allRows(raw);
    for (const values of [VALUES(1, 9, 9), VALUES(9, 1, 9), VALUES(9, 9, 1)]) {
      expect(() => raw.exec(`REPLACE INTO events (${COLUMNS}) VALUES ${values}`)).toThrow(
        /^events/,
      );
    }
    expect(allRows(raw)).toEqual(before);
  });

  test("the next event is taken: the refusals are not of everything", () => {
    raw.exec(`INSERT INTO events (${COLUMNS}) VALUES ${VALUES(4, 3, 3)}`);
    expect(raw.prepare("SELECT count(*) FROM events").pluck().get()).toBe(4);
  });

  test("payload and salt may be erased together, also twice, and nothing else changes", () => {
    const read = raw.prepare<[], Record<string, unknown>>(
      "SELECT * FROM events WHERE position = 1",
    );
    const before = read.get();
    for (let time = 0; time < 2; time += 1) {
      raw.exec("UPDATE events SET payload = NULL, salt = NULL WHERE position = 1");
      expect(read.get()).toEqual({ ...before, payload: null, salt: null });
    }
    const restore = "UPDATE events SET payload = x'01', salt = x'02' WHERE position = 1";
    expect(() => raw.exec(restore)).toThrow(/^events/);
  });
});

describe("migrations", () => {
  const migrations = readMigrations();
  const newest = migrations.length;

  function usingRaw<T>(use: (database: SqliteDatabase) => T): T {
    const database = openBetterSqlite(path, { busyTimeoutMs: 0 });
    try {
      return use(database);
    } finally {
      database.close();
    }
  }

  test("a step down that loses rows needs to be allowed", async () => {
    const before = allRows(raw);
    const refused = downgradeSqliteStore({ path, version: 0 });
    await expect(refused).rejects.toMatchObject({ reason: "migration_failed" });
    expect(allRows(raw)).toEqual(before);
    await downgradeSqliteStore({ path, version: 0, allowDataLoss: true });
    expect(allRows(raw)).toEqual({});
    const store = await openSqliteStore({ path, storeId: "again" });
    expect([store.storeId, await store.lastPosition()]).toEqual(["again", 0n]);
    await store.close();
  });

  test("a file that has to be rebuilt is opened only with the rules to do so, and else unchanged", async () => {
    await downgradeSqliteStore({ path, version: 3 });
    const before = allRows(raw);
    const refusal = { reason: "migration_failed", details: { from: "3" } };
    await expect(openSqliteStore({ path, storeId: "x" })).rejects.toMatchObject(refusal);
    expect(allRows(raw)).toEqual(before);
  });

  test("a damaged log is not rebuilt, and the file is as before", async () => {
    await downgradeSqliteStore({ path, version: 3 });
    const before = allRows(raw);
    const opening = openSqliteStore({ path, storeId: "x", rules: ROW_RULES });
    await expect(opening).rejects.toMatchObject({
      reason: "unreadable",
      details: { sequence: "1" },
    });
    expect(allRows(raw)).toEqual(before);
  });

  test("a newer file is refused with its version, unchanged", async () => {
    raw.pragma(`user_version = ${newest + 1}`);
    const details = { found: String(newest + 1), known: String(newest) };
    const refusal = { reason: "newer_schema", details };
    const opening = openSqliteStore({ path, storeId: "x" });
    await expect(opening).rejects.toBeInstanceOf(StoreOpenError);
    await expect(opening).rejects.toMatchObject(refusal);
    await expect(downgradeSqliteStore({ path, version: 0 })).rejects.toMatchObject(refusal);
    expect(raw.pragma("user_version", { simple: true })).toBe(newest + 1);
  });

  test("a step that fails leaves the file at the version before it", () => {
    const broken = {
      version: newest + 1,
      name: "broken",
      up: "CREATE TABLE half_done (x); SELECT no_such_column FROM events;",
      down: "",
      downLosesData: false,
    };
    const before = allRows(raw);
    usingRaw((database) => {
      expect(() => {
        migrateUp(database, [...migrations, broken]);
      }).toThrow(/broken/);
      expect(schemaVersion(database)).toBe(newest);
      expect(database.inTransaction).toBe(false);
    });
    expect(allRows(raw)).toEqual(before);
  });

  test.each([-1, 0.5, newest + 1])("version %s is no target of a downgrade", (target) => {
    usingRaw((database) => {
      expect(() => {
        migrateDown(database, migrations, target, true);
      }).toThrow(StoreOpenError);
    });
  });

  test("a plan goes step by step from the found version to the target, either way", () => {
    const steps = [1, 2, 3].map((version) => ({
      version,
      name: `m${version}`,
      up: `up ${version}`,
      down: `down ${version}`,
      downLosesData: false,
    }));
    const plan = (from: number, to: number) =>
      planMigration(steps, from, to).map(({ sql, versionAfter }) => [sql, versionAfter]);
    expect(plan(1, 3)).toEqual([
      ["up 2", 2],
      ["up 3", 3],
    ]);
    expect(plan(3, 1)).toEqual([
      ["down 3", 2],
      ["down 2", 1],
    ]);
    expect(plan(2, 2)).toEqual([]);
  });
});

/** The rows that a statement about a tree has put together itself: its sessions, however it looked for them. */
const OWN_ROWS = /^SCAN (b|below)$/;

describe("reads", () => {
  test.each(Object.entries(READ_SQL))("%s searches and never scans", (_name, sql) => {
    const named = Object.fromEntries(
      [...sql.matchAll(/@(\w+)/g)].map(([, name = ""]) => [name, 1]),
    );
    const positional = [...sql.matchAll(/\?/g)].map(() => 1);
    const parameters = Object.keys(named).length > 0 ? [named] : positional;
    const plan = raw
      .prepare<unknown[], { detail: string }>(`EXPLAIN QUERY PLAN ${sql}`)
      .all(...parameters)
      .map(({ detail }) => detail);
    expect(plan.some((detail) => detail.startsWith("SEARCH"))).toBe(true);
    const slow = plan.filter((detail) => /SCAN|TEMP B-TREE/.test(detail));
    const isOfTree = sql.includes("WITH RECURSIVE below");
    expect(slow.filter((detail) => !isOfTree || !OWN_ROWS.test(detail))).toEqual([]);
  });
});
