import BetterSqlite from "better-sqlite3";

type Row = Record<string, unknown>;

interface Table {
  readonly name: string;
  readonly insert: BetterSqlite.Statement;
  readonly bySession: ReadonlyMap<unknown, readonly unknown[][]>;
}

const COUNTED_BY_SESSION = ["sessions", "events", "records", "bodies", "pairings", "requests"];

/**
 * Milliseconds that a bare loop takes to insert the rows of a store into an empty one of the same tables and indices,
 * so many sessions in each commit, without a check and without a trigger.
 */
export function timeBareInserts(fromPath: string, toPath: string, groupSessions: number): number {
  const from = new BetterSqlite(fromPath, { readonly: true }).defaultSafeIntegers();
  const to = new BetterSqlite(toPath).defaultSafeIntegers();
  try {
    for (const { name } of to.prepare<[], { name: string }>(TRIGGERS).all()) {
      to.exec(`DROP TRIGGER "${name}"`);
    }
    to.pragma("foreign_keys = OFF");
    const tables = COUNTED_BY_SESSION.map((name) => tableOf(name, from, to));
    const sessions = [...(tables[0]?.bySession.keys() ?? [])];
    const startMs = performance.now();
    for (let start = 0; start < sessions.length; start += groupSessions) {
      insertGroup(to, tables, sessions.slice(start, start + groupSessions));
    }
    return performance.now() - startMs;
  } finally {
    from.close();
    to.close();
  }
}

const TRIGGERS = "SELECT name FROM sqlite_schema WHERE type = 'trigger'";

function insertGroup(
  to: BetterSqlite.Database,
  tables: readonly Table[],
  sessions: readonly unknown[],
): void {
  to.exec("BEGIN IMMEDIATE");
  for (const session of sessions) {
    for (const { insert, bySession } of tables) {
      for (const row of bySession.get(session) ?? []) insert.run(...row);
    }
  }
  to.exec("COMMIT");
}

function tableOf(name: string, from: BetterSqlite.Database, to: BetterSqlite.Database): Table {
  const rows = from.prepare<[], Row>(`SELECT * FROM ${name}`).all();
  const columns = Object.keys(rows[0] ?? { session: 0 });
  const bySession = new Map<unknown, unknown[][]>();
  for (const row of rows) {
    const of = bySession.get(row["session"]) ?? [];
    bySession.set(row["session"], of);
    of.push(columns.map((column) => row[column]));
  }
  const values = columns.map(() => "?").join(", ");
  const insert = to.prepare(`INSERT INTO ${name} (${columns.join(", ")}) VALUES (${values})`);
  return { name, insert, bySession };
}
