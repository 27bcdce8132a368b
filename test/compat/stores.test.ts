import { copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { JsonValue } from "@bufbuild/protobuf";
import BetterSqlite from "better-sqlite3";
import { afterAll, afterEach, beforeEach, describe, expect, test } from "vitest";
import { ROW_RULES } from "../../src/ledger/row-rules.js";
import type { RowRules } from "../../src/ledger/store-port.js";
import { readMigrations } from "../../src/store/sqlite/migrate.js";
import { downgradeSqliteStore, openSqliteStore } from "../../src/store/sqlite/sqlite-store.js";
import { recordResult } from "../fault/results.js";
import { startTestService } from "../support/service.js";
import { readFrozenHistory, writeFrozenHistory, writeTree } from "./frozen-store.js";

const HERE = import.meta.dirname;
const FROZEN = readdirSync(HERE).filter((name) => name.startsWith("schema-"));

/** What passed, for the report. */
const opened: string[] = [];
const migrated: number[] = [];
const planted: string[] = [];

let folder: string;
let path: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "toolmark-compat-"));
  path = join(folder, "toolmark.db");
});

afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

/** What the service reads of these sessions. The folder keeps its secret, so nothing else is made. */
async function readAll(sessionIds: readonly string[]): Promise<JsonValue> {
  const service = await startTestService({ store: `sqlite:${path}` });
  try {
    return await readFrozenHistory(service.clients(), sessionIds);
  } finally {
    await service.stop();
  }
}

/** Every row of every table, as stored. */
function allRows(): Record<string, unknown[]> {
  const database = new BetterSqlite(path, { readonly: true });
  try {
    const tables = database
      .prepare<[], string>("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
      .pluck()
      .all();
    return Object.fromEntries(
      tables.map((table) => [
        table,
        database.prepare(`SELECT * FROM ${table} ORDER BY 1, 2, 3`).safeIntegers().all(),
      ]),
    );
  } finally {
    database.close();
  }
}

describe.each(FROZEN)("a store of %s", (name) => {
  const reads = JSON.parse(readFileSync(join(HERE, name, "reads.json"), "utf8")) as Record<
    string,
    JsonValue
  >;

  beforeEach(() => {
    copyFileSync(join(HERE, name, "store.db"), path);
  });

  test("opens, and everything in it reads as it did", async () => {
    expect(await readAll(Object.keys(reads))).toEqual(reads);
    opened.push(name);
  });

  test("does not read as it did if a row of it was changed", async () => {
    const database = new BetterSqlite(path);
    database.exec("UPDATE records SET last_sequence = last_sequence - 1 WHERE family = 5");
    database.exec("UPDATE sessions SET update_time_ms = update_time_ms + 1");
    database.close();
    expect(await readAll(Object.keys(reads))).not.toEqual(reads);
    planted.push("a changed row");
  });

  test("is written to by the first opening alone", async () => {
    await readAll(Object.keys(reads));
    const before = readFileSync(path);
    await readAll(Object.keys(reads));
    expect(readFileSync(path).equals(before)).toBe(true);
  });
});

/** Of each session its parent and its root, as stored. */
function standings(): Record<string, unknown> {
  const rows = (allRows()["sessions"] ?? []) as Readonly<Record<string, unknown>>[];
  const standing = rows.map((row) => [row["parent_session_id"], row["root_session_id"]]);
  return Object.fromEntries(rows.map((row, at) => [String(row["session_id"]), standing[at]]));
}

/** A store with sessions that stand alone, a tree and a copy of its root: what is read of each. */
async function writeAll(): Promise<Readonly<Record<string, JsonValue>>> {
  const service = await startTestService({ store: `sqlite:${path}` });
  const alone = await writeFrozenHistory(service);
  const { tree, copy } = await writeTree(service.clients());
  const read = await readFrozenHistory(service.clients(), [...alone, ...tree, copy]);
  await service.stop();
  const expected = [...alone, tree[0] ?? "", copy].map((id) => [id, [null, id]]);
  const below = tree.slice(1).map((id, at) => [id, [tree[at], tree[0]]]);
  expect(standings()).toEqual(Object.fromEntries([...expected, ...below]));
  return read;
}

describe("migrations", () => {
  const newest = readMigrations().length;
  const targets = Array.from({ length: newest - 1 }, (_, index) => newest - 1 - index);

  test.each(targets)("down to version %i and up again, every row is as before", async (version) => {
    const read = await writeAll();
    const before = allRows();
    expect(before).toMatchObject({ asks: Array(6).fill({}), deadlines: [{}] });

    await downgradeSqliteStore({ path, version });
    expect(allRows()).not.toEqual(before);
    const store = await openSqliteStore({ path, storeId: "another", rules: ROW_RULES });
    await store.close();
    expect(allRows()).toEqual(before);
    expect(await readAll(Object.keys(read))).toEqual(read);
    migrated.push(version);
  });

  test("a migration that does not fill the inbox is noticed", async () => {
    const service = await startTestService({ store: `sqlite:${path}` });
    await writeFrozenHistory(service);
    await service.stop();
    const before = allRows();
    await downgradeSqliteStore({ path, version: 2 });
    const indexOf: RowRules["indexOf"] = (row) => ({ ...ROW_RULES.indexOf(row), ...NOT_ASKED });
    const rules = { ...ROW_RULES, indexOf };
    await (await openSqliteStore({ path, storeId: "another", rules })).close();
    expect(allRows()).not.toEqual(before);
    planted.push("an inbox that stays empty");
  });

  test("a migration that takes every session for a root is noticed", async () => {
    await writeAll();
    const before = allRows();
    const standing = standings();
    await downgradeSqliteStore({ path, version: 4 });
    const standingOf: RowRules["standingOf"] = (first) => {
      const found = ROW_RULES.standingOf(first);
      return found && { ...found, parentSessionId: undefined };
    };
    const rules = { ...ROW_RULES, standingOf };
    await (await openSqliteStore({ path, storeId: "another", rules })).close();
    expect(allRows()).not.toEqual(before);
    expect(standings()).not.toEqual(standing);
    planted.push("a tree that falls apart");
  });
});

const NOT_ASKED = { record: undefined, ask: undefined, deadline: undefined };

afterAll(() => {
  const seen = (name: string) => [{ name, caught: planted.filter((p) => p === name).length }];
  recordResult({
    ...{ promise: 17, part: "stores of earlier schemas", counted: "stores", violations: 0 },
    ...{ count: opened.length, wanted: FROZEN.length, planted: seen("a changed row") },
  });
  recordResult({
    ...{ promise: 18, part: "migrations down and up", counted: "targets", violations: 0 },
    ...{ count: migrated.length, wanted: readMigrations().length - 1 },
    planted: [...seen("an inbox that stays empty"), ...seen("a tree that falls apart")],
  });
});
