import {
  copyFileSync,
  existsSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { markPath, removeMark, writeMark } from "../../src/store/sqlite/position-mark.js";
import { openSqliteStore, type SqliteStore } from "../../src/store/sqlite/sqlite-store.js";
import { StoreOpenError } from "../../src/store/sqlite/store-open-error.js";
import { A, expectCommitted, newEvent, write } from "../conformance/store-fixture.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

const FILES = ["", "-wal", ".position"] as const;

let folder: StoreFolder;
let warnings: string[];
const opened: SqliteStore[] = [];

beforeEach(async () => {
  folder = await makeStoreFolder();
  warnings = [];
});

afterEach(async () => {
  for (const store of opened.splice(0)) await store.close();
  await folder.remove();
});

async function open(path: string): Promise<SqliteStore> {
  const onWarning = (text: string): void => void warnings.push(text);
  const store = await openSqliteStore({ path, storeId: `of ${path}`, onWarning });
  opened.push(store);
  return store;
}

async function commitEvents(store: SqliteStore, from: number, to: number): Promise<void> {
  for (let at = from; at <= to; at += 1) {
    await expectCommitted(store, write(A, [newEvent(BigInt(at), BigInt(at))]));
  }
}

/** What a process leaves that is killed now. */
function killedCopy(name: string): string {
  const path = join(folder.path, "..", name);
  for (const file of FILES) {
    if (existsSync(folder.path + file)) copyFileSync(folder.path + file, path + file);
  }
  return path;
}

async function refusal(path: string): Promise<StoreOpenError> {
  const thrown = await open(path).then(
    () => undefined,
    (error: unknown) => error,
  );
  if (thrown instanceof StoreOpenError) return thrown;
  throw new Error("the store was opened");
}

/** A store of three events that was closed in order, then got two more and was killed. */
async function killedStore(): Promise<string> {
  await commitEvents(await open(folder.path), 1, 3);
  await opened.pop()?.close();
  await commitEvents(await open(folder.path), 4, 5);
  return killedCopy("killed.db");
}

describe("a store that was killed", () => {
  test("has all that was committed, and its log is in the file before anything is served", async () => {
    const path = await killedStore();
    expect(statSync(`${path}-wal`).size).toBeGreaterThan(0);
    const store = await open(path);
    expect(statSync(`${path}-wal`).size).toBe(0);
    expect(await store.lastPosition()).toBe(5n);
    expect(warnings).toEqual([]);
  });

  const losses: readonly (readonly [string, (path: string) => void])[] = [
    [
      "whose log was removed",
      (path) => {
        rmSync(`${path}-wal`);
      },
    ],
    [
      "whose log was cut",
      (path) => {
        truncateSync(`${path}-wal`, 32 + 4120);
      },
    ],
    [
      "whose log was emptied",
      (path) => {
        truncateSync(`${path}-wal`);
      },
    ],
  ];

  test.each(losses)("%s is refused, and opens once the log is back", async (_what, lose) => {
    const path = await killedStore();
    const log = readFileSync(`${path}-wal`);
    lose(path);
    const { reason, message } = await refusal(path);
    expect(reason).toBe("events_missing");
    expect(message).toMatch(/up to position 5 .* were acknowledged.*toolmark restore/);
    writeFileSync(`${path}-wal`, log);
    expect(await (await open(path)).lastPosition()).toBe(5n);
  });

  test.each(losses)("%s would be served without its mark", async (_what, lose) => {
    const path = await killedStore();
    lose(path);
    rmSync(markPath(path));
    expect(await (await open(path)).lastPosition()).toBeLessThan(5n);
  });

  test("before its first checkpoint and loses its log is refused, twice", async () => {
    await commitEvents(await open(folder.path), 1, 1);
    const path = killedCopy("young.db");
    rmSync(`${path}-wal`);
    expect((await refusal(path)).reason).toBe("events_missing");
    expect((await refusal(path)).message).toContain(`remove ${markPath(path)}`);
    removeMark(path);
    expect(await (await open(path)).lastPosition()).toBe(0n);
  });
});

describe("an older copy of a database", () => {
  test("that is put in its place is refused", async () => {
    await killedStore();
    const older = killedCopy("older.db");
    await commitEvents(opened[0]!, 6, 6);
    copyFileSync(markPath(folder.path), markPath(older));
    const { reason, details } = await refusal(older);
    expect([reason, details["position"]]).toEqual(["events_missing", "6"]);
  });

  test("from before a restore is refused as well", async () => {
    await commitEvents(await open(folder.path), 1, 1);
    const { storeId } = opened.pop()!;
    const path = killedCopy("restored.db");
    writeMark(path, { storeId, generation: 1n, position: 1n });
    const { reason, message } = await refusal(path);
    expect(reason).toBe("events_missing");
    expect(message).toContain("it is of generation 0");
  });
});

describe("a mark", () => {
  async function closedStore(): Promise<string> {
    const store = await open(folder.path);
    await commitEvents(store, 1, 2);
    opened.pop();
    await store.close();
    return folder.path;
  }

  test("is the owner's alone, and a store that is opened as it was left does not write it", async () => {
    const path = await closedStore();
    const { mode, mtimeMs } = statSync(markPath(path));
    expect(mode & 0o777).toBe(0o600);
    await open(path);
    expect(statSync(markPath(path)).mtimeMs).toBe(mtimeMs);
  });

  const passedOver: readonly (readonly [string, number, (path: string) => void])[] = [
    ["that is not there", 0, removeMark],
    [
      "that is empty",
      0,
      (path) => {
        writeFileSync(markPath(path), "");
      },
    ],
    [
      "that is cut",
      1,
      (path) => {
        truncateSync(markPath(path), 20);
      },
    ],
    [
      "that is longer",
      1,
      (path) => {
        writeFileSync(markPath(path), Buffer.alloc(40));
      },
    ],
    ["with another bit", 1, flipBit],
    [
      "of another store",
      0,
      (path) => {
        writeMark(path, { storeId: "other", generation: 9n, position: 99n });
      },
    ],
  ];

  test.each(passedOver)("%s is passed over with %i warnings and written anew", async (...args) => {
    const [, count, change] = args;
    const path = await closedStore();
    const before = readFileSync(markPath(path));
    change(path);
    const store = await open(path);
    expect(await store.lastPosition()).toBe(2n);
    expect(warnings).toHaveLength(count);
    expect(readFileSync(markPath(path)).subarray(0, 32)).toEqual(before);
  });

  test("of an older generation is passed over", async () => {
    const store = await openSqliteStore({ path: folder.path, storeId: "s", generation: 2n });
    opened.push(store);
    await commitEvents(store, 1, 1);
    opened.pop();
    await store.close();
    writeMark(folder.path, { storeId: "s", generation: 1n, position: 50n });
    expect(await (await open(folder.path)).lastPosition()).toBe(1n);
  });

  test("that cannot be written fails no commit, and is told once", async () => {
    symlinkSync("/dev/full", markPath(folder.path));
    await commitEvents(await open(folder.path), 1, 3);
    expect(warnings.filter((text) => text.includes("cannot be written"))).toHaveLength(1);
  });
});

function flipBit(path: string): void {
  const bytes = readFileSync(markPath(path));
  bytes.writeUInt8(bytes.readUInt8(20) ^ 1, 20);
  writeFileSync(markPath(path), bytes);
}
