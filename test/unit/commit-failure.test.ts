import { closeSync, existsSync, ftruncateSync, openSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { commitFailure, isFinal } from "../../src/store/sqlite/commit-failure.js";
import { hasRoom } from "../../src/store/sqlite/write-room.js";
import { sqliteError } from "../support/failing-sqlite.js";
import { runProcess } from "../support/run-process.js";
import { ROOT } from "../support/source-tree.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

describe("why a commit failed", () => {
  const reasonOf = (code: string, room = true): string => {
    const failure = commitFailure(sqliteError(code), undefined, () => room);
    return failure.outcome === "failed" ? failure.reason : failure.outcome;
  };

  test.each([
    ["SQLITE_FULL", "full"],
    ["SQLITE_BUSY", "busy"],
    ["SQLITE_BUSY_SNAPSHOT", "busy"],
    ["SQLITE_LOCKED", "busy"],
    ["SQLITE_CORRUPT", "damaged"],
    ["SQLITE_CORRUPT_INDEX", "damaged"],
    ["SQLITE_NOTADB", "damaged"],
    ["SQLITE_IOERR", "lost"],
    ["SQLITE_IOERR_WRITE", "lost"],
    ["SQLITE_IOERR_FSYNC", "lost"],
    ["SQLITE_IOERR_TRUNCATE", "lost"],
    ["SQLITE_IOERR_SHORT_READ", "lost"],
    ["SQLITE_IOERR_SHMSIZE", "lost"],
    ["SQLITE_NOMEM", "other"],
    ["SQLITE_READONLY", "other"],
  ])("%s is %s", (code, reason) => {
    expect(reasonOf(code)).toBe(reason);
  });

  test("a failed write is a full disk if the file may not grow, a failed sync is not", () => {
    expect(reasonOf("SQLITE_IOERR_WRITE", false)).toBe("full");
    expect(reasonOf("SQLITE_IOERR_FSYNC", false)).toBe("lost");
  });

  test("what the database refuses of one command is that command's alone", () => {
    const failureOf = (code: string) => commitFailure(sqliteError(code), 2, () => true);
    expect(failureOf("SQLITE_CONSTRAINT_UNIQUE")).toMatchObject({
      outcome: "command_failed",
      index: 2,
    });
    expect(failureOf("SQLITE_CORRUPT").outcome).toBe("failed");
  });

  test("no commit follows a lost or a damaged one, others are tried again", () => {
    const cause = new Error("x");
    const final = (["full", "busy", "damaged", "lost", "other"] as const).filter((reason) =>
      isFinal({ outcome: "failed", reason, cause }),
    );
    expect(final).toEqual(["damaged", "lost"]);
  });
});

describe("whether the log could grow", () => {
  let folder: StoreFolder;

  beforeEach(async () => {
    folder = await makeStoreFolder();
    const log = openSync(`${folder.path}-wal`, "w");
    ftruncateSync(log, 1024 * 1024);
    closeSync(log);
  });

  afterEach(async () => {
    await folder.remove();
  });

  /** Asks in a process whose files may have this size. */
  async function hasRoomBelow(limitKib: string): Promise<string> {
    const module = join(ROOT, "dist/src/store/sqlite/write-room.js");
    const program = `import { hasRoom } from "${module}"; console.log(hasRoom("${folder.path}"))`;
    const node = `${process.execPath} --input-type=module -e '${program}'`;
    const { stdout } = await runProcess("bash", ["-c", `ulimit -f ${limitKib}; exec ${node}`]);
    return stdout.trim();
  }

  test("it can where nothing limits it, and nothing is left behind", () => {
    expect(hasRoom(folder.path)).toBe(true);
    expect(existsSync(`${folder.path}.room`)).toBe(false);
  });

  test("it cannot at the limit of file sizes, and can below it", async () => {
    expect(await hasRoomBelow("1024")).toBe("false");
    expect(await hasRoomBelow("2048")).toBe("true");
  });

  test("what cannot be tried is no lack of room", () => {
    expect(hasRoom(join(folder.path, "no-such-folder", "x"))).toBe(true);
  });
});
