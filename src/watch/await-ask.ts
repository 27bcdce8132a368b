import type { AwaitAskRequest } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import type { Caller } from "../domain/principal.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import type { AskReader, SettledAsk } from "../ledger/ask-reader.js";
import { Bell } from "../ledger/bell.js";
import type { CommitFeed } from "../ledger/commit-feed.js";
import type { WaitEnds } from "./ask-watch.js";

export interface AwaitAskOptions {
  readonly asks: AskReader;
  readonly commits: CommitFeed;
  /** Milliseconds of a clock that never jumps. */
  readonly monotonicMs: () => number;
}

/** What ends a wait for one ask. */
export interface AwaitEnds extends WaitEnds {
  /** Why the caller no longer waits, once the signal is aborted. */
  readonly aborted: Refusal | undefined;
}

const DEFAULT_WAIT_MS = 30_000;
const WAIT_MAX_MS = 60_000;

/** Waits until an ask is settled, for a time, or until the server shuts down: the ask as it then stands. */
export class AwaitAsk {
  readonly #options: AwaitAskOptions;

  constructor(options: AwaitAskOptions) {
    this.#options = options;
  }

  async wait(
    caller: Caller,
    { sessionId, askId, waitMs }: Pick<AwaitAskRequest, "sessionId" | "askId" | "waitMs">,
    ends: AwaitEnds,
  ): Promise<SettledAsk | Refusal> {
    const { asks, commits, monotonicMs } = this.#options;
    const endMs = monotonicMs() + Math.min(waitMs === 0 ? DEFAULT_WAIT_MS : waitMs, WAIT_MAX_MS);
    const bell = new Bell();
    const session = { tenant: caller.tenant, sessionId };
    // Before the first read: no commit falls between a read and the wait after it.
    const unsubscribe = commits.onAskChanged(session, askId, () => {
      bell.ring();
    });
    try {
      for (;;) {
        const isOver = ends.draining.aborted || monotonicMs() >= endMs;
        const found = await asks.askAndReceipt(caller, sessionId, askId);
        if (isRefusal(found) || isOver || found.ask.state !== AskState.OPEN) return found;
        const rang = await bell.rung(endMs - monotonicMs(), ends.signal, ends.draining);
        if (ends.aborted !== undefined) return ends.aborted;
        if (!rang) return found;
      }
    } finally {
      unsubscribe();
    }
  }
}
