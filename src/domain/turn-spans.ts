import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";

interface OpenTurn {
  readonly start: bigint;
  readonly unanswered: Set<string>;
}

interface Span {
  readonly start: bigint;
  /** Of the event that gave the last call its result. Absent while one has none. */
  readonly end: bigint | undefined;
}

/**
 * Where a session's log can be cut without splitting a turn: each turn reaches from its acceptance to the last first
 * result of its calls, and what its response said follows it at once. Takes the events in order, from a point that
 * splits none.
 */
export class TurnSpans {
  readonly #open = new Map<string, OpenTurn>();
  readonly #ended: Span[] = [];

  add(sequence: bigint, { record }: EventRecord): void {
    if (record.case === "turn") {
      const { turnId, toolCallIds } = record.value;
      if (toolCallIds.length === 0) return;
      this.#open.set(turnId, { start: sequence, unanswered: new Set(toolCallIds) });
    } else if (record.case === "message" && record.value.turnId !== undefined) {
      this.#ended.push({ start: sequence - 1n, end: sequence });
    } else if (record.case === "adopted") {
      this.#adopt(sequence, record.value.openCalls);
    } else if (record.case === "toolCall" && record.value.result !== undefined) {
      this.#answer(record.value.turnId, record.value.toolCallId, sequence);
    }
  }

  /** Turns that have a call without a result. */
  get unfinishedTurnIds(): ReadonlySet<string> {
    return new Set(this.#open.keys());
  }

  /** The last event at or before `through` after which no turn goes on. */
  cutAt(through: bigint): bigint {
    let cut = through;
    const unanswered = [...this.#open.values()].map(({ start }) => ({ start, end: undefined }));
    const spans: Span[] = [...this.#ended, ...unanswered];
    // From the last: once a span is behind the cut, so are all that began after it.
    spans.sort((left, right) => (left.start > right.start ? -1 : 1));
    for (const { start, end } of spans) {
      if (start <= cut && (end === undefined || end > cut)) cut = start - 1n;
    }
    return cut;
  }

  /** Turns of an older system that go on: they began with the event that brought them. */
  #adopt(sequence: bigint, openCalls: readonly ToolCall[]): void {
    this.#open.clear();
    for (const { turnId, toolCallId } of openCalls) {
      const turn = this.#open.get(turnId) ?? { start: sequence, unanswered: new Set() };
      this.#open.set(turnId, turn);
      turn.unanswered.add(toolCallId);
    }
  }

  #answer(turnId: string, toolCallId: string, sequence: bigint): void {
    const turn = this.#open.get(turnId);
    if (turn?.unanswered.delete(toolCallId) !== true || turn.unanswered.size > 0) return;
    this.#open.delete(turnId);
    this.#ended.push({ start: turn.start, end: sequence });
  }
}
