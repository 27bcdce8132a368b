import { StoreFault } from "../../ledger/store-port.js";
import { sqliteCode, toError } from "./sqlite-database.js";

/** A column holds what this program never writes. */
export class DamagedRowError extends Error {
  override readonly name = "DamagedRowError";
}

/** Carries out a read. What SQLite cannot read, or what is no row of ours, is told as the port says. */
export function reading<Answer>(read: () => Answer): Answer {
  try {
    return read();
  } catch (error) {
    throw faultOf(toError(error));
  }
}

function faultOf(cause: Error): Error {
  const code = sqliteCode(cause) ?? "";
  // Our statements are fixed: one that SQLite takes for a wrong one meets tables that are not ours any more.
  if (cause instanceof DamagedRowError || /^SQLITE_(CORRUPT|NOTADB|ERROR$)/.test(code)) {
    return new StoreFault("damaged", cause);
  }
  if (/^SQLITE_(BUSY|LOCKED)/.test(code)) return new StoreFault("busy", cause);
  return /^SQLITE_(IOERR|CANTOPEN|FULL)/.test(code) ? new StoreFault("unreadable", cause) : cause;
}
