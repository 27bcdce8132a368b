import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { chmod, mkdir, open, readdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import {
  keepGeneration,
  loadStoreSecret,
  storedGeneration,
} from "../../src/server/store-secret.js";
import { StoreOpenError } from "../../src/store/sqlite/store-open-error.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

const ENCODED = Buffer.alloc(32, 7).toString("base64url");

let folder: StoreFolder;
let secretPath: string;

beforeEach(async () => {
  folder = await makeStoreFolder();
  secretPath = `${folder.path}.secret`;
  await writeFile(folder.path, "");
});

afterEach(() => folder.remove());

async function writeSecret(text: string | Uint8Array, mode = 0o600): Promise<void> {
  await writeFile(secretPath, text);
  await chmod(secretPath, mode);
}

/** Why it is refused, after checking that no part of the file is told. */
async function refusal(): Promise<StoreOpenError> {
  const error = await loadStoreSecret(folder.path).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof StoreOpenError)) throw new Error("it was not refused", { cause: error });
  expect(`${error.message} ${String(error.stack)} ${JSON.stringify(error)}`).not.toContain("Bwc");
  expect(error.message).toContain(secretPath);
  return error;
}

describe("the secret of a store", () => {
  test("is made once, and the same from then on", async () => {
    const first = await loadStoreSecret(folder.path);
    const second = await loadStoreSecret(folder.path);
    expect(first.secret).toHaveLength(32);
    expect(first.created).toBe(true);
    expect(second).toEqual({ secret: Buffer.from(first.secret), created: false });
  });

  test("lies beside the database for its owner alone, and nothing else is left", async () => {
    const { secret } = await loadStoreSecret(folder.path);
    expect((await stat(secretPath)).mode & 0o777).toBe(0o600);
    const encoded = Buffer.from(secret).toString("base64url");
    expect(await readFile(secretPath, "utf8")).toBe(`{"version":1,"secret":"${encoded}"}\n`);
    const names = await readdir(dirname(folder.path));
    expect(names.sort()).toEqual(["toolmark.db", "toolmark.db.secret"]);
  });

  test("is synced before it has its name, and the folder after", async () => {
    const synced: string[] = [];
    const file = await open(folder.path, "r");
    const handles = Object.getPrototypeOf(file) as typeof file;
    await file.close();
    const sync = handles.sync;
    vi.spyOn(handles, "sync").mockImplementation(async function (this: typeof file) {
      const what = (await this.stat()).isDirectory() ? "folder" : "file";
      synced.push(`${what}, ${existsSync(secretPath) ? "named" : "not named"}`);
      await sync.call(this);
    });
    await loadStoreSecret(folder.path);
    expect(synced).toEqual(["file, not named", "folder, named"]);
  });

  test("is another one for each store", async () => {
    const other = await makeStoreFolder();
    try {
      await writeFile(other.path, "");
      const secrets = await Promise.all(
        [folder.path, other.path].map((path) => loadStoreSecret(path)),
      );
      expect(secrets[0]!.secret).not.toEqual(secrets[1]!.secret);
    } finally {
      await other.remove();
    }
  });

  test("is one, however many make it at a time", async () => {
    const all = await Promise.all(Array.from({ length: 20 }, () => loadStoreSecret(folder.path)));
    const encoded = new Set(all.map(({ secret }) => Buffer.from(secret).toString("hex")));
    expect(encoded.size).toBe(1);
    expect(all.filter(({ created }) => created)).toHaveLength(1);
    expect(await readdir(dirname(folder.path))).toHaveLength(2);
  });

  test("is the same by a link to the database", async () => {
    const linked = join(dirname(folder.path), "linked.db");
    await symlink(folder.path, linked);
    const { secret } = await loadStoreSecret(linked);
    expect(await loadStoreSecret(folder.path)).toEqual({
      secret: Buffer.from(secret),
      created: false,
    });
  });

  test("may lie with members that are not known, and the file is not touched", async () => {
    const text = `{"later":3,"secret":"${ENCODED}","version":1}\n`;
    await writeSecret(text, 0o400);
    const { secret, created } = await loadStoreSecret(folder.path);
    expect([Buffer.from(secret).toString("base64url"), created]).toEqual([ENCODED, false]);
    expect(await readFile(secretPath, "utf8")).toBe(text);
    expect((await stat(secretPath)).mode & 0o777).toBe(0o400);
  });

  test.each([0o640, 0o604, 0o620, 0o601, 0o666])("is refused with mode %o", async (mode) => {
    await writeSecret(`{"version":1,"secret":"${ENCODED}"}\n`, mode);
    const { reason, message } = await refusal();
    expect(reason).toBe("weak_setting");
    expect(message).toContain("set mode 0600");
  });

  test.each<[string, string]>([
    ["an empty file", ""],
    ["half a file", `{"version":1,"secret":"${ENCODED.slice(0, 20)}`],
    ["other JSON", `"${ENCODED}"`],
    ["null", "null"],
    ["a list", `[1,"${ENCODED}"]`],
    ["no version", `{"secret":"${ENCODED}"}`],
    ["a version in text", `{"version":"1","secret":"${ENCODED}"}`],
    ["an older version", `{"version":0,"secret":"${ENCODED}"}`],
    ["no secret", `{"version":1}`],
    ["a number", `{"version":1,"secret":7}`],
    ["a short secret", `{"version":1,"secret":"${Buffer.alloc(31, 7).toString("base64url")}"}`],
    ["a long secret", `{"version":1,"secret":"${Buffer.alloc(33, 7).toString("base64url")}"}`],
    ["padding", `{"version":1,"secret":"${ENCODED}="}`],
    ["hex", `{"version":1,"secret":"${Buffer.alloc(32, 7).toString("hex")}"}`],
    ["a generation in text", `{"version":1,"secret":"${ENCODED}","generation":"1"}`],
    ["a generation below 0", `{"version":1,"secret":"${ENCODED}","generation":-1}`],
    ["a part of a generation", `{"version":1,"secret":"${ENCODED}","generation":0.5}`],
    [
      "a generation without revisions",
      `{"version":1,"secret":"${ENCODED}","generation":2147483648}`,
    ],
    ["too much", `{"version":1,"secret":"${ENCODED}"}${" ".repeat(4096)}`],
  ])("is refused if it is %s", async (_, text) => {
    await writeSecret(text);
    const { reason, message } = await refusal();
    expect(reason).toBe("unreadable");
    expect(message).toContain("put the right file back, or remove it");
    expect(await readFile(secretPath, "utf8")).toBe(text);
  });

  test("is refused in a newer format", async () => {
    await writeSecret(`{"version":2,"secret":"${ENCODED}"}\n`);
    expect((await refusal()).reason).toBe("newer_schema");
  });

  test("is refused as a folder", async () => {
    await mkdir(secretPath, { mode: 0o700 });
    expect((await refusal()).reason).toBe("unreadable");
  });

  test("is refused as a pipe, which nobody would ever write to", async () => {
    execFileSync("mkfifo", ["-m", "600", secretPath]);
    expect((await refusal()).reason).toBe("unreadable");
  });

  test("is refused as a link to nothing", async () => {
    await symlink(join(dirname(folder.path), "nowhere"), secretPath);
    expect((await refusal()).reason).toBe("unavailable");
    expect(await readdir(dirname(folder.path))).toHaveLength(2);
  });

  test("is not made for a database that is not there", async () => {
    await folder.remove();
    expect((await refusal()).reason).toBe("unavailable");
  });
});

