import { createHash } from "node:crypto";

/** SHA-256 of the concatenated parts, 32 bytes. The domain's only use of the platform: a pure function. */
export function sha256(...parts: readonly Uint8Array[]): Uint8Array {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest();
}
