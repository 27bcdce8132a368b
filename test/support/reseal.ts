import type BetterSqlite from "better-sqlite3";
import { sessionChecksum } from "../../src/ledger/checksums.js";
import { metaChecksum } from "../../src/store/sqlite/meta.js";
import {
  toSessionRow,
  type MetaColumns,
  type SessionColumns,
} from "../../src/store/sqlite/rows.js";

/** Gives rows that were changed by hand the checksums of what they say now: other checks are put to the test. */
export function reseal(database: BetterSqlite.Database): void {
  const meta = database.prepare<[], MetaColumns>("SELECT * FROM meta").safeIntegers().get();
  if (meta !== undefined) {
    const { store_id: storeId, generation } = meta;
    database.prepare("UPDATE meta SET checksum = ?").run(metaChecksum({ storeId, generation }));
  }
  const update = database.prepare("UPDATE sessions SET checksum = ? WHERE session_id = ?");
  const rows = database.prepare<[], SessionColumns>("SELECT * FROM sessions").safeIntegers().all();
  for (const columns of rows) {
    update.run(sessionChecksum(toSessionRow(columns)), columns.session_id);
  }
}
