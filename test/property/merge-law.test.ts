import { create } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { HookSchema, type Hook } from "../../gen/toolmark/v1/hook_pb.js";
import { ToolCallSchema } from "../../gen/toolmark/v1/tool_call_pb.js";
import { merge, type MergeOutcome } from "../../src/domain/merge-law.js";
import { propertyOptions, seededTitle } from "../support/seed.js";

interface Update {
  readonly revision: number | undefined;
  readonly text: string;
  readonly origin?: string;
  readonly call?: string;
}

function hook({ revision, text, origin = "ses_a", call = "tc_a" }: Update): Hook {
  return create(HookSchema, {
    hookId: "hk_1",
    origin: { sessionId: origin },
    toolCallId: call,
    text,
    ...(revision === undefined ? {} : { revision: BigInt(revision) }),
  });
}

type Law = typeof merge;

/** What a reader keeps of one record: its state and what stands alone. */
function read(law: Law, updates: readonly Hook[]): { state: Hook | undefined; alone: number } {
  let state: Hook | undefined;
  let alone = 0;
  for (const update of updates) {
    const outcome = law(state, update);
    if (outcome === "advanced") state = update;
    if (outcome === "conflict") alone += 1;
  }
  return { state, alone };
}

const history = fc
  .uniqueArray(fc.nat({ max: 50 }), { minLength: 1, maxLength: 8 })
  .map((revisions) => revisions.map((revision) => hook({ revision, text: `at ${revision}` })));

const deliveries = history.chain((updates) =>
  fc.record({
    updates: fc.constant(updates),
    delivered: fc.array(fc.nat({ max: updates.length - 1 }), { maxLength: 20 }).chain((extra) =>
      fc.shuffledSubarray([...updates.keys(), ...extra], {
        minLength: updates.length + extra.length,
        maxLength: updates.length + extra.length,
      }),
    ),
  }),
);

const contradiction = fc.oneof(
  fc.record({ kind: fc.constant("origin" as const), revision: fc.nat({ max: 60 }) }),
  fc.record({ kind: fc.constant("call" as const), revision: fc.nat({ max: 60 }) }),
  fc.record({ kind: fc.constant("payload" as const), revision: fc.constant(0) }),
  fc.record({ kind: fc.constant("incomplete" as const), revision: fc.constant(0) }),
);

/** Any order and any repetition of a record's updates end in its highest revision, with nothing standing alone. */
function checkOrderIndependence(law: Law, runs: { numRuns: number; seed: number }): void {
  fc.assert(
    fc.property(deliveries, ({ updates, delivered }) => {
      const inOrder = delivered.flatMap((index) => updates[index] ?? []);
      const expected = [...updates].sort((a, b) => Number((b.revision ?? 0n) - (a.revision ?? 0n)));
      const once = read(law, inOrder);
      expect(once).toEqual({ state: expected[0], alone: 0 });
      expect(read(law, [...inOrder, ...inOrder])).toEqual(once);
    }),
    runs,
  );
}

/** A contradiction after a record is known stands alone and changes nothing. */
function checkContradictions(law: Law, runs: { numRuns: number; seed: number }): void {
  fc.assert(
    fc.property(
      history,
      fc.array(contradiction, { minLength: 1, maxLength: 5 }),
      (updates, bad) => {
        const known = read(law, updates);
        const revision = Number(known.state?.revision ?? 0n);
        const contradictions = bad.map((item) => {
          if (item.kind === "origin") {
            return hook({ revision: item.revision, text: "x", origin: "ses_b" });
          }
          if (item.kind === "call") {
            return hook({ revision: item.revision, text: "x", call: "tc_b" });
          }
          return hook({ revision: item.kind === "payload" ? revision : undefined, text: "other" });
        });
        const after = read(law, [...updates, ...contradictions]);
        expect(after).toEqual({ state: known.state, alone: contradictions.length });
      },
    ),
    runs,
  );
}

const MUTANTS: Readonly<Record<string, Law>> = {
  "the last update wins": () => "advanced",
  "a lower revision rolls back": (current, incoming) =>
    current !== undefined && merge(current, incoming) === "older"
      ? "advanced"
      : merge(current, incoming),
  "the same revision overwrites": (current, incoming) =>
    current?.revision === incoming.revision && current?.origin?.sessionId === "ses_a"
      ? "advanced"
      : merge(current, incoming),
  "origin is not compared": (current, incoming) =>
    merge(current, { ...incoming, ...(current?.origin && { origin: current.origin }) }),
  "a record without a revision overwrites": (current, incoming) =>
    incoming.revision === undefined ? "advanced" : merge(current, incoming),
};

describe("P9: the merge law", () => {
  test(seededTitle("any order and repetition ends in the highest revision"), () => {
    checkOrderIndependence(merge, propertyOptions(10_000));
  });

  test(seededTitle("a contradiction stands alone and never changes the record"), () => {
    checkContradictions(merge, propertyOptions(10_000));
  });

  test.each(Object.entries(MUTANTS))("the properties catch a law in which %s", (_name, law) => {
    const runs = { numRuns: 500, seed: 1 };
    expect(() => {
      checkOrderIndependence(law, runs);
      checkContradictions(law, runs);
    }).toThrow();
  });

  const known = hook({ revision: 5, text: "known" });
  const legacy = hook({ revision: undefined, text: "old" });
  const table: readonly [string, Hook | undefined, Hook, MergeOutcome][] = [
    ["an unknown record is taken", undefined, known, "advanced"],
    ["a higher revision advances", known, hook({ revision: 6, text: "new" }), "advanced"],
    ["a lower revision is history", known, hook({ revision: 4, text: "old" }), "older"],
    [
      "the same revision and payload repeats",
      known,
      hook({ revision: 5, text: "known" }),
      "repeated",
    ],
    [
      "the same revision, another payload conflicts",
      known,
      hook({ revision: 5, text: "x" }),
      "conflict",
    ],
    [
      "another origin conflicts",
      known,
      hook({ revision: 6, text: "x", origin: "ses_b" }),
      "conflict",
    ],
    ["another call conflicts", known, hook({ revision: 6, text: "x", call: "tc_b" }), "conflict"],
    ["a revision advances a record without one", legacy, known, "advanced"],
    ["no revision cannot overwrite an identified record", known, legacy, "conflict"],
    [
      "the same record without a revision repeats",
      legacy,
      hook({ revision: undefined, text: "old" }),
      "repeated",
    ],
  ];
  test.each(table)("%s", (_rule, current, incoming, outcome) => {
    expect(merge(current, incoming)).toBe(outcome);
  });

  test("a record of another kind with the same id conflicts", () => {
    const call = create(ToolCallSchema, { toolCallId: "hk_1", revision: 9n });
    expect(merge(known, call)).toBe("conflict");
  });

  test("revisions above 2^53 keep their order", () => {
    const low = create(HookSchema, { ...known, revision: 2n ** 60n });
    const high = create(HookSchema, { ...known, revision: 2n ** 60n + 1n });
    expect(merge(low, high)).toBe("advanced");
    expect(merge(high, low)).toBe("older");
  });
});
