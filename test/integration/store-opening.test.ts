import { copyFileSync, statSync, truncateSync } from "node:fs";
import BetterSqlite from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openSqliteStore, type SqliteStore } from "../../src/store/sqlite/sqlite-store.js";
import { StoreOpenError } from "../../src/store/sqlite/store-open-error.js";
import { A, expectCommitted, newEvent, write } from "../conformance/store-fixture.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

let folder: StoreFolder;

beforeEach(async () => {
  folder = await makeStoreFolder();
});

afterEach(async () => {
  await folder.remove();
});

const open = (path: string): Promise<SqliteStore> =>
  openSqliteStore({ path, storeId: "test", busyTimeoutMs: 0 });

async function writtenStore(): Promise<SqliteStore> {
  const store = await open(folder.path);
  await expectCommitted(store, write(A, [newEvent(1n, 1n)]));
  return store;
}

async function refusal(path: string): Promise<StoreOpenError> {
  const thrown = await open(path).then(
    () => undefined,
    (error: unknown) => error,
  );
  if (thrown instanceof StoreOpenError) return thrown;
  throw new Error("the store was opened");
}

describe("a database that another process holds", () => {
  test("for itself alone is not opened, and is once it is let go", async () => {
    await (await writtenStore()).close();
    const other = new BetterSqlite(folder.path);
    other.pragma("locking_mode = EXCLUSIVE");
    other.exec("BEGIN EXCLUSIVE");
    const { reason, message } = await refusal(folder.path);
    expect(reason).toBe("locked");
    expect(message).toContain("another process holds the database");
    other.close();
    await (await open(folder.path)).close();
  });

  test("to read, so that a log that was left over cannot be emptied, is not opened", async () => {
    const store = await writtenStore();
    const left = `${folder.path}.left`;
    for (const file of ["", "-wal"]) copyFileSync(folder.path + file, left + file);
    await store.close();
    const reader = new BetterSqlite(left);
    reader.exec("BEGIN");
    reader.prepare("SELECT * FROM events").all();
    expect((await refusal(left)).reason).toBe("locked");
    reader.exec("COMMIT");
    reader.close();
    const opened = await open(left);
    expect(await opened.lastPosition()).toBe(1n);
    await opened.close();
  });
});

test("a database that was cut is told as unreadable and left as it is", async () => {
  await (await writtenStore()).close();
  const sizeBytes = statSync(folder.path).size - 5 * 4096;
  truncateSync(folder.path, sizeBytes);
  expect((await refusal(folder.path)).reason).toBe("unreadable");
  expect(statSync(folder.path).size).toBe(sizeBytes);
});
