import { detachedBytes } from "./detached-copy.js";
import { compareValues } from "./record-order.js";

interface Part {
  readonly sequence: bigint;
  readonly bytes: Uint8Array;
}

/** Parts of a result while the tool runs, for display alone. */
export interface ShownProvisional {
  /** The parts in the order of their offsets. Where one is missing the text says so. */
  readonly text: string;
  /** Bytes that are missing between the parts. */
  readonly missingBytes: bigint;
}

/**
 * Joins the parts of one call's provisional result, whatever order they come in. Of two parts at one offset the later
 * event's counts; what overlaps is shown once. A part costs what it is long, however much was there before.
 */
export class ProvisionalText {
  readonly #parts = new Map<bigint, Part>();
  #decoder = new TextDecoder();
  #text = "";
  #end = 0n;
  /** Of all parts: what comes behind it is joined as it comes. */
  #lastOffset = -1n;
  #missing = 0n;
  #isStale = false;

  /** Whether it changes what is shown. */
  add(sequence: bigint, offset: bigint, chunk: Uint8Array): boolean {
    const known = this.#parts.get(offset);
    if (known !== undefined && known.sequence >= sequence) return false;
    this.#parts.set(offset, { sequence, bytes: detachedBytes(chunk) });
    if (known !== undefined && isEqual(known.bytes, chunk)) return false;
    const isLast = offset > this.#lastOffset;
    if (isLast) this.#lastOffset = offset;
    if (isLast && !this.#isStale) return this.#appendFrom(offset, chunk);
    this.#isStale = true;
    return true;
  }

  get shown(): ShownProvisional {
    if (this.#isStale) this.#join();
    return { text: this.#text, missingBytes: this.#missing };
  }

  /** Whether anything of it is behind what is there. */
  #appendFrom(offset: bigint, bytes: Uint8Array): boolean {
    const isBehindHole = offset > this.#end;
    if (isBehindHole) this.#skip(offset);
    const already = Number(this.#end - offset);
    if (already >= bytes.length) return isBehindHole;
    this.#append(already === 0 ? bytes : bytes.subarray(already));
    return true;
  }

  #append(bytes: Uint8Array): void {
    this.#text += this.#decoder.decode(bytes, { stream: true });
    this.#end += BigInt(bytes.length);
  }

  #join(): void {
    this.#decoder = new TextDecoder();
    this.#text = "";
    this.#end = 0n;
    this.#missing = 0n;
    const parts = [...this.#parts].sort(([left], [right]) => compareValues(left, right));
    for (const [offset, { bytes }] of parts) this.#appendFrom(offset, bytes);
    this.#isStale = false;
  }

  #skip(offset: bigint): void {
    const missing = offset - this.#end;
    this.#text += `${this.#decoder.decode()}[${missing} bytes missing]`;
    this.#decoder = new TextDecoder();
    this.#missing += missing;
    this.#end = offset;
  }
}

function isEqual(left: Uint8Array, right: Uint8Array): boolean {
  return left.length === right.length && left.every((byte, at) => byte === right[at]);
}
