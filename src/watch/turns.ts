/** How long a turn of the event loop is taken up: between turns everybody else is served, a writer several times. */
const TURN_MS = 0.25;
/** How long a turn waits for writers. They may go on writing without end, and watches are to go on too. */
const WRITERS_FIRST_MS = 1;

export interface TurnsOptions {
  /** Milliseconds of a clock that never jumps. */
  readonly monotonicMs: () => number;
  /** Resolves when the commands that are being committed have their replies: they come first. Undefined if none are. */
  readonly committing: () => Promise<void> | undefined;
}

/** Who waits for a turn. */
export interface TurnTaker {
  takeTurn(): void;
}

/** Lets many watches share the event loop: reads are synchronous, and without it all that wait would run at once. */
export class Turns {
  readonly #options: TurnsOptions;
  readonly #waiting: TurnTaker[] = [];
  #isScheduled = false;
  #endMs = 0;
  /** Somebody has its turn, and has read nothing in it. */
  #mayRead = false;

  constructor(options: TurnsOptions) {
    this.#options = options;
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
    setImmediate(this.#letWritersFirst);
  }

  readonly #letWritersFirst = (): void => {
    const committed = this.#options.committing();
    if (committed === undefined) {
      this.#begin();
      return;
    }
    let isBegun = false;
    const begin = (): void => {
      if (isBegun) return;
      isBegun = true;
      clearTimeout(timer);
      this.#begin();
    };
    const timer = setTimeout(begin, WRITERS_FIRST_MS);
    // The event loop sleeps meanwhile: the commit may need the processor. Then the replies are sent first.
    void committed.then(() => setImmediate(begin));
  };

  #begin(): void {
    this.#endMs = this.#options.monotonicMs() + TURN_MS;
    this.#serve();
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
    if (this.#waiting.length > 0 && this.#options.monotonicMs() < this.#endMs) {
      this.#serve();
      return;
    }
    this.#isScheduled = false;
    if (this.#waiting.length > 0) this.#schedule();
  };
}
