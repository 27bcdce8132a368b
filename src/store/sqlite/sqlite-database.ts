/** What a statement takes as a parameter. Numbers must be whole; `bigint` must fit 64 bits. */
export type SqlValue = string | number | bigint | Uint8Array | null;

export type SqlParameters = SqlValue[] | [Readonly<Record<string, SqlValue>>];

/** A prepared statement, as far as this store uses it. */
export interface SqliteStatement<Row> {
  run(...parameters: SqlParameters): {
    readonly changes: number;
    readonly lastInsertRowid: number | bigint;
  };
  get(...parameters: SqlParameters): Row | undefined;
  all(...parameters: SqlParameters): Row[];
  iterate(...parameters: SqlParameters): IterableIterator<Row>;
  /** Gives every integer as `bigint`. */
  safeIntegers(): this;
}

/** A connection, as far as this store uses it. Synchronous. */
export interface SqliteDatabase {
  readonly inTransaction: boolean;
  prepare<Row>(sql: string): SqliteStatement<Row>;
  exec(sql: string): void;
  /** Runs a PRAGMA and gives the first column of its first row. */
  pragma(text: string): unknown;
  close(): void;
}

/** Opens a file as a database; makes it if there is none. `busyTimeoutMs` bounds the wait for a lock. */
export type OpenDatabase = (
  path: string,
  options: { readonly busyTimeoutMs: number },
) => SqliteDatabase;

/** The SQLite result code that an error carries. */
export function sqliteCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || !("code" in error)) return undefined;
  return typeof error.code === "string" && error.code.startsWith("SQLITE_")
    ? error.code
    : undefined;
}

/** A thrown value as an error. */
export function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
