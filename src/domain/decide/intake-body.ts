import { create } from "@bufbuild/protobuf";
import { BodySchema, type Body } from "../../../gen/toolmark/v1/body_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { equalBytes } from "../bytes.js";
import { bodyRef } from "../identity.js";
import { invariant } from "../invariant.js";
import { isJsonObject } from "../json-object.js";
import { refuse, refuseField, type Refusal } from "../refusal.js";
import { sha256 } from "../sha256.js";
import type { Draft, KnownBody, NewBody } from "./draft.js";

/** What replies and records say of a body. */
export function describeBody(known: KnownBody, mediaType: string): Body {
  return create(BodySchema, {
    sha256: known.sha256,
    sizeBytes: BigInt(known.sizeBytes),
    mediaType,
    isJsonObject: known.isJsonObject,
    bodyRef: known.bodyRef,
  });
}

/** Bytes as a body of a session. */
export function bodyOf(sessionId: string, data: Uint8Array): NewBody {
  const digest = sha256(data);
  return {
    bodyRef: bodyRef(sessionId, digest),
    sha256: digest,
    sizeBytes: data.length,
    isJsonObject: isJsonObject(data),
    data,
  };
}

/** Adds bytes to the draft's bodies and describes them. */
export function storeBytes(draft: Draft, data: Uint8Array, mediaType: string): Body {
  const body = bodyOf(draft.sessionId, data);
  draft.bodies.push(body);
  return describeBody(body, mediaType);
}

/** Takes a body of a request: bytes, or a reference to stored or uploaded ones. `field` is its path in the request. */
export function intakeBody(draft: Draft, body: Body | undefined, field: string): Body | Refusal {
  invariant(body !== undefined, `${field} was checked to be there`);
  const taken =
    body.data === undefined
      ? referencedBody(draft, body)
      : storeBytes(draft, body.data, body.mediaType);
  if (taken === undefined) {
    return refuse(ErrorReason.BODY_NOT_FOUND, `${field} refers to no body of this session`, {
      field,
    });
  }
  if (body.sha256.length > 0 && !equalBytes(body.sha256, taken.sha256)) {
    return refuseField(`${field}.sha256`, "is not the digest of the bytes");
  }
  return taken;
}

function referencedBody(draft: Draft, body: Body): Body | undefined {
  const inDraft = draft.bodies.find(({ bodyRef: ref }) => ref === body.bodyRef);
  const known =
    inDraft ?? draft.facts.storedBody(body.bodyRef) ?? uploadedBody(draft, body.bodyRef);
  return known === undefined ? undefined : describeBody(known, body.mediaType);
}

/** An uploaded body is stored with the first command that names it. */
function uploadedBody(draft: Draft, ref: string): NewBody | undefined {
  const uploaded = draft.facts.uploadedBody?.(ref);
  if (uploaded !== undefined) draft.bodies.push(uploaded);
  return uploaded;
}
