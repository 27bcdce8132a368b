import { CHAIN_START } from "../domain/chain.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { checkedPayload, followsChain, refuseDamaged } from "../ledger/event-codec.js";
import { generationOf } from "../ledger/load-session.js";
import { chainAt } from "../ledger/read-log.js";
import type { EventRow, SessionRef, SessionRow, Store } from "../ledger/store-port.js";
import { CheckedEvent } from "./checked-event.js";
import type { RecentEvents } from "./recent-events.js";
import type { Turns } from "./turns.js";

/** What tails of all sessions read from. */
export interface TailSource {
  readonly store: Store;
  readonly recent: RecentEvents;
  readonly turns: Turns;
  /** Whether nobody waits any more, so that nothing is to be read. */
  readonly isLeft: () => boolean;
}

/** How much one read may bring. A watcher that is slow to take it up keeps no more than that. */
const PAGE_EVENTS = 32;
const PAGE_BYTES = 128 * 1024;
const SHARED_OF_PAGE = 8;
const NO_ROWS: readonly EventRow[] = [];
/** Messages have no revision, so that many events in a row may have none. */
const LOOK_BACK_EVENTS = 1024n;
const LOOK_BACK_PER_TURN = 16n;

/** Where a tail begins. */
interface TailStart {
  readonly sequence: bigint;
  readonly chain: Uint8Array;
  /** Log generation of the last revision up to there. Absent if there is none, or no log was ever restored. */
  readonly generation: bigint | undefined;
}

/** The events of one session from a place on, each checked before it is given. */
export class SessionTail {
  readonly #source: TailSource;
  readonly #session: SessionRef;
  /** Sequence of an event that there is at least. */
  readonly #leastSequence: bigint;
  #sequence: bigint;
  #chain: Uint8Array;
  #generation: bigint | undefined;
  #isAfterRestore = false;
  #page = NO_ROWS;
  #taken = 0;

  private constructor(source: TailSource, session: SessionRow, start: TailStart) {
    this.#source = source;
    const { tenant, sessionId, head } = session;
    // Not the row, which would be kept as long as the watch.
    this.#session = { tenant, sessionId };
    this.#leastSequence = head.sequence;
    this.#sequence = start.sequence;
    this.#chain = start.chain;
    this.#generation = start.generation;
  }

  /** The events of a session, whose row was just read, after one of them. */
  static async after(
    source: TailSource,
    session: SessionRow,
    sequence: bigint,
  ): Promise<SessionTail> {
    const chain = sequence === 0n ? CHAIN_START : await chainAt(source.store, session, sequence);
    const generation = await lastGeneration(source, session, sequence);
    return new SessionTail(source, session, { sequence, chain, generation });
  }

  /** Whether an older copy of the log was restored between the event that was given last and the one before. */
  get isAfterRestore(): boolean {
    return this.#isAfterRestore;
  }

  /** Sequence of the event that was given last. */
  get sequence(): bigint {
    return this.#sequence;
  }

  /** The next event if it is at hand: of those that were read ahead, or that others have read. */
  nextAhead(): CheckedEvent | Refusal | undefined {
    const row = this.#page[this.#taken];
    if (row !== undefined) return this.#open(row);
    const known = this.#source.recent.find(this.#session, this.#sequence + 1n, this.#chain);
    return known && this.#advance(known);
  }

  /** The next committed event, or undefined if there is none yet. `limit` bounds what is read ahead. */
  async next(limit = PAGE_EVENTS): Promise<CheckedEvent | Refusal | undefined> {
    const ahead = this.nextAhead();
    if (ahead !== undefined) return ahead;
    const { turns, isLeft } = this.#source;
    await turns.next();
    // The store may be closed by now.
    if (isLeft()) return undefined;
    const readByOthers = this.nextAhead();
    if (readByOthers !== undefined) return readByOthers;
    await this.#read(limit);
    const first = this.#page[0];
    if (first !== undefined) return this.#open(first);
    const isWhole = this.#sequence >= this.#leastSequence;
    return isWhole ? undefined : refuseDamaged(this.#sequence + 1n);
  }

  async #read(limit: number): Promise<void> {
    const { store } = this.#source;
    this.#taken = 0;
    this.#page = await store.readEvents(this.#session, this.#sequence, limit, PAGE_BYTES);
  }

  #open(row: EventRow): CheckedEvent | Refusal {
    const { sessionId } = this.#session;
    const chainBefore = this.#chain;
    const next = this.#sequence + 1n;
    if (row.sequence !== next || !followsChain(sessionId, chainBefore, row)) {
      return refuseDamaged(next);
    }
    const payload = checkedPayload(row);
    if (isRefusal(payload)) return payload;
    this.#taken += 1;
    const checked = new CheckedEvent(sessionId, row, payload, chainBefore);
    // Of a long page only the last ones are what others wait for as well.
    const left = this.#page.length - this.#taken;
    if (left < SHARED_OF_PAGE) this.#source.recent.add(this.#session, checked);
    if (left === 0) this.#page = NO_ROWS;
    return this.#advance(checked);
  }

  #advance(checked: CheckedEvent): CheckedEvent {
    const { sequence, revision, chain } = checked.row;
    this.#sequence = sequence;
    this.#chain = chain;
    const generation = revision === undefined ? this.#generation : generationOf(revision);
    const before = this.#generation ?? generation;
    this.#isAfterRestore = before !== undefined && generation !== undefined && generation > before;
    this.#generation = generation;
    return checked;
  }
}

/**
 * The log generation of the last revision up to an event. Not looked for in a log that was never restored. If it is
 * further back than is looked, it is taken for the oldest: better a gap that is none than one that nobody is told of.
 */
async function lastGeneration(
  { store, turns }: TailSource,
  session: SessionRef,
  sequence: bigint,
): Promise<bigint | undefined> {
  if (store.generation === 0n) return undefined;
  const lowest = sequence > LOOK_BACK_EVENTS ? sequence - LOOK_BACK_EVENTS : 0n;
  for (let at = sequence; at > lowest; at -= 1n) {
    if (at % LOOK_BACK_PER_TURN === 0n) await turns.next();
    const revision = (await store.readEvent(session, at))?.revision;
    if (revision !== undefined) return generationOf(revision);
  }
  return lowest === 0n ? undefined : 0n;
}
