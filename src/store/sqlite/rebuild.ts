import { CHAIN_START } from "../../domain/chain.js";
import type {
  EventRow,
  InheritedRecord,
  RowRules,
  SessionRef,
  SessionRow,
} from "../../ledger/store-port.js";
import { IndexWriter } from "./index-writer.js";
import { metaChecksum } from "./meta.js";
import { toJoinedEvent } from "./joined-events.js";
import { toBodyRow, toCreationRow, toEventRow, toRequestRow, toSessionRow } from "./rows.js";
import { StoreOpenError } from "./store-open-error.js";
import type { SqliteDatabase } from "./sqlite-database.js";
import {
  prepareReads,
  prepareRebuild,
  prepareWrites,
  type ReadStatements,
  type RebuildStatements,
} from "./statements.js";

const PAGE_ROWS = 500;

/**
 * Fills every row that follows from others: the index of records, the inbox and the deadlines from the log, checksums
 * from their rows. The schema is the newest, and a transaction is open: either all of it is written or nothing. Throws
 * StoreOpenError if the log is damaged.
 */
export function rebuild(database: SqliteDatabase, rules: RowRules): void {
  new Rebuild(database, rules).run();
}

class Rebuild {
  readonly #rules: RowRules;
  readonly #reads: ReadStatements;
  readonly #statements: RebuildStatements;
  readonly #index: IndexWriter;

  constructor(database: SqliteDatabase, rules: RowRules) {
    this.#rules = rules;
    this.#reads = prepareReads(database);
    this.#statements = prepareRebuild(database);
    this.#index = new IndexWriter(prepareWrites(database));
  }

  run(): void {
    this.#meta();
    let after = 0;
    for (;;) {
      const found = this.#statements.nextSession.get(after);
      if (found === undefined) break;
      after = found.session;
      this.#session(after);
    }
    this.#creations();
  }

  #meta(): void {
    const meta = this.#reads.readMeta.get();
    if (meta === undefined) return;
    const { store_id: storeId, generation } = meta;
    this.#statements.setMetaChecksum.run(metaChecksum({ storeId, generation }));
  }

  #session(key: number): void {
    const columns = this.#statements.readSession.get(key);
    if (columns === undefined) return;
    const row = this.#withStanding(key, toSessionRow(columns));
    this.#statements.setSessionChecksum.run(this.#rules.sessionChecksum(row), key);
    for (const drop of this.#statements.dropIndex) drop.run(key);
    this.#events(key, row);
    this.#requests(key, row);
  }

  /** A session without the payload of its first event stands alone: nothing tells where it stood. */
  #withStanding(key: number, session: SessionRow): SessionRow {
    const first = this.#reads.readEvent.get(key, 1n);
    const row = first && toEventRow(first);
    const alone = { parentSessionId: undefined, rootSessionId: session.sessionId };
    const standing = row?.payload === undefined ? alone : this.#rules.standingOf(row);
    if (row !== undefined && standing === undefined) throw damaged(session, row);
    const { parentSessionId, rootSessionId } = standing ?? alone;
    this.#statements.setStanding.run(parentSessionId ?? null, rootSessionId, key);
    return { ...session, parentSessionId, rootSessionId };
  }

  #events(key: number, session: SessionRow): void {
    let sequence = 0n;
    let chain = CHAIN_START;
    for (;;) {
      const page = this.#reads.readEvents.all(key, sequence, PAGE_ROWS).map(toJoinedEvent);
      if (page.length === 0) return;
      for (const row of page) {
        const isNext = row.sequence === sequence + 1n;
        if (!isNext || !this.#rules.followsChain(session.sessionId, chain, row)) {
          throw damaged(session, row);
        }
        this.#put(key, session, row);
        ({ sequence, chain } = row);
      }
    }
  }

  #put(key: number, session: SessionRow, row: EventRow): void {
    if (row.payload === undefined) return;
    const index = this.#rules.indexOf(row);
    if (index === undefined) throw damaged(session, row);
    const inherited = this.#inherited(key, session, row);
    this.#index.put(key, { row, ...index, inherited }, session);
  }

  #inherited(key: number, session: SessionRow, row: EventRow): InheritedRecord[] | undefined {
    const baseRef = this.#rules.baseRefOf(row);
    if (baseRef === undefined) return undefined;
    const body = this.#reads.readBody.get(key, baseRef);
    const inherited = body && this.#rules.inheritedOf(row, toBodyRow(body));
    if (inherited === undefined) throw damaged(session, row);
    return inherited;
  }

  #requests(key: number, session: SessionRef): void {
    let after = "";
    for (;;) {
      const page = this.#reads.listRequests.all(key, after, PAGE_ROWS).map(toRequestRow);
      if (page.length === 0) return;
      for (const row of page) {
        after = row.requestId;
        const checksum = this.#rules.requestChecksum(session, row);
        this.#statements.setRequestChecksum.run(checksum, key, after);
      }
    }
  }

  #creations(): void {
    let after: [string, string, string] = ["", "", ""];
    for (;;) {
      const page = this.#statements.listCreations.all(...after, PAGE_ROWS).map(toCreationRow);
      if (page.length === 0) return;
      for (const row of page) {
        after = [row.tenant, row.subject, row.requestId];
        this.#statements.setCreationChecksum.run(this.#rules.creationChecksum(row), ...after);
      }
    }
  }
}

function damaged({ sessionId }: SessionRef, { sequence }: EventRow): StoreOpenError {
  const details = { session: sessionId, sequence: String(sequence) };
  const message = `event ${details.sequence} of session ${sessionId} is damaged: restore a backup`;
  return new StoreOpenError("unreadable", message, details);
}
