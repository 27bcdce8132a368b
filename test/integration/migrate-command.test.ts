import BetterSqlite from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { migrateStore, type MigrateReport } from "../../src/server/migrate-store.js";
import { answer, askAbout } from "../support/asking.js";
import { complete, newCall, acceptCall, openRun, publishHook } from "../support/conversation.js";
import { startTestService } from "../support/service.js";
import { makeStoreFolder, tableContents, type StoreFolder } from "../support/store-folder.js";
import { commandFault, toolmark } from "../support/toolmark-command.js";

let folder: StoreFolder;

beforeEach(async () => {
  folder = await makeStoreFolder();
});

afterEach(() => folder.remove());

/** A closed store with something in every table. */
async function writeStore(): Promise<void> {
  const service = await startTestService({ store: folder.store });
  const clients = service.clients();
  for (let session = 0; session < 2; session += 1) {
    const run = await openRun(clients);
    const call = await acceptCall(clients, run, newCall("provider"));
    await publishHook(clients, run, call.toolCallId);
    await complete(clients, run, call.toolCallId);
    await answer(clients, await askAbout(clients, run));
    await askAbout(clients, run);
  }
  await service.stop();
}

function migrate(to?: number, allowDataLoss = false): Promise<MigrateReport> {
  return migrateStore({ path: folder.path, to, allowDataLoss });
}

async function newestVersion(): Promise<number> {
  return (await migrate()).to;
}

describe("a migration by the command", () => {
  test("down to each version and up again loses no row", async () => {
    await writeStore();
    const before = tableContents(folder.path);
    expect(Object.values(before).filter(({ rows }) => rows > 0).length).toBeGreaterThan(8);
    const newest = await newestVersion();
    for (let version = newest - 1; version >= 1; version -= 1) {
      expect(await migrate(version)).toMatchObject({ from: newest, to: version });
      expect(await migrate()).toMatchObject({ from: version, to: newest });
      expect(tableContents(folder.path)).toEqual(before);
    }
  });

  test("says from where to where it went, and that there was nothing to do", async () => {
    await writeStore();
    const newest = await newestVersion();
    const path = folder.path;
    await expect(toolmark("migrate", "--to", "3", "--store", folder.store)).resolves.toEqual({
      code: 0,
      stdout: `Migrated ${path} from schema version ${newest} to 3\n`,
      stderr: "",
    });
    expect(await migrate(3)).toMatchObject({ from: 3, to: 3 });
    // Asked for again, it stays there.
    expect(await migrate(3)).toMatchObject({ from: 3, to: 3 });
  });

  test("is refused for a file of a newer program", async () => {
    await writeStore();
    const database = new BetterSqlite(folder.path);
    database.pragma("user_version = 99");
    database.close();
    for (const version of [undefined, 1]) {
      expect(await commandFault(migrate(version))).toEqual({
        exitCode: 74,
        text: expect.stringContaining("schema version 99") as string,
      });
    }
  });

  test("is refused for no store, a store that is held, and what is no version", async () => {
    const none = await commandFault(migrate());
    expect(none).toEqual({ exitCode: 74, text: `there is no store at ${folder.path}` });
    const service = await startTestService({ store: folder.store });
    expect(await commandFault(migrate())).toMatchObject({ exitCode: 75 });
    await service.stop();
    const newest = await newestVersion();
    for (const version of [0, newest + 1, 1.5]) {
      expect(await commandFault(migrate(version))).toMatchObject({ exitCode: 2 });
    }
    await migrate(1);
    expect(await commandFault(migrate(2))).toMatchObject({ exitCode: 2 });
  });
});

describe("the command line", () => {
  test.each([
    [["backup", "--bogus"], "Unknown option '--bogus'"],
    [["backup"], "--to is missing"],
    [["backup", "--to", "x", "--store", "memory:"], '--store: "memory:" is not sqlite:path'],
    [["restore", "extra"], "Unexpected argument 'extra'"],
    [["migrate", "--to", "x"], '--to: "x" is not a version'],
    [["constructor"], "There is no command constructor"],
  ])("%j is refused with what is wrong with it", async (args, text) => {
    const { code, stdout, stderr } = await toolmark(...args);
    expect([code, stdout, stderr]).toEqual([2, "", expect.stringContaining(text)]);
  });

  test("tells each command's flags", async () => {
    const commands = ["backup", "restore", "migrate"];
    const helps = await Promise.all(commands.map((name) => toolmark(name, "--help")));
    for (const { code, stdout } of helps) {
      expect([code, stdout]).toEqual([0, expect.stringContaining("--store <sqlite:path>")]);
    }
  });
});
