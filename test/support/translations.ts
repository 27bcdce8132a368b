import { ToolCallState, ToolResultKind } from "../../gen/toolmark/v1/tool_call_pb.js";
import type { AnyRecord, Translation } from "../../src/legacy/translation.js";

type ValueOf<Case extends AnyRecord["case"]> = Extract<AnyRecord, { case: Case }>["value"];

/** The records of one kind, in their order. */
export function recordsOf<Case extends NonNullable<AnyRecord["case"]>>(
  { records }: Pick<Translation, "records">,
  wanted: Case,
): ValueOf<Case>[] {
  return records.flatMap((record) =>
    record.case === wanted ? [record.value as ValueOf<Case>] : [],
  );
}

/** Each call as its state and whether it has a result of its own. */
export function told(translation: Translation): [state: string, result: string][] {
  return recordsOf(translation, "toolCall").map(({ state, result }) => [
    ToolCallState[state],
    result === undefined ? "none" : ToolResultKind[result.kind],
  ]);
}

/** The bytes of a body as text. */
export function bytesOf({ bodies }: Translation, bodyRef: string | undefined): string {
  const body = bodies.find((each) => each.bodyRef === bodyRef);
  return Buffer.from(body?.data ?? []).toString();
}
