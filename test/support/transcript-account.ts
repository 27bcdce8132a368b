import { create, toJsonString } from "@bufbuild/protobuf";
import type { BaseState } from "../../gen/toolmark/v1/base_state_pb.js";
import { EventRecordSchema, type Event, type EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { TranscriptCall, TranscriptEntry } from "../../gen/toolmark/v1/history_service_pb.js";
import { CompactionSchema } from "../../gen/toolmark/v1/session_pb.js";
import { mapBodies } from "../../src/domain/record-bodies.js";
import { recordIdOf, toolCallIdOf } from "../../src/domain/record-id.js";
import { bringsRecords } from "../../src/domain/session-record.js";

type AnyRecord = EventRecord["record"];

/** An entry as it can be told from a log: where it stands, and every record in it as text, the own one first. */
export interface Account {
  readonly sequence: bigint;
  readonly archived: boolean;
  readonly records: readonly string[];
}

/** Where pages come from. */
export type ReadPage = (
  pageToken: string,
) => Promise<{ readonly entries: readonly TranscriptEntry[]; readonly nextPageToken: string }>;

/** Every entry of a transcript, page by page. */
export async function allEntries(read: ReadPage): Promise<TranscriptEntry[]> {
  const all: TranscriptEntry[] = [];
  let pageToken = "";
  do {
    const page = await read(pageToken);
    all.push(...page.entries);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return all;
}

function plain(record: AnyRecord): string {
  const bare = mapBodies(record, ({ data: _, ...body }) => body);
  return toJsonString(EventRecordSchema, create(EventRecordSchema, { record: bare }));
}

/** What a transcript tells, whether a body is in place or not. */
export function accountOf(entries: readonly TranscriptEntry[]): Account[] {
  return entries.map(({ sequence, archived, entry }) => ({
    ...{ sequence, archived, records: recordsIn(entry) },
  }));
}

function recordsIn(entry: TranscriptEntry["entry"]): string[] {
  if (entry.case === "call") return recordsOfCall(entry.value);
  if (entry.case === "origin") return [`origin ${entry.value.sessionId}`];
  return [entry.case === undefined ? "nothing" : plain(entry)];
}

function recordsOfCall(call: TranscriptCall): string[] {
  const told: AnyRecord[] = [];
  if (call.toolCall !== undefined) told.push({ case: "toolCall", value: call.toolCall });
  for (const value of call.hooks) told.push({ case: "hook", value });
  for (const value of call.asks) told.push({ case: "ask", value });
  for (const value of call.receipts) told.push({ case: "receipt", value });
  for (const value of call.authorizations) told.push({ case: "authorization", value });
  for (const value of call.legacyEvidence) told.push({ case: "legacyEvidence", value });
  return told.map(plain);
}

const INSIDE = ["hook", "ask", "receipt", "authorization", "legacyEvidence"] as const;
const ALONE: readonly AnyRecord["case"][] = [
  "run",
  "message",
  "toolCall",
  "hook",
  "legacyEvidence",
];

interface Logged {
  readonly first: bigint;
  readonly isArchived: boolean;
  readonly record: AnyRecord;
}

/** What the transcript of a session has to tell, by its whole log and what its first event brought. */
export function accountByLog(events: readonly Event[], base?: BaseState): Account[] {
  const compactions = events.flatMap(({ sequence, record }) =>
    record?.record.case === "compaction" ? [{ sequence, record: record.record }] : [],
  );
  const through = compactions.at(-1)?.record.value.throughSequence ?? 0n;
  const logged = loggedRecords(events, base);
  const known = new Set(logged.keys());
  const accounts: Account[] = [];
  const tell = (first: bigint, isArchived: boolean, records: readonly string[]): void => {
    accounts.push({ sequence: first, archived: isArchived || first <= through, records });
  };
  const tellRecord = ({ first, isArchived, record }: Logged): void => {
    if (!ALONE.includes(record.case) || known.has(toolCallIdOf(record) ?? "")) return;
    tell(first, isArchived, [plain(record), ...insideOf(record, logged)]);
  };
  const brought = [...logged.values()].slice(0, base?.records.length ?? 0);
  for (const [index, each] of brought.entries()) {
    tellRecord(each);
    const isLast = base !== undefined && index === base.archivedRecordCount - 1;
    const summary = create(CompactionSchema, { summary: base?.summary ?? "" });
    if (isLast) tell(1n, false, [plain({ case: "compaction", value: summary })]);
  }
  const own = [...logged.values()].slice(brought.length);
  for (const event of events) {
    const record = event.record?.record ?? { case: undefined };
    if (event.sequence === 1n && bringsRecords(record)) {
      tell(1n, false, [`origin ${event.sessionId}`]);
    }
    if (record.case === "compaction") tell(event.sequence, false, [plain(record)]);
    for (const each of own) if (each.first === event.sequence) tellRecord(each);
  }
  return accounts;
}

function insideOf(record: AnyRecord, logged: ReadonlyMap<string, Logged>): string[] {
  if (record.case !== "toolCall") return [];
  const { toolCallId } = record.value;
  return INSIDE.flatMap((family) =>
    [...logged.values()].flatMap((each) => {
      const isInside = each.record.case === family && toolCallIdOf(each.record) === toolCallId;
      return isInside ? [plain(each.record)] : [];
    }),
  );
}

/** The last state of each record, in the order of their first; those that a base state brought before all. */
function loggedRecords(events: readonly Event[], base?: BaseState): Map<string, Logged> {
  const logged = new Map<string, Logged>();
  for (const [index, { record }] of base?.records.entries() ?? []) {
    const of = record?.record ?? { case: undefined };
    const isArchived = index < (base?.archivedRecordCount ?? 0);
    logged.set(recordIdOf(of) ?? "", { first: 1n, isArchived, record: of });
  }
  for (const { sequence, record } of events) {
    const of = record?.record ?? { case: undefined };
    const id = recordIdOf(of);
    if (id === undefined || of.case === "session" || bringsRecords(of)) continue;
    const { first, isArchived } = logged.get(id) ?? { first: sequence, isArchived: false };
    logged.set(id, { first, isArchived, record: of });
  }
  return logged;
}
