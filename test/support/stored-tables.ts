import BetterSqlite from "better-sqlite3";

/** Each value of each column of each row of a database that nobody has open. */
export function* storedValues(
  path: string,
): Generator<{ readonly table: string; readonly value: Buffer }> {
  const database = new BetterSqlite(path, { readonly: true });
  try {
    const tables = database
      .prepare<[], string>("SELECT name FROM sqlite_schema WHERE type = 'table'")
      .pluck()
      .all();
    for (const table of tables) {
      const rows = database.prepare<[], unknown[]>(`SELECT * FROM ${table}`).raw();
      for (const row of rows.iterate()) {
        for (const value of row) yield { table, value: bytesOf(value) };
      }
    }
  } finally {
    database.close();
  }
}

function bytesOf(value: unknown): Buffer {
  return Buffer.isBuffer(value) ? value : Buffer.from(String(value));
}
