/** Bytes of a running tool's output that are shown at most: the latest ones. */
export const TAIL_BYTES = 4 * 1024;
const SHOW_AGAIN_BYTES = TAIL_BYTES / 2;

/**
 * The end of what a running tool has given out so far. An editor replaces the whole content of a card with each
 * update, so only the latest part is sent, and not at once again before half of it is new: the cost of a part does not
 * grow with what came before it.
 */
export class OutputTail {
  #bytes: Uint8Array = new Uint8Array();
  #endOffset = 0n;
  #unshownBytes = 0;
  #wasShown = false;

  /** Whether something came since it was last shown. */
  get isBehind(): boolean {
    return this.#unshownBytes > 0;
  }

  /** Whether so much is new that it is to be shown at once. */
  get isDue(): boolean {
    return this.isBehind && (!this.#wasShown || this.#unshownBytes >= SHOW_AGAIN_BYTES);
  }

  /** Takes a part up. One that was there before changes nothing. */
  add(offsetBytes: bigint, chunk: Uint8Array): void {
    const partEnd = offsetBytes + BigInt(chunk.length);
    if (partEnd <= this.#endOffset) return;
    // What is missing in between cannot be shown: what came before it is left out too, and counted.
    if (offsetBytes > this.#endOffset) this.#bytes = new Uint8Array();
    const known = this.#endOffset > offsetBytes ? Number(this.#endOffset - offsetBytes) : 0;
    const added = chunk.subarray(known);
    const all = new Uint8Array(this.#bytes.length + added.length);
    all.set(this.#bytes);
    all.set(added, this.#bytes.length);
    this.#bytes = all.slice(-TAIL_BYTES);
    this.#endOffset = partEnd;
    this.#unshownBytes += added.length;
  }

  /** The text to show. A character that is cut off at either end is left out. */
  show(): string {
    this.#unshownBytes = 0;
    this.#wasShown = this.#bytes.length > 0;
    const start = this.#bytes.findIndex((byte) => (byte & 0xc0) !== 0x80);
    const text = new TextDecoder().decode(this.#bytes.subarray(Math.max(start, 0)), {
      stream: true,
    });
    const before = this.#endOffset - BigInt(this.#bytes.length);
    return before > 0n ? `(${before.toString()} bytes before)\n${text}` : text;
  }
}
