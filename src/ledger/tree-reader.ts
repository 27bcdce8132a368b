import { create, toBinary } from "@bufbuild/protobuf";
import { SessionPlaceSchema, type SessionPlace } from "../../gen/toolmark/v1/history_service_pb.js";
import type { Limits } from "../domain/limits.js";
import type { Caller } from "../domain/principal.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { isIntactSession } from "./checksums.js";
import { refuseDamagedRow } from "./event-codec.js";
import { PageBuilder, type Page, type PageRequest } from "./page.js";
import { FIRST_RECORD, treePageTokenOf, treePlaceOf, type TreePlace } from "./page-token.js";
import { visibleToSubject } from "./visibility.js";
import { sizedItem, type ItemOf } from "./sized-item.js";
import { treeOf } from "./standing.js";
import { findSessionRecord } from "./stored-record.js";
import type { RecordFamily, SessionRow, Store } from "./store-port.js";

/** Most sessions that one page looks into: bounds what a page over many sessions without records costs. */
const SESSIONS_MAX = 100;

/** A page of records of several sessions. */
export interface TreePage<Item> extends Page<Item> {
  /** Where the sessions stand that the page has records of. */
  readonly places: readonly SessionPlace[];
}

/** Which records are wanted, and how they are shown. */
export interface TreeQuery<Item> {
  readonly family: RecordFamily;
  readonly itemOf: (row: SessionRow) => ItemOf<Item>;
}

/** Records that a page took of one session. */
interface TakenRecords {
  readonly within: bigint;
  readonly isWhole: boolean;
  /** Where the session stands, if it has records. */
  readonly place: readonly SessionPlace[];
}

/** Lists records of a session and of those below it, session after session in the order of their creation. */
export class TreeReader {
  readonly #store: Store;
  readonly #limits: Limits;

  constructor(store: Store, limits: Limits) {
    this.#store = store;
    this.#limits = limits;
  }

  /** `root` is visible to the caller. */
  async list<Item>(
    caller: Caller,
    root: SessionRow,
    { family, itemOf }: TreeQuery<Item>,
    page: PageRequest,
  ): Promise<TreePage<Item> | Refusal> {
    const visible = visibleToSubject(caller);
    const query = ["tree", root.tenant, root.sessionId, visible ?? "", String(family)];
    const start = treePlaceOf(this.#store, query, page.pageToken);
    if (isRefusal(start)) return start;
    const builder = new PageBuilder<Item>(page.pageSize, this.#limits);
    const places: SessionPlace[] = [];
    const token = (place: TreePlace): string => treePageTokenOf(this.#store, query, place);
    const rows = await this.#sessions(root, visible, start);
    for (const row of rows.slice(0, SESSIONS_MAX)) {
      // By an altered row any session could be found here.
      if (!isIntactSession(row)) return refuseDamagedRow(row.sessionId);
      const within = row.createPosition === start.after ? start.within : FIRST_RECORD;
      const taken = await this.#take(builder, row, within, { family, itemOf });
      if (isRefusal(taken)) return taken;
      if (taken.within > within) places.push(...taken.place);
      if (!taken.isWhole) {
        const left = { after: row.createPosition, within: taken.within };
        return { items: builder.items, nextPageToken: token(left), places };
      }
    }
    const next = rows[SESSIONS_MAX];
    const left =
      next === undefined ? undefined : { after: next.createPosition, within: FIRST_RECORD };
    const nextPageToken = left === undefined ? "" : token(left);
    return { items: builder.items, nextPageToken, places };
  }

  /** The sessions that are left from a place on, one more than a page looks into. */
  #sessions(
    root: SessionRow,
    visible: string | undefined,
    { after }: TreePlace,
  ): Promise<SessionRow[]> {
    return this.#store.listSessions({
      ...{ tenant: root.tenant, tree: treeOf(root), visibleToSubject: visible },
      ...{ ownerSubject: undefined, state: undefined },
      afterCreatePosition: (after > root.createPosition ? after : root.createPosition) - 1n,
      limit: SESSIONS_MAX + 1,
    });
  }

  /**
   * Takes records of one session until the page is full: how far it came, whether that was all of them, and where the
   * session stands. That is part of the page too, with the session's first record.
   */
  async #take<Item>(
    builder: PageBuilder<Item>,
    row: SessionRow,
    after: bigint,
    { family, itemOf }: TreeQuery<Item>,
  ): Promise<TakenRecords | Refusal> {
    const records = await this.#store.listRecords(row, {
      family,
      toolCallId: undefined,
      afterFirstSequence: after,
      limit: builder.rowsToRead - builder.items.length,
    });
    let within = after;
    if (records.length === 0) return { within, isWhole: true, place: [] };
    const place = await this.#placeOf(row);
    if (isRefusal(place)) return place;
    let sizeBytes = toBinary(SessionPlaceSchema, place).length;
    for (const indexed of records) {
      const sized = await sizedItem({ store: this.#store, session: row }, indexed, itemOf(row));
      if (isRefusal(sized)) return sized;
      sizeBytes += sized.sizeBytes;
      if (!builder.take(sized.item, indexed.firstSequence, sizeBytes)) {
        return { within, isWhole: false, place: [place] };
      }
      sizeBytes = 0;
      within = indexed.firstSequence;
    }
    return { within, isWhole: true, place: [place] };
  }

  async #placeOf(row: SessionRow): Promise<SessionPlace | Refusal> {
    const session = await findSessionRecord(this.#store, row);
    if (isRefusal(session)) return session;
    const { sessionId, delegationPath } = session;
    return create(SessionPlaceSchema, { sessionId, delegationPath });
  }
}
