import { describe, expect, test } from "vitest";
import { runCase, STORE_CONFORMANCE } from "../conformance/store-conformance.js";
import { memoryFixture } from "../conformance/store-fixtures.js";
import { STORE_MUTANTS } from "./store-mutants.js";

describe("store mutants", () => {
  for (const mutant of STORE_MUTANTS) {
    test.each(mutant.kills)(`a store that ${mutant.name} fails: %s`, async (caseName) => {
      const found = STORE_CONFORMANCE.find(({ name }) => name === caseName);
      if (found === undefined) expect.fail(`no case is called "${caseName}"`);
      await expect(runCase(found, () => memoryFixture(mutant.wrap))).rejects.toThrow();
    });
  }

  test("every conformance case is failed by a mutant", () => {
    const killing = new Set(STORE_MUTANTS.flatMap(({ kills }) => kills));
    const unproven = STORE_CONFORMANCE.map(({ name }) => name).filter((name) => !killing.has(name));
    expect(unproven).toEqual([]);
  });

  test("every conformance case has a name of its own and says what it catches", () => {
    const names = STORE_CONFORMANCE.map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    expect(STORE_CONFORMANCE.filter(({ catches }) => catches.length < 10)).toEqual([]);
  });
});
