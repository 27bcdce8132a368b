import { isRefusal, type Refusal } from "../domain/refusal.js";
import type { Ledger } from "./ledger.js";
import type { SessionRow, Store } from "./store-port.js";
import { refuseUnknownSession } from "./visibility.js";

/** The row of a session once it is stored: what reads a log before it is decided brings in a mounted session first. */
export async function adoptedRow(
  ledger: Ledger,
  store: Store,
  row: SessionRow,
): Promise<SessionRow | Refusal> {
  if (row.head.sequence > 0n) return row;
  const refused = await ledger.adopt(row);
  if (isRefusal(refused)) return refused;
  return (await store.findSession(row)) ?? refuseUnknownSession();
}
