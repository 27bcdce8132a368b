import { create } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { EventRecordSchema, type EventRecord } from "../../gen/toolmark/v1/event_pb.js";

/** What an event of a log means for its turns. Picks are resolved against the calls that are there by then. */
export type TurnStep =
  | { readonly kind: "turn"; readonly calls: number }
  /** The update of a call: with its result from the first such step on, as each record is whole. */
  | { readonly kind: "result" | "update"; readonly pick: number }
  | { readonly kind: "other" };

const { constant, constantFrom, record } = fc;

export const turnSteps: fc.Arbitrary<TurnStep[]> = fc.array(
  fc.oneof(
    {
      weight: 3,
      arbitrary: record({ kind: constant("turn" as const), calls: fc.integer({ min: 1, max: 4 }) }),
    },
    {
      weight: 8,
      arbitrary: record({
        kind: constantFrom("result" as const, "result" as const, "update" as const),
        pick: fc.nat({ max: 100 }),
      }),
    },
    { weight: 2, arbitrary: record({ kind: constant("other" as const) }) },
  ),
  { maxLength: 40, size: "max" },
);

export function turnRecord(turnId: string, toolCallIds: readonly string[]): EventRecord {
  const value = { turnId, toolCallIds: [...toolCallIds] };
  return create(EventRecordSchema, { record: { case: "turn", value } });
}

export function callRecord(turnId: string, toolCallId: string, hasResult: boolean): EventRecord {
  const value = { turnId, toolCallId, ...(hasResult ? { result: {} } : {}) };
  return create(EventRecordSchema, { record: { case: "toolCall", value } });
}

export function otherRecord(): EventRecord {
  return create(EventRecordSchema, { record: { case: "message", value: {} } });
}

/** The events that steps come to. A turn's event is followed by one for each of its calls. */
export function turnLog(steps: readonly TurnStep[]): EventRecord[] {
  const log: EventRecord[] = [];
  const calls: { readonly turnId: string; readonly id: string; isAnswered: boolean }[] = [];
  for (const [index, step] of steps.entries()) {
    if (step.kind === "turn") {
      const turnId = `turn ${index}`;
      const ids = Array.from({ length: step.calls }, (_, at) => `call ${index}.${at}`);
      log.push(turnRecord(turnId, ids));
      for (const id of ids) {
        calls.push({ turnId, id, isAnswered: false });
        log.push(callRecord(turnId, id, false));
      }
      continue;
    }
    const call = step.kind === "other" ? undefined : calls[step.pick % Math.max(1, calls.length)];
    if (call === undefined) {
      log.push(otherRecord());
      continue;
    }
    call.isAnswered ||= step.kind === "result";
    log.push(callRecord(call.turnId, call.id, call.isAnswered));
  }
  return log;
}

/** The last event at or before `through` after which no turn goes on, by trying every one from there down. */
export function highestCut(log: readonly (EventRecord | undefined)[], through: number): number {
  let at = through;
  while (splitsTurn(log, at)) at -= 1;
  return at;
}

/** Whether the first events of a log have a turn with a call that none of them gave its result. */
export function splitsTurn(log: readonly (EventRecord | undefined)[], archived: number): boolean {
  const before = log.slice(0, archived).map((event) => event?.record);
  const answered = new Set(
    before.map((of) =>
      of?.case === "toolCall" && of.value.result !== undefined ? of.value.toolCallId : undefined,
    ),
  );
  return before.some(
    (of) => of?.case === "turn" && of.value.toolCallIds.some((id) => !answered.has(id)),
  );
}
