import type { Caller } from "../domain/principal.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import type { Waiting } from "./batch-context.js";
import { ReplayHistory, type ReplayHistoryOptions } from "./replay-history.js";
import { findVisible } from "./visibility.js";

/** Finds the histories that callers may replay. */
export class ReplayReader {
  readonly #options: ReplayHistoryOptions;

  constructor(options: ReplayHistoryOptions) {
    this.#options = options;
  }

  async history(
    caller: Caller,
    sessionId: string,
    waiting: Waiting,
  ): Promise<ReplayHistory | Refusal> {
    const row = await findVisible(this.#options.store, caller, sessionId);
    return isRefusal(row) ? row : new ReplayHistory(this.#options, row, waiting);
  }
}
