import { create, toBinary } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import {
  ShownAskSchema,
  type ListAsksRequest,
  type ShownAsk,
} from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskSchema, AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import type { Receipt } from "../../gen/toolmark/v1/receipt_pb.js";
import { deadlineMsOf } from "../domain/deadline.js";
import type { Limits } from "../domain/limits.js";
import { maySee, type Caller, type SessionOwnership } from "../domain/principal.js";
import { isRefusal, refuse, type Refusal } from "../domain/refusal.js";
import type { AnswerTokens } from "./answer-token.js";
import { BodyReader } from "./body-reader.js";
import { isIntactSession } from "./checksums.js";
import { openAsk } from "./event-codec.js";
import { PageBuilder, type Page, type PageRequest } from "./page.js";
import { pageTokenOf, placeOf } from "./page-token.js";
import { treeOf } from "./standing.js";
import { findRecord } from "./stored-record.js";
import type { AskQuery, AskScope, IndexedAsk, SessionRef, Store } from "./store-port.js";
import { findVisible, visibleToSubject } from "./visibility.js";

/** A caller who reads asks, and as what they may answer. */
export interface Viewer {
  readonly caller: Caller;
  /** Absent if the caller has no approver role. */
  readonly approver: Caller | undefined;
}

/** Which asks are wanted, as ListAsks says it. */
export type AskFilter = Pick<
  ListAsksRequest,
  | "sessionId"
  | "includeDescendants"
  | "state"
  | "ownerSubject"
  | "toolName"
  | "createdBefore"
  | "createdAfter"
  | "expiringBefore"
>;

/** An ask and how it was settled. */
export interface SettledAsk {
  readonly ask: Ask;
  /** Absent while the ask is open, and if it was superseded. */
  readonly receipt: Receipt | undefined;
}

/** Whose asks a watch is about, where it goes on, and how many are read at a time. */
export interface AskRange {
  readonly scope: AskScope;
  readonly afterPosition: bigint;
  readonly limit: number;
}

export interface AskReaderOptions {
  readonly store: Store;
  readonly limits: Limits;
  readonly tokens: AnswerTokens;
}

/**
 * Reads committed asks for callers who may see their session. Every row is checked against its commitment before it is
 * served. Answer tokens are shown for open asks, to callers who may answer those of the session.
 */
export class AskReader {
  readonly #store: Store;
  readonly #limits: Limits;
  readonly #tokens: AnswerTokens;
  readonly #bodies: BodyReader;

  constructor({ store, limits, tokens }: AskReaderOptions) {
    this.#store = store;
    this.#limits = limits;
    this.#tokens = tokens;
    this.#bodies = new BodyReader(store, limits.inlineBodyBytes);
  }

