import type { Message } from "@bufbuild/protobuf";
import { invariant } from "../domain/invariant.js";
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
export function everyItem(reply: Reply): AsyncIterable<Item> | readonly (Item | Promise<Item>)[] {
  return isStream(reply) ? reply : [reply];
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
