import type { Refusal } from "../domain/refusal.js";
import type { CommitFeed } from "../ledger/commit-feed.js";
import type { Store } from "../ledger/store-port.js";
import type { StalledWatchers } from "./stalled-watchers.js";
import type { TurnsOptions } from "./turns.js";

export interface EventWatchOptions extends TurnsOptions {
  readonly store: Store;
  readonly commits: CommitFeed;
  readonly stalled: StalledWatchers;
  /** Milliseconds since the epoch, by the clock that events are recorded by. */
  readonly nowMs: () => number;
  /** How long after its record a live event may be given. A watcher that is further behind is ended. */
  readonly lagMs: number;
  /** An event-less message is sent whenever nothing else was for so long; then the caller's access is looked at too. */
  readonly heartbeatMs: number;
}

/** What ends a watch before its time. */
export interface WatchEnds {
  /** Why the caller no longer waits. Absent while it does. */
  readonly aborted: Refusal | undefined;
  /** Calls back when the caller no longer waits. Returns how to stop. */
  whenAborted(call: () => void): () => void;
  /** The server shuts down. */
  readonly draining: AbortSignal;
  /** Ends the call with the refusal, also while the caller takes nothing. */
  cutOff(reason: Refusal): void;
}
