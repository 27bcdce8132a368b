import { isRefusal } from "../domain/refusal.js";
import { creationChecksum, requestChecksum, sessionChecksum } from "./checksums.js";
import { followsChain, indexOf, openPayload } from "./event-codec.js";
import type { RowRules } from "./store-port.js";

/** The rules of this ledger, for stores that fill rows of an older file. */
export const ROW_RULES: RowRules = {
  indexOf: (row) => {
    const payload = openPayload(row);
    return isRefusal(payload) ? undefined : indexOf(payload.record?.record ?? { case: undefined });
  },
  followsChain,
  sessionChecksum,
  requestChecksum,
  creationChecksum,
};
