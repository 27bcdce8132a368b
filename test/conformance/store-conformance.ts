import { describe, test } from "vitest";
import { ASK_CASES } from "./store-ask-cases.js";
import { DEADLINE_CASES } from "./store-deadline-cases.js";
import { EVENT_CASES } from "./store-event-cases.js";
import type { ConformanceCase, StoreFixture } from "./store-fixture.js";
import { INHERITED_CASES } from "./store-inherited-cases.js";
import { PLACE_CASES } from "./store-place-cases.js";
import { ROW_CASES } from "./store-row-cases.js";
import { TREE_CASES } from "./store-tree-cases.js";

export type { ConformanceCase, StoreFixture } from "./store-fixture.js";

/** The rules of the store port. Any store that keeps them all can stand in for another. */
export const STORE_CONFORMANCE: readonly ConformanceCase[] = [
  ...EVENT_CASES,
  ...ROW_CASES,
  ...ASK_CASES,
  ...DEADLINE_CASES,
  ...PLACE_CASES,
  ...TREE_CASES,
  ...INHERITED_CASES,
];

/** Runs one case on a store of its own. */
export async function runCase(
  conformanceCase: ConformanceCase,
  makeFixture: () => StoreFixture,
): Promise<void> {
  const fixture = makeFixture();
  try {
    await conformanceCase.run(await fixture.open(), fixture);
  } finally {
    await fixture.dispose();
  }
}

/** Holds a store to every rule of the port. */
export function describeStoreConformance(label: string, makeFixture: () => StoreFixture): void {
  describe(`store conformance: ${label}`, () => {
    for (const conformanceCase of STORE_CONFORMANCE) {
      test(conformanceCase.name, () => runCase(conformanceCase, makeFixture));
    }
  });
}
