import { clone, create } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import { EventSchema, type Event } from "../../gen/toolmark/v1/event_pb.js";
import { WatchEventsResponseSchema } from "../../gen/toolmark/v1/history_service_pb.js";
import type { Conversation, RecordsRead } from "../../src/client/index.js";
import { hexOf, recordedLogs, type RecordedLog } from "./conversation-log.js";

/** One thing that a client takes up: an event by itself or in a frame, or what lists gave at some point. */
export type Delivered =
  | { readonly kind: "event" | "replay" | "live"; readonly index: number }
  | { readonly kind: "lists"; readonly through: number };

export interface Delivery {
  readonly log: RecordedLog;
  readonly delivered: readonly Delivered[];
}

/** Every event at least once, some again, and lists in between, in any order. */
export const deliveries: fc.Arbitrary<Delivery> = recordedLogs.chain((log) => {
  const index = fc.nat({ max: log.events.length - 1 });
  const kind = fc.constantFrom("event" as const, "replay" as const, "live" as const);
  const again = fc.array(fc.record({ kind, index }), { maxLength: 30 });
  const lists = fc.array(fc.record({ kind: fc.constant("lists" as const), through: index }), {
    maxLength: 3,
  });
  return fc.tuple(again, lists, fc.boolean()).chain(([more, read, isShuffled]) => {
    const once = log.events.map((_, at): Delivered => ({ kind: "event", index: at }));
    const all: Delivered[] = [...once, ...more, ...read];
    const whole = { minLength: all.length, maxLength: all.length };
    const order = isShuffled ? fc.shuffledSubarray(all, whole) : movedAbout(all);
    return order.map((delivered) => ({ log, delivered }));
  });
});

/** A replay that overlaps: parts of it come twice, each in its own order. */
function movedAbout(all: readonly Delivered[]): fc.Arbitrary<Delivered[]> {
  return fc
    .tuple(fc.nat({ max: all.length }), fc.nat({ max: all.length }))
    .map(([from, cut]) => [...all.slice(from), ...all.slice(0, cut), ...all]);
}

/** The same, in the order of the log and without repetition; lists last. */
export function inOrder({ log, delivered }: Delivery): Delivered[] {
  const events = log.events.map((_, index): Delivered => ({ kind: "event", index }));
  return [...events, ...delivered.filter(({ kind }) => kind === "lists")];
}

export function deliver(conversation: Conversation, log: RecordedLog, all: readonly Delivered[]) {
  for (const one of all) {
    if (one.kind === "lists") {
      for (const read of listsThrough(log, one.through)) conversation.applySnapshot(read);
      continue;
    }
    const event = log.events[one.index];
    if (event === undefined) throw new Error("no such event");
    if (one.kind === "event") conversation.apply(event);
    else conversation.applyFrame(create(WatchEventsResponseSchema, { phase: one.kind, event }));
  }
}

interface Lists {
  sessionId: string;
  toolCalls: NonNullable<RecordsRead["toolCalls"]>[number][];
  hooks: NonNullable<RecordsRead["hooks"]>[number][];
  asks: NonNullable<RecordsRead["asks"]>[number][];
  receipts: NonNullable<RecordsRead["receipts"]>[number][];
  authorizations: NonNullable<RecordsRead["authorizations"]>[number][];
}

/** What the lists of each session give after the first events: each record as it stands, bodies with their bytes. */
function listsThrough({ events, bytes }: RecordedLog, through: number): Lists[] {
  const last = new Map<string, Event>();
  for (const event of events.slice(0, through + 1)) {
    last.set(`${event.sessionId}/${idOf(event)}`, event);
  }
  const lists = new Map<string, Lists>();
  for (const event of last.values()) {
    const { sessionId } = event;
    const none = { toolCalls: [], hooks: [], asks: [], receipts: [], authorizations: [] };
    const list = lists.get(sessionId) ?? { sessionId, ...none };
    lists.set(sessionId, list);
    put(list, clone(EventSchema, event), bytes);
  }
  return [...lists.values()];
}

function idOf({ sequence, record }: Event): string {
  switch (record?.record.case) {
    case "toolCall":
      return record.record.value.toolCallId;
    case "hook":
      return record.record.value.hookId;
    case "ask":
      return record.record.value.askId;
    case "receipt":
      return record.record.value.receiptId;
    case "authorization":
      return record.record.value.authorizationId;
    default:
      return `event ${sequence}`;
  }
}

function put(list: Lists, { record }: Event, bytes: ReadonlyMap<string, Uint8Array>): void {
  const fill = (body: Body | undefined): void => {
    const data = body && bytes.get(hexOf(body.sha256));
    if (body !== undefined && data !== undefined) body.data = data.slice();
  };
  switch (record?.record.case) {
    case "toolCall": {
      const { proposed, effective, result, lateResult } = record.record.value;
      for (const body of [proposed, effective, result?.content, lateResult?.content]) fill(body);
      list.toolCalls.push(record.record.value);
      return;
    }
    case "hook":
      list.hooks.push(record.record.value);
      return;
    case "ask":
      fill(record.record.value.presented);
      list.asks.push(record.record.value);
      return;
    case "receipt":
      list.receipts.push(record.record.value);
      return;
    case "authorization":
      list.authorizations.push(record.record.value);
      return;
    default:
      return;
  }
}
