import type { Refusal } from "../domain/refusal.js";
import { refuseDamaged } from "../ledger/event-codec.js";
import type { SessionRow, Store } from "../ledger/store-port.js";

/**
 * Sequence of the last event of a session up to a position, 0 if there is none. Positions rise with sequences, so few
 * rows are looked at.
 */
export async function sequenceAt(
  store: Pick<Store, "readEvent">,
  session: SessionRow,
  position: bigint,
): Promise<bigint | Refusal> {
  if (session.createPosition > position) return 0n;
  let [low, high] = [0n, session.head.sequence];
  while (low < high) {
    const middle = (low + high + 1n) / 2n;
    const event = await store.readEvent(session, middle);
    if (event === undefined) return refuseDamaged(middle);
    if (event.position <= position) low = middle;
    else high = middle - 1n;
  }
  return low;
}
