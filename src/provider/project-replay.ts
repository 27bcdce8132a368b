import type { HistoryEntry } from "../domain/history.js";
import { STREAM_PART_BYTES } from "../domain/limits.js";
import { partsOf } from "../domain/parts.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { HistoryProjection, type ReplayTarget } from "./project-history.js";

/** Part of a projected request: of its system text or of the array of its items. */
export interface ProjectedPart {
  readonly case: "system" | "items";
  readonly value: Uint8Array;
}

/** Projects a history as it is read. What is wrong with it is the last item. */
export async function* projectReplay(
  target: ReplayTarget,
  history: AsyncIterable<HistoryEntry | Refusal>,
): AsyncGenerator<ProjectedPart | Refusal, void, void> {
  const projection = new HistoryProjection(target);
  const pending = new PendingBytes();
  let isBegun = false;
  for await (const entry of history) {
    if (isRefusal(entry)) return yield entry;
    const json = projection.add(entry);
    if (!projection.isSystemClosed) continue;
    if (!isBegun) yield* begin(projection, pending);
    isBegun = true;
    pending.add(json);
    yield* itemsOf(pending.takeFull());
  }
  if (!isBegun) yield* begin(projection, pending);
  pending.add("]");
  yield* itemsOf(pending.takeAll());
}

function* begin(
  { system }: HistoryProjection,
  pending: PendingBytes,
): Generator<ProjectedPart, void, void> {
  const bytes = new TextEncoder().encode(system ?? "");
  for (const value of partsOf(bytes)) yield { case: "system", value };
  pending.add("[");
}

function* itemsOf(bytes: Uint8Array): Generator<ProjectedPart, void, void> {
  for (const value of partsOf(bytes)) yield { case: "items", value };
}

/** Text that waits until there is enough of it for a part. */
class PendingBytes {
  #chunks: Uint8Array[] = [];
  #sizeBytes = 0;

  add(text: string): void {
    const bytes = new TextEncoder().encode(text);
    this.#chunks.push(bytes);
    this.#sizeBytes += bytes.length;
  }

  /** Whole parts, if there are any. */
  takeFull(): Uint8Array {
    if (this.#sizeBytes < STREAM_PART_BYTES) return new Uint8Array();
    const all = this.takeAll();
    const full = all.length - (all.length % STREAM_PART_BYTES);
    if (full < all.length) {
      this.#chunks.push(all.subarray(full));
      this.#sizeBytes = all.length - full;
    }
    return all.subarray(0, full);
  }

  takeAll(): Uint8Array {
    const all = Buffer.concat(this.#chunks);
    this.#chunks = [];
    this.#sizeBytes = 0;
    return all;
  }
}