  async getAsk(viewer: Viewer, sessionId: string, askId: string): Promise<ShownAsk | Refusal> {
    const session = await findVisible(this.#store, viewer.caller, sessionId);
    if (isRefusal(session)) return session;
    const ask = await this.#ask(session, askId);
    return isRefusal(ask) ? ask : this.#shown(viewer, session, ask);
  }

  /** The asks that match, in the order of opening. */
  async listAsks(
    viewer: Viewer,
    filter: AskFilter,
    page: PageRequest,
  ): Promise<Page<ShownAsk> | Refusal> {
    const scope = await this.scopeOf(viewer.caller, filter);
    if (isRefusal(scope)) return scope;
    const name = queryName(viewer.caller, filter);
    const after = placeOf(this.#store, name, page.pageToken);
    if (isRefusal(after)) return after;
    const builder = new PageBuilder<ShownAsk>(page.pageSize, this.#limits);
    const rows = await this.#store.listAsks({
      ...queryOf(scope, filter),
      afterPosition: after,
      limit: builder.rowsToRead,
    });
    for (const row of rows) {
      const shown = await this.show(viewer, scope, row);
      if (isRefusal(shown)) return shown;
      if (!builder.take(shown, row.position, toBinary(ShownAskSchema, shown).length)) break;
    }
    const hasMore = builder.items.length < rows.length;
    return builder.page(hasMore, (place) => pageTokenOf(this.#store, name, place));
  }

  /** The ask as it stands, with its receipt. */
  async askAndReceipt(
    caller: Caller,
    sessionId: string,
    askId: string,
  ): Promise<SettledAsk | Refusal> {
    const session = await findVisible(this.#store, caller, sessionId);
    if (isRefusal(session)) return session;
    const ask = await this.#ask(session, askId);
    if (isRefusal(ask)) return ask;
    if (ask.receiptId === undefined) return { ask, receipt: undefined };
    const record = await findRecord(this.#store, session, ask.receiptId);
    if (isRefusal(record)) return record;
    // The two were committed together.
    if (record?.case !== "receipt") return refuseDamagedRecord(ask.receiptId);
    return { ask, receipt: record.value };
  }

  /** The asks of one session, which the caller must be allowed to know of, or of its tree, or of all that they may. */
  async scopeOf(
    caller: Caller,
    { sessionId, includeDescendants }: Pick<AskFilter, "sessionId" | "includeDescendants">,
  ): Promise<AskScope | Refusal> {
    const visible = { tenant: caller.tenant, visibleToSubject: visibleToSubject(caller) };
    if (sessionId === "") return { ...visible, sessionId: undefined, tree: undefined };
    const session = await findVisible(this.#store, caller, sessionId);
    if (isRefusal(session)) return session;
    return { ...visible, sessionId, tree: includeDescendants ? treeOf(session) : undefined };
  }

  /** Open asks of a range, opened at or before a position, in the order of opening: rows for `show`. */
  openAsks(
    { scope, afterPosition, limit }: AskRange,
    untilPosition: bigint,
  ): Promise<readonly IndexedAsk[]> {
    return this.#store.listAsks({
      ...scope,
      ...ANY_ASK,
      state: AskState.OPEN,
      afterPosition,
      untilPosition,
      limit,
    });
  }

  /** Asks of a range in the order of their last event: rows for `show`. */
  askChanges({ scope, afterPosition, limit }: AskRange): Promise<readonly IndexedAsk[]> {
    return this.#store.listAskChanges({ ...scope, afterPosition, limit });
  }

  /** A row as its viewer sees it. A damaged one is refused within one session, and bare among those of several. */
  async show(viewer: Viewer, scope: AskScope, row: IndexedAsk): Promise<ShownAsk | Refusal> {
    const ask = openAsk(row);
    const shown = isRefusal(ask) ? ask : await this.#shownIn(scope, viewer, row, ask);
    const isOfOne = scope.sessionId !== undefined && scope.tree === undefined;
    if (!isRefusal(shown) || isOfOne) return shown;
    // One damaged ask must not hide the others.
    return this.#bare(row);
  }

  /** What is certain of an ask whose record is damaged: which one it is, if the rest of the store says so as well. */
  async #bare(row: IndexedAsk): Promise<ShownAsk> {
    const session = await this.#store.findSession(row);
    const place = await this.#store.findRecord(row, row.askId);
    const isKnown = session !== undefined && isIntactSession(session);
    if (!isKnown || place?.toolCallId !== row.toolCallId) return create(ShownAskSchema);
    return create(ShownAskSchema, { ask: bareAsk(row), ownerSubject: session.ownerSubject });
  }

  async #ask(session: SessionRef, askId: string): Promise<Ask | Refusal> {
    const record = await findRecord(this.#store, session, askId);
    if (isRefusal(record)) return record;
    if (record?.case === "ask") return record.value;
    return refuse(ErrorReason.ASK_NOT_FOUND, "the session has no such ask");
  }

  /** Rows of sessions say what stands below what: an ask that says otherwise itself was found by an altered one. */
  async #shownIn(
    { tree }: AskScope,
    viewer: Viewer,
    row: IndexedAsk,
    ask: Ask,
  ): Promise<ShownAsk | Refusal> {
    const above = ask.delegationPath.map(({ sessionId }) => sessionId);
    const isInTree = tree === undefined || [row.sessionId, ...above].includes(tree.sessionId);
    return isInTree ? this.#shown(viewer, row, ask) : refuseDamagedRecord(row.askId);
  }

  async #shown(
    { approver }: Viewer,
    session: SessionRef & SessionOwnership,
    stored: Ask,
  ): Promise<ShownAsk | Refusal> {
    const ask = await this.#bodies.askWithData(session, stored);
    if (isRefusal(ask)) return ask;
    const isOpen = ask.state === AskState.OPEN;
    const mayAnswer = approver !== undefined && maySee(approver, session);
    const answerToken = isOpen && mayAnswer ? this.#tokens.tokenOf(session, ask) : "";
    return create(ShownAskSchema, { ask, answerToken, ownerSubject: session.ownerSubject });
  }
}

/** A filter that lets every ask pass. */
const ANY_ASK = {
  ownerSubject: undefined,
  toolName: undefined,
  createFromMs: undefined,
  createBeforeMs: undefined,
  expireBeforeMs: undefined,
} as const;

/** Everything that a page token's list was asked with. */
function queryName(caller: Caller, filter: AskFilter): string[] {
  const { tenant, scope } = caller;
  return [
    ...["asks", tenant, scope, visibleToSubject(caller) ?? ""],
    ...[filter.sessionId, String(filter.includeDescendants), String(stateOf(filter))],
    ...[filter.ownerSubject, filter.toolName],
    ...[filter.createdBefore, filter.createdAfter, filter.expiringBefore].map(timeName),
  ];
}

function queryOf(scope: AskScope, filter: AskFilter): Omit<AskQuery, "afterPosition" | "limit"> {
  return {
    ...scope,
    state: stateOf(filter),
    ownerSubject: filter.ownerSubject === "" ? undefined : filter.ownerSubject,
    toolName: filter.toolName === "" ? undefined : filter.toolName,
    createFromMs: msOf(filter.createdAfter),
    createBeforeMs: msOf(filter.createdBefore),
    expireBeforeMs: msOf(filter.expiringBefore),
    untilPosition: undefined,
  };
}

function stateOf({ state }: AskFilter): AskState {
  return state === AskState.UNSPECIFIED ? AskState.OPEN : state;
}

/** Times are kept in whole milliseconds: one is before a time exactly if it is before this. */
function msOf(time: Timestamp | undefined): number | undefined {
  return time === undefined ? undefined : deadlineMsOf(time);
}

function timeName(time: Timestamp | undefined): string {
  return time === undefined ? "" : `${time.seconds}.${time.nanos}`;
}

/** What is known of an ask without its record. */
function bareAsk({ askId, sessionId, toolCallId }: IndexedAsk): Ask {
  return create(AskSchema, { askId, origin: { sessionId }, toolCallId });
}

function refuseDamagedRecord(id: string): Refusal {
  return refuse(ErrorReason.DATA_DAMAGED, "a record is missing or another than the index says", {
    id,
  });
}
