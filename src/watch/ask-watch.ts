import { create } from "@bufbuild/protobuf";
import {
  WatchAsksResponseSchema,
  type WatchAsksRequest,
  type WatchAsksResponse,
} from "../../gen/toolmark/v1/approval_service_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { isRefusal, refuse, type Refusal } from "../domain/refusal.js";
import type { AskReader, Viewer } from "../ledger/ask-reader.js";
import { Bell } from "../ledger/bell.js";
import type { CommitFeed } from "../ledger/commit-feed.js";
import type { AskScope, IndexedAsk, Store } from "../ledger/store-port.js";
import { decodeAskCursor, encodeAskCursor, scopeDigest, type AskPlace } from "./ask-cursor.js";
import { Turns, type TurnsOptions } from "./turns.js";

export interface AskWatchOptions extends TurnsOptions {
  readonly asks: AskReader;
  readonly store: Pick<Store, "storeId" | "generation" | "lastPosition">;
  readonly commits: CommitFeed;
  /** An event-less message is sent whenever nothing else was for so long. */
  readonly heartbeatMs: number;
}

export type AskWatchRequest = Pick<WatchAsksRequest, "sessionId" | "includeDescendants" | "cursor">;

/** What ends a wait before its time. */
export interface WaitEnds {
  /** The caller no longer waits. */
  readonly signal: AbortSignal;
  /** The server shuts down. */
  readonly draining: AbortSignal;
}

type Message = WatchAsksResponse | Refusal;

/** What one watch is about. */
interface Watching {
  readonly viewer: Viewer;
  readonly scope: AskScope;
  readonly digest: Uint8Array;
  readonly bell: Bell;
  readonly ends: WaitEnds;
}

/** Rows of one read, which a watcher keeps while it takes them up. */
const PAGE_ASKS = 32;

/**
 * Streams asks from committed rows: those that are open, then each that opens or settles. A slow watcher costs one page
 * of rows and delays nobody.
 */
export class AskWatch {
  readonly #options: AskWatchOptions;
  readonly #turns: Turns;

  constructor(options: AskWatchOptions) {
    this.#options = options;
    this.#turns = new Turns(options);
  }

  /** Ends without a word when the signal aborts, and with a refusal as its last item otherwise. */
  async *watch(
    viewer: Viewer,
    request: AskWatchRequest,
    ends: WaitEnds,
  ): AsyncGenerator<Message, void> {
    const { asks, store, commits } = this.#options;
    const scope = await asks.scopeOf(viewer.caller, request);
    if (isRefusal(scope)) {
      yield scope;
      return;
    }
    const bell = new Bell();
    const digest = scopeDigest(store.storeId, scope, request.includeDescendants);
    // Before the first read: no commit falls between a read and the wait after it.
    const unsubscribe = commits.onAsksChanged(scope, () => {
      bell.ring();
    });
    try {
      for await (const message of this.#messages({ viewer, scope, digest, bell, ends }, request)) {
        yield message;
        if (isRefusal(message)) return;
        if (ends.draining.aborted || ends.signal.aborted) break;
      }
      if (!ends.signal.aborted) yield refuse(ErrorReason.DRAINING, "the server is shutting down");
    } finally {
      unsubscribe();
    }
  }

  async *#messages(watching: Watching, request: AskWatchRequest): AsyncGenerator<Message, void> {
    const start = await this.#start(watching, request.cursor);
    if (isRefusal(start)) {
      yield start;
      return;
    }
    let { position } = start;
    if (start.openUntil !== undefined) {
      yield* this.#openAsks(watching, position, start.openUntil);
      position = start.openUntil;
      yield this.#cursorAt(watching, position);
    }
    position = yield* this.#changes(watching, position);
    // A watch that goes on after its listing has no other sign that it has caught up.
    if (start.openUntil === undefined) yield this.#cursorAt(watching, position);
    yield* this.#follow(watching, position);
  }

  async #start({ digest }: Watching, cursor: string): Promise<AskPlace | Refusal> {
    const { store } = this.#options;
    const lastPosition = await store.lastPosition();
    if (cursor === "") return { position: 0n, openUntil: lastPosition };
    return decodeAskCursor(cursor, digest, { generation: store.generation, lastPosition });
  }

  /** What was open at a position, and still is. What changed after it comes with the changes. */
  async *#openAsks(
    watching: Watching,
    after: bigint,
    openUntil: bigint,
  ): AsyncGenerator<Message, void> {
    const { scope } = watching;
    const limit = PAGE_ASKS;
    let position = after;
    let rows: readonly IndexedAsk[];
    do {
      const range = { scope, afterPosition: position, limit };
      await this.#turns.next();
      rows = await this.#options.asks.openAsks(range, openUntil);
      for (const row of rows) {
        position = row.position;
        if (row.lastPosition > openUntil) continue;
        yield await this.#shown(watching, row, { position, openUntil });
      }
    } while (rows.length === limit);
  }

  /** Every change after a position: the position reached. What is committed after the last read rings the bell. */
  async *#changes(watching: Watching, after: bigint): AsyncGenerator<Message, bigint> {
    const { scope } = watching;
    let position = after;
    let rows: readonly IndexedAsk[];
    do {
      const range = { scope, afterPosition: position, limit: PAGE_ASKS };
      await this.#turns.next();
      rows = await this.#options.asks.askChanges(range);
      for (const row of rows) {
        position = row.lastPosition;
        yield await this.#shown(watching, row, { position, openUntil: undefined });
      }
    } while (rows.length === PAGE_ASKS);
    return position;
  }

  async *#follow(watching: Watching, after: bigint): AsyncGenerator<Message, void> {
    const { monotonicMs, heartbeatMs } = this.#options;
    const { bell, ends } = watching;
    let position = after;
    let quietSinceMs = monotonicMs();
    for (;;) {
      const leftMs = quietSinceMs + heartbeatMs - monotonicMs();
      await bell.rung(leftMs, ends.signal, ends.draining);
      if (ends.signal.aborted || ends.draining.aborted) return;
      const before = position;
      // Before a heartbeat as well: it says that there is nothing else.
      position = yield* this.#changes(watching, position);
      // A ring by itself is no sign of life: what rang may have been given already, or not be stored.
      const isQuiet = position === before && monotonicMs() >= quietSinceMs + heartbeatMs;
      if (isQuiet) yield this.#cursorAt(watching, position);
      if (isQuiet || position !== before) quietSinceMs = monotonicMs();
    }
  }

  async #shown(
    { viewer, scope, digest }: Watching,
    row: IndexedAsk,
    place: AskPlace,
  ): Promise<Message> {
    await this.#turns.next();
    const ask = await this.#options.asks.show(viewer, scope, row);
    if (isRefusal(ask)) return ask;
    const cursor = this.#cursorOf(digest, place);
    return create(WatchAsksResponseSchema, { cursor, ask });
  }

  #cursorAt({ digest }: Watching, position: bigint): Message {
    const cursor = this.#cursorOf(digest, { position, openUntil: undefined });
    return create(WatchAsksResponseSchema, { cursor });
  }

  #cursorOf(digest: Uint8Array, place: AskPlace): string {
    return encodeAskCursor(place, digest, this.#options.store.generation);
  }
}
