import { STREAM_PART_BYTES } from "./limits.js";

/** Bytes in parts that are small enough for one message each. None of no bytes. */
export function* partsOf(bytes: Uint8Array): Generator<Uint8Array, void, void> {
  for (let at = 0; at < bytes.length; at += STREAM_PART_BYTES) {
    yield bytes.subarray(at, at + STREAM_PART_BYTES);
  }
}
