import type { Compaction } from "../../gen/toolmark/v1/session_pb.js";
import { archivedSummary } from "../domain/archived-summary.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { bringsRecords } from "../domain/session-record.js";
import { inheritedPlace, readBaseState } from "./base-state.js";
import { openPayload, refuseDamaged } from "./event-codec.js";
import type { SessionRow, Store } from "./store-port.js";
import type { TranscriptPlace } from "./transcript-place.js";

/** What the first event of a session brought from elsewhere. */
export interface Brought {
  /** Where the event stands among the entries. Absent if the session began here. */
  readonly origin: TranscriptPlace | undefined;
  /** The text that stands for what a fork's source had archived, behind the last record of that. */
  readonly summary: { readonly place: TranscriptPlace; readonly value: Compaction } | undefined;
}

const FIRST_SEQUENCE = 1n;
const NOTHING: Brought = { origin: undefined, summary: undefined };

/** Reads what a session came with, for a page that begins after a place. */
export async function broughtAfter(
  store: Store,
  row: SessionRow,
  { sequence }: TranscriptPlace,
): Promise<Brought | Refusal> {
  if (sequence >= FIRST_SEQUENCE) return NOTHING;
  const first = await store.readEvent(row, FIRST_SEQUENCE);
  if (first === undefined) return refuseDamaged(FIRST_SEQUENCE);
  const payload = openPayload(first);
  if (isRefusal(payload)) return payload;
  const record = payload.record?.record ?? { case: undefined };
  if (!bringsRecords(record)) return NOTHING;
  const origin = { sequence: FIRST_SEQUENCE, behind: 0n } as const;
  if (record.case !== "forked") return { origin, summary: undefined };
  const base = await readBaseState(store, row, record.value);
  if (isRefusal(base)) return base;
  const value = archivedSummary(base);
  if (value === undefined) return { origin, summary: undefined };
  const last = inheritedPlace(base, record.case, base.archivedRecordCount - 1);
  return { origin, summary: { place: { sequence: last, behind: 1n }, value } };
}
