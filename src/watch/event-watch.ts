import type { WatchEventsRequest } from "../../gen/toolmark/v1/history_service_pb.js";
import type { Caller } from "../domain/principal.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import type { SessionRow } from "../ledger/store-port.js";
import { findVisible } from "../ledger/visibility.js";
import {
  BEGINNING,
  cursorScope,
  decodeEventCursor,
  refuseMalformedCursor,
  type CursorScope,
  type EventPlace,
} from "./event-cursor.js";
import { EventStream } from "./event-stream.js";
import { RecentEvents } from "./recent-events.js";
import { Turns } from "./turns.js";
import type { EventWatchOptions, WatchEnds } from "./watch-options.js";
import { Watching, type WatchMeans } from "./watching.js";

export type EventWatchRequest = Pick<
  WatchEventsRequest,
  "sessionId" | "cursor" | "includeDescendants" | "kinds"
>;

/** Streams committed events: those that are there, then each that is committed. */
export class EventWatch {
  readonly #means: WatchMeans;

  constructor(options: EventWatchOptions) {
    this.#means = { ...options, turns: new Turns(options), recent: new RecentEvents() };
  }

  /**
   * Ends without a word when the caller is gone or the session is erased, and with a refusal as its last item
   * otherwise.
   */
  watch(caller: Caller, request: EventWatchRequest, ends: WatchEnds): EventStream {
    return new EventStream(() => this.#begin(caller, request, ends));
  }

  async #begin(
    caller: Caller,
    { sessionId, cursor, includeDescendants, kinds }: EventWatchRequest,
    ends: WatchEnds,
  ): Promise<Watching | Refusal> {
    const { store } = this.#means;
    const row = await findVisible(store, caller, sessionId);
    if (isRefusal(row)) return row;
    const scope = cursorScope(store, row, includeDescendants);
    const place = await this.#placeOf(cursor, row, scope);
    if (isRefusal(place)) return place;
    return Watching.begin(this.#means, {
      caller,
      row,
      place,
      scope,
      ends,
      kinds,
      includeDescendants,
    });
  }

  async #placeOf(
    cursor: string,
    row: SessionRow,
    scope: CursorScope,
  ): Promise<EventPlace | Refusal> {
    if (cursor === "") return BEGINNING;
    const { store } = this.#means;
    const place = decodeEventCursor(cursor, scope, await store.lastPosition());
    if (isRefusal(place) || place.sequence === 0n) return place;
    const event = await store.readEvent(row, place.sequence);
    return event?.position === place.position ? place : refuseMalformedCursor();
  }
}
