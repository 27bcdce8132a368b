import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { Session } from "../../gen/toolmark/v1/session_pb.js";

/** The Session record that an event carries: as its record, or in the event that begins a fork. */
export function sessionOf(record: EventRecord["record"]): Session | undefined {
  switch (record.case) {
    case "session":
      return record.value;
    case "forked":
      return record.value.session;
    default:
      return undefined;
  }
}
