import type { Limits } from "../domain/limits.js";

/** A page of a list and the token of the next one, empty on the last page. */
export interface Page<Item> {
  readonly items: readonly Item[];
  readonly nextPageToken: string;
}

const DEFAULT_PAGE_SIZE = 50;

/** The number of entries of a page: the default for 0, lowered to the limit. */
export function pageSizeOf(requested: number, limits: Limits): number {
  return Math.min(requested === 0 ? DEFAULT_PAGE_SIZE : requested, limits.pageSize);
}

/**
 * The bytes of one page's entries: half of what may leave, since JSON spells bytes in base64 and the envelope takes its
 * share.
 */
export function pageBytesOf(limits: Limits): number {
  return Math.floor(limits.outgoingMessageBytes / 2);
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
    this.#bytesMax = pageBytesOf(limits);
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
