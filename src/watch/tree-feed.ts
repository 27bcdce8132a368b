import type { DelegationStep } from "../../gen/toolmark/v1/ask_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import type { Caller } from "../domain/principal.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { isIntactSession } from "../ledger/checksums.js";
import type { CommitFeed } from "../ledger/commit-feed.js";
import { refuseDamagedRow } from "../ledger/event-codec.js";
import { treeOf } from "../ledger/standing.js";
import { findSessionRecord } from "../ledger/stored-record.js";
import type { SessionRow } from "../ledger/store-port.js";
import { findVisible, visibleToSubject } from "../ledger/visibility.js";
import type { CheckedEvent } from "./checked-event.js";
import type { EventFeed, Fed } from "./event-feed.js";
import { sequenceAt } from "./sequence-at.js";
import { SessionTail, type TailSource } from "./session-tail.js";

/** Events that the tails of a tree read ahead, all together. */
const AHEAD_EVENTS = 64;
/** Sessions of one read. */
const PAGE_SESSIONS = 64;
/** Changed sessions that are remembered one by one; more are looked for in the whole tree. */
const CHANGED_MAX = 256;

export interface TreeFeedOptions extends TailSource {
  readonly caller: Caller;
  /** The session whose tree is fed: itself and what works for it. */
  readonly root: SessionRow;
  /** Events up to this position are not given. */
  readonly after: bigint;
  readonly commits: Pick<CommitFeed, "position">;
}

/** A session with events that are still to be given: the next of them was read. */
interface ActiveSession {
  readonly sessionId: string;
  readonly tail: SessionTail;
  readonly delegationPath: readonly DelegationStep[];
  next: CheckedEvent;
  isAfterRestore: boolean;
}

/**
 * The events of a session and of those below it, in one order. It goes in rounds: whatever was committed when a round
 * begins is given, in order, before anything else is looked at. What is committed meanwhile is of the next round, since
 * it may be older than what was read already.
 */
export class TreeFeed implements EventFeed {
  readonly #options: TreeFeedOptions;
  readonly #active = new Map<string, ActiveSession>();
  /** Ids of sessions that were written to, or undefined if they are too many, as at the start. */
  #changed: Set<string> | undefined;
  /** Sessions of this round that were not looked at yet, in the order of their creation. */
  #upcoming: SessionRow[] = [];
  #listedTo: bigint | undefined;
  /** Last position of this round. Absent between rounds. */
  #through: bigint | undefined;
  #position: bigint;

  constructor(options: TreeFeedOptions) {
    this.#options = options;
    this.#position = options.after;
  }

