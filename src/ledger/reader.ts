import { create, toBinary } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { AuthorizationSchema, type Authorization } from "../../gen/toolmark/v1/authorization_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { EventSchema, type Event, type EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type {
  ListHooksRequest,
  ListToolCallsRequest,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { HookSchema, type Hook } from "../../gen/toolmark/v1/hook_pb.js";
import { ReceiptSchema, type Receipt } from "../../gen/toolmark/v1/receipt_pb.js";
import {
  CheckpointSchema,
  SessionSchema,
  SessionState,
  type Session,
} from "../../gen/toolmark/v1/session_pb.js";
import { ToolCallSchema, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import type { Limits } from "../domain/limits.js";
import type { Caller } from "../domain/principal.js";
import { isRefusal, refuse, type Refusal } from "../domain/refusal.js";
import { BodyReader, type BodyChunk, type BodyRange } from "./body-reader.js";
import { isIntactSession } from "./checksums.js";
import { eventOf, followsChain, openPayload, refuseDamaged } from "./event-codec.js";
import { raisedHighWater } from "./load-session.js";
import { PageBuilder, type Page, type PageRequest } from "./page.js";
import { pageTokenOf, placeOf, recordPlaceOf } from "./page-token.js";
import { chainAt } from "./read-log.js";
import { sizedItem, type ItemOf, type SizedItem } from "./sized-item.js";
import { treeOf } from "./standing.js";
import { findRecord, findSessionRecord } from "./stored-record.js";
import { RecordFamily, type SessionQuery, type SessionRow, type Store } from "./store-port.js";
import { findVisible, visibleToSubject } from "./visibility.js";
import { TranscriptReader } from "./transcript.js";
import { TreeReader, type TreePage } from "./tree-reader.js";

export interface SessionFilter {
  readonly ownerSubject: string;
  readonly state: SessionRow["state"];
  /** Only sessions below it. Empty: all. */
  readonly ancestorSessionId: string;
}

/** Which calls are wanted, as ListToolCalls says it. */
export type ListToolCallsFilter = Pick<ListToolCallsRequest, "sessionId" | "includeDescendants">;

/** Which hook records are wanted, as ListHooks says it. */
export type ListHooksFilter = Pick<
  ListHooksRequest,
  "sessionId" | "toolCallId" | "includeDescendants"
>;

/**
 * Reads committed records for callers who may see their session. Every row is checked against its commitment, every
 * body against its digest, before it is served.
 */
export class Reader {
  readonly transcripts: TranscriptReader;
  readonly #store: Store;
  readonly #limits: Limits;
  readonly #bodies: BodyReader;
  readonly #trees: TreeReader;

  constructor(store: Store, limits: Limits) {
    this.#store = store;
    this.transcripts = new TranscriptReader(store, limits);
    this.#trees = new TreeReader(store, limits);
    this.#limits = limits;
    this.#bodies = new BodyReader(store, limits.inlineBodyBytes);
  }

  async getSession(caller: Caller, sessionId: string): Promise<Session | Refusal> {
    const row = await this.#visible(caller, sessionId);
    return isRefusal(row) ? row : this.#sessionOf(row);
  }

  async listSessions(
    caller: Caller,
    filter: SessionFilter,
    page: PageRequest,
  ): Promise<Page<Session> | Refusal> {
    const { ownerSubject, state, ancestorSessionId } = filter;
    const ancestor =
      ancestorSessionId === "" ? undefined : await this.#visible(caller, ancestorSessionId);
    if (isRefusal(ancestor)) return ancestor;
    const query = ["sessions", caller.tenant, caller.scope, caller.subject, ownerSubject];
    query.push(String(state), ancestorSessionId);
    const after = placeOf(this.#store, query, page.pageToken);
    if (isRefusal(after)) return after;
    const builder = new PageBuilder<Session>(page.pageSize, this.#limits);
    const rows = await this.#store.listSessions({
      ...sessionQuery(caller, filter),
      tree: ancestor && treeOf(ancestor),
      // Every session below another one was created after it.
      afterCreatePosition: after === 0n && ancestor !== undefined ? ancestor.createPosition : after,
      limit: builder.rowsToRead,
    });
    let taken = 0;
    for (const row of rows) {
      // A row that is not as it was written says nothing that could be listed.
      if (!isIntactSession(row)) {
        taken += 1;
        continue;
      }
      const whole = await this.#sessionOf(row);
      // One damaged session must not hide those listed after it.
      const session = isRefusal(whole) ? this.#withHead(bareSession(row), row) : whole;
      const sizeBytes = toBinary(SessionSchema, session).length;
      if (!builder.take(session, row.createPosition, sizeBytes)) break;
      taken += 1;
    }
    return builder.page(taken < rows.length, (place) => pageTokenOf(this.#store, query, place));
  }

  async getToolCall(
    caller: Caller,
    sessionId: string,
    toolCallId: string,
  ): Promise<ToolCall | Refusal> {
    const row = await this.#visible(caller, sessionId);
    if (isRefusal(row)) return row;
    const record = await findRecord(this.#store, row, toolCallId);
    if (isRefusal(record)) return record;
    if (record?.case !== "toolCall") {
      return refuse(ErrorReason.TOOL_CALL_NOT_FOUND, "the session has no such tool call");
    }
    return this.#bodies.withData(row, record.value);
  }

  async getHook(caller: Caller, sessionId: string, hookId: string): Promise<Hook | Refusal> {
    const record = await this.#recordFor(caller, sessionId, hookId);
    if (isRefusal(record)) return record;
    if (record?.case === "hook") return record.value;
    return refuse(ErrorReason.HOOK_NOT_FOUND, "the session has no such hook record");
  }

  /** A hook record that is a review. */
  async getReview(caller: Caller, sessionId: string, reviewId: string): Promise<Hook | Refusal> {
    const hook = await this.getHook(caller, sessionId, reviewId);
    if (isRefusal(hook) || hook.review !== undefined) return hook;
    return refuse(ErrorReason.HOOK_NOT_FOUND, "the session has no such review");
  }

  async getReceipt(
    caller: Caller,
    sessionId: string,
    receiptId: string,
  ): Promise<Receipt | Refusal> {
    const record = await this.#recordFor(caller, sessionId, receiptId);
    if (isRefusal(record)) return record;
    if (record?.case === "receipt") return record.value;
    return refuse(ErrorReason.RECEIPT_NOT_FOUND, "the session has no such receipt");
  }

  async getAuthorization(
    caller: Caller,
    sessionId: string,
    authorizationId: string,
  ): Promise<Authorization | Refusal> {
    const record = await this.#recordFor(caller, sessionId, authorizationId);
    if (isRefusal(record)) return record;
    if (record?.case === "authorization") return record.value;
    return refuse(ErrorReason.AUTHORIZATION_NOT_FOUND, "the session has no such authorization");
  }

  async listToolCalls(
    caller: Caller,
    { sessionId, includeDescendants }: ListToolCallsFilter,
    page: PageRequest,
  ): Promise<TreePage<ToolCall> | Refusal> {
    const row = await this.#visible(caller, sessionId);
    if (isRefusal(row)) return row;
    const family = RecordFamily.toolCall;
    const itemOf = (of: SessionRow) => this.#toolCallItem(of);
    if (includeDescendants) return this.#trees.list(caller, row, { family, itemOf }, page);
    return alone(await this.#listRecords(row, { family, toolCallId: "" }, page, itemOf(row)));
  }

  #toolCallItem(row: SessionRow): ItemOf<ToolCall> {
    return async ({ record }) => {
      if (record.case !== "toolCall") return undefined;
      const item = await this.#bodies.withData(row, record.value);
      return isRefusal(item) ? item : { item, sizeBytes: toBinary(ToolCallSchema, item).length };
    };
  }

  async listHooks(
    caller: Caller,
    { sessionId, toolCallId, includeDescendants }: ListHooksFilter,
    page: PageRequest,
  ): Promise<TreePage<Hook> | Refusal> {
    const family = RecordFamily.hook;
    if (!includeDescendants) {
      return alone(
        await this.#listEvidence(caller, { sessionId, toolCallId, family }, page, hookItem),
      );
    }
    const row = await this.#visible(caller, sessionId);
    if (isRefusal(row)) return row;
    const itemOf =
      (): ItemOf<Hook> =>
      async ({ record }) =>
        hookItem(record);
    return this.#trees.list(caller, row, { family, itemOf }, page);
  }

  listReceipts(
    caller: Caller,
    sessionId: string,
    toolCallId: string,
    page: PageRequest,
  ): Promise<Page<Receipt> | Refusal> {
    const which = { sessionId, toolCallId, family: RecordFamily.receipt };
    return this.#listEvidence(caller, which, page, (record) =>
      record.case === "receipt"
        ? { item: record.value, sizeBytes: toBinary(ReceiptSchema, record.value).length }
        : undefined,
    );
  }

  listAuthorizations(
    caller: Caller,
    sessionId: string,
    toolCallId: string,
    page: PageRequest,
  ): Promise<Page<Authorization> | Refusal> {
    const which = { sessionId, toolCallId, family: RecordFamily.authorization };
    return this.#listEvidence(caller, which, page, (record) =>
      record.case === "authorization"
        ? { item: record.value, sizeBytes: toBinary(AuthorizationSchema, record.value).length }
        : undefined,
    );
  }

  async listEvents(
    caller: Caller,
    sessionId: string,
    afterSequence: bigint,
    page: PageRequest,
  ): Promise<Page<Event> | Refusal> {
    const row = await this.#visible(caller, sessionId);
    if (isRefusal(row)) return row;
    const query = ["events", row.tenant, sessionId, afterSequence.toString()];
    const place = placeOf(this.#store, query, page.pageToken);
    if (isRefusal(place)) return place;
    const builder = new PageBuilder<Event>(page.pageSize, this.#limits);
    const after = place > afterSequence ? place : afterSequence;
    const bytesMax = this.#limits.outgoingMessageBytes;
    const rows = await this.#store.readEvents(row, after, builder.rowsToRead, bytesMax);
    let last = after;
    let chain = await chainAt(this.#store, row, after);
    if (rows.length === 0 && last < row.head.sequence) return refuseDamaged(last + 1n);
    for (const event of rows) {
      const follows = event.sequence === last + 1n && followsChain(sessionId, chain, event);
      if (!follows) return refuseDamaged(last + 1n);
      const payload = openPayload(event);
      if (isRefusal(payload)) return payload;
      const item = eventOf(sessionId, event, payload);
      if (!builder.take(item, event.sequence, toBinary(EventSchema, item).length)) break;
      last = event.sequence;
      chain = event.chain;
    }
    return builder.page(last < row.head.sequence, (sequence) =>
      pageTokenOf(this.#store, query, sequence),
    );
  }

  /** Reads a range of a body. The whole body is checked before the first part is given. */
  async readBody(
    caller: Caller,
    sessionId: string,
    bodyRef: string,
    range: BodyRange,
  ): Promise<Iterable<BodyChunk> | Refusal> {
    const row = await this.#visible(caller, sessionId);
    if (isRefusal(row)) return row;
    return this.#bodies.read(row, bodyRef, range);
  }

  async #recordFor(
    caller: Caller,
    sessionId: string,
    recordId: string,
  ): Promise<EventRecord["record"] | undefined | Refusal> {
    const row = await this.#visible(caller, sessionId);
    return isRefusal(row) ? row : findRecord(this.#store, row, recordId);
  }

  #visible(caller: Caller, sessionId: string): Promise<SessionRow | Refusal> {
    return findVisible(this.#store, caller, sessionId);
  }

  async #sessionOf(row: SessionRow): Promise<Session | Refusal> {
    const session = await findSessionRecord(this.#store, row);
    return isRefusal(session) ? session : this.#withHead(session, row);
  }

  /** The log's generation raises every high-water, also of a session that was not written to since. */
  #withHead(session: Session, { sessionId, head }: SessionRow): Session {
    const { position, sequence, chain, activeRunId, highWater } = head;
    return create(SessionSchema, {
      ...session,
      ...(activeRunId === undefined ? {} : { activeRunId }),
      highWater: raisedHighWater(this.#store, highWater),
      updateTime: timestampFromMs(head.updateTimeMs),
      checkpoint: create(CheckpointSchema, { sessionId, position, sequence, chain }),
    });
  }

  /** Evidence of a session, or about one call of it. */
  async #listEvidence<Item>(
    caller: Caller,
    which: EvidenceQuery,
    page: PageRequest,
    itemOf: (record: EventRecord["record"]) => SizedItem<Item> | undefined,
  ): Promise<Page<Item> | Refusal> {
    const { sessionId, toolCallId } = which;
    const row = await this.#visible(caller, sessionId);
    if (isRefusal(row)) return row;
    if (toolCallId !== "") {
      const call = await findRecord(this.#store, row, toolCallId);
      if (isRefusal(call)) return call;
      if (call?.case !== "toolCall") {
        return refuse(ErrorReason.TOOL_CALL_NOT_FOUND, "the session has no such tool call");
      }
    }
    return this.#listRecords(row, which, page, ({ record }) => Promise.resolve(itemOf(record)));
  }

  async #listRecords<Item>(
    row: SessionRow,
    { family, toolCallId }: { readonly family: RecordFamily; readonly toolCallId: string },
    page: PageRequest,
    itemOf: ItemOf<Item>,
  ): Promise<Page<Item> | Refusal> {
    const query = ["records", row.tenant, row.sessionId, String(family), toolCallId];
    const after = recordPlaceOf(this.#store, query, page.pageToken);
    if (isRefusal(after)) return after;
    const builder = new PageBuilder<Item>(page.pageSize, this.#limits);
    const rows = await this.#store.listRecords(row, {
      family,
      toolCallId: toolCallId === "" ? undefined : toolCallId,
      afterFirstSequence: after,
      limit: builder.rowsToRead,
    });
    for (const indexed of rows) {
      const sized = await sizedItem({ store: this.#store, session: row }, indexed, itemOf);
      if (isRefusal(sized)) return sized;
      if (!builder.take(sized.item, indexed.firstSequence, sized.sizeBytes)) break;
    }
    const hasMore = builder.items.length < rows.length;
    return builder.page(hasMore, (place) => pageTokenOf(this.#store, query, place));
  }
}

function hookItem(record: EventRecord["record"]): SizedItem<Hook> | undefined {
  if (record.case !== "hook") return undefined;
  return { item: record.value, sizeBytes: toBinary(HookSchema, record.value).length };
}

/** A page of one session, which needs no word about where it stands. */
function alone<Item>(page: Page<Item> | Refusal): TreePage<Item> | Refusal {
  return isRefusal(page) ? page : { ...page, places: [] };
}

interface EvidenceQuery {
  readonly sessionId: string;
  /** Empty: about any call, or none. */
  readonly toolCallId: string;
  readonly family: RecordFamily;
}

/** What is known of a session without its record. */
function bareSession({ sessionId, ownerSubject, state }: SessionRow): Session {
  return create(SessionSchema, { sessionId, ownerSubject, state });
}

function sessionQuery(
  caller: Caller,
  { ownerSubject, state }: SessionFilter,
): Omit<SessionQuery, "afterCreatePosition" | "limit" | "tree"> {
  return {
    tenant: caller.tenant,
    visibleToSubject: visibleToSubject(caller),
    ownerSubject: ownerSubject === "" ? undefined : ownerSubject,
    state: state === SessionState.UNSPECIFIED ? undefined : state,
  };
}
