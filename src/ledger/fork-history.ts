import { create } from "@bufbuild/protobuf";
import { EventRecordSchema, type EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { Forked, Session } from "../../gen/toolmark/v1/session_pb.js";
import { CHAIN_START } from "../domain/chain.js";
import { recordIdOf } from "../domain/record-id.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { TurnSpans } from "../domain/turn-spans.js";
import { readBaseState } from "./base-state.js";
import type { Waiting } from "./batch.js";
import { followsChain, openPayload, refuseDamaged } from "./event-codec.js";
import type { EventRow, SessionRow, Store } from "./store-port.js";

const PAGE_EVENTS = 500;
const PAGE_BYTES = 4 * 1024 * 1024;

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
  /** What was archived last, and the text that stands for it. -1 if nothing was. */
  archivedThrough = -1n;
  summary = "";

  add(row: EventRow, event: EventRecord): void {
    const { record } = event;
    this.sequence = row.sequence;
    this.chain = row.chain;
    this.highWater = row.revision ?? this.highWater;
    this.spans.add(row.sequence, event);
    if (record.case === "session") this.session = record.value;
    if (record.case === "compaction") {
      this.archivedThrough = record.value.throughSequence;
      this.summary = record.value.summary;
    }
    const id = recordIdOf(record);
    if (id === undefined || record.case === "forked") return;
    const known = this.records.get(id);
    const { privateCommitment } = known ?? row;
    const first = known?.first ?? row.sequence;
    this.records.set(id, { record: event, first, isArchived: false, privateCommitment });
  }

  /** Begins with what the session copied itself. */
  inherit(forked: Forked, base: Inherited): void {
    this.session = forked.session;
    this.highWater = forked.highWater;
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

type Inherited = Exclude<Awaited<ReturnType<typeof readBaseState>>, Refusal>;

export interface HistoryPace {
  /** Gives others their turn. */
  readonly pause: () => Promise<void>;
  readonly waiting: Waiting;
}

/** A session as it stood after `through`, every event checked. */
export async function readHistory(
  store: Store,
  row: SessionRow,
  through: bigint,
  { pause, waiting }: HistoryPace,
): Promise<History | Refusal> {
  const history = new History();
  while (history.sequence < through) {
    if (waiting.aborted !== undefined) return waiting.aborted;
    const left = through - history.sequence;
    const limit = left < BigInt(PAGE_EVENTS) ? Number(left) : PAGE_EVENTS;
    const page = await store.readEvents(row, history.sequence, limit, PAGE_BYTES);
    if (page.length === 0) return refuseDamaged(history.sequence + 1n);
    for (const event of page) {
      const refused = await take(store, row, history, event);
      if (refused !== undefined) return refused;
    }
    await pause();
  }
  return history;
}

async function take(
  store: Store,
  row: SessionRow,
  history: History,
  event: EventRow,
): Promise<Refusal | undefined> {
  const next = history.sequence + 1n;
  const follows = followsChain(row.sessionId, history.chain, event);
  if (event.sequence !== next || !follows) return refuseDamaged(next);
  const payload = openPayload(event);
  if (isRefusal(payload)) return payload;
  const record = payload.record ?? create(EventRecordSchema);
  history.add(event, record);
  if (record.record.case !== "forked") return undefined;
  const base = await readBaseState(store, row, record.record.value);
  if (isRefusal(base)) return base;
  history.inherit(record.record.value, base);
  return undefined;
}
