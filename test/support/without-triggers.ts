import type BetterSqlite from "better-sqlite3";

/** Changes a file past its triggers, which are there again afterwards. */
export function withoutTriggers(
  database: BetterSqlite.Database,
  change: (database: BetterSqlite.Database) => void,
): void {
  const triggers = database
    .prepare<[], { name: string; sql: string }>(
      "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'",
    )
    .all();
  for (const { name } of triggers) database.exec(`DROP TRIGGER ${name}`);
  change(database);
  for (const { sql } of triggers) database.exec(sql);
}
