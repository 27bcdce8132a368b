import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { ToolResult } from "../../gen/toolmark/v1/tool_call_pb.js";

type AnyRecord = EventRecord["record"];

/** A record with each of its bodies replaced. */
export function mapBodies(record: AnyRecord, map: (body: Body) => Body): AnyRecord {
  const mapped = <Field extends Body | undefined>(body: Field): Body | Field =>
    body === undefined ? body : map(body);
  switch (record.case) {
    case "message":
      return { ...record, value: { ...record.value, content: mapped(record.value.content) } };
    case "legacyEvidence": {
      const { content, ...value } = record.value;
      return content === undefined
        ? record
        : { ...record, value: { ...value, content: map(content) } };
    }
    case "ask":
      return { ...record, value: { ...record.value, presented: mapped(record.value.presented) } };
    case "toolCall": {
      const { proposed, effective, result, lateResult } = record.value;
      const inResult = (given: ToolResult | undefined): ToolResult | undefined =>
        given && { ...given, content: mapped(given.content) };
      const bodies = {
        proposed: mapped(proposed),
        effective: mapped(effective),
        result: inResult(result),
        lateResult: inResult(lateResult),
      };
      return { ...record, value: { ...record.value, ...bodies } };
    }
    default:
      return record;
  }
}

/** The bodies of a record that can be read by reference. Of a held result digest and size alone are known. */
export function storedBodiesOf(record: AnyRecord): readonly Body[] {
  const bodies: Body[] = [];
  mapBodies(record, (body) => {
    if (body.bodyRef !== "") bodies.push(body);
    return body;
  });
  return bodies;
}
