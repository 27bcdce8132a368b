import type { BaseState } from "../../gen/toolmark/v1/base_state_pb.js";
import type { Event, EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { ToolCall, ToolResult } from "../../gen/toolmark/v1/tool_call_pb.js";
import { bytes } from "./conversation.js";

/** What a model is told again: a summary, messages, calls and results. */
export type ProjectedItem =
  | { readonly kind: "summary"; readonly text: string }
  | { readonly kind: "message"; readonly id: string }
  | { readonly kind: "call" | "result"; readonly id: string };

/** Which events a reader of a log retains. */
export interface Retained {
  readonly summary: string | undefined;
  readonly throughSequence: bigint;
}

/** By the last compaction of a log. */
export function retainedOf(log: readonly Event[]): Retained {
  const { record } = log.findLast(({ record: last }) => last?.record.case === "compaction") ?? {};
  if (record?.record.case !== "compaction") return { summary: undefined, throughSequence: 0n };
  return record.record.value;
}

interface Projectable {
  readonly record: EventRecord | undefined;
  readonly isRetained: boolean;
}

/**
 * What a reader builds from the events that it retains, and from what a fork copied, in their order, and from nothing
 * else. The first event of a fork brings what was copied.
 */
export function projectionOf(log: readonly Event[], base?: BaseState): ProjectedItem[] {
  const { summary = base?.summary, throughSequence } = retainedOf(log);
  const items: ProjectedItem[] = summary ? [{ kind: "summary", text: summary }] : [];
  const answered = new Set<string>();
  const copied = (base?.records ?? []).map(({ record }, index): Projectable => {
    const isRetained = throughSequence === 0n && index >= (base?.archivedRecordCount ?? 0);
    return { record, isRetained };
  });
  const own = log.map(({ sequence, record }): Projectable => {
    return { record, isRetained: sequence > throughSequence };
  });
  for (const { record, isRetained } of [...copied, ...own]) {
    const { record: of } = record ?? {};
    if (of?.case === "message" && isRetained) {
      items.push({ kind: "message", id: of.value.messageId });
    }
    if (of?.case === "turn" && isRetained) {
      for (const id of of.value.toolCallIds) items.push({ kind: "call", id });
    }
    if (of?.case !== "toolCall" || of.value.result === undefined) continue;
    const { toolCallId: id } = of.value;
    // A record is whole: its later updates carry the result as well.
    if (!answered.has(id) && isRetained) items.push({ kind: "result", id });
    answered.add(id);
  }
  return items;
}

/**
 * What is wrong with a projection, one line each: a result without its call or a second one, a settled call of
 * `calls` without its result, or one that was archived before it had one.
 */
export function projectionFaults(
  items: readonly ProjectedItem[],
  calls: readonly Pick<ToolCall, "toolCallId" | "result">[],
): string[] {
  const shown = new Set<string>();
  const answered = new Set<string>();
  const faults: string[] = [];
  for (const item of items) {
    if (item.kind === "call") shown.add(item.id);
    if (item.kind !== "result") continue;
    if (!shown.has(item.id)) faults.push(`a result of ${item.id} stands without its call`);
    if (answered.has(item.id)) faults.push(`${item.id} has a second result`);
    answered.add(item.id);
  }
  for (const { toolCallId, result } of calls) {
    const isSettled = result !== undefined;
    if (shown.has(toolCallId) && isSettled && !answered.has(toolCallId)) {
      faults.push(`${toolCallId} stands without its result`);
    }
    if (!shown.has(toolCallId) && !isSettled) faults.push(`${toolCallId} was archived in flight`);
  }
  return faults;
}

/** Results that a call had, one after the other: more than one if it was ever replaced. */
export function resultsOf(log: readonly Event[], toolCallId: string): ToolResult[] {
  const results: ToolResult[] = [];
  for (const { record } of log) {
    if (record?.record.case !== "toolCall" || record.record.value.toolCallId !== toolCallId) {
      continue;
    }
    const { result } = record.record.value;
    if (result !== undefined && textOf(result) !== textOf(results.at(-1))) results.push(result);
  }
  return results;
}

function textOf(result: ToolResult | undefined): string {
  if (result === undefined) return "";
  const { kind, isError, content } = result;
  return JSON.stringify([kind, isError, Buffer.from(content?.sha256 ?? bytes("")).toString("hex")]);
}
