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

type Waiting = ReadonlyMap<string, Ask | Authorization>;

/** Maps of what waits are replaced when they change, so what was found of one stays true. */
const earliest = new WeakMap<Waiting, number>();

/** The first deadline of records that wait, in milliseconds since the epoch; Infinity if none has one. */
export function earliestDeadlineMs(waiting: Waiting): number {
  if (waiting.size === 0) return Infinity;
  const known = earliest.get(waiting);
  if (known !== undefined) return known;
  let foundMs = Infinity;
  for (const record of waiting.values()) {
    foundMs = Math.min(foundMs, waitsUntilMs(record) ?? Infinity);
  }
  earliest.set(waiting, foundMs);
  return foundMs;
}
