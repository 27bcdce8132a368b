import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createSession } from "../support/conversation.js";
import { startTestService, type TestService } from "../support/service.js";

const WARNING = "a new secret was made for a store in use";

let folder: string;
let path: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "toolmark-secret-"));
  path = join(folder, "toolmark.db");
});

afterEach(() => rm(folder, { recursive: true }));

/** Runs a service on the file, with one session made; gives what it logged. */
async function loggedOfARun(use: (service: TestService) => Promise<void> = async () => undefined) {
  const service = await startTestService({ store: `sqlite:${path}` });
  try {
    await createSession(service.clients());
    await use(service);
  } finally {
    await service.stop();
  }
  return service.logged();
}

const secret = (): Promise<string> => readFile(`${path}.secret`, "utf8");

test("a service keeps its secret beside the database, from one start to the next", async () => {
  expect(await loggedOfARun()).not.toContain(WARNING);
  expect((await stat(`${path}.secret`)).mode & 0o777).toBe(0o600);
  const first = await secret();
  expect(await loggedOfARun()).not.toContain(WARNING);
  expect(await secret()).toBe(first);
});

test("a secret that is gone is replaced with a warning, and is in no log", async () => {
  await loggedOfARun();
  const first = await secret();
  await rm(`${path}.secret`);
  const logged = await loggedOfARun();
  expect(logged).toContain(WARNING);
  const second = await secret();
  expect(second).not.toBe(first);
  expect(logged).not.toContain((JSON.parse(second) as { secret: string }).secret);
});

test("a store that another has open is refused as locked, whatever became of its secret", async () => {
  await loggedOfARun(async () => {
    await rm(`${path}.secret`);
    const second = startTestService({ store: `sqlite:${path}` });
    await expect(second).rejects.toMatchObject({ name: "StoreOpenError", reason: "locked" });
    await expect(stat(`${path}.secret`)).rejects.toMatchObject({ code: "ENOENT" });
  });
});

test("a secret that cannot be used stops the start and leaves the store free", async () => {
  await loggedOfARun();
  const kept = await secret();
  await writeFile(`${path}.secret`, "no secret");
  const refused = startTestService({ store: `sqlite:${path}` });
  await expect(refused).rejects.toMatchObject({ name: "StoreOpenError", reason: "unreadable" });
  await writeFile(`${path}.secret`, kept);
  expect(await loggedOfARun()).not.toContain(WARNING);
});
