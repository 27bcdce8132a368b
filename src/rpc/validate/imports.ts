import { LegacySourceFormatSchema, type LegacySource } from "../../../gen/toolmark/v1/legacy_pb.js";
import type {
  ImportSessionRequest,
  LegacySourcePart,
} from "../../../gen/toolmark/v1/session_service_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import type { Limits } from "../../domain/limits.js";
import { refuse, refuseField } from "../../domain/refusal.js";
import {
  checkCount,
  checkCountMax,
  checkEach,
  checkEnum,
  checkId,
  checkRequestId,
  checkSha256,
  checkText,
  type Checked,
  fieldPath,
  OWNER_SUBJECT_BYTES,
  specifiedValues,
} from "./checks.js";

const SOURCE_FORMATS = specifiedValues(LegacySourceFormatSchema);
const PARTS = 16;

export function checkImportSession(request: ImportSessionRequest, limits: Limits): Checked {
  const { sources, parts } = request;
  return (
    checkRequestId(request.requestId) ??
    checkId(request.sessionId, "", "session_id") ??
    checkText(request.ownerSubject, "", "owner_subject", OWNER_SUBJECT_BYTES) ??
    checkCount(sources.length, "", "sources", SOURCE_FORMATS.size) ??
    checkEach(sources, (source, index) => checkSource(source, `sources[${index}]`, limits)) ??
    checkFormats(sources) ??
    checkCountMax(parts.length, "", "parts", PARTS) ??
    checkEach(parts, (part, index) => checkPart(part, `parts[${index}]`, sources))
  );
}

function checkSource(
  { format, sizeBytes, sha256 }: LegacySource,
  at: string,
  limits: Limits,
): Checked {
  return (
    checkEnum(format, at, "format", SOURCE_FORMATS) ??
    checkSha256(sha256, at, "sha256") ??
    (sizeBytes <= BigInt(limits.bodyBytes) ? undefined : refuseLarge(at, limits.bodyBytes))
  );
}

function refuseLarge(at: string, limit: number): Checked {
  const field = fieldPath(at, "size_bytes");
  return refuse(ErrorReason.BODY_TOO_LARGE, `${field} is above ${limit} bytes`, {
    field,
    limit: String(limit),
  });
}

function checkFormats(sources: readonly LegacySource[]): Checked {
  const formats = new Set(sources.map(({ format }) => format));
  return formats.size === sources.length
    ? undefined
    : refuseField("sources", "must be of different formats");
}

function checkPart(
  { format, offsetBytes, data }: LegacySourcePart,
  at: string,
  sources: readonly LegacySource[],
): Checked {
  const source = sources.find((each) => each.format === format);
  if (source === undefined) {
    return refuseField(fieldPath(at, "format"), "must be that of a source");
  }
  return offsetBytes + BigInt(data.length) <= source.sizeBytes
    ? undefined
    : refuseField(fieldPath(at, "data"), "must end within the source");
}
