import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Store } from "../../src/ledger/store-port.js";
import { createMemoryDisk } from "../../src/store/memory/memory-disk.js";
import { createMemoryStore } from "../../src/store/memory/memory-store.js";
import { openSqliteStore } from "../../src/store/sqlite/sqlite-store.js";
import type { StoreFixture } from "./store-fixture.js";

/** Memory stores on one disk; `wrap` may break each on its way out. */
export function memoryFixture(wrap: (store: Store) => Store = (store) => store): StoreFixture {
  const disk = createMemoryDisk();
  const open = async () => wrap(createMemoryStore({ disk }));
  return {
    open,
    reopen: async (store) => {
      await store.close();
      return open();
    },
    dispose: async () => undefined,
  };
}

/** SQLite stores on one file in a folder of its own. */
export function sqliteFixture(): StoreFixture & { readonly path: string } {
  const folder = mkdtempSync(join(tmpdir(), "toolmark-store-"));
  const path = join(folder, "toolmark.db");
  let current: Store | undefined;
  const open = async () => (current = await openSqliteStore({ path, storeId: "store-1" }));
  return {
    path,
    open,
    reopen: async (store) => {
      await store.close();
      return open();
    },
    dispose: async () => {
      await current?.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
