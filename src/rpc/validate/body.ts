import type { Body } from "../../../gen/toolmark/v1/body_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import type { Limits } from "../../domain/limits.js";
import { refuse, refuseField } from "../../domain/refusal.js";
import { checkIdOrEmpty, checkSha256, checkText, fieldPath, type Checked } from "./checks.js";

export const MEDIA_TYPE_BYTES = 256;

/**
 * A body that a request must have. Whether its digest is that of its bytes needs hashing and is left to where the
 * bytes are hashed anyway.
 */
export function checkBody(
  body: Body | undefined,
  at: string,
  name: string,
  limits: Limits,
): Checked {
  const path = fieldPath(at, name);
  if (body === undefined) return refuseField(path, "is required");
  return (
    checkSource(body, path) ??
    checkSize(body, path, limits) ??
    (body.sha256.length === 0 ? undefined : checkSha256(body.sha256, path, "sha256")) ??
    checkText(body.mediaType, path, "media_type", MEDIA_TYPE_BYTES)
  );
}

export function checkOptionalBody(
  body: Body | undefined,
  at: string,
  name: string,
  limits: Limits,
): Checked {
  return body === undefined ? undefined : checkBody(body, at, name, limits);
}

function checkSource(body: Body, path: string): Checked {
  if (body.data === undefined && body.bodyRef === "") {
    return refuseField(path, "must have data or body_ref");
  }
  if (body.data !== undefined && body.bodyRef !== "") {
    return refuseField(path, "must not have both data and body_ref");
  }
  return checkIdOrEmpty(body.bodyRef, path, "body_ref");
}

function checkSize(body: Body, path: string, limits: Limits): Checked {
  if (body.data === undefined || body.data.length <= limits.bodyBytes) return undefined;
  const field = fieldPath(path, "data");
  const limit = String(limits.bodyBytes);
  return refuse(ErrorReason.BODY_TOO_LARGE, `${field} has more than ${limit} bytes`, {
    field,
    limit,
  });
}
