import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { Code } from "@connectrpc/connect";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createSession, readSession } from "../support/conversation.js";
import { refused } from "../support/refused.js";
import { runProcess } from "../support/run-process.js";
import { serverArguments } from "../support/server-process.js";
import { spawnStore, type SpawnedStore } from "../support/spawned-store.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

let folder: StoreFolder;
let server: SpawnedStore;

beforeEach(async () => {
  folder = await makeStoreFolder();
  server = await spawnStore(folder);
});

afterEach(async () => {
  await server.kill();
  await folder.remove();
});

const uncertain = { code: Code.Unavailable, reason: "COMMIT_UNCERTAIN" };

describe("a server whose store fails", () => {
  test("answers that the commit is uncertain, ends with 71, and starts again from the log", async () => {
    const sessionId = await createSession(server.clients);
    const log = readFileSync(`${folder.path}-wal`);
    writeFileSync(server.trigger, "SQLITE_IOERR_FSYNC");
    expect(await refused(createSession(server.clients))).toMatchObject(uncertain);
    const { code, stderr } = await server.exit;
    expect(code).toBe(71);
    expect(stderr).toContain("SQLITE_IOERR_FSYNC");
    // Neither a snapshot nor a checkpoint was written: what was synced is as it was.
    expect(readFileSync(`${folder.path}-wal`).subarray(0, log.length)).toEqual(log);
    rmSync(server.trigger);
    await server.kill();
    server = await spawnStore(folder);
    expect(statSync(`${folder.path}-wal`).size).toBe(0);
    expect((await readSession(server.clients, sessionId)).sessionId).toBe(sessionId);
    await createSession(server.clients);
  });

  test("while it drains ends with 71 as well", async () => {
    await createSession(server.clients);
    writeFileSync(server.trigger, "SQLITE_IOERR_FSYNC");
    server.child.kill("SIGTERM");
    expect((await server.exit).code).toBe(71);
  });

  test("acknowledges nothing after its database was removed, and ends with 71", async () => {
    await createSession(server.clients);
    rmSync(folder.path);
    expect(await refused(createSession(server.clients))).toMatchObject(uncertain);
    const { code, stderr } = await server.exit;
    expect(code).toBe(71);
    expect(stderr).toContain(`${folder.path} was removed or replaced`);
    expect(existsSync(folder.path)).toBe(false);
  });

  test("that is told to end after its files were replaced leaves the others alone", async () => {
    rmSync(`${folder.path}-wal`);
    writeFileSync(`${folder.path}-wal`, "another's");
    server.child.kill("SIGTERM");
    expect((await server.exit).code).toBe(71);
    expect(readFileSync(`${folder.path}-wal`, "utf8")).toBe("another's");
  });
});

test("a store that was killed and lost its log is not served: exit code 74 and why", async () => {
  await createSession(server.clients);
  await server.kill();
  rmSync(`${folder.path}-wal`);
  const { code, stderr } = await runProcess(process.execPath, serverArguments(folder.store));
  expect(code).toBe(74);
  expect(stderr).toMatch(
    /committed events are missing from .*toolmark\.db.*put the right files back/,
  );
});
