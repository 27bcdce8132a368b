import type { CompactSessionRequest } from "../../gen/toolmark/v1/session_service_pb.js";
import type { Caller } from "../domain/principal.js";
import { isRefusal, refuseField, type Refusal } from "../domain/refusal.js";
import { TurnSpans } from "../domain/turn-spans.js";
import type { Replies, Waiting } from "./batch-context.js";
import type { Ledger } from "./ledger.js";
import { findVisible } from "./visibility.js";
import { readLog } from "./read-log.js";
import { openSnapshot } from "./snapshot.js";
import type { SessionRow, Store } from "./store-port.js";

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
    const row = await findVisible(this.#store, caller, request.sessionId);
    if (isRefusal(row)) return row;
    const first = await this.#ledger.tryOut(caller, { kind: "compactSession", request }, waiting);
    if (isRefusal(first) || first.length > 0) return first;
    const cut = await this.#cut(row, request.throughSequence, waiting);
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
    const range = { after: await this.#archivedThrough(row), through: head.sequence };
    for await (const event of readLog(this.#store, row, range, { pause: this.#pause, waiting })) {
      if (isRefusal(event)) return event;
      spans.add(event.row.sequence, event.record);
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
