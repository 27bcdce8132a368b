import { HeldResult } from "../../gen/toolmark/storage/v1/storage_pb.js";
import type { Ask } from "../../gen/toolmark/v1/ask_pb.js";
import type { Authorization } from "../../gen/toolmark/v1/authorization_pb.js";
import type { LazyMap } from "./lazy-map.js";
import type { OpenCall } from "./session-state.js";

/** What is open of a session while events are folded. */
export interface OpenRecords {
  readonly calls: LazyMap<OpenCall>;
  readonly asks: LazyMap<Ask>;
  readonly authorizations: LazyMap<Authorization>;
}

/** What is known of the asks of a call that nobody asked about. */
export const NOTHING_ASKED: Pick<
  OpenCall,
  "unspentAllows" | "needsAllow" | "heldResult" | "heldSha256" | "supersededAskId"
> = {
  unspentAllows: [],
  needsAllow: false,
  heldResult: HeldResult.UNSPECIFIED,
  heldSha256: new Uint8Array(0),
  supersededAskId: undefined,
};
