import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import type { WatchEventsResponse } from "../../gen/toolmark/v1/history_service_pb.js";
import { SessionState } from "../../gen/toolmark/v1/session_pb.js";
import { EventKind } from "../domain/event-kind.js";
import type { Caller } from "../domain/principal.js";
import { isRefusal, refuse, type Refusal } from "../domain/refusal.js";
import { whenAborted } from "../ledger/bell.js";
import { treeOf } from "../ledger/standing.js";
import { findSessionRecord } from "../ledger/stored-record.js";
import { startTimer } from "../ledger/timer.js";
import type { SessionRow } from "../ledger/store-port.js";
import { findVisible } from "../ledger/visibility.js";
import type { CursorScope, EventPlace } from "./event-cursor.js";
import { SessionFeed, type EventFeed, type Fed, type FedEvent } from "./event-feed.js";
import { Frames, Phase } from "./frames.js";
import type { RecentEvents } from "./recent-events.js";
import type { Watched } from "./stalled-watchers.js";
import { TreeFeed } from "./tree-feed.js";
import type { Turns, TurnTaker } from "./turns.js";
import type { EventWatchOptions, WatchEnds } from "./watch-options.js";

/** What all watches share. */
export interface WatchMeans extends EventWatchOptions {
  readonly turns: Turns;
  readonly recent: RecentEvents;
}

/** What one watch is about. */
export interface WatchSubject {
  readonly caller: Caller;
  /** The session, as it was just read. */
  readonly row: SessionRow;
  /** Where it goes on. */
  readonly place: EventPlace;
  readonly scope: CursorScope;
  readonly kinds: readonly string[];
  readonly includeDescendants: boolean;
  readonly ends: WatchEnds;
}

/** One watch: what is to be sent next, and when. */
export class Watching implements TurnTaker {
  readonly #means: WatchMeans;
  readonly #caller: Caller;
  readonly #sessionId: string;
  readonly #ends: WatchEnds;
  readonly #frames: Frames;
  /** Absent: all. */
  readonly #kinds: ReadonlySet<string> | undefined;
  readonly #watched: Watched;
  readonly #stops: readonly (() => void)[];
  #feed: EventFeed | undefined;
  #place: EventPlace;
  #isErased: boolean;
  #isLive = false;
  /** The next event, while a gap before it is told of. */
  #held: FedEvent | undefined;
  /** Who waits until something happens. */
  #wake: (() => void) | undefined;
  /** It waits for its turn. */
  #isQueued = false;
  /** Set while it waits, and left to fire after that: most waits are short. */
  #timer: NodeJS.Timeout | undefined;
  /** When the last message was sent, and when the caller's access was looked at. */
  #sentMs: number;
  #checkedMs: number;

