import { openBetterSqlite } from "../../src/store/sqlite/open.js";
import type {
  OpenDatabase,
  SqliteDatabase,
  SqliteStatement,
  SqlParameters,
} from "../../src/store/sqlite/sqlite-database.js";

/** Says which run of a statement fails, and how. */
export type Failure = (sql: string, parameters: SqlParameters) => Error | undefined;

/** An error of the database with its result code. */
export function sqliteError(code: string): Error {
  return Object.assign(new Error(`planted ${code}`), { code });
}

/** Opens connections whose statements fail when `failure` says so. */
export function openFailing(failure: Failure): OpenDatabase {
  return (path, options) => {
    const database = openBetterSqlite(path, options);
    return {
      get inTransaction() {
        return database.inTransaction;
      },
      prepare: <Row>(sql: string) => failing<Row>(database, sql, failure),
      exec: (sql) => {
        database.exec(sql);
      },
      pragma: (text) => database.pragma(text),
      close: () => {
        database.close();
      },
    };
  };
}

function failing<Row>(
  database: SqliteDatabase,
  sql: string,
  failure: Failure,
): SqliteStatement<Row> {
  const statement = database.prepare<Row>(sql);
  const wrapped: SqliteStatement<Row> = {
    run: (...parameters) => {
      const error = failure(sql, parameters);
      if (error !== undefined) throw error;
      return statement.run(...parameters);
    },
    get: (...parameters) => statement.get(...parameters),
    all: (...parameters) => statement.all(...parameters),
    iterate: (...parameters) => statement.iterate(...parameters),
    safeIntegers: () => {
      statement.safeIntegers();
      return wrapped;
    },
  };
  return wrapped;
}
