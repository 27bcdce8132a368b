import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { sessionOf } from "./session-record.js";

/** The id of the record that an event carries. Absent for events that update no record. */
export function recordIdOf(record: EventRecord["record"]): string | undefined {
  switch (record.case) {
    case "session":
    case "forked":
    case "adopted":
      return sessionOf(record)?.sessionId;
    case "run":
      return record.value.runId;
    case "turn":
      return record.value.turnId;
    case "message":
      return record.value.messageId;
    case "toolCall":
      return record.value.toolCallId;
    case "hook":
      return record.value.hookId;
    case "ask":
      return record.value.askId;
    case "receipt":
      return record.value.receiptId;
    case "authorization":
      return record.value.authorizationId;
    case "legacyEvidence":
      return record.value.evidenceId;
    case "provisional":
    case "compaction":
    case undefined:
      return undefined;
  }
}

/** The call that a record is about. Absent for calls themselves and for records about none. */
export function toolCallIdOf(record: EventRecord["record"]): string | undefined {
  switch (record.case) {
    case "hook":
    case "ask":
    case "receipt":
    case "authorization":
    case "legacyEvidence":
      return record.value.toolCallId;
    default:
      return undefined;
  }
}
