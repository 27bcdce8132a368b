import { spawn } from "node:child_process";
import { once } from "node:events";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, stat, truncate, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import BetterSqlite from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { backupStore } from "../../src/server/backup-store.js";
import { migrateStore } from "../../src/server/migrate-store.js";
import { allEvents, openRun, publishHook } from "../support/conversation.js";
import { RestartingServer } from "../support/restarting-server.js";
import { nothingWritten, RetryingWriter } from "../support/retrying-writer.js";
import { runProcess } from "../support/run-process.js";
import { startTestService, WIRES } from "../support/service.js";
import { ROOT } from "../support/source-tree.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { backUp, commandFault, copyHere, restore, toolmark } from "../support/toolmark-command.js";
import { writtenProblems } from "../support/written-log.js";
import { until } from "./listeners-fixture.js";
import { withoutTriggers } from "../support/without-triggers.js";

const WRITERS = 8;
const CLI = join(ROOT, "dist/bin/toolmark.js");

let folder: StoreFolder;
let to: string;

beforeEach(async () => {
  folder = await makeStoreFolder();
  await mkdir(join(dirname(folder.path), "copies"));
  to = join(dirname(folder.path), "copies", "copy.db");
});

afterEach(() => folder.remove());

const copies = (): Promise<string[]> => readdir(dirname(to));

async function digestOf(path: string): Promise<string> {
  return createHash("sha256")
    .update(await readFile(path))
    .digest("hex");
}

/** A closed store with one session. */
async function writeStore(): Promise<string> {
  const service = await startTestService({ store: folder.store });
  try {
    const run = await openRun(service.clients());
    for (let index = 0; index < 20; index += 1) await publishHook(service.clients(), run);
    return run.sessionId;
  } finally {
    await service.stop();
  }
}

function onCopy<Answer>(read: (database: BetterSqlite.Database) => Answer): Answer {
  const database = new BetterSqlite(to, { readonly: true });
  try {
    return read(database);
  } finally {
    database.close();
  }
}

describe("a backup of a store that is served", () => {
  const timeout = 120_000;
  test("has everything acknowledged before it began, and can be served", { timeout }, async () => {
    const server = new RestartingServer(dirname(folder.path), folder.store);
    const clients = (await server.life()).clients("grpc");
    const runs = await Promise.all([openRun(clients), openRun(clients)]);
    const written = nothingWritten();
    let isEnough = false;
    const writing = Array.from({ length: WRITERS }, (_, index) =>
      new RetryingWriter(
        `w${index}`,
        WIRES[index % WIRES.length]!,
        server,
        runs[index % runs.length]!,
        written,
      ).writeUntil(() => isEnough),
    );
    await until(() => written.acknowledged > 60);
    const before = { ...written };
    before.toolCallIds = new Map(written.toolCallIds);
    before.hookIds = new Map(written.hookIds);
    before.results = new Map(written.results);
    const { code, stdout, stderr } = await toolmark(
      ...["backup", "--to", to, "--store", folder.store, "--json"],
    );
    expect([code, stderr]).toEqual([0, ""]);
    const acknowledgedMeanwhile = written.acknowledged - before.acknowledged;
    isEnough = true;
    await Promise.all(writing);
    await server.stop("SIGTERM");
    expect(acknowledgedMeanwhile).toBeGreaterThan(0);

    const report = JSON.parse(stdout) as Record<string, unknown>;
    expect(report).toMatchObject({ path: to, sessions: 2, generation: "0", checked: "everything" });
    expect(report["sha256"]).toBe(await digestOf(to));
    const copy = await startTestService({ store: `sqlite:${to}` });
    const logs = await Promise.all(
      runs.map(({ sessionId }) => allEvents(copy.clients(), sessionId)),
    );
    await publishHook(copy.clients(), runs[0]);
    await copy.stop();
    expect(report["events"]).toBe(logs.flat().length);
    const problems = writtenProblems(logs, before);
    expect(problems.filter((problem) => !problem.endsWith("acknowledged to nobody"))).toEqual([]);
  });
});

