import { timestampMs, type Timestamp } from "@bufbuild/protobuf/wkt";
import { deadlineMsOf } from "../deadline.js";
import { refuseField, type Refusal } from "../refusal.js";
import type { Facts } from "./draft.js";

/** Refuses an expire_time that has passed: what it bounds could never be settled in time. */
export function refusePast(facts: Facts, expireTime: Timestamp | undefined): Refusal | undefined {
  if (expireTime === undefined || deadlineMsOf(expireTime) > timestampMs(facts.now)) {
    return undefined;
  }
  return refuseField("command.expire_time", "must be later than now");
}
