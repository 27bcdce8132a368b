import type { Message } from "@bufbuild/protobuf";
import { invariant } from "../domain/invariant.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import type { Item } from "./call.js";
import type { OpenCall } from "./open-call.js";
import { RuledStream } from "./ruled-stream.js";

/** What arrives: one message or a stream of them. Bytes until they are decoded in the pipeline. */
export type Incoming = Message | Uint8Array | AsyncIterable<Message | Uint8Array>;

/** What a call answers. One kind for unary and streams, so that each rule is written once. */
export type Reply = Item | Promise<Item> | AsyncIterable<Item>;

export type Step = (call: OpenCall, request: Incoming) => Reply;

/**
 * Our own middleware. Free of any framework, so that every listener and protocol passes through the
 * same rules.
 */
export type Middleware = (call: OpenCall, request: Incoming, next: Step) => Reply;

export function isStream(reply: Reply): reply is AsyncIterable<Item> {
  return Symbol.asyncIterator in reply;
}

/** The one item of a method that replies with one. */
export function singleItem(reply: Reply): Item | Promise<Item> {
  invariant(!isStream(reply), "a method with one reply gives one");
  return reply;
}

/**
 * The items of a method that replies with a stream, which may have been refused before it came to
 * that.
 */
export function everyItem(reply: Reply): RuledStream {
  if (reply instanceof RuledStream) return reply;
  return RuledStream.around(isStream(reply) ? reply : onlyItem(reply), {});
}

async function* onlyItem(item: Item | Promise<Item>): AsyncGenerator<Item> {
  yield await item;
}

/** Where the items of a stream go. */
export interface ReplySink {
  /** Gives what the next message has to wait for, if anything. */
  send(message: Message): Promise<void> | undefined;
  /** Nothing comes after it. */
  refuse(refusal: Refusal): void;
  end(): void;
}

/** Sends every item, those at hand one right after the other. */
export async function sendEvery(items: RuledStream, sink: ReplySink): Promise<void> {
  try {
    for (;;) {
      const taken = items.take();
      const item = taken instanceof Promise ? await taken : taken;
      if (item === undefined) {
        sink.end();
        return;
      }
      if (isRefusal(item)) {
        sink.refuse(item);
        return;
      }
      const sent = sink.send(item);
      if (sent !== undefined) await sent;
    }
  } finally {
    await items.return();
  }
}

/**
 * Calls `ended` once when the reply is complete or a stream is left, with the last item that was
 * given, if any.
 */
export function whenEnded(
  reply: Reply,
  ended: (last: Item | undefined, items: number) => void,
): Reply {
  if (reply instanceof Promise) {
    return reply.then((item) => {
      ended(item, 1);
      return item;
    });
  }
  if (isStream(reply)) return RuledStream.around(reply, { ended });
  ended(reply, 1);
  return reply;
}

/** Puts every item through `change`. */
export function mapItems(reply: Reply, change: (item: Item) => Item): Reply {
  if (reply instanceof Promise) return reply.then(change);
  if (isStream(reply)) return RuledStream.around(reply, { change });
  return change(reply);
}
