import type { DelegationStep } from "../../gen/toolmark/v1/ask_pb.js";
import type { Refusal } from "../domain/refusal.js";
import { isRefusal } from "../domain/refusal.js";
import type { SessionRow } from "../ledger/store-port.js";
import type { EventPlace } from "./event-cursor.js";
import type { CheckedEvent } from "./recent-events.js";
import { SessionTail, type TailSource } from "./session-tail.js";

/** An event of a feed. */
export interface FedEvent {
  readonly checked: CheckedEvent;
  /** Where a feed stands that has given everything up to this event. */
  readonly place: EventPlace;
  /** The delegating calls from the root session to that of the event. */
  readonly delegationPath: readonly DelegationStep[];
  /** Whether an older copy of the log was restored just before it. */
  readonly isAfterRestore: boolean;
}

/** Committed events in the order of their positions. */
export interface EventFeed {
  /** The next one, undefined if there is none yet, or why there can be none. */
  next(): Promise<FedEvent | Refusal | undefined>;
  /** Tells the feed that something was committed to a session. */
  noteCommit(sessionId: string): void;
}

/** The events of one session. */
export class SessionFeed implements EventFeed {
  readonly #tail: SessionTail;
  readonly #delegationPath: readonly DelegationStep[];

  private constructor(tail: SessionTail, delegationPath: readonly DelegationStep[]) {
    this.#tail = tail;
    this.#delegationPath = delegationPath;
  }

  static async after(
    source: TailSource,
    session: SessionRow,
    { sequence }: EventPlace,
    delegationPath: readonly DelegationStep[],
  ): Promise<SessionFeed> {
    return new SessionFeed(await SessionTail.after(source, session, sequence), delegationPath);
  }

  async next(): Promise<FedEvent | Refusal | undefined> {
    const checked = await this.#tail.next();
    if (checked === undefined || isRefusal(checked)) return checked;
    const { position, sequence } = checked.event;
    const { isAfterRestore } = this.#tail;
    const delegationPath = this.#delegationPath;
    return { checked, place: { position, sequence }, delegationPath, isAfterRestore };
  }

  noteCommit(): void {
    // There is nothing to remember: the next read sees it.
  }
}
