import { fromBinary } from "@bufbuild/protobuf";
import { BaseStateSchema } from "../../gen/toolmark/v1/base_state_pb.js";
import { EventKind } from "../domain/event-kind.js";
import { isRefusal } from "../domain/refusal.js";
import { baseBodyOf, sessionOf } from "../domain/session-record.js";
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
  baseRefOf: (row) => {
    const brings = row.kind === EventKind.forked || row.kind === EventKind.adopted;
    const payload = brings ? openPayload(row) : undefined;
    if (payload === undefined || isRefusal(payload)) return undefined;
    return baseBodyOf(payload.record?.record ?? { case: undefined })?.bodyRef;
  },
  inheritedOf: ({ kind }, { sha256, data }) => {
    if (!isSha256(sha256, data)) return undefined;
    const by = kind === EventKind.adopted ? "adopted" : "forked";
    return inheritedRecords(fromBinary(BaseStateSchema, data), by);
  },
  followsChain,
  sessionChecksum,
  requestChecksum,
  creationChecksum,
};
