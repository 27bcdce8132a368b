import { spawn } from "node:child_process";
import { once } from "node:events";
import { symlink, unlink, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openRun, publishHook, readSession } from "../support/conversation.js";
import { RestartingServer } from "../support/restarting-server.js";
import { nothingWritten } from "../support/retrying-writer.js";
import { refused } from "../support/refused.js";
import { scaled, testScale } from "../support/scale.js";
import { ROOT } from "../support/source-tree.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { beginWrittenRun, lostOrDoubled, whileWriting } from "./kill-load.js";
import { recordResult } from "./results.js";
import { refusalProblems, startSecond } from "./single-writer-second.js";

const ROUNDS = 20;
/** Keeps a busy machine from hanging. */
const PATIENCE_MS = 30_000;
/** As promised, and so asserted where time is measured. */
const MAX_MS = testScale() === "long" ? 1000 : PATIENCE_MS;
const ROUND_TIMEOUT_MS = 3 * PATIENCE_MS;
const NO_LOCK = join(ROOT, "test/mutants/preload-no-lock.mjs");
const HOLDER = join(ROOT, "test/fault/single-writer-holder.mjs");

let folder: StoreFolder;
let server: RestartingServer;

beforeAll(async () => {
  folder = await makeStoreFolder();
  // Left behind by nobody: it must keep nobody out.
  await writeFile(`${folder.path}.lock`, "");
  server = new RestartingServer(dirname(folder.path), folder.store);
});

afterAll(async () => {
  await server.stop("SIGKILL");
  await folder.remove();
});

/** Another process that holds the database. Resolves once it does. */
async function hold(sql: string): Promise<{ release(): Promise<void> }> {
  const stdio = ["pipe", "pipe", "inherit"] as const;
  const holder = spawn(process.execPath, [HOLDER, folder.path, sql], { stdio: [...stdio] });
  await once(holder.stdout, "data");
  return {
    release: async () => {
      holder.stdin.end();
      await once(holder, "exit");
    },
  };
}

describe("a store has one writer", () => {
  test("although a lock file was there, that nobody held", async () => {
    expect((await server.life()).number).toBe(1);
  });

  test(
    "a second server is refused while the first lives, and takes over once it was killed",
    { timeout: ROUND_TIMEOUT_MS * (scaled(ROUNDS) + 1) },
    async () => {
      const first = (await server.life()).clients("grpc");
      const run = await openRun(first);
      const weak = await startSecond(folder.path, { preload: NO_LOCK });
      const caught = await refusalProblems(weak, PATIENCE_MS);
      expect(caught).toEqual(["two servers have the store open"]);

      const problems: string[] = [];
      const refusedMs: number[] = [];
      for (let round = 0; round < scaled(ROUNDS); round += 1) {
        const second = await startSecond(folder.path);
        refusedMs.push(second.tookMs);
        problems.push(...(await refusalProblems(second, MAX_MS)));
        // The lock file stays, and holds nothing.
        const next = (await server.restart("SIGKILL")).clients("grpc");
        await publishHook(next, run);
      }
      const takeoverMs = server.readyMs.slice(1).sort((one, other) => one - other);
      recordWriters(problems, refusedMs, takeoverMs, caught.length);
      expect(problems).toEqual([]);
      expect(takeoverMs.at(-1)).toBeLessThanOrEqual(MAX_MS);
    },
  );

  function recordWriters(
    problems: readonly string[],
    refusedMs: readonly number[],
    takeoverMs: readonly number[],
    caught: number,
  ): void {
    const [refusedMsMax, takeoverMsMax] = [refusedMs, takeoverMs].map((all) =>
      Math.round(Math.max(...all)),
    ) as [number, number];
    process.stdout.write(
      `single writer: ${refusedMs.length} second servers refused in ${refusedMsMax} ms at most, ` +
        `${takeoverMs.length} takeovers in ${takeoverMsMax} ms at most\n`,
    );
    recordResult({
      promise: 26,
      part: "a second server, and its takeover",
      counted: "second servers refused",
      count: refusedMs.length,
      wanted: ROUNDS,
      violations: problems.length,
      planted: [{ name: "takes no lock", caught }],
      figures: { takeovers: takeoverMs.length, refusedMsMax, takeoverMsMax },
    });
  }

  test("whatever name it is given", { timeout: ROUND_TIMEOUT_MS }, async () => {
    const clients = (await server.life()).clients("grpc");
    const run = await openRun(clients);
    const before = await readSession(clients, run.sessionId);
    const parent = dirname(folder.path);
    const soft = join(parent, "soft.db");
    const linkedFolder = `${parent}-linked`;
    await symlink(folder.path, soft);
    await symlink(parent, linkedFolder);
    try {
      const names = [soft, join(linkedFolder, basename(folder.path)), `./${basename(folder.path)}`];
      for (const name of names) {
        const second = await startSecond(name, { workingFolder: parent });
        expect(await refusalProblems(second, PATIENCE_MS)).toEqual([]);
      }
    } finally {
      await Promise.all([soft, linkedFolder].map((path) => unlink(path)));
    }
    expect(await readSession(clients, run.sessionId)).toEqual(before);
  });

  test("also while it is stopped", { timeout: ROUND_TIMEOUT_MS }, async () => {
    const life = await server.life();
    const clients = life.clients("grpc");
    const run = await openRun(clients);
    life.server.send("SIGSTOP");
    const second = await startSecond(folder.path);
    life.server.send("SIGCONT");
    expect(await refusalProblems(second, PATIENCE_MS)).toEqual([]);
    await publishHook(clients, run);
  });
});

describe("another program that holds the database", () => {
  test.each([
    ["to write", "BEGIN IMMEDIATE"],
    ["for itself", "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE"],
  ])("%s keeps a server from starting after a kill, until it lets go", async (_how, sql) => {
    const run = await openRun((await server.life()).clients("grpc"));
    await server.stop("SIGKILL");
    const holder = await hold(sql);
    expect(await refusalProblems(await startSecond(folder.path), PATIENCE_MS)).toEqual([]);
    await holder.release();
    server = new RestartingServer(dirname(folder.path), folder.store);
    await publishHook((await server.life()).clients("grpc"), run);
  });

  test("makes commands wait and fail as retryable, loses none, and they go on once it lets go", async () => {
    const clients = (await server.life()).clients("grpc");
    const runs = [await beginWrittenRun(clients, "session")];
    const load = { server, runs, written: nothingWritten(), writers: 4 };
    await whileWriting(load, async (more) => {
      await more(20);
      const holder = await hold("BEGIN IMMEDIATE");
      const busy = await refused(publishHook(clients, runs[0]!));
      expect(busy).toMatchObject({ reason: "STORE_BUSY" });
      expect((await readSession(clients, runs[0]!.sessionId)).activeRunId).toBe(runs[0]!.runId);
      await holder.release();
      await more(20);
    });
    expect(load.written.retried).toBeGreaterThan(0);
    expect(await lostOrDoubled(load)).toEqual([]);
  });
});
