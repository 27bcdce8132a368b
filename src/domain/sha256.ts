import { hash } from "node:crypto";

/** SHA-256 of the concatenated parts, 32 bytes. The domain's only use of the platform: a pure function. */
export function sha256(...parts: readonly Uint8Array[]): Uint8Array {
  const [only, ...rest] = parts;
  const whole = only !== undefined && rest.length === 0 ? only : concatenate(parts);
  return hash("sha256", whole, "buffer");
}

/** One copy costs less than feeding the parts to a hash object one by one. */
function concatenate(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return whole;
}
