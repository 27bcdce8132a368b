import { fromBinary } from "@bufbuild/protobuf";
import { BaseStateSchema } from "../../gen/toolmark/v1/base_state_pb.js";
import { isRefusal } from "../domain/refusal.js";
import { sessionOf } from "../domain/session-record.js";
import { isSha256 } from "../domain/sha256.js";
import { inheritedRecords } from "./base-state.js";
import { creationChecksum, requestChecksum, sessionChecksum } from "./checksums.js";
import { followsChain, indexOf, openPayload } from "./event-codec.js";
import { standingOf } from "./standing.js";
import type { RowRules } from "./store-port.js";

/** The rules of this ledger, for stores that fill rows of an older file. */
export const ROW_RULES: RowRules = {
  indexOf: (row) => {
    const payload = openPayload(row);
    return isRefusal(payload) ? undefined : indexOf(payload.record?.record ?? { case: undefined });
  },
  standingOf: (first) => {
    const payload = openPayload(first);
    if (isRefusal(payload)) return undefined;
    const session = sessionOf(payload.record?.record ?? { case: undefined });
    return session && standingOf(session);
  },
  baseRefOf: (first) => {
    const payload = openPayload(first);
    const record = isRefusal(payload) ? undefined : payload.record?.record;
    return record?.case === "forked" ? record.value.base?.bodyRef : undefined;
  },
  inheritedOf: ({ sha256, data }) =>
    isSha256(sha256, data) ? inheritedRecords(fromBinary(BaseStateSchema, data)) : undefined,
  followsChain,
  sessionChecksum,
  requestChecksum,
  creationChecksum,
};
