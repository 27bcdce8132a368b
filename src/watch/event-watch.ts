import { create } from "@bufbuild/protobuf";
import { timestampMs, TimestampSchema } from "@bufbuild/protobuf/wkt";
import type { DelegationStep } from "../../gen/toolmark/v1/ask_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import type {
  WatchEventsRequest,
  WatchEventsResponse,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { SessionState } from "../../gen/toolmark/v1/session_pb.js";
import type { Caller } from "../domain/principal.js";
import { isRefusal, refuse, type Refusal } from "../domain/refusal.js";
import { Bell, type CommitFeed } from "../ledger/commit-feed.js";
import { treeOf } from "../ledger/standing.js";
import { findSessionRecord } from "../ledger/stored-record.js";
import type { SessionRow, Store } from "../ledger/store-port.js";
import { findVisible } from "../ledger/visibility.js";
import type { WaitEnds } from "./ask-watch.js";
import {
  BEGINNING,
  decodeEventCursor,
  refuseMalformedCursor,
  type CursorScope,
  type EventPlace,
} from "./event-cursor.js";
import { SessionFeed, type EventFeed, type FedEvent } from "./event-feed.js";
import { Frames, Phase } from "./frames.js";
import { RecentEvents } from "./recent-events.js";
import type { StalledWatchers, Watched } from "./stalled-watchers.js";
import { TreeFeed } from "./tree-feed.js";
import { Turns } from "./turns.js";

export interface EventWatchOptions {
  readonly store: Store;
  readonly commits: CommitFeed;
  readonly stalled: StalledWatchers;
  /** Milliseconds of a clock that never jumps. */
  readonly monotonicMs: () => number;
  /** Milliseconds since the epoch, by the clock that events are recorded by. */
  readonly nowMs: () => number;
  /** How long after its record a live event may be given. A watcher that is further behind is ended. */
  readonly lagMs: number;
  /** An event-less message is sent whenever nothing else was for so long; then the caller's access is looked at too. */
  readonly heartbeatMs: number;
}

export type EventWatchRequest = Pick<
  WatchEventsRequest,
  "sessionId" | "cursor" | "includeDescendants" | "kinds"
>;

/** What ends a watch. */
export interface WatchEnds extends WaitEnds {
  /** Ends the call with the refusal, also while the caller takes nothing. */
  cutOff(reason: Refusal): void;
}

type Message = WatchEventsResponse | Refusal;

/** Streams committed events: those that are there, then each that is committed. */
export class EventWatch {
  readonly #options: EventWatchOptions;
  readonly #turns = new Turns();
  readonly #recent = new RecentEvents();

  constructor(options: EventWatchOptions) {
    this.#options = options;
  }

  /**
   * Ends without a word when the signal aborts or the session is erased, and with a refusal as its last item
   * otherwise.
   */
  async *watch(
    caller: Caller,
    request: EventWatchRequest,
    ends: WatchEnds,
  ): AsyncGenerator<Message, void> {
    const row = await findVisible(this.#options.store, caller, request.sessionId);
    if (isRefusal(row)) {
      yield row;
      return;
    }
    const { includeDescendants } = request;
    const { storeId, generation } = this.#options.store;
    const scope: CursorScope = { storeId, generation, session: row, includeDescendants };
    const place = await this.#placeOf(request.cursor, row, scope);
    if (isRefusal(place)) {
      yield place;
      return;
    }
    const watching = new Watching({
      ...this.#options,
      ...{ caller, row, place, ends, request, scope },
      ...{ turns: this.#turns, recent: this.#recent },
    });
    yield* watching.messages();
  }

  async #placeOf(
    cursor: string,
    row: SessionRow,
    scope: CursorScope,
  ): Promise<EventPlace | Refusal> {
    if (cursor === "") return BEGINNING;
    const { store } = this.#options;
    const place = decodeEventCursor(cursor, scope, await store.lastPosition());
    if (isRefusal(place) || place.sequence === 0n) return place;
    const event = await store.readEvent(row, place.sequence);
    return event?.position === place.position ? place : refuseMalformedCursor();
  }
}

interface WatchingOptions extends EventWatchOptions {
  readonly turns: Turns;
  readonly recent: RecentEvents;
  readonly caller: Caller;
  readonly row: SessionRow;
  readonly place: EventPlace;
  readonly request: EventWatchRequest;
  readonly scope: CursorScope;
  readonly ends: WatchEnds;
}

const EPOCH = create(TimestampSchema);

/** The caller is gone. */
const LEFT = Symbol("left");

/** One watch. */
class Watching {
  readonly #options: WatchingOptions;
  readonly #frames: Frames;
  readonly #kinds: ReadonlySet<string>;
  readonly #bell = new Bell();
  #place: EventPlace;
  #isLive = false;
  /** The next event, while a gap before it is told of. */
  #held: FedEvent | undefined;
  /** When the last message was sent, and when the caller's access was looked at. */
  #sentMs: number;
  #checkedMs: number;

  constructor(options: WatchingOptions) {
    this.#options = options;
    this.#place = options.place;
    this.#frames = new Frames(options.scope);
    this.#kinds = new Set(options.request.kinds);
    this.#sentMs = options.monotonicMs();
    this.#checkedMs = this.#sentMs;
  }

