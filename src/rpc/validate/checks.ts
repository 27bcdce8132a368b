/// <reference lib="es2024.string" />
import type { DescEnum } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";

import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import type { Limits } from "../../domain/limits.js";
import { refuse, refuseField, type Refusal } from "../../domain/refusal.js";

/**
 * Checks of single fields. Each takes the value, the path of the message that holds the field (empty for the request
 * itself) and the field's proto name; the whole path is put together only for a refusal.
 */
export type Checked = Refusal | undefined;

/** The check of one kind of command; `at` is the command's path in the request. */
export type CommandCheck<T> = (command: T, at: string, limits: Limits) => Checked;

export const ID_BYTES = 512;
export const SHA256_BYTES = 32;
export const PAGE_TOKEN_BYTES = 4096;
export const REASON_BYTES = 4096;
export const OWNER_SUBJECT_BYTES = 256;
/** From the beginning of the year 1 to the end of the year 9999, which is all that a Timestamp may say. */
const TIMESTAMP_SECONDS_MIN = -62_135_596_800n;
const TIMESTAMP_SECONDS_MAX = 253_402_300_799n;
const NANOS_MAX = 999_999_999;

const MAX_UTF8_BYTES_PER_UNIT = 3;
const CONTROL_CHARACTER = /\p{Cc}/u;
const REQUEST_ID = /^[\x20-\x7e]{1,128}$/;

export function fieldPath(at: string, name: string): string {
  return at === "" ? name : `${at}.${name}`;
}

function exceedsBytes(value: string, maxBytes: number): boolean {
  if (value.length > maxBytes) return true;
  if (value.length * MAX_UTF8_BYTES_PER_UNIT <= maxBytes) return false;
  return Buffer.byteLength(value, "utf8") > maxBytes;
}

/** An id of any kind. Ids are opaque: nothing but size and control characters is looked at. */
export function checkId(value: string, at: string, name: string): Checked {
  if (!value.isWellFormed()) return refuseField(fieldPath(at, name), "must be well-formed Unicode");
  if (value === "") return refuseField(fieldPath(at, name), "is required");
  if (exceedsBytes(value, ID_BYTES)) {
    return refuseField(fieldPath(at, name), `must be at most ${ID_BYTES} bytes`);
  }
  if (CONTROL_CHARACTER.test(value)) {
    return refuseField(fieldPath(at, name), "must not have control characters");
  }
  return undefined;
}

/** An optional id: absent, or valid. Given but empty is malformed. */
export function checkOptionalId(value: string | undefined, at: string, name: string): Checked {
  return value === undefined ? undefined : checkId(value, at, name);
}

/** An id without presence, where empty means none. */
export function checkIdOrEmpty(value: string, at: string, name: string): Checked {
  return value === "" ? undefined : checkId(value, at, name);
}

export function checkRequestId(value: string): Checked {
  if (REQUEST_ID.test(value)) return undefined;
  return refuseField("request_id", "must be 1 to 128 printable ASCII characters");
}

/** Text that may be empty. */
export function checkText(value: string, at: string, name: string, maxBytes: number): Checked {
  if (!value.isWellFormed()) return refuseField(fieldPath(at, name), "must be well-formed Unicode");
  if (exceedsBytes(value, maxBytes)) {
    return refuseField(fieldPath(at, name), `must be at most ${maxBytes} bytes`);
  }
  return undefined;
}

export function checkOptionalText(
  value: string | undefined,
  at: string,
  name: string,
  maxBytes: number,
): Checked {
  return value === undefined ? undefined : checkText(value, at, name, maxBytes);
}

export function checkRequiredText(
  value: string,
  at: string,
  name: string,
  maxBytes: number,
): Checked {
  if (value === "") return refuseField(fieldPath(at, name), "is required");
  return checkText(value, at, name, maxBytes);
}

/** The values of an enum that a request may carry: all declared ones but the unspecified. */
export function specifiedValues(desc: DescEnum): ReadonlySet<number> {
  return new Set(desc.values.map((value) => value.number).filter((number) => number !== 0));
}

/** Unspecified and unknown numbers are outside `allowed`, and so refused. */
export function checkEnum(
  value: number,
  at: string,
  name: string,
  allowed: ReadonlySet<number>,
): Checked {
  if (allowed.has(value)) return undefined;
  const rule = value === 0 ? "is required" : "must be one of the values allowed here";
  return refuseField(fieldPath(at, name), rule);
}

export function checkSha256(value: Uint8Array, at: string, name: string): Checked {
  if (value.length === SHA256_BYTES) return undefined;
  return refuseField(fieldPath(at, name), `must be ${SHA256_BYTES} bytes`);
}

export function checkOptionalTimestamp(
  value: Timestamp | undefined,
  at: string,
  name: string,
): Checked {
  if (value === undefined) return undefined;
  const { seconds, nanos } = value;
  if (seconds < TIMESTAMP_SECONDS_MIN || seconds > TIMESTAMP_SECONDS_MAX) {
    return refuseField(fieldPath(at, name), "must be in the years 1 to 9999");
  }
  if (nanos >= 0 && nanos <= NANOS_MAX) return undefined;
  return refuseField(fieldPath(at, name), `must have 0 to ${NANOS_MAX} nanos`);
}

export function checkPageToken(value: string): Checked {
  return checkText(value, "", "page_token", PAGE_TOKEN_BYTES);
}

/** A count that the server's limits bound, at least one. */
export function checkCount(count: number, at: string, name: string, limit: number): Checked {
  if (count === 0) return refuseField(fieldPath(at, name), "must have at least one entry");
  return checkCountMax(count, at, name, limit);
}

/** As `checkCount` for a list that may be empty. */
export function checkCountMax(count: number, at: string, name: string, limit: number): Checked {
  if (count <= limit) return undefined;
  const field = fieldPath(at, name);
  return refuse(ErrorReason.QUOTA_EXCEEDED, `${field} has more than ${limit} entries`, {
    field,
    limit: String(limit),
  });
}

/** The first refusal among the entries of a list. */
export function checkEach<Entry>(
  entries: readonly Entry[],
  check: (entry: Entry, index: number) => Checked,
): Checked {
  for (const [index, entry] of entries.entries()) {
    const refusal = check(entry, index);
    if (refusal !== undefined) return refusal;
  }
  return undefined;
}

/** Ids of a list in which each comes once; `listed` may be shared by lists that have no id in common. */
export function checkListedOnce(
  ids: readonly string[],
  at: string,
  name: string,
  listed = new Set<string>(),
): Checked {
  return checkEach(ids, (id, index) => {
    const entry = `${name}[${index}]`;
    if (listed.has(id)) return refuseField(fieldPath(at, entry), "must not be listed twice");
    listed.add(id);
    return checkId(id, at, entry);
  });
}
