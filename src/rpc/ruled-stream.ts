import type { MaybeAtHand } from "../watch/at-hand.js";
import type { Item } from "./call.js";

/** What happens to a stream on its way out, in this order. */
export interface StreamRules {
  /** Puts every item through. */
  readonly change?: (item: Item) => Item;
  /** Gives the last item in place of a fault. One that is met when the stream is left is told, and nothing is given. */
  readonly answer?: (fault: unknown) => Item;
  /** Called once when the stream is over or left, with the last item that was given, if any. */
  readonly ended?: (last: Item | undefined, items: number) => void;
}

const DONE: IteratorReturnResult<undefined> = { done: true, value: undefined };

/**
 * A stream with the rules of several layers around it. One iterator however many they are: each stream that waits keeps
 * it, and each item passes through it. It is asked for one thing at a time, as `for await` does.
 */
export class RuledStream implements AsyncIterable<Item>, AsyncIterator<Item, undefined> {
  readonly #source: MaybeAtHand<Item>;
  readonly #rules: StreamRules;
  #last: Item | undefined;
  #items = 0;
  /** What a rule or the source threw when it was asked for what is at hand. */
  #fault: { readonly thrown: unknown } | undefined;
  /** There is nothing more to ask the source for. */
  #isOver = false;
  #hasEnded = false;

  private constructor(source: AsyncIterator<Item>, rules: StreamRules) {
    this.#source = source;
    this.#rules = rules;
  }

  /** Puts rules around a stream, outside those that it has. */
  static around(items: AsyncIterable<Item>, rules: StreamRules): RuledStream {
    if (!(items instanceof RuledStream)) {
      return new RuledStream(items[Symbol.asyncIterator](), rules);
    }
    const joined = joinRules(items.#rules, rules);
    return joined === undefined
      ? new RuledStream(items, rules)
      : new RuledStream(items.#source, joined);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The next item, at once if it is at hand. Undefined at the end. */
  take(): Item | Promise<Item | undefined> {
    return this.takeNow() ?? this.#awaited();
  }

  takeNow(): Item | undefined {
    if (this.#isOver || this.#fault !== undefined) return undefined;
    try {
      const item = this.#source.takeNow?.();
      return item && this.#given(this.#rules.change?.(item) ?? item);
    } catch (thrown) {
      this.#fault = { thrown };
      return undefined;
    }
  }

  idle(wake: () => void): boolean {
    return !this.#isOver && this.#fault === undefined && this.#source.idle?.(wake) === true;
  }

  async next(): Promise<IteratorResult<Item, undefined>> {
    if (this.#isOver) return this.#end();
    try {
      if (this.#fault !== undefined) await this.#leaveWith(this.#fault.thrown);
      const next = await this.#source.next();
      if (next.done !== true) return this.#give(await this.#changed(next.value));
    } catch (fault) {
      return this.#answered(fault);
    }
    this.#isOver = true;
    return this.#end();
  }

  #awaited(): Promise<Item | undefined> {
    return new Promise((resolve) => {
      const takeOrAsk = (): void => {
        resolve(this.takeNow() ?? this.next().then(({ value }) => value));
      };
      if (!this.idle(takeOrAsk)) takeOrAsk();
    });
  }

  async return(): Promise<IteratorResult<Item, undefined>> {
    try {
      await this.#leave();
    } catch (fault) {
      if (this.#rules.answer === undefined) throw fault;
      this.#rules.answer(fault);
    } finally {
      this.#end();
    }
    return DONE;
  }

  #changed(item: Item): Item | Promise<Item> {
    try {
      return this.#rules.change?.(item) ?? item;
    } catch (fault) {
      return this.#leaveWith(fault);
    }
  }

  async #leaveWith(fault: unknown): Promise<never> {
    await this.#leave();
    throw fault;
  }

  async #leave(): Promise<void> {
    if (this.#isOver) return;
    this.#isOver = true;
    await this.#source.return?.();
  }

  #answered(fault: unknown): IteratorResult<Item, undefined> {
    this.#isOver = true;
    if (this.#rules.answer !== undefined) return this.#give(this.#rules.answer(fault));
    this.#end();
    throw fault;
  }

  #give(item: Item): IteratorResult<Item, undefined> {
    return { done: false, value: this.#given(item) };
  }

  #given(item: Item): Item {
    this.#last = item;
    this.#items += 1;
    return item;
  }

  #end(): IteratorResult<Item, undefined> {
    if (!this.#hasEnded) {
      this.#hasEnded = true;
      this.#rules.ended?.(this.#last, this.#items);
    }
    return DONE;
  }
}

/** One set of rules that does what the two do, if there is one. */
function joinRules(inner: StreamRules, outer: StreamRules): StreamRules | undefined {
  const isAnswered = inner.answer !== undefined;
  const isEnded = inner.ended !== undefined;
  if (outer.change !== undefined && (isAnswered || isEnded || inner.change !== undefined)) {
    return undefined;
  }
  if (outer.answer !== undefined && (isAnswered || isEnded)) return undefined;
  return { ...inner, ...outer, ...(isEnded ? { ended: bothEnded(inner, outer) } : {}) };
}

function bothEnded(inner: StreamRules, outer: StreamRules): NonNullable<StreamRules["ended"]> {
  return (last, items) => {
    try {
      inner.ended?.(last, items);
    } finally {
      outer.ended?.(last, items);
    }
  };
}
