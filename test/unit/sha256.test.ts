import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { digestOf, isDigestOf } from "../../src/domain/sha256.js";

const HIGHEST = 2n ** 64n - 1n;

/** Each field behind its length of four bytes, numbers in eight. */
function expected(...parts: readonly Uint8Array[]): Uint8Array {
  const hash = createHash("sha256");
  for (const part of parts) {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(part.length);
    hash.update(length).update(part);
  }
  return hash.digest();
}

test("a digest is over each field behind its length", () => {
  const fields = ["tool ✓", 1n, undefined, new Uint8Array([1, 2]), HIGHEST] as const;
  const numbers = [Buffer.alloc(8), Buffer.alloc(8, 255)] as const;
  numbers[0][7] = 1;
  const parts = [Buffer.from("tool ✓"), numbers[0], new Uint8Array(), fields[3], numbers[1]];
  expect(Buffer.from(digestOf(fields))).toEqual(expected(...parts));
  expect(isDigestOf(expected(...parts), fields)).toBe(true);
  expect(isDigestOf(expected(...parts.slice(1)), fields)).toBe(false);
});

test("a field that is longer than most is hashed like any other", () => {
  const long = "x".repeat(100_000);
  expect(Buffer.from(digestOf([long, 7n]))).toEqual(
    expected(Buffer.from(long), Buffer.from([0, 0, 0, 0, 0, 0, 0, 7])),
  );
});

test.each([-1n, HIGHEST + 1n])(
  "%d is no number of a digest: it would be hashed as another",
  (number) => {
    expect(() => digestOf([number])).toThrow(RangeError);
  },
);
