import { copyFile, mkdir, readdir, rm, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { commandFaultOf } from "../../src/server/command-fault.js";
import type { RestoreStep } from "../../src/server/restore-store.js";
import { allEvents, openRun, publishHook, type OpenRun } from "../support/conversation.js";
import { PublishedRevisions } from "../support/published-revisions.js";
import { runProcess } from "../support/run-process.js";
import { testScale } from "../support/scale.js";
import { startTestService, type Clients } from "../support/service.js";
import { ROOT } from "../support/source-tree.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { backUp, restore } from "../support/toolmark-command.js";

const KILLED_RESTORE = join(ROOT, "test/support/killed-restore.mjs");
const IN_PLACE = ["keeping", "generation", "clearing", "replacing", "finishing"] as const;
/** The steps that change what is in the store's place, and in longer runs those that prepare for it. */
const STEPS: readonly RestoreStep[] =
  testScale() === "short"
    ? IN_PLACE
    : ["copying", "migrating", "verifying", "merging", ...IN_PLACE];

let original: StoreFolder;
let backup: string;
let run: OpenRun;
/** Events of the store and of the backup. */
let counts: { readonly old: number; readonly restored: number };
const published = new PublishedRevisions();

beforeAll(async () => {
  original = await makeStoreFolder();
  backup = join(dirname(original.path), "backup.db");
  await serving(original.path, async (clients) => {
    run = await openRun(clients);
    await publishHook(clients, run);
    await backUp(original.path, backup);
    await publishHook(clients, run);
    await published.read(clients, run.sessionId);
    counts = { old: 4, restored: 3 };
  });
});

afterAll(() => original.remove());

async function serving<Answer>(
  path: string,
  use: (clients: Clients) => Promise<Answer>,
): Promise<Answer> {
  const service = await startTestService({ store: `sqlite:${path}` });
  try {
    return await use(service.clients());
  } finally {
    await service.stop();
  }
}

/** A copy of the store, with all that is beside it. */
async function copyOfStore(name: string): Promise<string> {
  const folder = join(dirname(original.path), name);
  await mkdir(folder);
  const path = join(folder, basename(original.path));
  for (const suffix of ["", ".secret", ".position"]) {
    await copyFile(original.path + suffix, path + suffix);
  }
  return path;
}

const eventsOf = (path: string): Promise<number> =>
  serving(path, async (clients) => (await allEvents(clients, run.sessionId)).length);

/** How many events are served, or why nothing is. */
async function servedAfter(path: string): Promise<number | string> {
  return eventsOf(path).catch((error: unknown) => {
    const { exitCode, text } = commandFaultOf(error);
    return `${exitCode} ${text}`;
  });
}

describe.concurrent("a restore that is killed", () => {
  test.each(STEPS)(
    "before %s leaves the old store or the new one, and can be done again",
    async (step) => {
      const path = await copyOfStore(step);
      const { code } = await runProcess(process.execPath, [KILLED_RESTORE, path, backup, step]);
      expect(code).toBe(-1);
      const served = await servedAfter(path);
      if (step === "clearing" || step === "replacing") {
        expect(served).toMatch(/^74 .*Run toolmark restore/);
      } else {
        expect(served).toBe(step === "finishing" ? counts.restored : counts.old);
      }

      const { restored } = await restore(path, backup);
      expect(restored.generation).toBeGreaterThan(0n);
      const own = new PublishedRevisions();
      await serving(path, async (clients) => {
        await publishHook(clients, run);
        await own.read(clients, run.sessionId);
      });
      expect([own.faults, own.highest > published.highest]).toEqual([[], true]);
      const names = await readdir(dirname(path));
      expect(names.filter((name) => name.includes("restoring"))).toEqual([]);
    },
  );
});

describe("a restore that fails", () => {
  test.each(STEPS.filter((step) => step !== "finishing"))(
    "before %s leaves nothing half done",
    async (step) => {
      const path = await copyOfStore(`failing-${step}`);
      const failing = restore(path, backup, {
        onStep: (begun) => {
          if (begun === step) throw new Error("failed on purpose");
        },
      });
      await expect(failing).rejects.toThrow("failed on purpose");
      const names = await readdir(dirname(path));
      expect(names.filter((name) => name.includes("restoring"))).toEqual([]);
      expect((await stat(path)).size).toBeGreaterThan(0);
      await restore(path, backup);
      expect(await eventsOf(path)).toBe(counts.restored);
      await rm(dirname(path), { recursive: true });
    },
  );
});
