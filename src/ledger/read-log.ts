import { create } from "@bufbuild/protobuf";
import { EventRecordSchema, type EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { CHAIN_START } from "../domain/chain.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import type { Waiting } from "./batch-context.js";
import { followsChain, openPayload, refuseDamaged } from "./event-codec.js";
import type { EventRow, SessionRef, Store } from "./store-port.js";

const PAGE_EVENTS = 500;
const PAGE_BYTES = 4 * 1024 * 1024;

/** An event of a log, checked. */
export interface LoggedEvent {
  readonly row: EventRow;
  readonly record: EventRecord;
}

/** Which events are wanted: above `after`, up to `through`. */
export interface LogRange {
  readonly after: bigint;
  readonly through: bigint;
}

/** How a long read gives way to others, and ends when nobody waits for it. */
export interface ReadPace {
  /** Gives others their turn, since reads are synchronous. */
  readonly pause: () => Promise<void>;
  readonly waiting: Waiting;
}

/** Events of a session in order, each checked against its commitment and the chain. A refusal is the last item. */
export async function* readLog(
  store: Store,
  session: SessionRef,
  { after, through }: LogRange,
  { pause, waiting }: ReadPace,
): AsyncGenerator<LoggedEvent | Refusal, void, void> {
  let sequence = after;
  let chain = await chainAt(store, session, after);
  while (sequence < through) {
    if (waiting.aborted !== undefined) return yield waiting.aborted;
    const limit = Math.min(Number(through - sequence), PAGE_EVENTS);
    const page = await store.readEvents(session, sequence, limit, PAGE_BYTES);
    if (page.length === 0) return yield refuseDamaged(sequence + 1n);
    for (const row of page) {
      const event = checked(session, { sequence, chain }, row);
      yield event;
      if (isRefusal(event)) return;
      ({ sequence, chain } = row);
    }
    await pause();
  }
}

/** The chain value that the event after `sequence` follows. A missing event gives one that none follows. */
export async function chainAt(
  store: Pick<Store, "readEvent">,
  session: SessionRef,
  sequence: bigint,
): Promise<Uint8Array> {
  if (sequence === 0n) return CHAIN_START;
  return (await store.readEvent(session, sequence))?.chain ?? new Uint8Array();
}

function checked(
  { sessionId }: SessionRef,
  before: Pick<EventRow, "sequence" | "chain">,
  row: EventRow,
): LoggedEvent | Refusal {
  const next = before.sequence + 1n;
  if (row.sequence !== next || !followsChain(sessionId, before.chain, row)) {
    return refuseDamaged(next);
  }
  const payload = openPayload(row);
  if (isRefusal(payload)) return payload;
  return { row, record: payload.record ?? create(EventRecordSchema) };
}
