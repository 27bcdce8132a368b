import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import {
  WatchEventsResponseSchema,
  type WatchEventsRequestSchema,
  type WatchEventsResponse,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { STATUS_OF_REASON } from "../../src/rpc/error-table.js";
import { given } from "./conversation.js";
import { WIRES, type Clients, type Wire } from "./service.js";
import { readSse, SseRefused, type SseItem } from "./sse-reader.js";

/** The ways that events can be watched. */
export const EVENT_WIRES = [...WIRES, "sse"] as const;
export type EventWire = (typeof EVENT_WIRES)[number];

/** A server whose events can be watched over every wire. */
export interface EventServer {
  readonly httpAddress: string;
  clients(wire?: Wire): Pick<Clients, "history">;
}

export type WatchInit = Exclude<
  MessageInitShape<typeof WatchEventsRequestSchema>,
  { $typeName: string }
>;

/** The messages of one stream, whatever carries them. Ends and refusals are thrown as ConnectError on every wire. */
export function openEvents(
  server: EventServer,
  wire: EventWire,
  request: WatchInit,
  signal: AbortSignal,
): AsyncIterable<WatchEventsResponse> {
  if (wire !== "sse") return server.clients(wire).history.watchEvents(request, { signal });
  return sseMessages(server, request, signal);
}

async function* sseMessages(
  { httpAddress }: EventServer,
  { sessionId = "", cursor = "", includeDescendants = false, kinds = [] }: WatchInit,
  signal: AbortSignal,
): AsyncGenerator<WatchEventsResponse, void> {
  const query = new URLSearchParams(kinds.map((kind) => ["kinds", kind]));
  if (includeDescendants) query.set("include_descendants", "true");
  const text = query.size === 0 ? "" : `?${query.toString()}`;
  try {
    const items = readSse({ httpAddress, sessionId, lastEventId: cursor, query: text, signal });
    for await (const item of items) yield messageOf(item);
  } catch (error) {
    throw error instanceof SseRefused ? errorOf(error) : ConnectError.from(error);
  }
}

function messageOf(item: SseItem): WatchEventsResponse {
  if (item.kind === "message") return item.message;
  if (item.kind === "refused") throw refusal(item.reason, item.metadata);
  return create(WatchEventsResponseSchema, { phase: "heartbeat", cursor: item.id });
}

interface StatusJson {
  readonly details: readonly { reason: string; metadata?: Record<string, string> }[];
}

function errorOf({ body }: SseRefused): ConnectError {
  const [info] = (JSON.parse(body) as StatusJson).details;
  return refusal(info?.reason ?? "", info?.metadata ?? {});
}

/** As clients of the other wires see it: the code is not told here, but goes with the reason. */
function refusal(name: string, metadata: Readonly<Record<string, string>>): ConnectError {
  const status = STATUS_OF_REASON[ErrorReason[name as keyof typeof ErrorReason]];
  const key = status.toLowerCase().replaceAll(/(?:^|_)(\w)/g, (_, first: string) => {
    return first.toUpperCase();
  });
  const code = Code[key as keyof typeof Code];
  const value = { reason: name, domain: "toolmark", metadata: { ...metadata } };
  return new ConnectError(name, code, undefined, [{ desc: ErrorInfoSchema, value }]);
}

/** A watch of events that a test reads message by message. */
export class EventWatcher {
  /** That of the last message. */
  cursor: string;
  readonly #canceller = new AbortController();
  readonly #messages: AsyncIterator<WatchEventsResponse>;
  #first: Promise<IteratorResult<WatchEventsResponse>> | undefined;

  constructor(server: EventServer, wire: EventWire, request: WatchInit) {
    this.cursor = request.cursor ?? "";
    const { signal } = this.#canceller;
    this.#messages = openEvents(server, wire, request, signal)[Symbol.asyncIterator]();
  }

  /** Opens the stream without taking anything from it. A failure is told by the next read. */
  start(): void {
    this.#first ??= this.#messages.next();
    this.#first.catch(() => undefined);
  }

  async next(): Promise<WatchEventsResponse> {
    const message = await this.#take();
    if (message === undefined) throw new Error("the watch has ended");
    return message;
  }

  async #take(): Promise<WatchEventsResponse | undefined> {
    const first = this.#first;
    this.#first = undefined;
    const next = await (first ?? this.#messages.next());
    if (next.done === true) return undefined;
    this.cursor = next.value.cursor;
    return next.value;
  }

  /** Messages up to the first that is as wanted. */
  async until(isLast: (message: WatchEventsResponse) => boolean): Promise<WatchEventsResponse[]> {
    const taken: WatchEventsResponse[] = [];
    for (;;) {
      const message = await this.next();
      taken.push(message);
      if (isLast(message)) return taken;
    }
  }

  /** The events up to the message that says that these were all. */
  async replayed(): Promise<Event[]> {
    const taken = await this.until(isBoundary);
    return taken.flatMap(({ event }) => (event === undefined ? [] : [event]));
  }

  /** The next message with an event. */
  async nextEvent(): Promise<WatchEventsResponse & { event: Event }> {
    const message = (await this.until(({ event }) => event !== undefined)).at(-1);
    const event = given(message?.event, "event");
    return { ...given(message, "message"), event };
  }

  /** Reads on until the server ends the stream: all messages that came. */
  async untilEnded(): Promise<WatchEventsResponse[]> {
    const taken: WatchEventsResponse[] = [];
    for (;;) {
      const message = await this.#take();
      if (message === undefined) return taken;
      taken.push(message);
    }
  }

  stop(): void {
    this.#canceller.abort();
  }
}

/** Whether the message says that everything before it was given. */
export function isBoundary({ phase, event }: WatchEventsResponse): boolean {
  return phase === "live" && event === undefined;
}
