import { create } from "@bufbuild/protobuf";
import {
  WatchEventsResponseSchema,
  type WatchEventsResponse,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { encodeEventCursor, type CursorScope, type EventPlace } from "./event-cursor.js";
import type { FedEvent } from "./event-feed.js";
import type { CheckedEvent } from "./recent-events.js";

/** What a message of a watch is. Readers take phases that they do not know for messages without meaning. */
export const Phase = {
  replay: "replay",
  live: "live",
  heartbeat: "heartbeat",
  gap: "gap",
  erased: "erased",
} as const;
export type Phase = (typeof Phase)[keyof typeof Phase];

/** Live messages of an event that several watchers get, by the scope of their watch. */
const shared = new WeakMap<CheckedEvent, Map<string, WatchEventsResponse>>();

/** The messages of one watch. All watchers of one scope get the same message of a live event: it is never changed. */
export class Frames {
  readonly #scope: CursorScope;

  constructor(scope: CursorScope) {
    this.#scope = scope;
  }

  /** A message without an event. */
  at(place: EventPlace, phase: Phase): WatchEventsResponse {
    return create(WatchEventsResponseSchema, { phase, cursor: this.cursorAt(place) });
  }

  cursorAt(place: EventPlace): string {
    return encodeEventCursor(place, this.#scope);
  }

  replayed(fed: FedEvent): WatchEventsResponse {
    return this.#of(fed, Phase.replay);
  }

  live(fed: FedEvent): WatchEventsResponse {
    const frames = shared.get(fed.checked) ?? new Map<string, WatchEventsResponse>();
    shared.set(fed.checked, frames);
    const known = frames.get(this.#scope.digest);
    if (known !== undefined) return known;
    const frame = this.#of(fed, Phase.live);
    frames.set(this.#scope.digest, frame);
    return frame;
  }

  #of({ checked: { event }, place, delegationPath }: FedEvent, phase: Phase): WatchEventsResponse {
    const cursor = this.cursorAt(place);
    return create(WatchEventsResponseSchema, {
      ...{ phase, cursor, event },
      delegationPath: [...delegationPath],
    });
  }
}
