import type { CommandWrite, NewEvent, Store } from "../../src/ledger/store-port.js";

/** A store with one fault, and the conformance cases that must fail on it. */
export interface StoreMutant {
  readonly name: string;
  readonly kills: readonly string[];
  readonly wrap: (store: Store) => Store;
}

export type WriteChange = (
  write: CommandWrite,
  store: Store,
) => CommandWrite | Promise<CommandWrite>;

/** Every method as the store has it, but for the changed ones. */
export function overriding(store: Store, changes: Partial<Store>): Store {
  return {
    storeId: store.storeId,
    generation: store.generation,
    lastPosition: () => store.lastPosition(),
    lastEventTimeMs: () => store.lastEventTimeMs(),
    commit: (writes) => store.commit(writes),
    findSession: (session) => store.findSession(session),
    listSessions: (query) => store.listSessions(query),
    readSnapshots: (session) => store.readSnapshots(session),
    readEvents: (session, after, limit, maxBytes) =>
      store.readEvents(session, after, limit, maxBytes),
    readEvent: (session, sequence) => store.readEvent(session, sequence),
    findRecord: (session, recordId) => store.findRecord(session, recordId),
    listRecords: (session, query) => store.listRecords(session, query),
    listAsks: (query) => store.listAsks(query),
    listAskChanges: (query) => store.listAskChanges(query),
    listDue: (query) => store.listDue(query),
    listDueSetAfter: (timeMs, limit) => store.listDueSetAfter(timeMs, limit),
    nextDeadlineMs: () => store.nextDeadlineMs(),
    readBody: (session, bodyRef) => store.readBody(session, bodyRef),
    readPairings: (session, toolCallIds) => store.readPairings(session, toolCallIds),
    findRequests: (asked) => store.findRequests(asked),
    findCreation: (tenant, subject, requestId) => store.findCreation(tenant, subject, requestId),
    listRecordPlaces: (...args) => store.listRecordPlaces(...args),
    listAskPlaces: (...args) => store.listAskPlaces(...args),
    listDeadlines: (...args) => store.listDeadlines(...args),
    listBodyRefs: (...args) => store.listBodyRefs(...args),
    listPairings: (...args) => store.listPairings(...args),
    listRequests: (...args) => store.listRequests(...args),
    close: () => store.close(),
    ...changes,
  };
}

/** Breaks reads. */
export function reading(change: (store: Store) => Partial<Store>): StoreMutant["wrap"] {
  return (store) => overriding(store, change(store));
}

/** Breaks what is written. */
export function writing(change: WriteChange): StoreMutant["wrap"] {
  return (store) =>
    overriding(store, {
      commit: async (writes) => {
        const changed: CommandWrite[] = [];
        for (const write of writes) changed.push(await change(write, store));
        return store.commit(changed);
      },
    });
}

/** Breaks events, one at a time, as they are written. */
export function writingEvents(
  change: (event: NewEvent, write: CommandWrite, store: Store) => NewEvent | Promise<NewEvent>,
): StoreMutant["wrap"] {
  return writing(async (write, store) => {
    const events: NewEvent[] = [];
    for (const event of write.events) events.push(await change(event, write, store));
    return { ...write, events };
  });
}