describe("the log generation beside the secret", () => {
  const TEXT = `{"version":1,"later":{"is":[1]},"secret":"${ENCODED}","generation":3}\n`;
  const content = async (): Promise<unknown> => JSON.parse(await readFile(secretPath, "utf8"));

  test("is what was kept last, also without a database", async () => {
    await folder.remove();
    expect(await storedGeneration(folder.path)).toBeUndefined();
    await mkdir(dirname(folder.path));
    expect(await storedGeneration(folder.path)).toBeUndefined();
    await keepGeneration(folder.path, 1n);
    expect(await storedGeneration(folder.path)).toBe(1n);
    expect((await stat(secretPath)).mode & 0o777).toBe(0o600);
    await keepGeneration(folder.path, 7n);
    expect(await storedGeneration(folder.path)).toBe(7n);
    expect(await readdir(dirname(folder.path))).toEqual(["toolmark.db.secret"]);
  });

  test("is 0 beside a secret that was never restored, and that is not written down", async () => {
    await loadStoreSecret(folder.path);
    expect(await storedGeneration(folder.path)).toBe(0n);
    expect(await content()).not.toHaveProperty("generation");
  });

  test("is raised and never lowered, and everything else stays", async () => {
    await writeSecret(TEXT);
    await keepGeneration(folder.path, 2n);
    expect(await readFile(secretPath, "utf8")).toBe(TEXT);
    await keepGeneration(folder.path, 4n);
    expect(await content()).toEqual({ ...(JSON.parse(TEXT) as object), generation: 4 });
    expect((await readdir(dirname(folder.path))).sort()).toEqual([
      "toolmark.db",
      "toolmark.db.secret",
    ]);
  });

  test("above that of the database stops the start, and below it is raised", async () => {
    await writeSecret(TEXT);
    const refused = loadStoreSecret(folder.path, 2n);
    await expect(refused).rejects.toMatchObject({ reason: "events_missing" });
    await expect(refused).rejects.toThrow("Run toolmark restore");
    expect(await readFile(secretPath, "utf8")).toBe(TEXT);
    const { secret } = await loadStoreSecret(folder.path, 3n);
    expect(await readFile(secretPath, "utf8")).toBe(TEXT);
    expect((await loadStoreSecret(folder.path, 5n)).secret).toEqual(secret);
    expect(await content()).toMatchObject({ generation: 5, secret: ENCODED });
  });

  test("is on the disk before it has its place, and the folder after", async () => {
    await writeSecret(TEXT);
    const synced: string[] = [];
    const file = await open(folder.path, "r");
    const handles = Object.getPrototypeOf(file) as typeof file;
    await file.close();
    const sync = handles.sync;
    vi.spyOn(handles, "sync").mockImplementation(async function (this: typeof file) {
      const what = (await this.stat()).isDirectory() ? "folder" : "file";
      const { generation } = (await content()) as { generation: number };
      synced.push(`${what}, ${generation} in place`);
      await sync.call(this);
    });
    await keepGeneration(folder.path, 9n);
    expect(synced).toEqual(["file, 3 in place", "folder, 9 in place"]);
  });
});
