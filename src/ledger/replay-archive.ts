import { isRefusal, type Refusal } from "../domain/refusal.js";
import { FIRST_RECORD } from "./page-token.js";
import type { SessionRow, Store } from "./store-port.js";
import { broughtAfter } from "./transcript-brought.js";
import { archivedThrough, CompactionCursor } from "./transcript-compactions.js";

/** The text that stands for the records up to a place. */
export interface Archive {
  readonly through: bigint;
  readonly summary: string;
}

/** What was archived last: by a compaction of the session, else by one of the session that it was forked from. */
export async function archiveOf(
  store: Store,
  row: SessionRow,
): Promise<Archive | undefined | Refusal> {
  const through = await archivedThrough(store, row);
  if (isRefusal(through)) return through;
  return through > 0n ? lastCompaction(store, row, through) : broughtArchive(store, row);
}

/** A compaction stands behind what it archives. */
async function lastCompaction(
  store: Store,
  row: SessionRow,
  through: bigint,
): Promise<Archive | Refusal> {
  const cursor = new CompactionCursor(store, row, through, { readsMax: Infinity });
  let summary = "";
  for (;;) {
    const found = await cursor.peek(row.head.sequence);
    if (isRefusal(found)) return found;
    if (found === undefined || !("value" in found)) return { through, summary };
    if (found.value.throughSequence === through) summary = found.value.summary;
    cursor.take();
  }
}

async function broughtArchive(
  store: Store,
  row: SessionRow,
): Promise<Archive | undefined | Refusal> {
  // A mounted session has no events yet, and nothing of it is archived.
  if (row.head.sequence === 0n) return undefined;
  const brought = await broughtAfter(store, row, { sequence: FIRST_RECORD, behind: 0n });
  if (isRefusal(brought) || brought.summary === undefined) {
    return isRefusal(brought) ? brought : undefined;
  }
  const { place, value } = brought.summary;
  return { through: place.sequence, summary: value.summary };
}
