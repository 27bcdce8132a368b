import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState, type Authorization } from "../../gen/toolmark/v1/authorization_pb.js";

const MS_PER_SECOND = 1000;
const NANOS_PER_MS = 1_000_000;

/** The first whole millisecond at which a time has come. */
export function deadlineMsOf({ seconds, nanos }: Timestamp): number {
  return Number(seconds) * MS_PER_SECOND + Math.ceil(nanos / NANOS_PER_MS);
}

/** Until when a record waits, in milliseconds since the epoch. Absent if it waits no longer, or for ever. */
export function waitsUntilMs(record: Ask | Authorization): number | undefined {
  const waits =
    record.$typeName === "toolmark.v1.Ask"
      ? record.state === AskState.OPEN
      : record.state === AuthorizationState.PENDING;
  return waits && record.expireTime !== undefined ? deadlineMsOf(record.expireTime) : undefined;
}
