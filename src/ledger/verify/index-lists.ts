import { FIRST_RECORD } from "../page-token.js";
import {
  RecordFamily,
  type AskPlace,
  type DueRecord,
  type RecordPlace,
  type SessionRow,
  type SessionRows,
} from "../store-port.js";
import { digestText, type ExpectedRecord } from "./expected-rows.js";
import type { RowFault, RowList } from "./listed-rows.js";
import type { SessionLog } from "./session-log.js";

/** The index of records, one list for each family. */
export function recordLists(
  rows: SessionRows,
  session: SessionRow,
  log: SessionLog,
): RowList<RecordPlace, bigint>[] {
  return Object.values(RecordFamily).map((family) => recordList(rows, session, log, family));
}

function recordList(
  rows: SessionRows,
  session: SessionRow,
  { expected: { records } }: SessionLog,
  family: RecordFamily,
): RowList<RecordPlace, bigint> {
  return {
    table: "records",
    start: FIRST_RECORD,
    list: (afterFirstSequence, limit) =>
      rows.listRecordPlaces(session, { family, afterFirstSequence, limit }),
    placeOf: ({ firstSequence }) => firstSequence,
    check: (place) => {
      const key = place.recordId;
      const expected = records.get(key);
      if (expected === undefined) return { key, fault: "is of a record that no event has" };
      expected.isListed = true;
      if (isSamePlace(place, expected)) return undefined;
      const fault = difference(placeFields(place), placeFields(expected));
      return rowFault(key, expected.lastSequence, fault);
    },
    missing: (sequence) =>
      missingRecord(records, sequence, (record) => record.isListed || record.family !== family),
  };
}

function isSamePlace(place: RecordPlace, expected: ExpectedRecord): boolean {
  return (
    place.family === expected.family &&
    place.toolCallId === expected.toolCallId &&
    place.firstSequence === expected.firstSequence &&
    place.lastSequence === expected.lastSequence &&
    digestText(place.lastChain) === expected.lastChain
  );
}

function placeFields(place: Omit<RecordPlace, "lastChain"> & { lastChain: Uint8Array | string }) {
  const { family, toolCallId, firstSequence, lastSequence, lastChain } = place;
  const chain = typeof lastChain === "string" ? lastChain : digestText(lastChain);
  return { family, toolCallId, firstSequence, lastSequence, lastChain: chain };
}

/** The inbox. */
export function askList(
  rows: SessionRows,
  session: SessionRow,
  { expected: { records } }: SessionLog,
): RowList<AskPlace, string> {
  return {
    table: "asks",
    start: "",
    list: (after, limit) => rows.listAskPlaces(session, after, limit),
    placeOf: ({ askId }) => askId,
    check: (place) => {
      const key = place.askId;
      const expected = records.get(key);
      if (expected?.ask === undefined) return { key, fault: "is of an ask that no event has" };
      expected.isAskListed = true;
      const fault = difference(askFields(place), expectedAsk(session, expected));
      return rowFault(key, expected.lastSequence, fault);
    },
    missing: (sequence) =>
      missingRecord(records, sequence, ({ ask, isAskListed }) => ask === undefined || isAskListed),
  };
}

function askFields(place: AskPlace) {
  const { askId: _, lastChain, ...fields } = place;
  return { ...fields, lastChain: digestText(lastChain) };
}

type AskFields = ReturnType<typeof askFields>;

function expectedAsk(session: SessionRow, expected: ExpectedRecord): Partial<AskFields> {
  const { tenant, sessionId, ownerSubject, createdBySubject, rootSessionId } = session;
  const { toolCallId, firstPosition, lastPosition, lastChain, ask } = expected;
  const place = { position: firstPosition, lastPosition, lastChain };
  const owned = { tenant, sessionId, ownerSubject, createdBySubject, rootSessionId };
  return { ...owned, ...place, ...ask, ...(toolCallId === undefined ? {} : { toolCallId }) };
}

/** What waits for a time. */
export function deadlineList(
  rows: SessionRows,
  session: SessionRow,
  { expected: { deadlines } }: SessionLog,
): RowList<DueRecord, string> {
  return {
    table: "deadlines",
    start: "",
    list: (after, limit) => rows.listDeadlines(session, after, limit),
    placeOf: ({ recordId }) => recordId,
    check: (due) => {
      const key = due.recordId;
      const expected = deadlines.get(key);
      if (expected === undefined) return { key, fault: "is of a record that does not wait" };
      expected.isListed = true;
      const { timeMs, position, setTimeMs, sequence } = expected;
      const found = { timeMs: due.timeMs, position: due.position, setTimeMs: due.setTimeMs };
      return rowFault(key, sequence, difference(found, { timeMs, position, setTimeMs }));
    },
    missing: (until) => {
      for (const [key, { isListed, sequence }] of deadlines) {
        if (!isListed && sequence <= until) return { key, sequence, fault: "is missing" };
      }
      return undefined;
    },
  };
}

function missingRecord(
  records: ReadonlyMap<string, ExpectedRecord>,
  until: bigint,
  isListed: (record: ExpectedRecord) => boolean,
): RowFault | undefined {
  for (const [key, record] of records) {
    if (isListed(record) || record.firstSequence > until) continue;
    return { key, sequence: record.lastSequence, fault: "is missing" };
  }
  return undefined;
}

function rowFault(key: string, sequence: bigint, fault: string | undefined): RowFault | undefined {
  return fault === undefined ? undefined : { key, sequence, fault };
}

/** Says which field is the first that is not as expected. */
export function difference<Fields extends object>(
  found: Fields,
  expected: Partial<Fields>,
): string | undefined {
  for (const name of Object.keys(found) as (keyof Fields & string)[]) {
    if (found[name] !== expected[name]) {
      return `has another ${FIELD_NAMES[name] ?? name} than the events say`;
    }
  }
  return undefined;
}

/** How columns are named to people, where it is not their own name. */
const FIELD_NAMES: Readonly<Record<string, string>> = {
  toolCallId: "call",
  firstSequence: "first sequence",
  lastSequence: "last sequence",
  lastChain: "last chain value",
  toolName: "tool name",
  createTimeMs: "time of creation",
  expireTimeMs: "time of expiry",
  lastPosition: "last position",
  timeMs: "time",
  ownerSubject: "owner",
  createdBySubject: "creator",
  parentSessionId: "parent",
  rootSessionId: "root",
  createPosition: "position of creation",
  sessionSequence: "sequence of the session's record",
  activeRunId: "active run",
  updateTimeMs: "time of the last update",
};
