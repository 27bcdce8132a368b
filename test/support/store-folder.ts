import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import BetterSqlite from "better-sqlite3";

/** Memory where there is some: these tests ask for right rows, not for what survives power loss. */
const PARENT = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();

/** A folder with a SQLite store. */
export interface StoreFolder {
  readonly path: string;
  /** As for `--store`. */
  readonly store: string;
  remove(): Promise<void>;
}

export async function makeStoreFolder(): Promise<StoreFolder> {
  const folder = await mkdtemp(join(PARENT, "toolmark-test-"));
  const path = join(folder, "toolmark.db");
  return {
    path,
    store: `sqlite:${path}`,
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}

/** What a table holds: equal exactly if every row of it is. */
export interface TableContent {
  readonly rows: number;
  readonly sha256: string;
}

/** The content of every table, read beside the service as any other program could. */
export function tableContents(path: string): Record<string, TableContent> {
  const database = new BetterSqlite(path, { readonly: true, fileMustExist: true });
  try {
    const names = database
      .prepare<[], string>("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
      .pluck()
      .all();
    return Object.fromEntries(names.map((name) => [name, contentOf(database, name)]));
  } finally {
    database.close();
  }
}

function contentOf(database: BetterSqlite.Database, table: string): TableContent {
  const rows = database.prepare(`SELECT * FROM "${table}"`).safeIntegers().raw().all();
  const text = JSON.stringify(rows, (_key, value: unknown) =>
    typeof value === "bigint" ? value.toString() : value,
  );
  return { rows: rows.length, sha256: createHash("sha256").update(text).digest("hex") };
}
