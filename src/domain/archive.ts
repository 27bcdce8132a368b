import { create } from "@bufbuild/protobuf";
import { BodySchema, type Body } from "../../gen/toolmark/v1/body_pb.js";
import type { LegacySource } from "../../gen/toolmark/v1/legacy_pb.js";
import { archiveRef, bodyRef } from "./identity.js";

const ARCHIVED = "application/octet-stream";

/** The bytes of a source as they are kept with their session: as a body that no reader is given and no record names. */
export function archiveOf(sessionId: string, { sha256, sizeBytes }: LegacySource): Body {
  const ref = archiveRef(sessionId, sha256);
  return create(BodySchema, { bodyRef: ref, sha256, sizeBytes, mediaType: ARCHIVED });
}

/** Whether a reference is the one of a digest in a session, that of a body or that of an archive. */
export function isRefOf(sessionId: string, ref: string, sha256: Uint8Array): boolean {
  return ref === bodyRef(sessionId, sha256) || ref === archiveRef(sessionId, sha256);
}
