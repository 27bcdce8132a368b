import { decodeEvent } from "./decode-event.js";
import { decodeEmbedded } from "./embedded.js";
import { required, requiredText, textOf } from "./field-values.js";
import { JsonField } from "./json-field.js";
import { isMalformed, MalformedError, orMalformed, type Malformed } from "./malformed.js";
import type { OldEvent, OldGap, OldLog, OldLogRecord } from "./old-session.js";
import { refuseByteOrderMark, sourceText } from "./source-text.js";

const DRIVER_ENVELOPE = "eventlog-json/1";
const GENERATION = /^[0-9a-f]{16}$/;
const LINE_FEED = 0x0a;

const CUT_OFF: OldGap = { kind: "gap", reason: "the last line is cut off" };

/** A line of a log, without its end. */
interface Line {
  /** From 1. */
  readonly number: number;
  readonly bytes: Uint8Array;
  /** Bytes of the log before it. */
  readonly offsetBytes: number;
  readonly hasEnd: boolean;
}

/** What names a log as a whole. */
interface Generation {
  readonly kind: "generation";
  readonly generation: string;
}

/**
 * Reads an event log of any generation. Each line has the form of the file store, of Redis or of a driver, or is an
 * event on its own. A log is read whole or not at all, but for a last line that a crash cut off.
 */
export function decodeLog(bytes: Uint8Array): OldLog | Malformed {
  return orMalformed(() => {
    refuseByteOrderMark(bytes, "line 1: $", 0);
    let generation: string | undefined;
    const records: OldLogRecord[] = [];
    for (const line of linesOf(bytes)) {
      const entry = decodeLine(line);
      if (entry.kind === "generation") ({ generation } = entry);
      else records.push({ line: line.number, entry });
    }
    return { generation, records };
  });
}

function* linesOf(bytes: Uint8Array): Generator<Line> {
  let offsetBytes = 0;
  for (let number = 1; offsetBytes < bytes.length; number += 1) {
    const end = bytes.indexOf(LINE_FEED, offsetBytes);
    const hasEnd = end >= 0;
    const line = bytes.subarray(offsetBytes, hasEnd ? end : bytes.length);
    yield { number, bytes: line, offsetBytes, hasEnd };
    offsetBytes += line.length + 1;
  }
}

function decodeLine(line: Line): OldEvent | OldGap | Generation {
  const { number, bytes, offsetBytes, hasEnd } = line;
  const path = `line ${number}: $`;
  const root = orMalformed(() =>
    JsonField.parse(sourceText(bytes, path, offsetBytes), path, offsetBytes),
  );
  if (!isMalformed(root)) return decodeEntry(root, number);
  if (hasEnd) throw new MalformedError(root);
  return CUT_OFF;
}

function decodeEntry(root: JsonField, lineNumber: number): OldEvent | OldGap | Generation {
  const format = root.get("format");
  if (!format.isAbsent) {
    if (format.string() !== DRIVER_ENVELOPE) format.fail("is not a format that can be read");
    return decodeEmbedded(root.get("payload"), decodeEvent);
  }
  const version = root.get("v");
  if (version.isAbsent) return decodeEvent(root);
  switch (version.string()) {
    case "eventlog-gen/1":
      if (lineNumber !== 1) version.fail("is of the first line only");
      return decodeGeneration(root.get("g"));
    case "eventlog-gap/1":
    case "redisstore-eventlog-gap/1":
      return decodeGap(root);
    case "redisstore-eventlog/1":
      if (root.get("ev").isAbsent && !root.get("r").isAbsent) return decodeGap(root);
      return decodeEvent(required(root.get("ev")));
    case "eventlog-json/1":
      return decodeEvent(required(root.get("ev")));
    default:
      return version.fail("is not a version that can be read");
  }
}

function decodeGap(record: JsonField): OldGap {
  return { kind: "gap", reason: textOf(record.get("r")) };
}

function decodeGeneration(field: JsonField): Generation {
  const generation = requiredText(field);
  if (!GENERATION.test(generation)) field.fail("must be 16 hexadecimal characters");
  return { kind: "generation", generation };
}
