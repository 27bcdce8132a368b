import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { scaled, testScale } from "../support/scale.js";
import { propertyOptions, readSeed, seed, seededRandom, seededTitle } from "../support/seed.js";

describe("scaled", () => {
  test.each([
    ["short", 500],
    ["ci", 2_000],
    ["long", 10_000],
  ] as const)("cuts 10,000 at scale %s to %i", (scale, count) => {
    expect(scaled(10_000, scale)).toBe(count);
  });

  test("never cuts to nothing", () => {
    expect(scaled(1, "short")).toBe(1);
  });

  test("refuses a scale that it does not know", () => {
    expect(() => testScale("huge")).toThrow("TEST_SCALE is huge");
  });
});

describe("seed", () => {
  test("is the one that SEED names", () => {
    expect(readSeed("123")).toBe(123);
    expect(readSeed(process.env["SEED"])).toBe(seed);
    expect(() => readSeed("abc")).toThrow("SEED is abc");
  });

  test("stands in titles", () => {
    expect(seededTitle("holds")).toBe(`holds [SEED=${seed}]`);
  });

  test("replays a property: equal options, equal inputs, and a failure that names the seed", () => {
    const inputs = () => fc.sample(fc.integer(), propertyOptions(100));
    expect(inputs()).toEqual(inputs());
    const failing = () => {
      fc.assert(
        fc.property(fc.integer(), () => false),
        propertyOptions(100),
      );
    };
    expect(failing).toThrow(`seed: ${seed}`);
  });

  test("gives equal numbers to equal labels only", () => {
    const numbers = (label: string) => Array.from({ length: 5 }, seededRandom(label));
    expect(numbers("a")).toEqual(numbers("a"));
    expect(numbers("a")).not.toEqual(numbers("b"));
    expect(numbers("a").every((number) => number >= 0 && number < 1)).toBe(true);
  });
});
