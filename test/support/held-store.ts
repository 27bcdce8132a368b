import type { CommandWrite, CommitResult } from "../../src/ledger/store-port.js";
import { FaultyStore } from "./faulty-store.js";

/** A store that can be slow: it stores at once, but keeps what it says of a commit to itself for a while. */
export class HeldStore extends FaultyStore {
  /** Commits that are stored and not yet answered. */
  waiting = 0;
  /** The number of commands in each commit so far. */
  readonly sizes: number[] = [];
  #released = Promise.resolve();
  #release = (): void => undefined;

  hold(): void {
    this.#released = new Promise((resolve) => {
      this.#release = resolve;
    });
  }

  release(): void {
    this.#release();
  }

  override async commit(writes: readonly CommandWrite[]): Promise<CommitResult> {
    this.sizes.push(writes.length);
    const result = await super.commit(writes);
    this.waiting += 1;
    await this.#released;
    this.waiting -= 1;
    return result;
  }
}
