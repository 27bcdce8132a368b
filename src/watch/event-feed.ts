import type { DelegationStep } from "../../gen/toolmark/v1/ask_pb.js";
import type { Refusal } from "../domain/refusal.js";
import { isRefusal } from "../domain/refusal.js";
import type { SessionRow } from "../ledger/store-port.js";
import type { CheckedEvent } from "./checked-event.js";
import type { EventPlace } from "./event-cursor.js";
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

/** What a feed says: the next event, undefined if there is none yet, or why there can be none. */
export type Fed = FedEvent | Refusal | undefined;

/** Committed events in the order of their positions. */
export interface EventFeed {
  /** At once if the answer is at hand: most are, and waiting costs more than giving them. */
  next(): Fed | Promise<Fed>;
  /** What `next()` would give at once, if anything is at hand. Nothing is read for it. */
  ahead(): Fed;
  /** Whether there is nothing to give until something is committed. */
  readonly isQuiet: boolean;
  /** Tells the feed that something was committed to a session, up to a sequence, or may have been. */
  noteCommit(sessionId: string, sequence: bigint): void;
}

/** The events of one session. */
export class SessionFeed implements EventFeed {
  readonly #tail: SessionTail;
  readonly #delegationPath: readonly DelegationStep[];
  /** Highest sequence that is known to be committed, or that may be. */
  #noted = 0n;
  #isCaughtUp = false;
  /** How often a commit was noted. */
  #notes = 0;

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

  next(): Fed | Promise<Fed> {
    return this.ahead() ?? (this.isQuiet ? undefined : this.#read());
  }

  ahead(): Fed {
    return this.isQuiet ? undefined : this.#fed(this.#tail.nextAhead());
  }

  get isQuiet(): boolean {
    return this.#isCaughtUp && this.#tail.sequence >= this.#noted;
  }

  noteCommit(_sessionId: string, sequence: bigint): void {
    this.#notes += 1;
    if (sequence > this.#noted) this.#noted = sequence;
  }

  async #read(): Promise<Fed> {
    const notesBefore = this.#notes;
    const checked = await this.#tail.next();
    // Everything committed from now on is noted, so that nothing has to be read to know that there is nothing.
    if (checked === undefined) {
      this.#isCaughtUp = true;
      // What was noted before the read and is not there was not committed: it would be looked for without end.
      if (this.#notes === notesBefore) this.#noted = this.#tail.sequence;
    }
    return this.#fed(checked);
  }

  #fed(checked: CheckedEvent | Refusal | undefined): Fed {
    if (checked === undefined || isRefusal(checked)) return checked;
    const { position, sequence } = checked.row;
    const { isAfterRestore } = this.#tail;
    const delegationPath = this.#delegationPath;
    return { checked, place: { position, sequence }, delegationPath, isAfterRestore };
  }
}
