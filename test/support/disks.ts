import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import BetterSqlite from "better-sqlite3";
import type { Store } from "../../src/ledger/store-port.js";
import { createMemoryDisk } from "../../src/store/memory/memory-disk.js";
import { createMemoryStore } from "../../src/store/memory/memory-store.js";
import { openSqliteStore } from "../../src/store/sqlite/sqlite-store.js";
import type { Disk } from "./ledger-machine.js";

export type MakeDisk = () => Promise<Disk>;

/** A disk of the memory store: an object that outlives it. */
export const memoryDisk: MakeDisk = () => {
  const disk = createMemoryDisk();
  return Promise.resolve({
    open: (): Promise<Store> => Promise.resolve(createMemoryStore({ disk })),
    damageNewestSnapshot: () => {
      const sessions = [...disk.sessions.values()].flatMap((byId) => [...byId.values()]);
      for (const session of sessions) {
        const [newest, ...older] = session.snapshots;
        if (newest === undefined) continue;
        const state = Uint8Array.from(newest.state, (byte, at) => (at === 0 ? byte ^ 1 : byte));
        session.snapshots = [{ ...newest, state }, ...older];
      }
      return Promise.resolve();
    },
    remove: () => Promise.resolve(),
  });
};

/** Memory where there is some: these tests ask for right rows, not for what survives power loss. */
const FOLDER = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();

/** A SQLite file in a folder of its own. */
export const sqliteDisk: MakeDisk = async () => {
  const folder = await mkdtemp(join(FOLDER, "toolmark-test-"));
  const path = join(folder, "toolmark.db");
  return {
    open: (): Promise<Store> => openSqliteStore({ path, storeId: "test" }),
    damageNewestSnapshot: () => {
      const database = new BetterSqlite(path);
      database.exec(
        `UPDATE snapshots SET state = zeroblob(length(state))
         WHERE sequence = (SELECT max(sequence) FROM snapshots AS other
                           WHERE other.session = snapshots.session)`,
      );
      database.close();
      return Promise.resolve();
    },
    remove: () => rm(folder, { recursive: true, force: true }),
  };
};

export const DISKS: readonly (readonly [string, MakeDisk])[] = [
  ["memory", memoryDisk],
  ["SQLite", sqliteDisk],
];
