import { migrateUp, readMigrations } from "./migrate.js";
import type { OpenDatabase, SqliteDatabase } from "./sqlite-database.js";

interface SchemaColumns {
  readonly type: string;
  readonly name: string;
  readonly sql: string;
}

// A damaged text may be of another type.
const READ_SCHEMA = `SELECT type, name, CAST(sql AS TEXT) AS sql FROM sqlite_schema
WHERE sql IS NOT NULL ORDER BY type, name`;

/**
 * What is not as this program's migrations make it: a table, an index or a trigger that is gone or another. What was
 * added is not looked at, unless it is a trigger.
 */
export function findSchemaFault(database: SqliteDatabase, open: OpenDatabase): string | undefined {
  const found = schemaOf(database);
  const expected = expectedSchema(open);
  for (const [name, sql] of expected) {
    const text = found.get(name);
    if (text === undefined) return `${name} is missing`;
    if (text !== sql) return `${name} is not as this program makes it`;
  }
  const added = [...found.keys()].find((name) => name.startsWith("trigger") && !expected.has(name));
  return added && `${added} is not this program's`;
}

function expectedSchema(open: OpenDatabase): Map<string, string> {
  const database = open(":memory:", { busyTimeoutMs: 0 });
  try {
    migrateUp(database, readMigrations());
    return schemaOf(database);
  } finally {
    database.close();
  }
}

/** Migrations down and up again may leave other white space. */
function schemaOf(database: SqliteDatabase): Map<string, string> {
  const rows = database.prepare<SchemaColumns>(READ_SCHEMA).all();
  return new Map(
    rows.map(({ type, name, sql }) => [`${type} ${name}`, sql.replaceAll(/\s+/g, " ")]),
  );
}
