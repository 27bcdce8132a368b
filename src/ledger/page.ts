import type { Limits } from "../domain/limits.js";

/** Which page of a list is wanted. */
export interface PageRequest {
  readonly pageSize: number;
  readonly pageToken: string;
}

/** A page of a list and the token of the next one, empty on the last page. */
export interface Page<Item> {
  readonly items: readonly Item[];
  readonly nextPageToken: string;
}

const DEFAULT_PAGE_SIZE = 50;

/** JSON spells a control character in six bytes: no reply in JSON is longer than this times its binary form. */
const JSON_GROWTH_MAX = 6;

function pageSizeOf(requested: number, limits: Limits): number {
  return Math.min(requested === 0 ? DEFAULT_PAGE_SIZE : requested, limits.pageSize);
}

/** Most bytes of a list's entries in one reply, encoded. */
export function listBytesMax({ outgoingMessageBytes }: Limits): number {
  return Math.floor(outgoingMessageBytes / JSON_GROWTH_MAX);
}

/** Collects entries until the page is full by count or by bytes; the first entry always fits. */
export class PageBuilder<Item> {
  readonly items: Item[] = [];
  #after = 0n;
  #bytes = 0;
  readonly #size: number;
  readonly #bytesMax: number;

  constructor(requestedSize: number, limits: Limits) {
    this.#size = pageSizeOf(requestedSize, limits);
    this.#bytesMax = listBytesMax(limits);
  }

  /** How many rows to read: one more than the page holds, to know whether another follows. */
  get rowsToRead(): number {
    return this.#size + 1;
  }

  /** Takes an entry at a place of the list, or says that the page is full. */
  take(item: Item, place: bigint, sizeBytes: number): boolean {
    const isFull = this.items.length >= this.#size;
    const overflows = this.items.length > 0 && this.#bytes + sizeBytes > this.#bytesMax;
    if (isFull || overflows) return false;
    this.items.push(item);
    this.#after = place;
    this.#bytes += sizeBytes;
    return true;
  }

  /** The page; `hasMore` if an entry was left over. */
  page(hasMore: boolean, tokenAfter: (place: bigint) => string): Page<Item> {
    return { items: this.items, nextPageToken: hasMore ? tokenAfter(this.#after) : "" };
  }
}
