import type { IndexedRecord, RecordFamily, SessionRef, Store } from "./store-port.js";

const BATCH = 64;

/** Which records are walked through: of one family, above `after` and up to `through`. */
export interface RecordRange {
  readonly family: RecordFamily;
  /** Only records about this call. Absent: all. */
  readonly toolCallId?: string;
  readonly after: bigint;
  readonly through: bigint;
  /** How many are wanted at first: no more are read at a time. */
  readonly wanted: number;
}

/** Walks through records in the order of their first event, and reads them in small parts. */
export class RecordCursor {
  readonly #store: Pick<Store, "listRecords">;
  readonly #session: SessionRef;
  readonly #range: RecordRange;
  readonly #limit: number;
  #after: bigint;
  #rows: readonly IndexedRecord[] = [];
  #next = 0;
  #isRead = false;

  constructor(store: Pick<Store, "listRecords">, session: SessionRef, range: RecordRange) {
    this.#store = store;
    this.#session = session;
    this.#range = range;
    this.#limit = Math.min(range.wanted, BATCH);
    this.#after = range.after;
  }

  /** The record that `take` goes past. Absent behind the last one. */
  async peek(): Promise<IndexedRecord | undefined> {
    if (this.#next === this.#rows.length && !this.#isRead) await this.#read();
    const row = this.#rows[this.#next];
    return row !== undefined && row.firstSequence <= this.#range.through ? row : undefined;
  }

  take(): void {
    this.#next += 1;
  }

  async #read(): Promise<void> {
    const { family, toolCallId } = this.#range;
    const limit = this.#limit;
    const query = { family, toolCallId, afterFirstSequence: this.#after, limit };
    this.#rows = await this.#store.listRecords(this.#session, query);
    this.#next = 0;
    this.#isRead = this.#rows.length < limit;
    this.#after = this.#rows.at(-1)?.firstSequence ?? this.#after;
  }
}
