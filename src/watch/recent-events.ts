import { equalBytes } from "../domain/bytes.js";
import { sessionKey } from "../ledger/live-session.js";
import type { SessionRef } from "../ledger/store-port.js";
import type { CheckedEvent } from "./checked-event.js";

const EVENTS_MAX = 256;
const EVENT_BYTES_MAX = 16 * 1024;

/** The events that were read last: of many who watch a session only the first reads and checks what was committed. */
export class RecentEvents {
  readonly #events = new Map<string, CheckedEvent>();

  add(session: SessionRef, checked: CheckedEvent): void {
    if (checked.sizeBytes > EVENT_BYTES_MAX) return;
    this.#events.set(keyOf(session, checked.row.sequence), checked);
    const [oldest] = this.#events.keys();
    if (oldest !== undefined && this.#events.size > EVENTS_MAX) this.#events.delete(oldest);
  }

  /** The event with that sequence, if it is here and follows the chain value. */
  find(session: SessionRef, sequence: bigint, chainBefore: Uint8Array): CheckedEvent | undefined {
    const found = this.#events.get(keyOf(session, sequence));
    return found !== undefined && equalBytes(found.chainBefore, chainBefore) ? found : undefined;
  }
}

function keyOf(session: SessionRef, sequence: bigint): string {
  return `${sequence}:${sessionKey(session)}`;
}
