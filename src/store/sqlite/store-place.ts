import type { StorePlace } from "./position-mark.js";
import type { SqliteDatabase } from "./sqlite-database.js";

// Not among the prepared statements: these are for files of every schema version.
const FIND_META = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'meta'";
const READ_PLACE = `SELECT store_id, generation, (SELECT max(position) FROM events) AS position
FROM meta WHERE id = 1`;

interface PlaceColumns {
  readonly store_id: string;
  readonly generation: bigint;
  readonly position: bigint | null;
}

/** How far the log of a file has come, whatever its version. Undefined for a file that is no store yet. */
export function storePlaceOf(database: SqliteDatabase): StorePlace | undefined {
  if (database.prepare(FIND_META).get() === undefined) return undefined;
  const row = database.prepare<PlaceColumns>(READ_PLACE).safeIntegers().get();
  if (row === undefined) return undefined;
  const { store_id: storeId, generation, position } = row;
  return { storeId, generation, position: position ?? 0n };
}
