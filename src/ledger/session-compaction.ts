import { create } from "@bufbuild/protobuf";
import { EventRecordSchema } from "../../gen/toolmark/v1/event_pb.js";
import type { CompactSessionRequest } from "../../gen/toolmark/v1/session_service_pb.js";
import type { Caller } from "../domain/principal.js";
import { isRefusal, refuseField, type Refusal } from "../domain/refusal.js";
import { TurnSpans } from "../domain/turn-spans.js";
import type { Replies, Waiting } from "./batch.js";
import { openPayload, refuseDamaged } from "./event-codec.js";
import type { Ledger } from "./ledger.js";
import { findVisible } from "./visibility.js";
import { openSnapshot } from "./snapshot.js";
import type { SessionRow, Store } from "./store-port.js";

const PAGE_EVENTS = 500;
const PAGE_BYTES = 4 * 1024 * 1024;

/**
 * Archives events behind a summary. Where turns end is read from the log before the command is decided: what is looked
 * at does not change any more, and others need not wait.
 */
export class SessionCompaction {
  readonly #ledger: Ledger;
  readonly #store: Store;
  readonly #pause: () => Promise<void>;

  /** `pause` gives others their turn, since reads are synchronous. */
  constructor(ledger: Ledger, store: Store, pause: () => Promise<void>) {
    this.#ledger = ledger;
    this.#store = store;
    this.#pause = pause;
  }

  async compact(
    caller: Caller,
    request: CompactSessionRequest,
    waiting: Waiting,
  ): Promise<Replies | Refusal> {
    const { sessionId, requestId } = request;
    const row = await findVisible(this.#store, caller, sessionId);
    if (isRefusal(row)) return row;
    const [known] = await this.#store.findRequests([{ session: row, requestId }]);
    const cut = known === undefined ? await this.#cut(row, request.throughSequence, waiting) : 0n;
    if (isRefusal(cut)) return cut;
    const mutation = { kind: "compactSession", request, throughSequence: cut } as const;
    return this.#ledger.submit(caller, mutation, waiting);
  }

  /** The last event at or before `through` after which no turn goes on. */
  async #cut(row: SessionRow, through: bigint, waiting: Waiting): Promise<bigint | Refusal> {
    const { head } = row;
    if (through > head.sequence) {
      return refuseField("through_sequence", "must be at most the head of the log");
    }
    const spans = new TurnSpans();
    let sequence = await this.#archivedThrough(row);
    while (sequence < head.sequence) {
      if (waiting.aborted !== undefined) return waiting.aborted;
      const page = await this.#store.readEvents(row, sequence, PAGE_EVENTS, PAGE_BYTES);
      for (const event of page) {
        if (event.sequence !== sequence + 1n) break;
        const payload = openPayload(event);
        if (isRefusal(payload)) return payload;
        spans.add(event.sequence, payload.record ?? create(EventRecordSchema));
        ({ sequence } = event);
      }
      if (page.at(-1)?.sequence !== sequence) return refuseDamaged(sequence + 1n);
      await this.#pause();
    }
    return spans.cutAt(through);
  }

  /** Where an earlier compaction ended, as far as snapshots tell: it splits no turn either. */
  async #archivedThrough(row: SessionRow): Promise<bigint> {
    const [newest] = await this.#store.readSnapshots(row);
    const state = newest === undefined ? undefined : openSnapshot(newest);
    return state?.compactedThrough ?? 0n;
  }
}
