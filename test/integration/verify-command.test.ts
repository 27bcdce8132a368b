import { readFileSync, statSync, writeFileSync } from "node:fs";
import { toJsonString } from "@bufbuild/protobuf";
import BetterSqlite from "better-sqlite3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { CheckpointSchema, type Checkpoint } from "../../gen/toolmark/v1/session_pb.js";
import type { SessionRef } from "../../src/ledger/store-port.js";
import { EXIT_CODE } from "../../src/server/exit-code.js";
import { FORGERIES } from "../support/forged-log.js";
import { given, readSession } from "../support/conversation.js";
import { ANNA, startHistoryService, writeHistory } from "../support/rich-history.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { backUp, toolmark } from "../support/toolmark-command.js";
import { withoutTriggers } from "../support/without-triggers.js";

let folder: StoreFolder;
let sessions: SessionRef[];
let checkpoint: Checkpoint;

beforeAll(async () => {
  folder = await makeStoreFolder();
  const service = await startHistoryService({ store: folder.store });
  sessions = await writeHistory(service);
  service.become(ANNA);
  const [first] = sessions;
  const read = await readSession(service.clients(), given(first, "session").sessionId);
  checkpoint = given(read.checkpoint, "checkpoint");
  await service.stop();
  await backUp(folder.path, copyAt("backup"));
});

afterAll(() => folder.remove());

function copyAt(name: string): string {
  return `${folder.path}.${name}`;
}

/** A copy of the store with something in it changed. */
function changed(name: string, change: (database: BetterSqlite.Database) => void): string {
  const path = copyAt(name);
  writeFileSync(path, readFileSync(copyAt("backup")));
  const database = new BetterSqlite(path);
  withoutTriggers(database, change);
  database.close();
  return path;
}

function verify(path: string, ...args: readonly string[]) {
  return toolmark("verify", "--store", `sqlite:${path}`, ...args);
}

function checkpointText(): string {
  return toJsonString(CheckpointSchema, checkpoint);
}

