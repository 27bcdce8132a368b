import { describe, expect, test } from "vitest";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { TurnSpans } from "../../src/domain/turn-spans.js";
import { callRecord, otherRecord, turnRecord } from "../support/turn-logs.js";

/** The cuts at each event of a log, from 0 on. */
function cutsOf(log: readonly EventRecord[]): number[] {
  const spans = new TurnSpans();
  for (const [index, event] of log.entries()) spans.add(BigInt(index + 1), event);
  return Array.from({ length: log.length + 1 }, (_, through) =>
    Number(spans.cutAt(BigInt(through))),
  );
}

const turn = (name: string, ...calls: string[]): EventRecord => turnRecord(name, calls);
const asIs = (name: string, call: string): EventRecord => callRecord(name, call, false);
const answered = (name: string, call: string): EventRecord => callRecord(name, call, true);

describe("a log is cut", () => {
  test("anywhere, while it has no turn", () => {
    expect(cutsOf([])).toEqual([0]);
    expect(cutsOf([otherRecord(), otherRecord()])).toEqual([0, 1, 2]);
  });

  test("before a turn or after its last result", () => {
    const log = [
      otherRecord(),
      turn("t", "a", "b"),
      ...["a", "b"].map((id) => asIs("t", id)),
      answered("t", "b"),
      answered("t", "a"),
      otherRecord(),
    ];
    expect(cutsOf(log)).toEqual([0, 1, 1, 1, 1, 1, 6, 7]);
  });

  test("before the earliest turn with a call that has no result, whatever follows it", () => {
    const log = [turn("t", "a"), turn("u", "b"), answered("u", "b"), otherRecord()];
    expect(cutsOf(log)).toEqual([0, 0, 0, 0, 0]);
  });

  test("before turns that reach into each other as if they were one", () => {
    const log = [
      otherRecord(),
      turn("t", "a"),
      turn("u", "b"),
      answered("t", "a"),
      turn("v", "c"),
      answered("u", "b"),
      answered("v", "c"),
      otherRecord(),
    ];
    expect(cutsOf(log)).toEqual([0, 1, 1, 1, 1, 1, 1, 7, 8]);
  });

  test("as if updates without a result were not there", () => {
    const log = [turn("t", "a"), asIs("t", "a"), asIs("t", "a"), answered("t", "a")];
    expect(cutsOf(log)).toEqual([0, 0, 0, 0, 4]);
  });

  test("after the first result of each call, whatever comes late", () => {
    const log = [turn("t", "a"), answered("t", "a"), otherRecord(), answered("t", "a")];
    expect(cutsOf(log)).toEqual([0, 0, 2, 3, 4]);
  });

  test("whatever is said of calls of turns before the point that the events begin at", () => {
    expect(cutsOf([answered("archived", "a"), asIs("archived", "b")])).toEqual([0, 1, 2]);
  });

  test("as a turn's own calls say, not those of another turn that bear the same ids", () => {
    const log = [turn("t", "a"), turn("u", "b"), answered("u", "a"), answered("u", "b")];
    expect(cutsOf(log)).toEqual([0, 0, 0, 0, 0]);
  });
});
