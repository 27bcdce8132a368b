import type { BaseState } from "../../gen/toolmark/v1/base_state_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { Session } from "../../gen/toolmark/v1/session_pb.js";
import { CHAIN_START } from "../domain/chain.js";
import { recordIdOf } from "../domain/record-id.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { bringsRecords, sessionOf } from "../domain/session-record.js";
import { TurnSpans } from "../domain/turn-spans.js";
import { readBaseState } from "./base-state.js";
import { readLog, type ReadPace } from "./read-log.js";
import type { EventRow, SessionRow, Store } from "./store-port.js";

/** A record of a session as of an event. */
export interface CopiedRecord {
  readonly record: EventRecord;
  /** Sequence of its first event, 0 if the session itself is a fork and copied it. */
  readonly first: bigint;
  /** Of a copied one: whether it was archived where it was copied from. */
  readonly isArchived: boolean;
  /** Of its first event. */
  readonly privateCommitment: Uint8Array | undefined;
}

/** A session as it stood after an event. */
export class History {
  /** In the order of their first event. */
  readonly records = new Map<string, CopiedRecord>();
  readonly spans = new TurnSpans();
  session: Session | undefined;
  sequence = 0n;
  chain: Uint8Array = CHAIN_START;
  highWater = 0n;
  /** Of the last event that brought records of an older system, 0 if none did. */
  adoptedSequence = 0n;
  /** What was archived last, and the text that stands for it. -1 if nothing was. */
  archivedThrough = -1n;
  summary = "";

  add(row: EventRow, event: EventRecord): void {
    const { record } = event;
    this.sequence = row.sequence;
    this.chain = row.chain;
    this.highWater = row.revision ?? this.highWater;
    this.spans.add(row.sequence, event);
    this.session = sessionOf(record) ?? this.session;
    if (record.case === "forked") this.highWater = record.value.highWater;
    if (record.case === "adopted") this.adoptedSequence = row.sequence;
    if (record.case === "compaction") {
      this.archivedThrough = record.value.throughSequence;
      this.summary = record.value.summary;
    }
    const id = recordIdOf(record);
    if (id === undefined || bringsRecords(record)) return;
    const known = this.records.get(id);
    const { privateCommitment } = known ?? row;
    const first = known?.first ?? row.sequence;
    this.records.set(id, { record: event, first, isArchived: false, privateCommitment });
  }

  /** Begins with records that have no events here. */
  inherit(base: BaseState): void {
    this.summary = base.summary;
    for (const [index, { record, privateCommitment }] of base.records.entries()) {
      const id = recordIdOf(record?.record ?? { case: undefined });
      if (record === undefined || id === undefined) continue;
      this.records.set(id, {
        record,
        first: 0n,
        isArchived: index < base.archivedRecordCount,
        privateCommitment: privateCommitment.length === 0 ? undefined : privateCommitment,
      });
    }
  }
}

/** A session as it stood after `through`, every event checked. */
export async function readHistory(
  store: Store,
  row: SessionRow,
  through: bigint,
  pace: ReadPace,
): Promise<History | Refusal> {
  const history = new History();
  for await (const event of readLog(store, row, { after: 0n, through }, pace)) {
    if (isRefusal(event)) return event;
    history.add(event.row, event.record);
    const { record } = event.record;
    if (!bringsRecords(record)) continue;
    const base = await readBaseState(store, row, record.value);
    if (isRefusal(base)) return base;
    history.inherit(base);
  }
  return history;
}