  private constructor(means: WatchMeans, subject: WatchSubject) {
    const { caller, row, place, scope, kinds, ends, includeDescendants } = subject;
    this.#means = means;
    this.#caller = caller;
    this.#sessionId = row.sessionId;
    this.#ends = ends;
    this.#frames = new Frames(scope);
    this.#kinds = kinds.length === 0 ? undefined : new Set(kinds);
    this.#place = place;
    this.#isErased = row.state === SessionState.ERASED;
    this.#sentMs = means.monotonicMs();
    this.#checkedMs = this.#sentMs;
    const wake = (): void => {
      this.#wakeNow();
    };
    const { tenant, sessionId } = row;
    const tree = includeDescendants ? treeOf(row) : undefined;
    this.#stops = [
      means.commits.onEvents({ tenant, sessionId, tree }, (changedId, sequence) => {
        this.#feed?.noteCommit(changedId, sequence);
        this.#queue();
      }),
      ends.whenAborted(wake),
      whenAborted(ends.draining, wake),
    ];
    this.#watched = means.stalled.enter(() => {
      ends.cutOff(this.#lagging());
    });
  }

  /** Listens before the first read: no commit falls between a read and the wait after it. */
  static async begin(means: WatchMeans, subject: WatchSubject): Promise<Watching | Refusal> {
    const watching = new Watching(means, subject);
    try {
      const feed = await watching.#open(subject);
      if (!isRefusal(feed)) {
        watching.#feed = feed;
        return watching;
      }
      watching.stop();
      return feed;
    } catch (fault) {
      watching.stop();
      throw fault;
    }
  }

  /** The next message, or a refusal that ends the watch, if it is at hand. */
  takeNow(): WatchEventsResponse | Refusal | undefined {
    if (this.#isOver() || this.#mustLookAgain()) return undefined;
    for (;;) {
      const fed = this.#held ?? this.#feed?.ahead();
      if (fed === undefined || isRefusal(fed)) return undefined;
      const message = this.#messageOf(fed);
      if (message !== undefined) return message;
    }
  }

  /** Whether there is nothing to do until something happens: then `wake` is called. */
  idle(wake: () => void): boolean {
    const isQuiet = this.#isLive && this.#held === undefined && this.#feed?.isQuiet === true;
    if (!isQuiet || this.#isOver() || this.#mustLookAgain()) return false;
    const quietForMs = this.#quietForMs();
    if (quietForMs <= 0) return false;
    this.#wake = wake;
    this.#timer ??= startTimer(timePassed, quietForMs, this);
    return true;
  }

  takeTurn(): void {
    this.#isQueued = false;
    this.#wakeNow();
  }

  timePassed(): void {
    this.#timer = undefined;
    this.#wakeNow();
  }

  /** The next message, or a refusal that ends the watch. Absent if nobody waits for one. */
  async next(): Promise<WatchEventsResponse | Refusal | undefined> {
    for (;;) {
      if (this.#ends.aborted !== undefined) return undefined;
      if (this.#ends.draining.aborted) {
        return refuse(ErrorReason.DRAINING, "the server is shutting down");
      }
      const found = this.#held ?? this.#feed?.next();
      const fed = found instanceof Promise ? await found : found;
      if (isRefusal(fed) || this.#mustLookAgain()) {
        const end = await this.#endAt(fed);
        if (end !== undefined) return end;
      }
      // What is damaged was an end.
      const message = isRefusal(fed) ? fed : this.#messageOf(fed);
      if (message !== undefined) return message;
      if (fed === undefined) await this.#happened();
    }
  }

  /** Says that a message was handed over, and that it was taken. */
  offered(): void {
    this.#watched.offered();
  }

  taken(): void {
    this.#watched.taken();
    this.#sentMs = this.#means.monotonicMs();
  }

  stop(): void {
    this.#wake = undefined;
    clearTimeout(this.#timer);
    this.#watched.leave();
    for (const stop of this.#stops) stop();
  }

  async #open({ row, includeDescendants }: WatchSubject): Promise<EventFeed | Refusal> {
    const { store, turns, recent, commits } = this.#means;
    const isLeft = (): boolean => this.#ends.aborted !== undefined;
    const source = { store, turns, recent, isLeft };
    if (includeDescendants) {
      const { position: after } = this.#place;
      return new TreeFeed({ ...source, caller: this.#caller, root: row, after, commits });
    }
    if (row.parentSessionId === undefined) return SessionFeed.after(source, row, this.#place, []);
    const session = await findSessionRecord(store, row);
    if (isRefusal(session)) return session;
    return SessionFeed.after(source, row, this.#place, session.delegationPath);
  }

  #happened(): Promise<void> {
    return new Promise((resolve) => {
      if (!this.idle(resolve)) resolve();
    });
  }

  #queue(): void {
    if (this.#wake === undefined || this.#isQueued) return;
    this.#isQueued = true;
    this.#means.turns.give(this);
  }

  #wakeNow(): void {
    const wake = this.#wake;
    this.#wake = undefined;
    wake?.();
  }

  #isOver(): boolean {
    return this.#ends.aborted !== undefined || this.#ends.draining.aborted;
  }

  /** Whether the session or the caller's access to it may be others by now. */
  #mustLookAgain(): boolean {
    const { monotonicMs, heartbeatMs } = this.#means;
    return this.#isErased || monotonicMs() - this.#checkedMs >= heartbeatMs;
  }

  /** What ends the watch, by the session as it is now. */
  async #endAt(fed: Fed): Promise<WatchEventsResponse | Refusal | undefined> {
    if (this.#ends.aborted !== undefined) return undefined;
    this.#checkedMs = this.#means.monotonicMs();
    const found = await findVisible(this.#means.store, this.#caller, this.#sessionId);
    if (isRefusal(found)) return found;
    this.#isErased = found.state === SessionState.ERASED;
    if (this.#isErased) return this.#frames.at(this.#place, Phase.erased);
    return isRefusal(fed) ? fed : undefined;
  }

  /** What is to be sent next, if anything is. */
  #messageOf(fed: FedEvent | undefined): WatchEventsResponse | Refusal | undefined {
    if (fed === undefined) {
      if (this.#isLive) return this.#heartbeat();
      this.#isLive = true;
      return this.#frames.at(this.#place, Phase.live);
    }
    if (this.#isLagging(fed)) return this.#lagging();
    if (this.#held === undefined && isBehindGap(fed)) {
      this.#held = fed;
      return this.#frames.at(this.#place, Phase.gap);
    }
    this.#held = undefined;
    this.#place = fed.place;
    if (this.#kinds?.has(fed.checked.row.kind) === false) return this.#heartbeat();
    return this.#isLive ? this.#frames.live(fed) : this.#frames.replayed(fed);
  }

  /** Whether a watcher that had caught up has fallen behind by now. */
  #isLagging({ checked: { row } }: FedEvent): boolean {
    const { nowMs, lagMs } = this.#means;
    return this.#isLive && nowMs() - row.timeMs > lagMs;
  }

  #heartbeat(): WatchEventsResponse | undefined {
    return this.#quietForMs() > 0 ? undefined : this.#frames.at(this.#place, Phase.heartbeat);
  }

  /** Until a heartbeat is due. */
  #quietForMs(): number {
    return this.#sentMs + this.#means.heartbeatMs - this.#means.monotonicMs();
  }

  #lagging(): Refusal {
    const message = "the watcher does not read fast enough; it can go on after its cursor";
    const cursor = this.#frames.cursorAt(this.#place);
    return refuse(ErrorReason.WATCH_LAGGING, message, { cursor });
  }
}

function timePassed(watching: Watching): void {
  watching.timePassed();
}

/** Whether events may be missing before it: an older copy of the log was restored, or an older system lost some. */
function isBehindGap({ checked, isAfterRestore }: FedEvent): boolean {
  if (isAfterRestore || checked.row.kind !== EventKind.adopted) return isAfterRestore;
  const { record } = checked.event.record ?? {};
  return record?.case === "adopted" && (record.value.summary?.gaps ?? 0) > 0;
}