  noteCommit(sessionId: string): void {
    this.#changed?.add(sessionId);
    if ((this.#changed?.size ?? 0) > CHANGED_MAX) this.#changed = undefined;
  }

  /** Which event is next has to be looked for. */
  ahead(): undefined {
    return undefined;
  }

  get isQuiet(): boolean {
    return this.#through === undefined && this.#changed?.size === 0;
  }

  async next(): Promise<Fed> {
    for (;;) {
      if (this.#through === undefined) {
        if (this.#changed?.size === 0 && this.#active.size === 0) return undefined;
        const refusal = await this.#beginRound();
        if (refusal !== undefined) return refusal;
      }
      const found = await this.#take();
      if (found !== undefined) return found;
      this.#through = undefined;
      // Events that were read ahead of the round wait for the next one, which begins with the next commit at the
      // latest.
      if (this.#changed?.size === 0) return undefined;
    }
  }

  async #beginRound(): Promise<Refusal | undefined> {
    const { store, commits } = this.#options;
    const changed = this.#changed;
    const { position } = commits;
    this.#changed = new Set();
    this.#upcoming = [];
    this.#listedTo = undefined;
    if (changed === undefined || position === undefined) {
      this.#through = await store.lastPosition();
      this.#listedTo = 0n;
      return undefined;
    }
    // Every session with an event up to there was told of, and is among the changed ones.
    this.#through = position;
    for (const sessionId of changed) {
      const refusal = await this.#lookAt(sessionId);
      if (refusal !== undefined) return refusal;
    }
    return undefined;
  }

  /** Takes in a session that was written to, unless it is not below the root or not for the caller. */
  async #lookAt(sessionId: string): Promise<Refusal | undefined> {
    const { store, caller, root } = this.#options;
    const row = await findVisible(store, caller, sessionId);
    if (isRefusal(row)) {
      return row.reason === ErrorReason.SESSION_NOT_FOUND ? undefined : row;
    }
    return row.rootSessionId === root.rootSessionId ? this.#activate(row) : undefined;
  }

  /** The next event of the round. */
  async #take(): Promise<Fed> {
    const refusal = await this.#activateUpcoming();
    if (refusal !== undefined) return refusal;
    const first = this.#first();
    if (first === undefined || this.#isBeyond(first.next.row.position)) return undefined;
    const { next: checked, delegationPath, isAfterRestore } = first;
    const { position } = checked.row;
    this.#position = position;
    const isDamaged = await this.#readNext(first);
    if (isDamaged !== undefined) return isDamaged;
    return { checked, place: { position, sequence: 0n }, delegationPath, isAfterRestore };
  }

  /** Looks at sessions that were created before the next event, which may have earlier ones. */
  async #activateUpcoming(): Promise<Refusal | undefined> {
    for (;;) {
      const row = this.#upcoming[0] ?? (await this.#listMore());
      const before = this.#first()?.next.row.position;
      if (row === undefined || this.#isBeyond(row.createPosition)) return undefined;
      if (before !== undefined && row.createPosition > before) return undefined;
      this.#upcoming.shift();
      if (!isIntactSession(row)) return refuseDamagedRow(row.sessionId);
      const refusal = await this.#activate(row);
      if (refusal !== undefined) return refusal;
    }
  }

  async #listMore(): Promise<SessionRow | undefined> {
    const { store, caller, root, turns } = this.#options;
    if (this.#listedTo === undefined) return undefined;
    await turns.next();
    const { tenant } = root;
    this.#upcoming = await store.listSessions({
      ...{ tenant, tree: treeOf(root), visibleToSubject: visibleToSubject(caller) },
      ...{ ownerSubject: undefined, state: undefined },
      ...{ afterCreatePosition: this.#listedTo, limit: PAGE_SESSIONS },
    });
    this.#listedTo = this.#upcoming.at(-1)?.createPosition;
    return this.#upcoming[0];
  }

  async #activate(row: SessionRow): Promise<Refusal | undefined> {
    const { sessionId, head } = row;
    if (head.position <= this.#position || this.#active.has(sessionId)) return undefined;
    const session = await findSessionRecord(this.#options.store, row);
    if (isRefusal(session)) return named(session, sessionId);
    const { delegationPath } = session;
    if (!this.#isBelow(sessionId, delegationPath)) return undefined;
    const sequence = await sequenceAt(this.#options.store, row, this.#position);
    if (isRefusal(sequence)) return named(sequence, sessionId);
    const tail = await SessionTail.after(this.#options, row, sequence);
    const next = await tail.next(this.#limit());
    if (isRefusal(next)) return named(next, sessionId);
    if (next === undefined) return undefined;
    const { isAfterRestore } = tail;
    this.#active.set(sessionId, { sessionId, tail, delegationPath, next, isAfterRestore });
    return undefined;
  }

  async #readNext(session: ActiveSession): Promise<Refusal | undefined> {
    const { sessionId, tail } = session;
    const next = await tail.next(this.#limit());
    if (isRefusal(next)) return named(next, sessionId);
    if (next === undefined) this.#active.delete(sessionId);
    else Object.assign(session, { next, isAfterRestore: tail.isAfterRestore });
    return undefined;
  }

  #limit(): number {
    return Math.max(1, Math.floor(AHEAD_EVENTS / (this.#active.size + 1)));
  }

  #first(): ActiveSession | undefined {
    let first: ActiveSession | undefined;
    for (const each of this.#active.values()) {
      if (first === undefined || each.next.row.position < first.next.row.position) first = each;
    }
    return first;
  }

  #isBeyond(position: bigint): boolean {
    return this.#through === undefined || position > this.#through;
  }

  #isBelow(sessionId: string, path: readonly DelegationStep[]): boolean {
    const rootId = this.#options.root.sessionId;
    return sessionId === rootId || path.some((step) => step.sessionId === rootId);
  }
}

/** Of several sessions, the refusal says which is damaged. */
function named(refusal: Refusal, sessionId: string): Refusal {
  return { ...refusal, metadata: { ...refusal.metadata, session_id: sessionId } };
}
