import { setTimeout as delay } from "node:timers/promises";
import { CommitFeed, type EventScope, type WakeOfEvents } from "../../src/ledger/commit-feed.js";
import type { CommandWrite, EventRow, SessionRef, Store } from "../../src/ledger/store-port.js";
import { overriding } from "./broken-store.js";

/** A service that feeds its watchers wrongly. */
export interface WatchMutant {
  readonly name: string;
  /** How many messages are enough to see it. */
  readonly frames: number;
  readonly commits: CommitFeed;
  readonly wrapStore: (store: Store) => Store;
}

/** Of so many commits one fails. */
const FAILS_EACH = 4;
/** The service itself listens for deadlines. */
const NOBODY = 1;
const SHOWN_MS = 10;
/** Longer than its watchers are watched: so it does not depend on how fast they are. */
const LATE_MS = 5000;

/** Watchers are told of what is about to be committed, and given it, before it is. Some commits fail. */
export function fedBeforeCommit(): WatchMutant {
  const commits = new CommitFeed();
  const wrapStore = (store: Store): Store => {
    let pending: readonly CommandWrite[] = [];
    let count = 0;
    return overriding(store, {
      readEvents: async (session, after, limit, maxBytes) => {
        const rows = await store.readEvents(session, after, limit, maxBytes);
        return [...rows, ...following(pending, session, rows.at(-1)?.sequence ?? after)];
      },
      commit: async (writes) => {
        if (commits.subscribers <= NOBODY) return store.commit(writes);
        pending = writes;
        commits.publish(writes);
        await delay(SHOWN_MS);
        pending = [];
        count += 1;
        if (count % FAILS_EACH !== 1) return store.commit(writes);
        return { outcome: "failed", reason: "other", cause: new Error("planted") };
      },
    });
  };
  return { name: "fed before the commit", frames: 1000, commits, wrapStore };
}

/** The events of a session that are not committed yet and go on after a sequence. */
function following(
  writes: readonly CommandWrite[],
  { tenant, sessionId }: SessionRef,
  after: bigint,
): EventRow[] {
  const rows = writes
    .filter((write) => write.tenant === tenant && write.sessionId === sessionId)
    .flatMap(({ events }) => events.map(({ row }) => row));
  return rows.filter(({ sequence }, index) => sequence === after + 1n + BigInt(index));
}

/** A feed that takes its time to note who listens: what is committed meanwhile is told to nobody. */
class LateFeed extends CommitFeed {
  override onEvents(scope: EventScope, wake: WakeOfEvents): () => void {
    let stop: (() => void) | undefined;
    const timer = setTimeout(() => {
      stop = super.onEvents(scope, wake);
    }, LATE_MS);
    return () => {
      clearTimeout(timer);
      stop?.();
    };
  }
}

/** Watchers listen only after they have read what is there. */
export function subscribedAfterReading(): WatchMutant {
  const name = "subscribed after reading";
  return { name, frames: 5000, commits: new LateFeed(), wrapStore: (store) => store };
}
