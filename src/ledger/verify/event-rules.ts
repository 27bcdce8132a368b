import { create, fromBinary } from "@bufbuild/protobuf";
import {
  EventPayloadSchema,
  type EventPayload,
} from "../../../gen/toolmark/storage/v1/storage_pb.js";
import { EventRecordSchema, type EventRecord } from "../../../gen/toolmark/v1/event_pb.js";
import type { EventRow } from "../store-port.js";

/** The payload of an intact row. Absent if its bytes are none. */
export function decodePayload(bytes: Uint8Array): EventPayload | undefined {
  try {
    return fromBinary(EventPayloadSchema, bytes);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    return undefined;
  }
}

/** The record of a payload; one that has none set if the payload has no record. */
export function recordOf(payload: EventPayload): EventRecord {
  return payload.record ?? create(EventRecordSchema);
}

/** What is wrong between a row's columns and its own record, whatever the events before it say. */
export function recordFault(
  sessionId: string,
  row: EventRow,
  record: EventRecord["record"],
): string | undefined {
  switch (record.case) {
    case "toolCall":
    case "hook":
    case "ask":
    case "receipt":
    case "authorization": {
      const { revision, origin } = record.value;
      if (row.revision === undefined) return "has no revision";
      if (row.revision !== revision) return "has another revision than its record";
      return origin?.sessionId === sessionId ? undefined : "has a record of another origin";
    }
    case "forked":
    case "adopted":
      if (record.value.session?.sessionId !== sessionId) return "has the record of another session";
      return withoutRevision(row);
    case "session":
      if (record.value.sessionId !== sessionId) return "has the record of another session";
      return withoutRevision(row);
    default:
      return withoutRevision(row);
  }
}

function withoutRevision({ revision }: EventRow): string | undefined {
  return revision === undefined ? undefined : "has a revision, which its record does not take";
}
