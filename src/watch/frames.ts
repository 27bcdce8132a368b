import { create, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { DelegationStepSchema } from "../../gen/toolmark/v1/ask_pb.js";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import {
  WatchEventsResponseSchema,
  type WatchEventsResponse,
} from "../../gen/toolmark/v1/history_service_pb.js";
import type { CheckedEvent } from "./checked-event.js";
import { noteEncoded } from "./encoded-messages.js";
import { encodeEventCursor, type CursorScope, type EventPlace } from "./event-cursor.js";
import type { FedEvent } from "./event-feed.js";

/** What a message of a watch is. Readers take phases that they do not know for messages without meaning. */
export const Phase = {
  replay: "replay",
  live: "live",
  heartbeat: "heartbeat",
  gap: "gap",
  erased: "erased",
} as const;
export type Phase = (typeof Phase)[keyof typeof Phase];

const FIELD = WatchEventsResponseSchema.field;
const KEPT_BYTES_MAX = 64 * 1024;

/** One for all messages, each of which is written in one go. Not kept if it failed, nor with much memory. */
let spareWriter: BinaryWriter | undefined;

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

  /** Of the event's bytes. It is decoded only for those who read it. */
  #of({ checked, place, delegationPath }: FedEvent, phase: Phase): WatchEventsResponse {
    const frame: WatchEventsResponse = {
      $typeName: WatchEventsResponseSchema.typeName,
      phase,
      cursor: this.cursorAt(place),
      get event(): Event {
        return checked.event;
      },
      delegationPath: [...delegationPath],
    };
    noteEncoded(frame, bytesOf(frame, checked));
    return frame;
  }
}

function bytesOf(
  { phase, cursor, delegationPath }: WatchEventsResponse,
  checked: CheckedEvent,
): Uint8Array {
  const writer = spareWriter ?? new BinaryWriter();
  spareWriter = undefined;
  writer.tag(FIELD.phase.number, WireType.LengthDelimited).string(phase);
  writer.tag(FIELD.cursor.number, WireType.LengthDelimited).string(cursor);
  writer.tag(FIELD.event.number, WireType.LengthDelimited).fork();
  checked.writeTo(writer);
  writer.join();
  for (const step of delegationPath) {
    const bytes = toBinary(DelegationStepSchema, step);
    writer.tag(FIELD.delegationPath.number, WireType.LengthDelimited).bytes(bytes);
  }
  const bytes = writer.finish();
  if (bytes.length <= KEPT_BYTES_MAX) spareWriter = writer;
  return bytes;
}
