import { copyFile, stat } from "node:fs/promises";
import BetterSqlite from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { removeMark } from "../../src/store/sqlite/position-mark.js";
import { openSqliteStore } from "../../src/store/sqlite/sqlite-store.js";
import {
  acceptCall,
  allEvents,
  of,
  openRun,
  publishHook,
  readSession,
  type OpenRun,
} from "../support/conversation.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { scaled } from "../support/scale.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

const KIB = 1024;
const MIB = 1024 * KIB;

let folder: StoreFolder;
let service: TestService | undefined;

beforeEach(async () => {
  folder = await makeStoreFolder();
});

afterEach(async () => {
  await service?.stop();
  service = undefined;
  await folder.remove();
});

async function start(...flags: string[]): Promise<Clients> {
  service = await startTestService({ store: folder.store, flags });
  return service.clients();
}

async function stop(): Promise<void> {
  await service?.stop();
  service = undefined;
}

/** The first column of the first row. */
function reading(sql: string): unknown {
  const database = new BetterSqlite(folder.path, { readonly: true });
  try {
    return database.prepare(sql).pluck().get();
  } finally {
    database.close();
  }
}

describe("B60 an older snapshot never takes the place of a newer state", () => {
  const FLAGS = ["--snapshot-every", "100"];

  /** A session with a snapshot at 100 and a log up to 140, as a killed process leaves it. */
  async function makeLog(): Promise<OpenRun> {
    const clients = await start(...FLAGS);
    const run = await openRun(clients);
    // The session and its run are events 1 and 2.
    await Promise.all(Array.from({ length: 138 }, () => publishHook(clients, run)));
    expect((await readSession(clients, run.sessionId)).checkpoint?.sequence).toBe(140n);
    await copyFile(folder.path, `${folder.path}.killed`);
    await copyFile(`${folder.path}-wal`, `${folder.path}.killed-wal`);
    await stop();
    await copyFile(`${folder.path}.killed`, folder.path);
    await copyFile(`${folder.path}.killed-wal`, `${folder.path}-wal`);
    expect(reading("SELECT group_concat(sequence) FROM snapshots")).toBe("100");
    return run;
  }

  /** What the service goes on with. */
  async function goOn(run: OpenRun) {
    const clients = await start(...FLAGS);
    const { checkpoint, highWater } = await readSession(clients, run.sessionId);
    const next = await publishHook(clients, run);
    const events = await allEvents(clients, run.sessionId);
    const logged = service?.logged() ?? "";
    await stop();
    return { checkpoint, highWater, revision: next.revision, events: events.length, logged };
  }

  test("not from a process that lags behind: the store is one process's", async () => {
    await start();
    const lagging = openSqliteStore({ path: folder.path, storeId: "x" });
    await expect(lagging).rejects.toMatchObject({ reason: "locked" });
  });

  test("the snapshot and the tail after it give the state of the whole log", async () => {
    const run = await makeLog();
    await copyFile(folder.path, `${folder.path}.bare`);
    await copyFile(`${folder.path}-wal`, `${folder.path}.bare-wal`);
    const fromSnapshot = await goOn(run);
    await copyFile(`${folder.path}.bare`, folder.path);
    await copyFile(`${folder.path}.bare-wal`, `${folder.path}-wal`);
    removeMark(folder.path);
    dropSnapshots();
    const { logged: _, ...fromTheLog } = await goOn(run);
    expect(fromSnapshot).toMatchObject(fromTheLog);
    expect(fromTheLog).toMatchObject({ events: 141, revision: (fromTheLog.highWater ?? 0n) + 1n });
  });

  test("a damaged newest snapshot is passed over, visibly, with the same state", async () => {
    const run = await makeLog();
    const sound = await goOn(run);
    expect(reading("SELECT count(*) FROM snapshots")).toBe(2);
    damageNewestSnapshot();
    const after = await goOn(run);
    expect(after.logged).toContain("snapshot_damaged");
    expect(sound.logged).not.toContain("snapshot_damaged");
    expect(after.revision).toBe((sound.revision ?? 0n) + 1n);
    expect(after.events).toBe(sound.events + 1);
  });

  function dropSnapshots(): void {
    const database = new BetterSqlite(folder.path);
    database.exec("DELETE FROM snapshots");
    database.close();
  }

  function damageNewestSnapshot(): void {
    const database = new BetterSqlite(folder.path);
    database.exec(`UPDATE snapshots SET state = zeroblob(length(state))
      WHERE sequence = (SELECT max(sequence) FROM snapshots)`);
    database.close();
  }
});

