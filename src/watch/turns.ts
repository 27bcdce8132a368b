/** Rows that are taken up in one turn of the event loop: between turns everybody else is served. */
const ROWS_PER_TURN = 16;

/** Lets many watches share the event loop: reads are synchronous, and without it all that wait would run at once. */
export class Turns {
  readonly #waiting: (() => void)[] = [];
  #isScheduled = false;

  /** Resolves when it is the caller's turn to read one row, or a page of them. */
  next(): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      this.#schedule();
    });
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      for (const go of this.#waiting.splice(0, ROWS_PER_TURN)) go();
      if (this.#waiting.length > 0) this.#schedule();
    });
  }
}
