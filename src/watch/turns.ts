/** How long a turn of the event loop is taken up: between turns everybody else is served, a writer several times. */
const TURN_MS = 0.25;

/** Who waits for a turn. */
export interface TurnTaker {
  takeTurn(): void;
}

/** Lets many watches share the event loop: reads are synchronous, and without it all that wait would run at once. */
export class Turns {
  readonly #monotonicMs: () => number;
  readonly #waiting: TurnTaker[] = [];
  #isScheduled = false;
  #endMs = 0;
  /** Somebody has its turn, and has read nothing in it. */
  #mayRead = false;

  /** `monotonicMs`: milliseconds of a clock that never jumps. */
  constructor(monotonicMs: () => number) {
    this.#monotonicMs = monotonicMs;
  }

  /** Resolves when it is the caller's turn to read one row, or a page of them. */
  next(): Promise<void> {
    if (this.#mayRead) {
      this.#mayRead = false;
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const takeTurn = (): void => {
        this.#mayRead = false;
        resolve();
      };
      this.give({ takeTurn });
    });
  }

  /** Gives the taker a turn, in which it may read once without waiting for another. */
  give(taker: TurnTaker): void {
    this.#waiting.push(taker);
    this.#schedule();
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#endMs = this.#monotonicMs() + TURN_MS;
      this.#serve();
    });
  }

  #serve(): void {
    this.#mayRead = true;
    this.#waiting.shift()?.takeTurn();
    // Not before what the taker does without waiting for anything is done: it counts as its time.
    queueMicrotask(() => {
      process.nextTick(this.#goOn);
    });
  }

  readonly #goOn = (): void => {
    this.#mayRead = false;
    if (this.#waiting.length > 0 && this.#monotonicMs() < this.#endMs) {
      this.#serve();
      return;
    }
    this.#isScheduled = false;
    if (this.#waiting.length > 0) this.#schedule();
  };
}
