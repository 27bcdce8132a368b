import type { CommandWrite, CommitResult, Store } from "../../src/ledger/store-port.js";

/** A store whose next commit fails on demand: before anything is stored, or after everything is. */
export class FaultyStore implements Store {
  failNext: "before" | "after" | undefined;
  commits = 0;
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  get storeId(): string {
    return this.#store.storeId;
  }

  get generation(): bigint {
    return this.#store.generation;
  }

  async commit(writes: readonly CommandWrite[]): Promise<CommitResult> {
    const fails = this.failNext;
    this.failNext = undefined;
    this.commits += 1;
    if (fails !== "before") {
      const result = await this.#store.commit(writes);
      if (fails === undefined) return result;
    }
    return { outcome: "failed", reason: "other", cause: new Error("planted commit failure") };
  }

  lastPosition: Store["lastPosition"] = () => this.#store.lastPosition();
  lastEventTimeMs: Store["lastEventTimeMs"] = () => this.#store.lastEventTimeMs();
  findSession: Store["findSession"] = (...args) => this.#store.findSession(...args);
  listSessions: Store["listSessions"] = (...args) => this.#store.listSessions(...args);
  readSnapshots: Store["readSnapshots"] = (...args) => this.#store.readSnapshots(...args);
  readEvents: Store["readEvents"] = (...args) => this.#store.readEvents(...args);
  readEvent: Store["readEvent"] = (...args) => this.#store.readEvent(...args);
  findRecord: Store["findRecord"] = (...args) => this.#store.findRecord(...args);
  listRecords: Store["listRecords"] = (...args) => this.#store.listRecords(...args);
  listAsks: Store["listAsks"] = (...args) => this.#store.listAsks(...args);
  listAskChanges: Store["listAskChanges"] = (...args) => this.#store.listAskChanges(...args);
  listDue: Store["listDue"] = (...args) => this.#store.listDue(...args);
  listDueSetAfter: Store["listDueSetAfter"] = (...args) => this.#store.listDueSetAfter(...args);
  nextDeadlineMs: Store["nextDeadlineMs"] = () => this.#store.nextDeadlineMs();
  readBody: Store["readBody"] = (...args) => this.#store.readBody(...args);
  readPairings: Store["readPairings"] = (...args) => this.#store.readPairings(...args);
  findRequests: Store["findRequests"] = (...args) => this.#store.findRequests(...args);
  findCreation: Store["findCreation"] = (...args) => this.#store.findCreation(...args);
  listRecordPlaces: Store["listRecordPlaces"] = (...args) => this.#store.listRecordPlaces(...args);
  listAskPlaces: Store["listAskPlaces"] = (...args) => this.#store.listAskPlaces(...args);
  listDeadlines: Store["listDeadlines"] = (...args) => this.#store.listDeadlines(...args);
  listBodyRefs: Store["listBodyRefs"] = (...args) => this.#store.listBodyRefs(...args);
  listPairings: Store["listPairings"] = (...args) => this.#store.listPairings(...args);
  listRequests: Store["listRequests"] = (...args) => this.#store.listRequests(...args);
  close: Store["close"] = () => this.#store.close();
}