describe("toolmark verify", () => {
  test("finds nothing in a sound store, and changes nothing", async () => {
    const before = readFileSync(folder.path);
    const { code, stdout, stderr } = await verify(folder.path);
    expect({ code, stderr }).toEqual({ code: EXIT_CODE.ok, stderr: "" });
    expect(stdout).toMatch(
      /^Sound: 3 sessions, \d+ events, \d+ bodies, \d+ bytes in [\d.]+ s, \d+ events\/s\n$/,
    );
    expect(readFileSync(folder.path).equals(before)).toBe(true);
  });

  test("verifies a backup, which has no lock", async () => {
    const { mtimeMs } = statSync(copyAt("backup"));
    const { code, stdout } = await verify(copyAt("backup"), "--json");
    expect(code).toBe(EXIT_CODE.ok);
    expect(JSON.parse(stdout)).toMatchObject({
      isSound: true,
      sessions: 3,
      findings: [],
      missed: [],
    });
    expect(statSync(copyAt("backup")).mtimeMs).toBe(mtimeMs);
  });

  test("names the first bad row of each damaged session", async () => {
    const path = changed("damaged", (database) => {
      database.exec("UPDATE events SET kind = 'OTHER' WHERE sequence >= 5");
    });
    const { code, stdout } = await verify(path);
    expect(code).toBe(EXIT_CODE.damaged);
    const lines = stdout.trim().split("\n");
    expect(lines.length).toBe(sessions.length + 1);
    for (const { tenant, sessionId } of sessions) {
      const where = `session ${sessionId} of ${tenant}`;
      expect(lines).toContain(`${where}: events 5: does not follow the chain`);
    }
    expect(lines.at(-1)).toMatch(/^Damaged: 3 sessions/);
  });

  test("finds a file whose guards are gone, or that lacks what was acknowledged", async () => {
    const unguarded = changed("unguarded", () => undefined);
    const database = new BetterSqlite(unguarded);
    database.exec("DROP TRIGGER events_never_go");
    database.close();
    const guards = await verify(unguarded);
    expect(guards.code).toBe(EXIT_CODE.damaged);
    expect(guards.stdout).toContain("database schema: trigger events_never_go is missing");
    const cut = changed("cut", (file) => {
      file.exec("DELETE FROM events WHERE position = (SELECT max(position) FROM events)");
    });
    writeFileSync(`${cut}.position`, readFileSync(`${folder.path}.position`));
    const { code, stdout } = await verify(cut);
    expect(code).toBe(EXIT_CODE.damaged);
    expect(stdout).toContain("database events: committed events are missing");
  });

  test("looks at a large file in threads, and finds the same", async () => {
    const grow = (database: BetterSqlite.Database): void => {
      database.exec("CREATE TABLE filler (bytes BLOB)");
      database.exec("INSERT INTO filler VALUES (zeroblob(9000000))");
      database.exec("DROP TABLE filler");
    };
    const sound = changed("large", grow);
    expect(statSync(sound).size).toBeGreaterThan(8 * 1024 * 1024);
    expect((await verify(sound, "--checkpoint", checkpointText())).stdout).toMatch(
      /^Sound: 3 sessions/,
    );
    const damaged = changed("large-damaged", (database) => {
      grow(database);
      database.exec("UPDATE events SET kind = 'OTHER' WHERE sequence = 5");
    });
    const { code, stdout } = await verify(damaged);
    expect(code).toBe(EXIT_CODE.damaged);
    expect(stdout.match(/events 5: does not follow the chain/g)).toHaveLength(sessions.length);
  });

  test("looks at one session, or one tenant, if asked to", async () => {
    const [first, , other] = sessions;
    const path = changed("one", (database) => {
      database
        .prepare(
          `UPDATE events SET kind = 'OTHER'
           WHERE session = (SELECT session FROM sessions WHERE session_id = ?)`,
        )
        .run(given(first, "session").sessionId);
    });
    const one = await verify(path, "--session", given(first, "session").sessionId);
    expect(one.code).toBe(EXIT_CODE.damaged);
    const { tenant } = given(other, "session");
    const rest = await verify(path, "--tenant", tenant);
    expect(rest.code).toBe(EXIT_CODE.ok);
    expect(rest.stdout).toMatch(/^Sound: 1 sessions/);
  });

  test("takes checkpoints, and refuses a log that does not go through one", async () => {
    const file = copyAt("checkpoint.json");
    writeFileSync(file, checkpointText());
    const sound = await verify(folder.path, "--checkpoint", checkpointText());
    expect(sound.code).toBe(EXIT_CODE.ok);
    const [first] = sessions;
    const path = changed("rewritten", (database) => {
      FORGERIES.rewrite(database, given(first, "session"), () => 0.5);
    });
    expect((await verify(path)).code).toBe(EXIT_CODE.ok);
    const { code, stdout } = await verify(path, `--checkpoint=@${file}`);
    expect(code).toBe(EXIT_CODE.damaged);
    expect(stdout).toContain("does not go through the checkpoint");
  });

  test("refuses a checkpoint of a session that is gone", async () => {
    const text = checkpointText().replace(checkpoint.sessionId, "ses_gone");
    const { code, stdout } = await verify(folder.path, "--checkpoint", text, "--json");
    expect(code).toBe(EXIT_CODE.damaged);
    const sequence = checkpoint.sequence.toString();
    expect(JSON.parse(stdout)).toMatchObject({ missed: [{ sessionId: "ses_gone", sequence }] });
  });

  test("refuses a store that is being served", async () => {
    const service = await startHistoryService({ store: folder.store });
    try {
      const { code, stderr } = await verify(folder.path);
      expect(code).toBe(EXIT_CODE.storeLocked);
      expect(stderr).toContain("use VerifySession, or verify a backup");
    } finally {
      await service.stop();
    }
  });

  test("refuses a file that is none, another program's, newer or older", async () => {
    const absent = await verify(copyAt("absent"));
    expect(absent.code).toBe(EXIT_CODE.storeUnusable);
    const foreign = copyAt("foreign");
    const database = new BetterSqlite(foreign);
    database.exec("CREATE TABLE t (x)");
    database.close();
    expect((await verify(foreign)).stderr).toContain("belongs to another program");
    const newer = changed("newer", (file) => file.pragma("user_version = 99"));
    expect(await verify(newer)).toMatchObject({ code: EXIT_CODE.storeUnusable });
    const older = await verify(changed("older", (file) => file.pragma("user_version = 3")));
    expect(older.code).toBe(EXIT_CODE.storeUnusable);
    expect(older.stderr).toContain("start the server once, or run toolmark migrate");
  });

  test.each([
    [["--checkpoint", "{"]],
    [["--checkpoint", "{}"]],
    [["--checkpoint", "@/no/such/file"]],
    [["--checkpoint"]],
    [["--unknown"]],
    [["--store", "memory:"]],
  ])("ends with a usage error for %j", async (args) => {
    expect((await verify(folder.path, ...args)).code).toBe(EXIT_CODE.configuration);
  });
});
