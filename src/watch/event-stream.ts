import type { WatchEventsResponse } from "../../gen/toolmark/v1/history_service_pb.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import type { AtHand } from "./at-hand.js";
import { Phase } from "./frames.js";
import type { Watching } from "./watching.js";

type Sent = WatchEventsResponse | Refusal;
type Next = IteratorResult<Sent, undefined>;

const DONE: Next = { done: true, value: undefined };

/** The messages of one watch, which begins when the first is asked for. It is asked for one thing at a time. */
export class EventStream implements AsyncIterableIterator<Sent, undefined>, AtHand<Sent> {
  #begin: (() => Promise<Watching | Refusal>) | undefined;
  #watching: Watching | undefined;
  /** What was given last may not have been taken yet. */
  #isOffered = false;
  /** Nothing comes after what was given. */
  #isLast = false;
  #isLeft = false;

  constructor(begin: () => Promise<Watching | Refusal>) {
    this.#begin = begin;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<Next> {
    try {
      this.#noteTaken();
      if (this.#isLast || this.#isLeft) return await this.return();
      const watching = this.#watching ?? (await this.#started());
      if (watching === undefined) return DONE;
      if (isRefusal(watching)) return this.#given(watching);
      const message = await watching.next();
      return message === undefined ? await this.return() : this.#given(message);
    } catch (fault) {
      this.#leave();
      throw fault;
    }
  }

  takeNow(): Sent | undefined {
    if (this.#isLast || this.#watching === undefined) return undefined;
    this.#noteTaken();
    const message = this.#watching.takeNow();
    if (message !== undefined) this.#note(message);
    return message;
  }

  idle(wake: () => void): boolean {
    return !this.#isLast && this.#watching?.idle(wake) === true;
  }

  return(): Promise<Next> {
    this.#leave();
    return Promise.resolve(DONE);
  }

  /** What was begun, unless the stream was left meanwhile. */
  async #started(): Promise<Watching | Refusal | undefined> {
    const begin = this.#begin;
    this.#begin = undefined;
    const begun = await begin?.();
    if (begun === undefined || isRefusal(begun)) return begun;
    if (this.#isLeft) {
      begun.stop();
      return undefined;
    }
    this.#watching = begun;
    return begun;
  }

  #given(message: Sent): Next {
    this.#note(message);
    return { done: false, value: message };
  }

  #note(message: Sent): void {
    this.#isLast = isRefusal(message) || message.phase === Phase.erased;
    this.#isOffered = true;
    this.#watching?.offered();
  }

  #noteTaken(): void {
    if (!this.#isOffered) return;
    this.#isOffered = false;
    this.#watching?.taken();
  }

  #leave(): void {
    this.#isLeft = true;
    this.#begin = undefined;
    this.#watching?.stop();
    this.#watching = undefined;
  }
}
