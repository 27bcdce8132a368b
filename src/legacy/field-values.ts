import type { JsonField } from "./json-field.js";

/** An escaped half of a pair. The old system never wrote one, and no exact text has one. */
const LONE_SURROGATE = /\p{Surrogate}/u;
const TIME =
  /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])([01]\d|2[0-3]):([0-5]\d))$/;
/** What the old system writes for a time that was never set. */
const ZERO_TIME = "0001-01-01T00:00:00Z";
const FIRST_TIME_MS = Date.parse(ZERO_TIME);
const LAST_TIME_MS = Date.parse("9999-12-31T23:59:59.999Z");
const MS_PER_MINUTE = 60_000;
const MINUTES_PER_HOUR = 60;
const QUOTE = 0x22;

/** A text, verbatim. Absent is absent, and empty is empty. */
export function textIfThere(field: JsonField): string | undefined {
  const text = field.string();
  if (text !== undefined && LONE_SURROGATE.test(text)) field.fail("must be well-formed Unicode");
  return text;
}

/** A text, verbatim; empty if it is absent, which the old system does not tell apart. */
export function textOf(field: JsonField): string {
  return textIfThere(field) ?? "";
}

/** A text that means something only if it is not empty. */
export function textIfFilled(field: JsonField): string | undefined {
  const text = textIfThere(field);
  return text === "" ? undefined : text;
}

/** A text without which nothing can be made of the value that it is part of. */
export function requiredText(field: JsonField): string {
  return textIfThere(required(field)) ?? "";
}

/** A value that has to be there. */
export function required(field: JsonField): JsonField {
  return field.isAbsent ? field.fail("is required") : field;
}

/** The elements of an array, none of which may be null. */
export function elementsOf(field: JsonField): JsonField[] {
  return field.items().map(required);
}

/** The member under the first of these keys that is there: ways in which writers spelled one key. */
export function firstOf(object: JsonField, ...keys: readonly [string, ...string[]]): JsonField {
  const there = keys.find((key) => !object.get(key).isAbsent);
  return object.get(there ?? keys[0]);
}

export function isText(field: JsonField): boolean {
  return field.bytes()?.[0] === QUOTE;
}

/** Bytes that were written in base64, with padding. Absent if there are none: writers did not tell that from empty. */
export function base64BytesOf(field: JsonField): Uint8Array | undefined {
  const text = field.string();
  if (text === undefined || text === "") return undefined;
  const bytes = Buffer.from(text, "base64");
  // The decoder skips what is no base64, so only bytes that are written the same way are what was meant.
  if (bytes.toString("base64") !== text) field.fail("must be base64");
  return new Uint8Array(bytes);
}

/** A time in milliseconds since the epoch; what is below a millisecond is cut off. Absent if it was never set. */
export function timeMsOf(field: JsonField): number | undefined {
  const text = field.string();
  if (text === undefined || text === ZERO_TIME) return undefined;
  const timeMs = parsedTimeMs(text);
  if (timeMs === undefined) return field.fail("must be a time such as 2026-01-31T12:00:00.5Z");
  const isInRange = timeMs >= FIRST_TIME_MS && timeMs <= LAST_TIME_MS;
  return isInRange ? timeMs : field.fail("must be a time in the years 1 to 9999");
}

function parsedTimeMs(text: string): number | undefined {
  const match = TIME.exec(text);
  if (match === null) return undefined;
  const [, clock = "", fraction = "", sign, hours, minutes] = match;
  const clockMs = Date.parse(`${clock}.${fraction.padEnd(3, "0").slice(0, 3)}Z`);
  // The parser moves a day such as 30 February to the next one that there is.
  const isReal = !Number.isNaN(clockMs) && new Date(clockMs).toISOString().startsWith(clock);
  if (!isReal) return undefined;
  const aheadMs = (Number(hours ?? 0) * MINUTES_PER_HOUR + Number(minutes ?? 0)) * MS_PER_MINUTE;
  return sign === "-" ? clockMs + aheadMs : clockMs - aheadMs;
}