  async *messages(): AsyncGenerator<Message, void> {
    const { row, request, commits, stalled, ends } = this.#options;
    const tree = request.includeDescendants ? treeOf(row) : undefined;
    let feed: EventFeed | undefined;
    // Before the first read: no commit falls between a read and the wait after it.
    const unsubscribe = commits.onEvents({ ...row, tree }, (sessionId) => {
      feed?.noteCommit(sessionId);
      this.#bell.ring();
    });
    const watched = stalled.enter(() => {
      ends.cutOff(this.#lagging());
    });
    try {
      const opened = await this.#open();
      if (isRefusal(opened)) {
        yield opened;
        return;
      }
      feed = opened;
      yield* this.#follow(opened, watched);
    } finally {
      watched.leave();
      unsubscribe();
    }
  }

  async #open(): Promise<EventFeed | Refusal> {
    const { store, row, request, caller, commits } = this.#options;
    if (request.includeDescendants) {
      const { position: after } = this.#place;
      return new TreeFeed({ ...this.#options, caller, root: row, after, commits });
    }
    if (row.parentSessionId === undefined) return this.#feedOfOne([]);
    const session = await findSessionRecord(store, row);
    return isRefusal(session) ? session : this.#feedOfOne(session.delegationPath);
  }

  #feedOfOne(delegationPath: readonly DelegationStep[]): Promise<EventFeed> {
    return SessionFeed.after(this.#options, this.#options.row, this.#place, delegationPath);
  }

  async *#follow(feed: EventFeed, watched: Watched): AsyncGenerator<Message, void> {
    const { monotonicMs } = this.#options;
    for (;;) {
      const fed = this.#held ?? (await feed.next());
      const end = await this.#endOf(fed);
      if (end === LEFT) return;
      if (end !== undefined) {
        yield end;
        return;
      }
      // What is damaged is an end.
      const message = isRefusal(fed) ? undefined : this.#messageOf(fed);
      if (message !== undefined) {
        watched.offered();
        yield message;
        watched.taken();
        this.#sentMs = monotonicMs();
      } else if (fed === undefined) await this.#wait();
    }
  }

  /** What ends the watch now: a last message, or nothing that anybody waits for. */
  async #endOf(fed: FedEvent | Refusal | undefined): Promise<Message | typeof LEFT | undefined> {
    const { ends, store, caller, row, monotonicMs, heartbeatMs } = this.#options;
    if (ends.signal.aborted) return LEFT;
    if (ends.draining.aborted) return refuse(ErrorReason.DRAINING, "the server is shutting down");
    if (fed !== undefined && !isRefusal(fed) && this.#isLagging(fed)) return this.#lagging();
    const isCheckDue = monotonicMs() - this.#checkedMs >= heartbeatMs;
    if (!isCheckDue && !isRefusal(fed) && row.state !== SessionState.ERASED) return undefined;
    this.#checkedMs = monotonicMs();
    const found = await findVisible(store, caller, row.sessionId);
    if (isRefusal(found)) return found;
    if (found.state === SessionState.ERASED) return this.#frames.at(this.#place, Phase.erased);
    return isRefusal(fed) ? fed : undefined;
  }

  /** Whether a watcher that had caught up has fallen behind by now. */
  #isLagging({ checked: { event } }: FedEvent): boolean {
    const { nowMs, lagMs } = this.#options;
    return this.#isLive && nowMs() - timestampMs(event.recordTime ?? EPOCH) > lagMs;
  }

  /** What is to be sent next, if anything is. */
  #messageOf(fed: FedEvent | undefined): WatchEventsResponse | undefined {
    if (fed === undefined) {
      if (this.#isLive) return this.#heartbeat();
      this.#isLive = true;
      return this.#frames.at(this.#place, Phase.live);
    }
    if (this.#held === undefined && isBehindGap(fed)) {
      this.#held = fed;
      return this.#frames.at(this.#place, Phase.gap);
    }
    this.#held = undefined;
    this.#place = fed.place;
    const isWanted = this.#kinds.size === 0 || this.#kinds.has(fed.checked.event.kind);
    if (!isWanted) return this.#heartbeat();
    return this.#isLive ? this.#frames.live(fed) : this.#frames.replayed(fed);
  }

  #heartbeat(): WatchEventsResponse | undefined {
    return this.#quietForMs() > 0 ? undefined : this.#frames.at(this.#place, Phase.heartbeat);
  }

  /** Until a heartbeat is due. */
  #quietForMs(): number {
    const { monotonicMs, heartbeatMs } = this.#options;
    return this.#sentMs + heartbeatMs - monotonicMs();
  }

  #lagging(): Refusal {
    const message = "the watcher does not read fast enough; it can go on after its cursor";
    const cursor = this.#frames.cursorAt(this.#place);
    return refuse(ErrorReason.WATCH_LAGGING, message, { cursor });
  }

  async #wait(): Promise<void> {
    const { ends } = this.#options;
    await this.#bell.rung(this.#quietForMs(), ends.signal, ends.draining);
  }
}

/** Whether events may be missing before it: an older copy of the log was restored, or an older system lost some. */
function isBehindGap({ checked: { event }, isAfterRestore }: FedEvent): boolean {
  const { record } = event.record ?? {};
  const lost = record?.case === "adopted" ? (record.value.summary?.gaps ?? 0) : 0;
  return isAfterRestore || lost > 0;
}
