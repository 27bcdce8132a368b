import { existsSync } from "node:fs";
import { chown, copyFile, open, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import BetterSqlite from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { beginGeneration } from "../../src/store/sqlite/restore.js";
import { answerTo, askAbout, showAsk } from "../support/asking.js";
import {
  createSession,
  given,
  openRun,
  publishHook,
  readSession,
  type OpenRun,
} from "../support/conversation.js";
import { PublishedRevisions } from "../support/published-revisions.js";
import { refused } from "../support/refused.js";
import { startServerProcess } from "../support/server-process.js";
import { startTestService, type Clients } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { backUp, commandFault, restore, toolmark } from "../support/toolmark-command.js";
import { withoutTriggers } from "../support/without-triggers.js";

const PER_GENERATION = 2n ** 32n;
const TWO_WIRES = ["grpc", "connect-json"] as const;

let folder: StoreFolder;
let path: string;
let backup: string;

beforeEach(async () => {
  folder = await makeStoreFolder();
  ({ path } = folder);
  backup = join(dirname(path), "backup.db");
});

afterEach(() => folder.remove());

/** Serves the store while it is used. */
async function serving<Answer>(use: (clients: Clients) => Promise<Answer>): Promise<Answer> {
  const service = await startTestService({ store: folder.store });
  try {
    return await use(service.clients());
  } finally {
    await service.stop();
  }
}

/** A store with a session, whose backup lacks what was written last. */
async function writeAndBackUp(): Promise<OpenRun> {
  return serving(async (clients) => {
    const run = await openRun(clients);
    for (let index = 0; index < 3; index += 1) await publishHook(clients, run);
    await backUp(path, backup);
    for (let index = 0; index < 3; index += 1) await publishHook(clients, run);
    return run;
  });
}

/** Writes more into what is in place, and notes every revision. */
function writeMore(run: OpenRun, published: PublishedRevisions): Promise<void> {
  return serving(async (clients) => {
    await published.read(clients, run.sessionId);
    const { highest } = published;
    const hook = await publishHook(clients, run);
    if (hook.revision !== undefined && hook.revision <= highest) published.faults.push("not above");
    await published.read(clients, run.sessionId);
  });
}

const names = async (): Promise<string[]> => (await readdir(dirname(path))).sort();
const suffixes = ["", ".lock", ".position", ".secret"] as const;
const ownNames = ["backup.db", ...suffixes.map((suffix) => `toolmark.db${suffix}`)];

describe("a restore", () => {
  test("of one backup, twice, repeats no generation and no revision", async () => {
    const published = new PublishedRevisions();
    const run = await writeAndBackUp();
    await writeMore(run, published);
    for (const generation of [1n, 2n, 3n]) {
      const { restored } = await restore(path, backup);
      expect(restored.generation).toBe(generation);
      await writeMore(run, published);
      expect(published.highest / PER_GENERATION).toBe(generation);
    }
    expect(published.faults).toEqual([]);
  });

  test("that kept the generation would repeat revisions, and that is seen", async () => {
    const published = new PublishedRevisions();
    const run = await writeAndBackUp();
    await writeMore(run, published);
    await restore(path, backup);
    beginGeneration(path, 0n);
    for (const file of [".secret", ".position"]) await rm(path + file);
    await writeMore(run, published);
    expect(published.faults).toEqual(
      expect.arrayContaining(["not above", expect.stringContaining("came again")]),
    );
  });

  test.each(["the replaced database", "the secret's file"])(
    "goes on above what was published even if %s is gone",
    async (which) => {
      const published = new PublishedRevisions();
      const run = await writeAndBackUp();
      await restore(path, backup);
      await writeMore(run, published);
      await rm(which === "the secret's file" ? `${path}.secret` : path);
      expect(await restore(path, backup)).toMatchObject({
        restored: { generation: 2n },
        isGenerationProven: true,
      });
      await writeMore(run, published);
      expect(published.faults).toEqual([]);
    },
  );

  test("says what was replaced by what, and keeps it", async () => {
    const { sessionId } = await writeAndBackUp();
    await serving((clients) => createSession(clients));
    const before = await serving((clients) => readSession(clients, sessionId));
    const run = await toolmark("restore", "--from", backup, "--store", folder.store);
    const keptAs = `${path}.replaced-0`;
    expect(run).toEqual({
      code: 0,
      stderr: "",
      stdout: [
        `Restored ${path} from ${backup}`,
        "  replaced  generation 0, position 9, 2 sessions, 9 events",
        "  now       generation 1, position 5, 1 sessions, 5 events",
        `The replaced database is kept as ${keptAs}`,
        "Cursors, page tokens and answer tokens given before are void.\n",
      ].join("\n"),
    });
    expect(await names()).toEqual([...ownNames, basename(keptAs)].sort());
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    // Also from where it is kept, the replaced database can be restored.
    await restore(path, keptAs, { discard: true });
    const after = await serving((clients) => readSession(clients, sessionId));
    expect(after.checkpoint).toEqual(before.checkpoint);
    expect(await names()).not.toContain("toolmark.db.replaced-1");
  });

  test("makes void what was given before, on every listener", async () => {
    await writeAndBackUp();
    const given0 = await serving(async (clients) => {
      const run = await openRun(clients);
      const asks = [await askAbout(clients, run), await askAbout(clients, run)];
      const shown = await showAsk(clients, run.sessionId, asks[0]!.askId);
      const filter = { sessionId: run.sessionId, pageSize: 1 };
      const page = await clients.approvals.listAsks(filter);
      const calls = await clients.history.listToolCalls(filter);
      const events = await clients.history.listEvents(filter);
      const sessions = await clients.sessions.listSessions({ pageSize: 1 });
      await rm(backup);
      await backUp(path, backup);
      const cursor = await firstCursor(clients, "");
      return { filter, shown, page, calls, events, sessions, cursor };
    });
    await restore(path, backup);
    const service = await startTestService({ store: folder.store });
    for (const wire of TWO_WIRES) {
      const { approvals, history, sessions } = service.clients(wire);
      const { filter } = given0;
      const refusals = [
        refused(approvals.answerAsk(answerTo(given0.shown))),
        refused(firstCursor(service.clients(wire), given0.cursor)),
        refused(approvals.listAsks({ ...filter, pageToken: given0.page.nextPageToken })),
        refused(history.listToolCalls({ ...filter, pageToken: given0.calls.nextPageToken })),
        refused(history.listEvents({ ...filter, pageToken: given0.events.nextPageToken })),
        refused(sessions.listSessions({ pageSize: 1, pageToken: given0.sessions.nextPageToken })),
      ];
      expect((await Promise.all(refusals)).map(({ reason }) => reason)).toEqual([
        "ANSWER_TOKEN_INVALID",
        "CURSOR_EXPIRED",
        ...Array.from({ length: 4 }, () => "PAGE_TOKEN_INVALID"),
      ]);
    }
    // Shown anew, the ask can be answered.
    const { sessionId } = given0.filter;
    const shown = await showAsk(service.clients(), sessionId, given(given0.shown.ask, "ask").askId);
    expect(shown.answerToken).not.toBe(given0.shown.answerToken);
    await service.clients().approvals.answerAsk(answerTo(shown));
    await service.stop();
  });

  test("remembers the requests of the backup, and those after it no more", async () => {
    const run = await serving(async (clients) => {
      const opened = await openRun(clients);
      await publishHook(clients, opened, undefined, "before");
      await backUp(path, backup);
      await publishHook(clients, opened, undefined, "after");
      return opened;
    });
    const hookOf = (requestId: string) =>
      serving((clients) => publishHook(clients, run, undefined, requestId));
    const [before, after] = [await hookOf("before"), await hookOf("after")];
    await restore(path, backup);
    expect(await hookOf("before")).toEqual(before);
    const again = await hookOf("after");
    expect(again.hookId).not.toBe(after.hookId);
    expect(again.revision).toBeGreaterThan(PER_GENERATION);
  });

  test("leaves the store to the user whose it was", async () => {
    await writeAndBackUp();
    const owner = process.getuid?.() === 0 ? 12345 : (await stat(path)).uid;
    await chown(path, owner, (await stat(path)).gid);
    await rm(`${path}.secret`);
    await restore(path, backup);
    const files = await Promise.all(suffixes.map((suffix) => stat(path + suffix)));
    expect(files.map(({ uid, mode }) => [uid, mode & 0o777])).toEqual(
      suffixes.map(() => [owner, 0o600]),
    );
  });

  test("into a folder without a store makes one", async () => {
    const run = await writeAndBackUp();
    const elsewhere = join(dirname(path), "new", "store.db");
    const report = await restore(elsewhere, backup);
    expect(report).toMatchObject({ replaced: undefined, keptAs: undefined });
    expect((await readdir(dirname(elsewhere))).sort()).toEqual(
      suffixes.map((suffix) => `store.db${suffix}`),
    );
    const service = await startTestService({ store: `sqlite:${elsewhere}` });
    const hook = await publishHook(service.clients(), run);
    await service.stop();
    expect(hook.revision).toBeGreaterThan(PER_GENERATION);
  });

  test("goes on with what is left of the store itself", async () => {
    const run = await writeAndBackUp();
    const published = new PublishedRevisions();
    await writeMore(run, published);
    const { restored, replaced } = await restore(path, path);
    expect([restored.generation, restored.events]).toEqual([1n, replaced?.content?.events]);
    await writeMore(run, published);
    expect(published.faults).toEqual([]);
  });
});

describe("a restore is refused", () => {
  test("while a server has the store, and the store stays as it is", async () => {
    await writeAndBackUp();
    await serving(async () => {
      const before = await readFile(path);
      expect(await commandFault(restore(path, backup))).toMatchObject({ exitCode: 75 });
      expect(before.equals(await readFile(path))).toBe(true);
    });
    expect(await names()).toEqual(ownNames);
  });

  test("while something else reads the store", async () => {
    await writeAndBackUp();
    const reader = new BetterSqlite(path);
    reader.exec("BEGIN");
    reader.prepare("SELECT count(*) FROM events").get();
    const writer = new BetterSqlite(path);
    writer.exec("CREATE TABLE more (value)");
    writer.close();
    const refusal = await commandFault(restore(path, backup));
    expect(refusal).toEqual({ exitCode: 75, text: expect.stringContaining("reads") as string });
    reader.close();
    await restore(path, backup);
  });

  test.each([
    ["cut short", async (file: string) => truncateBy(file, 5 * 4096)],
    ["with a page of zeros", async (file: string) => overwrite(file, 2 * 4096, 4096)],
    [
      "with an altered row",
      async (file: string) => {
        alterRow(file);
      },
    ],
    ["that is empty", async (file: string) => writeFile(file, "")],
    ["that is no database", async (file: string) => writeFile(file, "x".repeat(9000))],
  ])("for a backup %s, and the store stays as it is", async (_, damage) => {
    await writeAndBackUp();
    await damage(backup);
    const before = await readFile(path);
    expect(await commandFault(restore(path, backup))).toMatchObject({ exitCode: 65 });
    expect(before.equals(await readFile(path))).toBe(true);
    expect(await names()).toEqual(ownNames);
    expect(JSON.parse(await readFile(`${path}.secret`, "utf8"))).not.toHaveProperty("generation");
  });

  test("for a backup of a newer program, or one that is not there", async () => {
    await writeAndBackUp();
    const newer = new BetterSqlite(backup);
    newer.pragma("user_version = 99");
    newer.close();
    expect(await commandFault(restore(path, backup))).toEqual({
      exitCode: 74,
      text: expect.stringContaining("schema version 99") as string,
    });
    await rm(backup);
    expect(await commandFault(restore(path, backup))).toMatchObject({ exitCode: 74 });
  });

  test("in the place of another program's database", async () => {
    await writeAndBackUp();
    const other = join(dirname(path), "other.db");
    const database = new BetterSqlite(other);
    database.exec("CREATE TABLE mine (value)");
    database.close();
    expect(await commandFault(restore(other, backup))).toMatchObject({ exitCode: 74 });
  });
});

describe("a damaged store", () => {
  test.each(["with its log", "that was closed"])("%s is replaced and kept", async (which) => {
    const run = await writeAndBackUp();
    if (which === "with its log") {
      const server = await startServerProcess(dirname(path), folder.store);
      await server.stop("SIGKILL");
      await writeFile(`${path}-wal`, "what is left of a log");
    }
    await overwrite(path, 0, 4096);
    const damaged = await readFile(path);
    const report = await restore(path, backup);
    expect(report).toMatchObject({
      restored: { generation: 1n },
      replaced: { generation: undefined, content: undefined },
      keptAs: `${path}.replaced-0`,
    });
    expect(damaged.equals(await readFile(`${path}.replaced-0`))).toBe(true);
    expect([existsSync(`${path}-wal`), existsSync(`${path}-shm`)]).toEqual([false, false]);
    const published = new PublishedRevisions();
    await writeMore(run, published);
    expect(published.highest).toBeGreaterThan(PER_GENERATION);
  });

  test("without a secret is followed by the generation after the one that its mark names", async () => {
    await writeAndBackUp();
    await restore(path, backup);
    await overwrite(path, 0, 4096);
    await rm(`${path}.secret`);
    expect(await restore(path, backup)).toMatchObject({
      restored: { generation: 2n },
      isGenerationProven: true,
    });
  });

  test("without secret and mark is replaced with a warning that revisions may come again", async () => {
    await writeAndBackUp();
    await overwrite(path, 0, 4096);
    await rm(`${path}.secret`);
    await rm(`${path}.position`);
    const { stdout } = await toolmark("restore", "--from", backup, "--store", folder.store);
    expect(stdout).toContain("revisions that were given since then may come again");
  });

  test("whose events are gone from a table is told as far as it can be read", async () => {
    await writeAndBackUp();
    const database = new BetterSqlite(path);
    database.exec("DROP TABLE events");
    database.close();
    expect(await restore(path, backup)).toMatchObject({
      restored: { generation: 1n },
      replaced: { generation: 0n, content: undefined, isMerged: true },
    });
  });
});

describe("a store whose database was changed by hand", () => {
  test("is not served if an older copy is in its place, until it is restored", async () => {
    const published = new PublishedRevisions();
    const run = await writeAndBackUp();
    await writeMore(run, published);
    await restore(path, backup, { discard: true });
    await writeMore(run, published);
    await copyFile(backup, path);
    const refusal = startTestService({ store: folder.store });
    await expect(refusal).rejects.toMatchObject({ reason: "events_missing" });
    await expect(refusal).rejects.toThrow("toolmark restore");
    await restore(path, path);
    await writeMore(run, published);
    expect(published.faults).toEqual([]);
  });

  test("that is gone begins anew in the generation of its secret", async () => {
    await writeAndBackUp();
    await restore(path, backup, { discard: true });
    await rm(path);
    await rm(`${path}.position`, { force: true });
    const hook = await serving(async (clients) => publishHook(clients, await openRun(clients)));
    expect(hook.revision).toBe(PER_GENERATION + 1n);
  });

  test("with a secret of an earlier generation raises it", async () => {
    await writeAndBackUp();
    const secret = await readFile(`${path}.secret`);
    await restore(path, backup);
    await writeFile(`${path}.secret`, secret);
    await serving(async () => undefined);
    const kept: unknown = JSON.parse(await readFile(`${path}.secret`, "utf8"));
    expect(kept).toEqual({ ...(JSON.parse(secret.toString()) as object), generation: 1 });
  });
});

/** Watches asks until there is a cursor. */
async function firstCursor({ approvals }: Clients, cursor: string): Promise<string> {
  for await (const frame of approvals.watchAsks({ cursor })) {
    if (frame.cursor !== "") return frame.cursor;
  }
  throw new Error("the watch ended");
}

async function truncateBy(path0: string, bytes: number): Promise<void> {
  const file = await open(path0, "r+");
  await file.truncate((await file.stat()).size - bytes);
  await file.close();
}

async function overwrite(path0: string, offset: number, bytes: number): Promise<void> {
  const file = await open(path0, "r+");
  await file.write(new Uint8Array(bytes), 0, bytes, offset);
  await file.close();
}

/** Only the row's own digests tell. */
function alterRow(path0: string): void {
  const database = new BetterSqlite(path0);
  withoutTriggers(database, () => {
    database.exec("UPDATE events SET payload = zeroblob(length(payload)) WHERE position = 4");
  });
  database.close();
}
