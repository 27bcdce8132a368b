import type { AskScope, CommandWrite, NewEvent, SessionRef, SessionTree } from "./store-port.js";

/** Deadlines that one commit set. */
export interface DeadlinesSet {
  /** The earliest of them, in milliseconds since the epoch. */
  readonly earliestMs: number;
  /** When the commit was decided, by the clock that deadlines are set by. */
  readonly decidedMs: number;
  /** Of the commit's events, whether they set a deadline or not. */
  readonly firstPosition: bigint;
  readonly lastPosition: bigint;
}

interface Subscription {
  readonly wake: () => void;
}

/**
 * Tells those who wait that something was committed, not what: they read the store again. One call of `wake` may stand
 * for many changes. A `wake` runs within the ledger's commit: it only rings a bell, and never throws.
 */
export class CommitFeed {
  readonly #asks = new Map<string, Set<Subscription>>();
  readonly #deadlines = new Set<{ readonly wake: (set: DeadlinesSet) => void }>();
  readonly #events = new Map<string, Set<EventSubscription>>();
  #position: bigint | undefined;

  /**
   * Position of the last commit, all of whose sessions were told of before it is seen here. Absent before the first one
   * that somebody watched, and after one whose outcome is not known.
   */
  get position(): bigint | undefined {
    return this.#position;
  }

  /** Calls `wake` after each commit that changed an ask of the scope. Returns how to stop. */
  onAsksChanged({ tenant, visibleToSubject, sessionId, tree }: AskScope, wake: () => void) {
    if (tree !== undefined) {
      return this.#subscribe(topicOf({ tenant, rootSessionId: tree.rootSessionId }), wake);
    }
    // Whoever may see a session may see each ask of it.
    if (sessionId !== undefined) return this.#subscribe(topicOf({ tenant, sessionId }), wake);
    return this.#subscribe(topicOf({ tenant, subject: visibleToSubject }), wake);
  }

  /** Calls `wake` after each commit that changed the ask. Returns how to stop. */
  onAskChanged({ tenant, sessionId }: SessionRef, askId: string, wake: () => void): () => void {
    return this.#subscribe(topicOf({ tenant, sessionId, askId }), wake);
  }

  /** Calls `wake` after each commit that set deadlines. Returns how to stop. */
  onDeadline(wake: (set: DeadlinesSet) => void): () => void {
    const subscription = { wake };
    this.#deadlines.add(subscription);
    return () => void this.#deadlines.delete(subscription);
  }

  /**
   * Calls `wake` after each commit to the session, or to one of the tree, with its id and the sequence that it has come
   * to, or may have. Returns how to stop.
   */
  onEvents({ tenant, sessionId, tree }: EventScope, wake: WakeOfEvents): () => void {
    const topic = tree === undefined ? sessionTopic(tenant, sessionId) : treeTopic(tenant, tree);
    const subscription = { wake };
    const subscriptions = this.#events.get(topic) ?? new Set();
    subscriptions.add(subscription);
    this.#events.set(topic, subscriptions);
    return () => {
      if (!subscriptions.delete(subscription) || subscriptions.size > 0) return;
      this.#events.delete(topic);
    };
  }

