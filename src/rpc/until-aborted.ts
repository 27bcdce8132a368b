import type { AtHand, MaybeAtHand } from "../watch/at-hand.js";
import type { AnswerFault } from "./answer-faults.js";
import type { Item } from "./call.js";
import type { OpenCall } from "./open-call.js";

type Next = IteratorResult<Item, undefined>;

const DONE: Next = { done: true, value: undefined };

/**
 * Gives the items until the call is aborted, and then the refusal of that. It is asked for one thing at a time, as
 * `for await` does.
 */
export class UntilAborted
  implements AsyncIterable<Item>, AsyncIterator<Item, undefined>, AtHand<Item>
{
  readonly #call: OpenCall;
  readonly #source: MaybeAtHand<Item>;
  readonly #answerLate: AnswerFault;
  /** Ends the wait for what the source was asked for. */
  #giveUp: (() => void) | undefined;
  /** The source was asked for something that it has not given. */
  #isStuck = false;
  #stopListening: (() => void) | undefined;
  #isRefused = false;
  /** There is nothing more to ask the source for. */
  #isOver = false;

  constructor(call: OpenCall, items: AsyncIterable<Item>, answerLate: AnswerFault) {
    this.#call = call;
    this.#source = items[Symbol.asyncIterator]();
    this.#answerLate = answerLate;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<Next> {
    if (this.#isRefused || this.#isOver) return this.return();
    return this.#call.aborted === undefined ? this.#ask() : Promise.resolve(this.#refusal());
  }

  takeNow(): Item | undefined {
    return this.#isGoingOn ? this.#source.takeNow?.() : undefined;
  }

  idle(wake: () => void): boolean {
    return this.#isGoingOn && this.#source.idle?.(wake) === true;
  }

  async return(): Promise<Next> {
    if (this.#isOver) return DONE;
    this.#end();
    const closing = this.#source.return?.();
    // A handler that is stuck in a wait of its own is freed when that ends; the caller is not kept
    // for it.
    if (this.#isStuck) closing?.catch((fault: unknown) => this.#answerLate(this.#call, fault));
    else await closing;
    return DONE;
  }

  /** The next item, or the refusal as soon as the call is aborted. */
  #ask(): Promise<Next> {
    this.#stopListening ??= this.#call.whenAborted(this.#onAbort);
    this.#isStuck = true;
    return new Promise((resolve, reject) => {
      this.#giveUp = () => {
        resolve(this.#refusal());
      };
      this.#source.next().then(
        (next) => {
          this.#isStuck = false;
          if (next.done === true) this.#end();
          resolve(next);
        },
        (fault: unknown) => {
          this.#isStuck = false;
          this.#end();
          if (this.#call.aborted !== undefined) this.#answerLate(this.#call, fault);
          reject(
            fault instanceof Error
              ? fault
              : new Error("a handler threw no error", { cause: fault }),
          );
        },
      );
    });
  }

  get #isGoingOn(): boolean {
    return !this.#isRefused && !this.#isOver && this.#call.aborted === undefined;
  }

  #refusal(): Next {
    const { aborted } = this.#call;
    this.#isRefused = true;
    return aborted === undefined ? DONE : { done: false, value: aborted };
  }

  readonly #onAbort = (): void => {
    if (this.#isStuck) this.#giveUp?.();
  };

  #end(): void {
    this.#isOver = true;
    this.#stopListening?.();
  }
}
