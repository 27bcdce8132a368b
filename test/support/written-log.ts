import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import type { WrittenSoFar } from "./retrying-writer.js";

/**
 * How logs differ from what their writers were told: what was acknowledged and is not there, what is
 * there twice or was never acknowledged, and what is out of order.
 */
export function writtenProblems(
  logs: readonly (readonly Event[])[],
  written: WrittenSoFar,
): string[] {
  const found = inTermsOfWriters(logs.flat());
  return [
    ...logs.flatMap(orderProblems),
    ...differences("call", found.toolCallIds, [...written.toolCallIds.values()]),
    ...differences("result", found.results, [...written.results.keys()]),
    ...differences("hook", found.hooks, [...written.hookIds].map(String)),
  ];
}

function orderProblems(events: readonly Event[]): string[] {
  const sessionId = events[0]?.sessionId ?? "";
  const sequences = events.map(({ sequence }) => sequence);
  const isDense = sequences.every((sequence, index) => sequence === BigInt(index + 1));
  const rising = {
    positions: areRising(events.map(({ position }) => position)),
    revisions: areRising(events.flatMap(({ revision }) => revision ?? [])),
  };
  return [
    ...(isDense ? [] : [`${sessionId}: sequences have a hole`]),
    ...(rising.positions ? [] : [`${sessionId}: positions do not rise`]),
    ...(rising.revisions ? [] : [`${sessionId}: revisions do not rise`]),
  ];
}

function areRising(numbers: readonly bigint[]): boolean {
  return numbers.every((number, index) => number > (numbers[index - 1] ?? 0n));
}

/** What is in the log, in the terms in which writers are answered. */
function inTermsOfWriters(events: readonly Event[]) {
  const calls = (kind: string) =>
    events.flatMap(({ kind: found, record }) =>
      found === kind && record?.record.case === "toolCall" ? [record.record.value] : [],
    );
  return {
    toolCallIds: calls("TOOL_CALL_ACCEPTED").map(({ toolCallId }) => toolCallId),
    results: calls("RESULT_RECORDED").map(({ toolCallId }) => toolCallId),
    hooks: events.flatMap(({ record }) =>
      record?.record.case === "hook" ? [hookKey(record.record.value)] : [],
    ),
  };
}

/** A writer puts the id of its request into the text. */
function hookKey({ text, hookId }: { readonly text: string; readonly hookId: string }): string {
  return String([text, hookId]);
}

function differences(what: string, found: readonly string[], expected: readonly string[]) {
  const counts = new Map<string, number>();
  for (const id of found) counts.set(id, (counts.get(id) ?? 0) + 1);
  const known = new Set(expected);
  return [
    ...expected.filter((id) => !counts.has(id)).map((id) => `${what} ${id}: lost`),
    ...[...counts].flatMap(([id, count]) => (count > 1 ? [`${what} ${id}: ${count} times`] : [])),
    ...found.filter((id) => !known.has(id)).map((id) => `${what} ${id}: acknowledged to nobody`),
  ];
}