describe("B73 progress of a call costs what it carries, and the result is stored once", () => {
  const UPDATES = 3000;
  const DELTA_BYTES = 512;
  const RESULT_BYTES = MIB;
  /** Ids, commitments, chain and index entries of one event. */
  const PER_EVENT_BYTES = KIB;

  test("the log of a call grows by its parts, however many came before", async () => {
    const clients = await start();
    const run = await openRun(clients);
    const { toolCallId } = await acceptCall(clients, run);
    const sizes = [await pages()];
    for (const third of [0, 1, 2]) {
      await stream(clients, run, toolCallId, (third * UPDATES) / 3, UPDATES / 3);
      sizes.push(await pages());
    }
    const growth = sizes.slice(1).map((size, at) => size - (sizes[at] ?? 0));
    const [first = 0, , last = 0] = growth;
    expect(last).toBeLessThan(1.1 * first);

    const requestId = "final";
    const content = { data: new Uint8Array(RESULT_BYTES).fill(7) };
    const command = { toolCallId, result: { case: "canonical" as const, value: { content } } };
    await clients.calls.recordResult({ ...of(run, requestId), command });
    await clients.calls.recordResult({ ...of(run, requestId), command });
    await stop();
    const largest = "SELECT max(length(payload)) FROM events WHERE kind = 'PROVISIONAL'";
    expect(reading(largest)).toBeLessThan(DELTA_BYTES + 256);
    expect(reading(`${largest} AND sequence < 100`)).toBeGreaterThan(DELTA_BYTES);
    expect(reading("SELECT max(length(payload)) FROM events")).toBeLessThan(PER_EVENT_BYTES);
    expect(reading(`SELECT count(*) FROM bodies WHERE size_bytes = ${RESULT_BYTES}`)).toBe(1);
    const { size } = await stat(folder.path);
    const carried = UPDATES * DELTA_BYTES + RESULT_BYTES;
    expect(size).toBeLessThan(carried + (UPDATES + 100) * PER_EVENT_BYTES);
  });

  /** Bytes of the pages in use, those of the write-ahead log included. */
  async function pages(): Promise<number> {
    return (
      Number(reading("SELECT page_count FROM pragma_page_count")) *
      Number(reading("SELECT page_size FROM pragma_page_size"))
    );
  }

  async function stream(
    clients: Clients,
    run: OpenRun,
    toolCallId: string,
    from: number,
    count: number,
  ): Promise<void> {
    const chunk = new Uint8Array(DELTA_BYTES).fill(65);
    const part = (at: number) => {
      const value = { offsetBytes: BigInt(at * DELTA_BYTES), chunk };
      const result = { case: "provisional" as const, value };
      return { command: { case: "recordResult" as const, value: { toolCallId, result } } };
    };
    for (let at = from; at < from + count; at += 100) {
      const commands = Array.from({ length: 100 }, (_, index) => part(at + index));
      await clients.runs.apply({ ...of(run), commands });
    }
  }
});

describe("B74 readers do not pin the write-ahead log", () => {
  const FOLLOWERS = 8;
  const WAL_BYTES_MAX = 16 * MIB;
  const WRITTEN_BYTES = scaled(480) * MIB;
  const BODY_BYTES = 256 * KIB;

  /** The largest size of the log while so much is written, with followers that read on all the time. */
  async function largestLog(
    clients: Clients,
    writtenBytes = WRITTEN_BYTES,
    followersCount = 0,
  ): Promise<number> {
    const run = await openRun(clients);
    const followers = Array.from({ length: followersCount }, () => ({ after: 0n }));
    let largest = 0;
    for (let written = 0; written < writtenBytes; written += BODY_BYTES) {
      const read = followers.map(async (follower) => {
        const events = await allEvents(clients, run.sessionId, follower.after);
        follower.after = events.at(-1)?.sequence ?? follower.after;
      });
      const data = new Uint8Array(BODY_BYTES).fill(1);
      new DataView(data.buffer).setUint32(0, written);
      const command = { role: 1, content: { data } };
      await clients.evidence.recordMessage({ ...of(run), command });
      await Promise.all(read);
      largest = Math.max(largest, (await stat(`${folder.path}-wal`)).size);
    }
    return largest;
  }

  test("it stays bounded under steady writes with followers", async () => {
    const largest = await largestLog(await start(), WRITTEN_BYTES, FOLLOWERS);
    expect(largest).toBeLessThan(WAL_BYTES_MAX);
  });

  test("and the check reports a reader that stays in one transaction; the log shrinks when it ends", async () => {
    const clients = await start();
    await openRun(clients);
    const pinning = new BetterSqlite(folder.path, { readonly: true });
    pinning.exec("BEGIN");
    pinning.prepare("SELECT count(*) FROM events").get();
    expect(await largestLog(clients)).toBeGreaterThan(WAL_BYTES_MAX);
    pinning.exec("ROLLBACK");
    pinning.close();
    expect(await largestLog(clients, MIB)).toBeGreaterThan(0);
    expect((await stat(`${folder.path}-wal`)).size).toBeLessThan(WAL_BYTES_MAX + MIB);
  });
});