  /** Called by the ledger after a commit, with what it committed, or may have: one whose outcome is not known. */
  publish(writes: readonly CommandWrite[], outcome: "committed" | "unknown" = "committed"): void {
    const isTold = outcome === "committed" && this.#events.size > 0;
    this.#position = isTold ? positionOf(writes, this.#position) : undefined;
    if (this.#events.size > 0) this.#publishEvents(writes);
    if (this.#asks.size > 0) this.#publishAsks(writes);
    if (this.#deadlines.size > 0) this.#publishDeadlines(writes);
  }

  /** How many wait. */
  get subscribers(): number {
    let count = this.#deadlines.size;
    for (const subscriptions of this.#asks.values()) count += subscriptions.size;
    for (const subscriptions of this.#events.values()) count += subscriptions.size;
    return count;
  }

  #subscribe(topic: string, wake: () => void): () => void {
    const subscription = { wake };
    const subscriptions = this.#asks.get(topic) ?? new Set();
    subscriptions.add(subscription);
    this.#asks.set(topic, subscriptions);
    return () => {
      if (!subscriptions.delete(subscription) || subscriptions.size > 0) return;
      this.#asks.delete(topic);
    };
  }

  #publishEvents(writes: readonly CommandWrite[]): void {
    for (const { tenant, sessionId, session, events } of writes) {
      if (events.length === 0) continue;
      const tree = treeTopic(tenant, session);
      for (const topic of [sessionTopic(tenant, sessionId), tree]) {
        for (const { wake } of this.#events.get(topic) ?? []) {
          wake(sessionId, session.head.sequence);
        }
      }
    }
  }

  #publishAsks(writes: readonly CommandWrite[]): void {
    for (const topic of new Set(writes.flatMap(topicsOf))) {
      for (const { wake } of this.#asks.get(topic) ?? []) wake();
    }
  }

  #publishDeadlines(writes: readonly CommandWrite[]): void {
    const set = deadlinesOf(writes);
    if (set === undefined) return;
    for (const { wake } of this.#deadlines) wake(set);
  }
}

/** Which sessions a watch of events is about. */
export interface EventScope extends SessionRef {
  /** Of the session, if what stands below it is wanted too. */
  readonly tree: SessionTree | undefined;
}

export type WakeOfEvents = (sessionId: string, sequence: bigint) => void;

interface EventSubscription {
  readonly wake: WakeOfEvents;
}

function sessionTopic(tenant: string, sessionId: string): string {
  return `session ${tenant.length}:${tenant}${sessionId}`;
}

/** Every session of a tree, also those beside or above the one that is watched: they have one root. */
function treeTopic(tenant: string, { rootSessionId }: Pick<SessionTree, "rootSessionId">): string {
  return `tree ${tenant.length}:${tenant}${rootSessionId}`;
}

function positionOf(writes: readonly CommandWrite[], before: bigint | undefined) {
  for (const { events } of [...writes].reverse()) {
    const last = events.at(-1);
    if (last !== undefined) return last.row.position;
  }
  return before;
}

interface Topic {
  readonly tenant: string;
  readonly subject?: string | undefined;
  readonly rootSessionId?: string;
  readonly sessionId?: string;
  readonly askId?: string | undefined;
}

function topicOf({ tenant, subject, rootSessionId, sessionId, askId }: Topic): string {
  return JSON.stringify([tenant, subject, rootSessionId, sessionId, askId]);
}

/** Every topic that a write changes asks of. */
function topicsOf({ tenant, sessionId, session, events }: CommandWrite): readonly string[] {
  const asks = events.flatMap(waitingOf).filter(({ ask }) => ask !== undefined);
  if (asks.length === 0) return [];
  return [
    topicOf({ tenant }),
    topicOf({ tenant, subject: session.ownerSubject }),
    topicOf({ tenant, subject: session.createdBySubject }),
    topicOf({ tenant, rootSessionId: session.rootSessionId }),
    topicOf({ tenant, sessionId }),
    ...asks.map(({ recordId }) => topicOf({ tenant, sessionId, askId: recordId })),
  ];
}

/** The record of an event, and those that it brings besides. */
function waitingOf({ record, ask, deadline, inherited = [] }: NewEvent): readonly Waiting[] {
  return [{ recordId: record?.recordId, ask, deadline }, ...inherited];
}

interface Waiting extends Pick<NewEvent, "ask" | "deadline"> {
  readonly recordId: string | undefined;
}

function deadlinesOf(writes: readonly CommandWrite[]): DeadlinesSet | undefined {
  const events = writes.flatMap((write) => write.events);
  let earliestMs = Infinity;
  for (const { deadline } of events.flatMap(waitingOf)) {
    earliestMs = Math.min(earliestMs, deadline?.timeMs ?? Infinity);
  }
  const first = events[0]?.row;
  const last = events.at(-1)?.row;
  if (earliestMs === Infinity || first === undefined || last === undefined) return undefined;
  const { timeMs: decidedMs, position: firstPosition } = first;
  return { earliestMs, decidedMs, firstPosition, lastPosition: last.position };
}
