import type { Compaction } from "../../gen/toolmark/v1/session_pb.js";
import { equalBytes } from "../domain/bytes.js";
import { EventKind } from "../domain/event-kind.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { followsChain, openPayload, refuseDamaged } from "./event-codec.js";
import { chainAt } from "./read-log.js";
import { openSnapshot } from "./snapshot.js";
import type { EventRow, SessionRow, Store } from "./store-port.js";

const READ_EVENTS = 500;
const READ_BYTES = 1024 * 1024;
/** Reads that one page makes at most, of a session where something was archived. */
const READS_MAX = 16;

/** A compaction, and the sequence of its event. */
export interface LoggedCompaction {
  readonly sequence: bigint;
  readonly value: Compaction;
}

/** How far the log was looked through so that nobody waits too long. */
export interface Unread {
  readonly kind: "unread";
  readonly through: bigint;
}

type LoggedStore = Pick<Store, "readEvents" | "readEvent" | "readSnapshots">;

/**
 * The compactions of a log, which no index has. Every row is checked against the chain, so that its kind is true; only
 * those of compactions are opened.
 */
export class CompactionCursor {
  readonly #store: LoggedStore;
  readonly #row: SessionRow;
  #sequence: bigint;
  #chain: Uint8Array | undefined;
  #found: LoggedCompaction[] = [];
  #readsLeft: number;

  /** Begins after a sequence, whose chain value may be given. */
  constructor(
    store: LoggedStore,
    row: SessionRow,
    after: bigint,
    { chain, readsMax = READS_MAX }: { chain?: Uint8Array; readsMax?: number } = {},
  ) {
    this.#store = store;
    this.#row = row;
    this.#sequence = after;
    this.#chain = chain;
    this.#readsLeft = readsMax;
  }

  /** The compaction that `take` goes past, if its event is at or before `through`. */
  async peek(through: bigint): Promise<LoggedCompaction | Unread | undefined | Refusal> {
    while (this.#found.length === 0 && this.#sequence < through) {
      if (this.#readsLeft === 0) return { kind: "unread", through: this.#sequence };
      const fault = await this.#read();
      if (fault !== undefined) return fault;
    }
    const [found] = this.#found;
    return found !== undefined && found.sequence <= through ? found : undefined;
  }

  take(): void {
    this.#found.shift();
  }

  async #read(): Promise<Refusal | undefined> {
    this.#readsLeft -= 1;
    this.#chain ??= await chainAt(this.#store, this.#row, this.#sequence);
    const left = Number(this.#row.head.sequence - this.#sequence);
    const limit = Math.min(left, READ_EVENTS);
    const rows = await this.#store.readEvents(this.#row, this.#sequence, limit, READ_BYTES);
    if (rows.length === 0) return refuseDamaged(this.#sequence + 1n);
    for (const row of rows) {
      const fault = this.#add(row);
      if (fault !== undefined) return fault;
    }
    return undefined;
  }

  #add(row: EventRow): Refusal | undefined {
    const next = this.#sequence + 1n;
    const before = this.#chain ?? new Uint8Array();
    if (row.sequence !== next || !followsChain(this.#row.sessionId, before, row)) {
      return refuseDamaged(next);
    }
    this.#sequence = row.sequence;
    this.#chain = row.chain;
    if (row.kind !== EventKind.compacted) return undefined;
    const payload = openPayload(row);
    if (isRefusal(payload)) return payload;
    const record = payload.record?.record;
    if (record?.case !== "compaction") return refuseDamaged(row.sequence);
    this.#found.push({ sequence: row.sequence, value: record.value });
    return undefined;
  }
}

/** The last archived event of a session, 0 if there is none: by its newest sound snapshot and what came after that. */
export async function archivedThrough(
  store: LoggedStore,
  row: SessionRow,
): Promise<bigint | Refusal> {
  const { sequence: head } = row.head;
  const start = await soundSnapshot(store, row);
  let { through } = start;
  const { chain } = start;
  const tail = new CompactionCursor(store, row, start.sequence, {
    ...(chain === undefined ? {} : { chain }),
    readsMax: Infinity,
  });
  for (;;) {
    const found = await tail.peek(head);
    if (found === undefined) return through;
    if (isRefusal(found)) return found;
    if ("value" in found) through = found.value.throughSequence;
    tail.take();
  }
}

interface KnownArchive {
  readonly sequence: bigint;
  readonly chain: Uint8Array | undefined;
  readonly through: bigint;
}

async function soundSnapshot(store: LoggedStore, row: SessionRow): Promise<KnownArchive> {
  for (const snapshot of await store.readSnapshots(row)) {
    const { sequence, chain } = snapshot;
    const state = openSnapshot(snapshot);
    if (state === undefined) continue;
    if (!equalBytes(await chainAt(store, row, sequence), chain)) continue;
    return { sequence, chain, through: state.compactedThrough };
  }
  return { sequence: 0n, chain: undefined, through: 0n };
}
