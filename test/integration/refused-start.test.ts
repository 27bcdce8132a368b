import {
  copyFileSync,
  existsSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import BetterSqlite from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { verifyStore } from "../../src/server/verify-store.js";
import { StoreOpenError } from "../../src/store/sqlite/store-open-error.js";
import { commandFaultOf } from "../../src/server/command-fault.js";
import {
  allEvents,
  freshRequestId,
  openRun,
  publishHook,
  type OpenRun,
} from "../support/conversation.js";
import { startTestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { backUp, restore, toolmark } from "../support/toolmark-command.js";

const HOOKS = 30;
const FILES = ["", "-wal", ".position", ".secret"] as const;

let folder: StoreFolder;
let run: OpenRun;
/** A store as a process leaves it that is killed: with its log. */
let left: string;

beforeEach(async () => {
  folder = await makeStoreFolder();
  left = `${folder.path}.left`;
  const first = await startTestService({ store: folder.store });
  run = await openRun(first.clients());
  // What comes until here is in the database, the rest in the log.
  await first.stop();
  await backUp(folder.path, `${folder.path}.backup`);
  const service = await startTestService({ store: folder.store });
  for (let index = 0; index < HOOKS; index += 1) await publishHook(service.clients(), run);
  for (const suffix of FILES) copyFileSync(folder.path + suffix, left + suffix);
  await service.stop();
});

afterEach(() => folder.remove());

function flipBitOfLog(share: number): Buffer {
  const whole = readFileSync(`${left}-wal`);
  const bytes = Buffer.from(whole);
  const at = Math.floor(bytes.length * share) + 25;
  bytes[at] = (bytes[at] ?? 0) ^ 1;
  writeFileSync(`${left}-wal`, bytes);
  return whole;
}

/** Why a start is refused. */
async function refusal(): Promise<unknown> {
  const started = await startTestService({ store: `sqlite:${left}` }).catch(
    (error: unknown) => error,
  );
  return started instanceof StoreOpenError ? started.reason : started;
}

async function eventCount(): Promise<number> {
  const service = await startTestService({ store: `sqlite:${left}` });
  try {
    return (await allEvents(service.clients(), run.sessionId)).length;
  } finally {
    await service.stop();
  }
}

describe("a start that is refused because events are missing", () => {
  test.each([
    ["its header", 0],
    ["the middle", 0.5],
  ])("leaves database and log as they were: a bit flipped in %s of the log", async (_, share) => {
    const whole = flipBitOfLog(share);
    const before = FILES.map((suffix) => readFileSync(left + suffix));
    expect(await refusal()).toBe("events_missing");
    const after = FILES.map((suffix) => readFileSync(left + suffix));
    expect(after.map((bytes, index) => before[index]?.equals(bytes))).toEqual(
      FILES.map(() => true),
    );
    writeFileSync(`${left}-wal`, whole);
    expect(await eventCount()).toBe(HOOKS + 2);
  });

  test("leaves the log of a database that was removed, and makes none", async () => {
    const database = readFileSync(left);
    rmSync(left);
    const log = readFileSync(`${left}-wal`);
    expect(await refusal()).toBe("events_missing");
    expect(existsSync(left)).toBe(false);
    expect(readFileSync(`${left}-wal`).equals(log)).toBe(true);
    writeFileSync(left, database);
    expect(await eventCount()).toBe(HOOKS + 2);
  });
});

test("a restore keeps the log that cannot be merged beside the database that it replaces", async () => {
  flipBitOfLog(0.5);
  const log = readFileSync(`${left}-wal`);
  const { keptAs, replaced } = await restore(left, `${folder.path}.backup`);
  expect(replaced?.isMerged).toBe(false);
  expect(readFileSync(`${String(keptAs)}-wal`).equals(log)).toBe(true);
});

test("a backup of a store that lacks acknowledged events is refused, and nothing is left", async () => {
  rmSync(`${left}-wal`);
  const to = `${folder.path}.new`;
  const thrown: unknown = await backUp(left, to).catch((error: unknown) => error);
  expect(commandFaultOf(thrown)).toMatchObject({
    exitCode: 74,
    text: expect.stringContaining("committed events are missing") as string,
  });
  expect(existsSync(to)).toBe(false);
});

test("verify refuses a session or tenant that is not there", async () => {
  const store = ["--store", `sqlite:${folder.path}`];
  for (const asked of [
    ["--session", "ses_none"],
    ["--tenant", "nobody"],
  ]) {
    const { code, stderr } = await toolmark("verify", ...store, ...asked);
    expect([code, stderr]).toEqual([2, expect.stringContaining(asked.join(" "))]);
  }
});

test("verify by a link finds what it finds by the file's own name", async () => {
  rmSync(`${left}-wal`);
  const link = `${folder.path}.link`;
  symlinkSync(left, link);
  const findings = async (path: string): Promise<number> =>
    (await verifyStore({ path })).findings.length;
  expect([await findings(link), await findings(left)]).toEqual([1, 1]);
});

test("a damaged row of one session's requests fails no other session's command", async () => {
  const { path, store } = folder;
  const filling = await startTestService({ store });
  const other = await openRun(filling.clients());
  const named = (index: number): string => `aaaa-${String(index)}`;
  for (let index = 0; index < 200; index += 1) {
    await publishHook(filling.clients(), run, undefined, named(index));
  }
  await filling.stop();
  damageRequestsOf(path, "aaaa-");
  const service = await startTestService({ store });
  const clients = service.clients();
  const results = await Promise.allSettled([
    publishHook(clients, other, undefined, freshRequestId()),
    ...Array.from({ length: 200 }, (_, index) =>
      publishHook(clients, run, undefined, named(index)),
    ),
    publishHook(clients, other, undefined, freshRequestId()),
  ]);
  await service.stop();
  expect([results[0].status, results.at(-1)?.status]).toEqual(["fulfilled", "fulfilled"]);
  expect(results.some(({ status }) => status === "rejected")).toBe(true);
});

const PAGE_BYTES = 4096;
const INDEX_LEAF = 10;

/** Destroys the first page of an index that holds such request ids alone. */
function damageRequestsOf(path: string, prefix: string): void {
  const database = new BetterSqlite(path);
  database.pragma("wal_checkpoint(TRUNCATE)");
  database.close();
  const bytes = readFileSync(path);
  for (let start = PAGE_BYTES; start < bytes.length; start += PAGE_BYTES) {
    const page = bytes.subarray(start, start + PAGE_BYTES);
    if (page[0] !== INDEX_LEAF || page.toString("latin1").split(prefix).length < 10) continue;
    page.fill(0xff, 0, 8);
    writeFileSync(path, bytes);
    return;
  }
  throw new Error("no page holds such requests alone");
}
