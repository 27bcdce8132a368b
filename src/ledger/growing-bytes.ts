const KIB = 1024;
/** What is made ready for more parts: as much as is there already, within these bounds. */
const BLOCK_BYTES_MIN = 4 * KIB;
const BLOCK_BYTES_MAX = 1024 * KIB;

/**
 * Bytes that come in parts, up to a maximum. Parts are copied, so that none keeps the message that it came in. They
 * never take more than twice their size and a block.
 */
export class GrowingBytes {
  #blocks: Uint8Array[] = [];
  #capacityBytes = 0;
  #sizeBytes = 0;

  constructor(readonly maxBytes: number) {}

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** What the bytes take, room for more included. */
  get capacityBytes(): number {
    return this.#capacityBytes;
  }

  /** How much more memory a part of that size takes. */
  growthFor(partBytes: number): number {
    const lacking = partBytes - this.#room;
    if (lacking <= 0) return 0;
    const block = Math.min(Math.max(this.#sizeBytes, BLOCK_BYTES_MIN), BLOCK_BYTES_MAX);
    return Math.max(lacking, Math.min(block, this.maxBytes - this.#capacityBytes));
  }

  append(part: Uint8Array): void {
    const growth = this.growthFor(part.length);
    const kept = part.subarray(0, this.#room);
    const last = this.#blocks.at(-1);
    last?.set(kept, last.length - this.#room);
    if (growth > 0) {
      const block = new Uint8Array(growth);
      block.set(part.subarray(kept.length));
      this.#blocks.push(block);
      this.#capacityBytes += growth;
    }
    this.#sizeBytes += part.length;
  }

  /** All bytes, in memory of exactly their size that replaces what they were collected in. */
  whole(): Uint8Array {
    const whole = new Uint8Array(this.#sizeBytes);
    let offset = 0;
    for (const block of this.#blocks) {
      whole.set(block.subarray(0, this.#sizeBytes - offset), offset);
      offset += block.length;
    }
    this.#blocks = [whole];
    this.#capacityBytes = this.#sizeBytes;
    return whole;
  }

  get #room(): number {
    return this.#capacityBytes - this.#sizeBytes;
  }
}
