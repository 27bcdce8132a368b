import { sessionKey } from "./live-session.js";
import type { SessionRef } from "./store-port.js";

/** How much is kept. */
export interface ReviewDetailsBounds {
  readonly entries: number;
  /** Sum over the texts in UTF-8. */
  readonly totalBytes: number;
}

const DEFAULT_BOUNDS: ReviewDetailsBounds = { entries: 4096, totalBytes: 16 * 1024 * 1024 };

/** A detail and the revision of the review that it came with. */
export interface ReviewDetail {
  readonly text: string;
  readonly revision: bigint;
}

interface Entry {
  readonly detail: ReviewDetail;
  readonly sizeBytes: number;
}

/**
 * Rationale of reviews for live display: in memory only, and only while there is space. What was written longest ago is
 * dropped first; reading keeps nothing alive.
 */
export class ReviewDetails {
  readonly #bounds: ReviewDetailsBounds;
  /** In the order of writing. */
  readonly #entries = new Map<string, Entry>();
  #totalBytes = 0;

  constructor(bounds: ReviewDetailsBounds = DEFAULT_BOUNDS) {
    this.#bounds = bounds;
  }

  /** Replaces the review's text. One that alone is over the bound is not kept, and neither is the one before it. */
  put(session: SessionRef, reviewId: string, detail: ReviewDetail): void {
    const key = keyOf(session, reviewId);
    this.#drop(key);
    const sizeBytes = Buffer.byteLength(detail.text, "utf8");
    if (sizeBytes > this.#bounds.totalBytes) return;
    this.#entries.set(key, { detail, sizeBytes });
    this.#totalBytes += sizeBytes;
    for (const oldest of this.#entries.keys()) {
      if (!this.#isOver()) return;
      this.#drop(oldest);
    }
  }

  /** Absent if none was put, or none is kept any more. */
  get(session: SessionRef, reviewId: string): ReviewDetail | undefined {
    return this.#entries.get(keyOf(session, reviewId))?.detail;
  }

  #isOver(): boolean {
    const { entries, totalBytes } = this.#bounds;
    return this.#entries.size > entries || this.#totalBytes > totalBytes;
  }

  #drop(key: string): void {
    this.#totalBytes -= this.#entries.get(key)?.sizeBytes ?? 0;
    this.#entries.delete(key);
  }
}

function keyOf(session: SessionRef, reviewId: string): string {
  const key = sessionKey(session);
  return `${key.length}:${key}${reviewId}`;
}
