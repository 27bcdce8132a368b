import { EventWatch } from "../../src/watch/event-watch.js";
import type { EventWatchOptions } from "../../src/watch/watch-options.js";
import { StalledWatchers } from "../../src/watch/stalled-watchers.js";

type Wanted = Pick<EventWatchOptions, "store" | "commits"> & Partial<EventWatchOptions>;

/** What streams events in a service that a test puts together itself. */
export function eventWatch(options: Wanted): EventWatch {
  const { lagMs = 20_000, monotonicMs = () => performance.now() } = options;
  const stalled = new StalledWatchers({ monotonicMs, stalledAfterMs: lagMs });
  return new EventWatch({
    ...{ nowMs: Date.now, committing: () => undefined, heartbeatMs: 20_000 },
    ...{ lagMs, monotonicMs, stalled },
    ...options,
  });
}
