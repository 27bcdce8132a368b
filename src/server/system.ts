import { randomFillSync } from "node:crypto";
import { encodeIdBody, formatId, type MintId } from "../domain/identity.js";

/** Clock and randomness. The one module that asks the machine for either. */

const POOL_SIZE_BYTES = 16 * 1024;
const ID_SIZE_BYTES = 16;

const pool = new Uint8Array(POOL_SIZE_BYTES);
let poolOffset = POOL_SIZE_BYTES;

/** Milliseconds since the epoch. */
export function nowMs(): number {
  return Date.now();
}

/** Milliseconds of a clock that never jumps, from an arbitrary start. */
export function monotonicMs(): number {
  return performance.now();
}

/**
 * Fresh random bytes from the system's generator, asked for in bulk: one call for each salt would
 * cost more.
 */
export function randomBytes(size: number): Uint8Array {
  if (size > POOL_SIZE_BYTES) return randomFillSync(new Uint8Array(size));
  if (poolOffset + size > POOL_SIZE_BYTES) {
    randomFillSync(pool);
    poolOffset = 0;
  }
  const bytes = pool.slice(poolOffset, poolOffset + size);
  pool.fill(0, poolOffset, poolOffset + size);
  poolOffset += size;
  return bytes;
}

/** The bytes of a UUIDv7: 48 bits of milliseconds, then random ones around version and variant. */
function uuidV7Bytes(): Uint8Array {
  const bytes = randomBytes(ID_SIZE_BYTES);
  const view = new DataView(bytes.buffer);
  const timeMs = nowMs();
  view.setUint32(0, Math.floor(timeMs / 2 ** 16));
  view.setUint16(4, timeMs % 2 ** 16);
  view.setUint8(6, 0x70 | (view.getUint8(6) & 0x0f));
  view.setUint8(8, 0x80 | (view.getUint8(8) & 0x3f));
  return bytes;
}

export const mintId: MintId = (kind) => formatId(kind, uuidV7Bytes());

/** Names one call in the log. */
export function mintCorrelationId(): string {
  return `cor_${encodeIdBody(uuidV7Bytes())}`;
}
