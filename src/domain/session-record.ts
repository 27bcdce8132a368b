import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { Session } from "../../gen/toolmark/v1/session_pb.js";

/** The Session record that an event carries: as its record, or in an event that brings records from elsewhere. */
export function sessionOf(record: EventRecord["record"]): Session | undefined {
  switch (record.case) {
    case "session":
      return record.value;
    case "forked":
    case "adopted":
      return record.value.session;
    default:
      return undefined;
  }
}

/** Of an event that brings records from elsewhere: the copy of a fork, or what an older system kept. */
export type BringingRecord = Extract<EventRecord["record"], { case: "forked" | "adopted" }>;

export function bringsRecords(record: EventRecord["record"]): record is BringingRecord {
  return record.case === "forked" || record.case === "adopted";
}

/** The base state of an event that brings records. Absent for other events. */
export function baseBodyOf(record: EventRecord["record"]): Body | undefined {
  return bringsRecords(record) ? record.value.base : undefined;
}
