import type { Body } from "../../../gen/toolmark/v1/body_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { equalBytes } from "../bytes.js";
import { invariant } from "../invariant.js";
import { refuse, refuseField, type Refusal } from "../refusal.js";
import { sha256 } from "../sha256.js";
import type { Draft } from "./draft.js";

/** The bytes of a body that becomes none of the session: sent with the command, or uploaded as private. */
export function privateBytes(
  draft: Draft,
  body: Body | undefined,
  field: string,
): Uint8Array | Refusal {
  invariant(body !== undefined, `${field} was checked to be there`);
  const data = body.data ?? draft.facts.privateUpload?.(body.bodyRef)?.data;
  if (data === undefined) {
    const message = `${field} refers to no private upload of this session`;
    return refuse(ErrorReason.BODY_NOT_FOUND, message, { field });
  }
  if (body.sha256.length > 0 && !equalBytes(body.sha256, sha256(data))) {
    return refuseField(`${field}.sha256`, "is not the digest of the bytes");
  }
  return data;
}
