import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { EventPayloadSchema } from "../../gen/toolmark/storage/v1/storage_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { chainAfter, commit } from "../../src/domain/chain.js";
import { sessionChecksum } from "../../src/ledger/checksums.js";
import {
  type EventRow,
  type SessionRef,
  type SessionRow,
  type SessionRows,
  type Store,
} from "../../src/ledger/store-port.js";

type Rows<Name extends keyof SessionRows> =
  Awaited<ReturnType<SessionRows[Name]>> extends (infer Row)[] ? Row : never;
type Lists =
  | "listRecordPlaces"
  | "listAskPlaces"
  | "listDeadlines"
  | "listPairings"
  | "listRequests"
  | "readSnapshots";

/** A session of a store, to be read with something in it changed. */
export class AlteredSession {
  readonly store: Store;
  readonly session: SessionRef;

  constructor(store: Store, session: SessionRef) {
    this.store = store;
    this.session = session;
  }

  /** The store, with some of its answers changed. */
  altered(changes: Partial<SessionRows>): SessionRows {
    const original: SessionRows = {
      findSession: (...args) => this.store.findSession(...args),
      readSnapshots: (...args) => this.store.readSnapshots(...args),
      readEvents: (...args) => this.store.readEvents(...args),
      readBody: (...args) => this.store.readBody(...args),
      listRecordPlaces: (...args) => this.store.listRecordPlaces(...args),
      listAskPlaces: (...args) => this.store.listAskPlaces(...args),
      listDeadlines: (...args) => this.store.listDeadlines(...args),
      listBodyRefs: (...args) => this.store.listBodyRefs(...args),
      listPairings: (...args) => this.store.listPairings(...args),
      listRequests: (...args) => this.store.listRequests(...args),
    };
    return { ...original, ...changes };
  }

  /** Puts the rows of a list through `change`, which may leave one out. */
  listing<Name extends Lists>(
    name: Name,
    change: (row: Rows<Name>) => Rows<Name> | undefined,
  ): Partial<SessionRows> {
    const list = async (...args: never[]): Promise<unknown[]> => {
      const read = this.store[name] as (...given: never[]) => Promise<Rows<Name>[]>;
      return (await read.apply(this.store, args)).flatMap((row) => change(row) ?? []);
    };
    return { [name]: list };
  }

  /** The first row of a list, changed; every other as it is. */
  firstOf<Name extends Lists>(
    name: Name,
    change: (row: Rows<Name>) => Rows<Name> | undefined,
  ): Partial<SessionRows> {
    let first: string | undefined;
    return this.listing(name, (row) => {
      const { recordId, askId, toolCallId, requestId, sequence } = row as Record<string, unknown>;
      const key = String(recordId ?? askId ?? toolCallId ?? requestId ?? sequence);
      first ??= key;
      return key === first ? change(row) : row;
    });
  }

  eventsThrough(change: (rows: EventRow[]) => EventRow[]): Partial<SessionRows> {
    return {
      readEvents: async (session, after, limit) => {
        const all = change(await this.store.readEvents(session, 0n, 10_000, 2 ** 30));
        return all.filter(({ sequence }) => sequence > after).slice(0, limit);
      },
    };
  }

  /** One event, changed in its columns. */
  event(sequence: bigint, change: (row: EventRow) => EventRow): Partial<SessionRows> {
    return this.eventsThrough((rows) =>
      rows.map((row) => (row.sequence === sequence ? change(row) : row)),
    );
  }

  /** The log written anew by somebody who knows how, with one record changed. */
  forged(
    isWanted: (record: EventRecord["record"]) => boolean,
    change: (record: EventRecord, row: EventRow) => Partial<EventRow>,
  ): Partial<SessionRows> {
    return this.eventsThrough((rows) => {
      let isDone = false;
      return this.rechained(
        rows.map((row) => {
          const payload = fromBinary(EventPayloadSchema, row.payload ?? new Uint8Array());
          const { record } = payload;
          if (isDone || record === undefined || !isWanted(record.record)) return row;
          isDone = true;
          const columns = change(record, row);
          return { ...row, payload: toBinary(EventPayloadSchema, payload), ...columns };
        }),
      );
    });
  }

  rechained(rows: EventRow[]): EventRow[] {
    let chain = new Uint8Array(32);
    return rows.map((row) => {
      const commitment = commit(row.salt ?? new Uint8Array(), row.payload ?? new Uint8Array());
      chain = Uint8Array.from(chainAfter(chain, { ...row, commitment, ...this.session }));
      return { ...row, commitment, chain };
    });
  }

  sessionRow(change: (row: SessionRow) => SessionRow): Partial<SessionRows> {
    return {
      findSession: async (session) => {
        const row = await this.store.findSession(session);
        if (row === undefined) return undefined;
        const changed = change(row);
        return { ...changed, checksum: sessionChecksum(changed) };
      },
    };
  }

  head(change: Partial<SessionRow["head"]>): Partial<SessionRows> {
    return this.sessionRow((row) => ({ ...row, head: { ...row.head, ...change } }));
  }
}

/** The same bytes but for one bit. */
export function flipped(bytes: Uint8Array | undefined): Uint8Array {
  const copy = Uint8Array.from(bytes ?? []);
  copy[copy.length - 1] = (copy.at(-1) ?? 0) ^ 1;
  return copy;
}
