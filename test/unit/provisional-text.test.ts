import { describe, expect, test } from "vitest";
import { ProvisionalText } from "../../src/client/provisional-text.js";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

describe("parts that do not follow one another", () => {
  test.each([
    ["overlap", 99],
    ["leave holes", 101],
  ])(
    "cost what they are long also if all of them %s, however often they are shown",
    (_how, step) => {
      const line = "x".repeat(100);
      const text = new ProvisionalText();
      let shownLength = 0;
      for (let at = 0; at < 20_000; at += 1) {
        text.add(BigInt(at), BigInt(at * step), bytes(line));
        shownLength = text.shown.text.length;
      }
      const hole = "[1 bytes missing]".length;
      const lost = step > 100 ? 19_999 * hole : -19_999;
      expect(shownLength).toBe(20_000 * 100 + lost);
      expect(text.shown.missingBytes).toBe(step > 100 ? 19_999n : 0n);
    },
  );

  test("change nothing if all of a later part was there", () => {
    const text = new ProvisionalText();
    expect(text.add(1n, 0n, bytes("abcd"))).toBe(true);
    expect(text.add(2n, 1n, bytes("bc"))).toBe(false);
    expect(text.add(3n, 3n, bytes("de"))).toBe(true);
    expect(text.shown).toEqual({ text: "abcde", missingBytes: 0n });
  });
});