describe("a backup", () => {
  test("is one private file without a log, and nothing else is left", async () => {
    const sessionId = await writeStore();
    const report = await backUp(folder.path, to);
    expect(await copies()).toEqual(["copy.db"]);
    const { mode, size } = await stat(to);
    expect([mode & 0o777, size]).toEqual([0o600, report.sizeBytes]);
    const original = new BetterSqlite(folder.path);
    const pragmas = ["application_id", "user_version"].map((name) => {
      return [name, original.pragma(name, { simple: true })] as const;
    });
    original.close();
    onCopy((copy) => {
      for (const [name, value] of pragmas) expect(copy.pragma(name, { simple: true })).toBe(value);
      expect(copy.pragma("journal_mode", { simple: true })).toBe("delete");
      expect(copy.prepare("SELECT session_id FROM sessions").pluck().all()).toEqual([sessionId]);
    });
  });

  test("never has the secret", async () => {
    await writeStore();
    await backUp(folder.path, to);
    const { secret } = JSON.parse(await readFile(`${folder.path}.secret`, "utf8")) as {
      secret: string;
    };
    const copy = await readFile(to);
    for (const spelled of [Buffer.from(secret), Buffer.from(secret, "base64url")]) {
      expect(copy.includes(spelled)).toBe(false);
    }
  });

  test("of a store whose server was killed has its log too, and changes neither", async () => {
    const server = new RestartingServer(dirname(folder.path), folder.store);
    const clients = (await server.life()).clients("grpc");
    const run = await openRun(clients);
    for (let index = 0; index < 20; index += 1) await publishHook(clients, run);
    await server.stop("SIGKILL");
    const files = [folder.path, `${folder.path}-wal`];
    const before = await Promise.all(files.map(digestOf));
    expect((await stat(files[1]!)).size).toBeGreaterThan(0);
    expect(await backUp(folder.path, to)).toMatchObject({ sessions: 1, events: 22 });
    expect(await Promise.all(files.map(digestOf))).toEqual(before);
  });

  test("does not overwrite, and is no file of the store", async () => {
    await writeStore();
    await writeFile(to, "mine");
    const refusals = [
      [to, "is there already"],
      [`${folder.path}-wal`, "is a file of the store itself"],
      [`${folder.path}.secret`, "is a file of the store itself"],
      [join(dirname(to), "none", "copy.db"), "there is no folder"],
    ] as const;
    for (const [target, text] of refusals) {
      const { exitCode, text: told } = await commandFault(backUp(folder.path, target));
      expect([exitCode, told]).toEqual([2, expect.stringContaining(text)]);
    }
    expect(await readFile(to, "utf8")).toBe("mine");
    expect(await copies()).toEqual(["copy.db"]);
  });

  test("of what is no store is refused, and nothing is made", async () => {
    const refusal = () => commandFault(backUp(folder.path, to));
    expect(await refusal()).toEqual({ exitCode: 74, text: `there is no store at ${folder.path}` });
    await writeFile(folder.path, "");
    const isEmpty = expect.stringContaining("is empty") as string;
    expect(await refusal()).toEqual({ exitCode: 65, text: isEmpty });
    await writeFile(folder.path, "x".repeat(5000));
    const isDamaged = expect.stringContaining("is damaged") as string;
    expect(await refusal()).toEqual({ exitCode: 65, text: isDamaged });
    expect(await copies()).toEqual([]);
  });

  test("of a damaged store is refused, and nothing is left", async () => {
    await writeStore();
    await truncate(folder.path, (await stat(folder.path)).size - 8 * 4096);
    const { code, stderr } = await toolmark("backup", "--to", to, "--store", folder.store);
    expect([code, stderr]).toEqual([65, expect.stringContaining(`${folder.path} is damaged`)]);
    expect(await copies()).toEqual([]);
  });

  test("of a store with an altered row is refused, unless it is not to be checked", async () => {
    await writeStore();
    const database = new BetterSqlite(folder.path);
    withoutTriggers(database, () => {
      database.exec("UPDATE events SET payload = zeroblob(length(payload)) WHERE position = 7");
    });
    database.close();
    const { exitCode, text } = await commandFault(backUp(folder.path, to));
    expect([exitCode, text]).toEqual([65, expect.stringContaining(`${folder.path} is damaged`)]);
    expect(await copies()).toEqual([]);
    const unchecked = { path: folder.path, to, verify: false };
    const report = await backupStore({ ...unchecked, copy: copyHere });
    expect(report).toMatchObject({ checked: "nothing", events: 22 });
  });

  test("of a store in an older schema is made without changing it", async () => {
    await writeStore();
    await migrateStore({ path: folder.path, to: 3, allowDataLoss: false });
    const before = await digestOf(folder.path);
    expect(await backUp(folder.path, to)).toMatchObject({ schemaVersion: 3, checked: "pages" });
    expect(await digestOf(folder.path)).toBe(before);
    await restore(folder.path, to);
    const service = await startTestService({ store: folder.store });
    await service.stop();
  });

  test("that does not fit on the disk says so, and nothing is left", async () => {
    await writeStore();
    await fillStore(1);
    const limited = `ulimit -f 200; exec "$0" "$@"`;
    const args = [CLI, "backup", "--to", to, "--store", folder.store];
    const { code, stderr } = await runProcess("bash", ["-c", limited, process.execPath, ...args]);
    expect([code, stderr]).toEqual([74, expect.stringContaining(dirname(to))]);
    expect(await copies()).toEqual([]);
  });

  test("that is ended by a signal leaves nothing", async () => {
    await writeStore();
    await fillStore(64);
    const args = [CLI, "backup", "--to", to, "--store", folder.store];
    const child = spawn(process.execPath, args, { stdio: "ignore" });
    const ended = once(child, "exit");
    const asideNames = async () => (await copies()).filter((name) => name !== basename(to));
    let isCopying = false;
    while (!isCopying && child.exitCode === null) isCopying = (await asideNames()).length > 0;
    child.kill("SIGTERM");
    expect(await ended).toEqual([null, "SIGTERM"]);
    expect([isCopying, existsSync(to), await copies()]).toEqual([true, false, []]);
  });
});

/** Makes a store large without writing many events. */
async function fillStore(mebibytes: number): Promise<void> {
  const database = new BetterSqlite(folder.path);
  database.exec("CREATE TABLE filling (data BLOB)");
  const insert = database.prepare("INSERT INTO filling VALUES (randomblob(1048576))");
  for (let count = 0; count < mebibytes; count += 1) insert.run();
  database.close();
}
