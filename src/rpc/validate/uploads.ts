import type { WriteBodyRequest } from "../../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { refuseField } from "../../domain/refusal.js";
import { MEDIA_TYPE_BYTES } from "./body.js";
import { checkId, checkSha256, checkText, type Checked } from "./checks.js";

/** The first message of an upload, which says what it is of. How many bytes come is seen as they come. */
export function checkFirstPart({ sessionId, mediaType, sha256 }: WriteBodyRequest): Checked {
  return (
    checkId(sessionId, "", "session_id") ??
    checkText(mediaType, "", "media_type", MEDIA_TYPE_BYTES) ??
    (sha256.length === 0 ? undefined : checkSha256(sha256, "", "sha256"))
  );
}

/** A message after the first, which has bytes alone. */
export function checkLaterPart(part: WriteBodyRequest): Checked {
  const { sessionId, mediaType, sha256 } = part;
  const rule = "must be empty after the first message";
  if (sessionId !== "") return refuseField("session_id", rule);
  if (mediaType !== "") return refuseField("media_type", rule);
  if (part.private) return refuseField("private", "must be false after the first message");
  return sha256.length === 0 ? undefined : refuseField("sha256", rule);
}
