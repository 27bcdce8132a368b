import { toBinary, toJsonString, type DescMessage, type MessageShape } from "@bufbuild/protobuf";
import type { Limits } from "../domain/limits.js";

/** What a reply has beside its entries: a page token of at most 4096 bytes, and what encloses them. */
const BESIDE_ENTRIES_BYTES = 8 * 1024;

/** Bytes that one entry may take in a reply of any wire. */
export function entryBytesMax({ outgoingMessageBytes }: Limits): number {
  return outgoingMessageBytes - BESIDE_ENTRIES_BYTES;
}

/** Bytes that a message takes on the wire that needs the most for it; with what separates it from the next one. */
export function wireBytes<Desc extends DescMessage>(desc: Desc, value: MessageShape<Desc>): number {
  const json = Buffer.byteLength(toJsonString(desc, value), "utf8");
  return Math.max(json, toBinary(desc, value).length) + 1;
}

/** The room that is left in an entry. */
export class Room {
  #left: number;

  constructor(sizeBytes: number) {
    this.#left = sizeBytes;
  }

  get leftBytes(): number {
    return this.#left;
  }

  /** Takes the bytes, or none if there are not so many. */
  take(sizeBytes: number): boolean {
    if (sizeBytes > this.#left) return false;
    this.#left -= sizeBytes;
    return true;
  }
}
