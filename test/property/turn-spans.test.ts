import { create } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { ToolResultSchema } from "../../gen/toolmark/v1/tool_call_pb.js";
import { TurnSpans } from "../../src/domain/turn-spans.js";
import { propertyOptions, seed, seededTitle } from "../support/seed.js";
import { highestCut, splitsTurn, turnLog, turnSteps } from "../support/turn-logs.js";

const FULL_RUNS = 10_000;

/** Where a log is cut: its events, the sequence of the first, and the last event to archive. */
type Cut = (log: readonly EventRecord[], first: bigint, through: bigint) => bigint;

const cut: Cut = (log, first, through) => {
  const spans = new TurnSpans();
  for (const [index, event] of log.entries()) spans.add(first + BigInt(index), event);
  return spans.cutAt(through);
};

/** What is wrong with a cut of a log, one line for each rule. */
function cutFaults(log: readonly EventRecord[], through: number, cutAt: Cut): string[] {
  const at = (point: number): number => Number(cutAt(log, 1n, BigInt(point)));
  const found = at(through);
  const faults: string[] = [];
  if (found > through) faults.push("archives more than was asked for");
  if (found < 0 || splitsTurn(log, Math.max(0, found))) faults.push("splits a turn");
  if (found < highestCut(log, through)) faults.push("archives less than could be");
  if (at(found) !== found) faults.push("is cut again at its own cut");
  if (through > 0 && at(through - 1) > found) faults.push("falls when more is asked for");
  const tail = Number(cutAt(log.slice(found), BigInt(found + 1), BigInt(through)));
  if (tail !== found) faults.push("differs when it is read from an earlier cut on");
  return faults;
}

/** A log, and a point in it. */
const logAndPoint = fc.tuple(turnSteps, fc.nat({ max: 1_000 })).map(([steps, pick]) => {
  const log = turnLog(steps);
  return { log, through: pick % (log.length + 1) };
});

function property(cutAt: Cut): fc.IPropertyWithHooks<[{ log: EventRecord[]; through: number }]> {
  return fc.property(logAndPoint, ({ log, through }) => {
    expect(cutFaults(log, through, cutAt)).toEqual([]);
  });
}

test(seededTitle("the cut is the highest that splits no turn, and cutting again keeps it"), () => {
  fc.assert(property(cut), propertyOptions(FULL_RUNS));
});

test(
  seededTitle("what is written later never lowers a cut, nor moves a point that was cut"),
  () => {
    fc.assert(
      fc.property(logAndPoint, fc.nat({ max: 1_000 }), ({ log, through }, pick) => {
        const known = log.slice(0, through + (pick % (log.length - through + 1)));
        const before = cut(known, 1n, BigInt(through));
        expect(cut(log, 1n, BigInt(through))).toBeGreaterThanOrEqual(before);
        expect(cut(log, 1n, before)).toBe(before);
      }),
      propertyOptions(FULL_RUNS),
    );
  },
);

describe("a fault is found in a cut", () => {
  type Events = readonly EventRecord[];

  /** The cut of what is left of a log. Every event keeps its sequence. */
  function cutOfOther(change: (record: EventRecord["record"]) => EventRecord["record"]): Cut {
    const changed = (log: Events): Events =>
      log.map((event) => ({ ...event, record: change(event.record) }));
    return (log, first, through) => cut(changed(log), first, through);
  }

  const NOTHING: EventRecord["record"] = { case: undefined };
  const MUTANTS: readonly (readonly [string, Cut])[] = [
    ["where it was asked for", (_log, _first, through) => through],
    ["at the beginning", (_log, first) => first - 1n],
    ["one event too early", (log, first, through) => cut(log, first, through) - 1n],
    [
      "that sees no result",
      cutOfOther((record) => (record.case === "toolCall" ? NOTHING : record)),
    ],
    [
      "that ends a turn with the result of its first call",
      cutOfOther((record) => {
        if (record.case !== "turn") return record;
        const { toolCallIds } = record.value;
        return { ...record, value: { ...record.value, toolCallIds: toolCallIds.slice(0, 1) } };
      }),
    ],
    [
      "that takes every update of a call for its result",
      cutOfOther((record) => {
        if (record.case !== "toolCall") return record;
        const result = create(ToolResultSchema);
        return { ...record, value: { ...record.value, result } };
      }),
    ],
    [
      "before the turn that goes on, though an earlier one goes on there too",
      (log, first, through) => {
        if (cut(log, first, through) === through) return through;
        const before = log.slice(0, Number(through - first) + 1);
        const last = before.findLastIndex(({ record }) => record.case === "turn");
        return first + BigInt(last) - 1n;
      },
    ],
  ];

  test.each(MUTANTS)("%s", (_name, mutant) => {
    expect(fc.check(property(mutant), { seed, numRuns: FULL_RUNS }).failed).toBe(true);
  });
});
