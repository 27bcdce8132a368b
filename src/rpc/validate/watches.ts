import type { WatchAsksRequest } from "../../../gen/toolmark/v1/approval_service_pb.js";
import type { WatchEventsRequest } from "../../../gen/toolmark/v1/history_service_pb.js";
import {
  checkCountMax,
  checkEach,
  type Checked,
  checkId,
  checkIdOrEmpty,
  checkRequiredText,
  checkText,
} from "./checks.js";

const CURSOR_BYTES = 4096;
const KINDS = 64;
const KIND_BYTES = 64;

export function checkWatchAsks(request: WatchAsksRequest): Checked {
  return (
    checkIdOrEmpty(request.sessionId, "", "session_id") ??
    checkText(request.cursor, "", "cursor", CURSOR_BYTES)
  );
}

export function checkWatchEvents(request: WatchEventsRequest): Checked {
  return (
    checkId(request.sessionId, "", "session_id") ??
    checkText(request.cursor, "", "cursor", CURSOR_BYTES) ??
    checkCountMax(request.kinds.length, "", "kinds", KINDS) ??
    checkEach(request.kinds, (kind, index) =>
      checkRequiredText(kind, "", `kinds[${index}]`, KIND_BYTES),
    )
  );
}
