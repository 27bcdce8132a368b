import { create, toBinary } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { EventSchema, type Event, type EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { HookSchema, type Hook } from "../../gen/toolmark/v1/hook_pb.js";
import { CheckpointSchema, SessionSchema, type Session } from "../../gen/toolmark/v1/session_pb.js";
import {
  ToolCallSchema,
  type ToolCall,
  type ToolResult,
} from "../../gen/toolmark/v1/tool_call_pb.js";
import { equalBytes } from "../domain/bytes.js";
import type { Limits } from "../domain/limits.js";
import { maySee, type Caller } from "../domain/principal.js";
import { isRefusal, refuse, refuseField, type Refusal } from "../domain/refusal.js";
import { sha256 } from "../domain/sha256.js";
import { refuseUnknownSession } from "./batch.js";
import { eventOf, openPayload, refuseDamaged } from "./event-codec.js";
import { PageBuilder, type Page } from "./page.js";
import { pageTokenOf, placeOf } from "./page-token.js";
import {
  RecordFamily,
  type BodyRow,
  type IndexedRecord,
  type SessionQuery,
  type SessionRow,
  type Store,
} from "./store-port.js";

/** Part of a body as it is streamed. */
export interface BodyChunk {
  readonly offsetBytes: bigint;
  readonly chunk: Uint8Array;
  readonly sizeBytes: bigint;
  readonly sha256: Uint8Array;
}

/** Which page of a list is wanted. */
export interface PageRequest {
  readonly pageSize: number;
  readonly pageToken: string;
}

export interface SessionFilter {
  readonly ownerSubject: string;
  readonly state: SessionRow["state"];
}

const CHUNK_BYTES = 256 * 1024;

/**
 * Reads committed records for callers who may see their session. Every row is checked against its commitment, every
 * body against its digest, before it is served.
 */
export class Reader {
  readonly #store: Store;
  readonly #limits: Limits;

  constructor(store: Store, limits: Limits) {
    this.#store = store;
    this.#limits = limits;
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
    const { ownerSubject, state } = filter;
    const query = ["sessions", caller.tenant, caller.scope, caller.subject, ownerSubject];
    query.push(String(state));
    const after = placeOf(query, page.pageToken);
    if (isRefusal(after)) return after;
    const builder = new PageBuilder<Session>(page.pageSize, this.#limits);
    const rows = await this.#store.listSessions({
      ...sessionQuery(caller, filter),
      afterCreatePosition: after,
      limit: builder.rowsToRead,
    });
    let taken = 0;
    for (const row of rows) {
      const session = await this.#sessionOf(row);
      if (isRefusal(session)) return session;
      const sizeBytes = toBinary(SessionSchema, session).length;
      if (!builder.take(session, row.createPosition, sizeBytes)) break;
      taken += 1;
    }
    return builder.page(taken < rows.length, (place) => pageTokenOf(query, place));
  }

  async getToolCall(
    caller: Caller,
    sessionId: string,
    toolCallId: string,
  ): Promise<ToolCall | Refusal> {
    const row = await this.#visible(caller, sessionId);
    if (isRefusal(row)) return row;
    const record = await this.#record(row, toolCallId);
    if (isRefusal(record)) return record;
    if (record?.case !== "toolCall") {
      return refuse(ErrorReason.TOOL_CALL_NOT_FOUND, "the session has no such tool call");
    }
    return this.#withBodies(row, record.value);
  }

  async getHook(caller: Caller, sessionId: string, hookId: string): Promise<Hook | Refusal> {
    const row = await this.#visible(caller, sessionId);
    if (isRefusal(row)) return row;
    const record = await this.#record(row, hookId);
    if (isRefusal(record)) return record;
    if (record?.case === "hook") return record.value;
    return refuse(ErrorReason.HOOK_NOT_FOUND, "the session has no such hook record");
  }

  async listToolCalls(
    caller: Caller,
    sessionId: string,
    page: PageRequest,
  ): Promise<Page<ToolCall> | Refusal> {
    const row = await this.#visible(caller, sessionId);
    if (isRefusal(row)) return row;
    return this.#listRecords(row, RecordFamily.toolCall, "", page, async ({ record }) => {
      if (record.case !== "toolCall") return undefined;
      const item = await this.#withBodies(row, record.value);
      return isRefusal(item) ? item : { item, sizeBytes: toBinary(ToolCallSchema, item).length };
    });
  }

  async listHooks(
    caller: Caller,
    sessionId: string,
    toolCallId: string,
    page: PageRequest,
  ): Promise<Page<Hook> | Refusal> {
    const row = await this.#visible(caller, sessionId);
    if (isRefusal(row)) return row;
    if (toolCallId !== "") {
      const call = await this.#record(row, toolCallId);
      if (isRefusal(call)) return call;
      if (call?.case !== "toolCall") {
        return refuse(ErrorReason.TOOL_CALL_NOT_FOUND, "the session has no such tool call");
      }
    }
    return this.#listRecords(row, RecordFamily.hook, toolCallId, page, ({ record }) => {
      if (record.case !== "hook") return Promise.resolve(undefined);
      const sizeBytes = toBinary(HookSchema, record.value).length;
      return Promise.resolve({ item: record.value, sizeBytes });
    });
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
    const place = placeOf(query, page.pageToken);
    if (isRefusal(place)) return place;
    const builder = new PageBuilder<Event>(page.pageSize, this.#limits);
    const after = place > afterSequence ? place : afterSequence;
    const bytesMax = this.#limits.outgoingMessageBytes;
    const rows = await this.#store.readEvents(row, after, builder.rowsToRead, bytesMax);
    let last = after;
    if (rows.length === 0 && last < row.head.sequence) return refuseDamaged(last + 1n);
    for (const event of rows) {
      if (event.sequence !== last + 1n) return refuseDamaged(last + 1n);
      const payload = openPayload(event);
      if (isRefusal(payload)) return payload;
      const item = eventOf(sessionId, event, payload);
      if (!builder.take(item, event.sequence, toBinary(EventSchema, item).length)) break;
      last = event.sequence;
    }
    return builder.page(last < row.head.sequence, (sequence) => pageTokenOf(query, sequence));
  }

  /** Reads a range of a body. The whole body is checked before the first part is given. */
  async readBody(
    caller: Caller,
    sessionId: string,
    bodyRef: string,
    range: { readonly offsetBytes: bigint; readonly limitBytes: bigint },
  ): Promise<Iterable<BodyChunk> | Refusal> {
    const row = await this.#visible(caller, sessionId);
    if (isRefusal(row)) return row;
    const body = await this.#store.readBody(row, bodyRef);
    if (body === undefined) {
      return refuse(ErrorReason.BODY_NOT_FOUND, "the session has no such body");
    }
    if (!equalBytes(sha256(body.data), body.sha256)) return refuseDamagedBody(bodyRef);
    if (range.offsetBytes > BigInt(body.data.length)) {
      return refuseField("offset_bytes", "is above the size of the body");
    }
    return chunksOf(body, range.offsetBytes, range.limitBytes);
  }

  /** The session's row, or one answer for what is not there and what the caller may not know of. */
  async #visible(caller: Caller, sessionId: string): Promise<SessionRow | Refusal> {
    const row = await this.#store.findSession({ tenant: caller.tenant, sessionId });
    return row === undefined || !maySee(caller, row) ? refuseUnknownSession() : row;
  }

  async #sessionOf(row: SessionRow): Promise<Session | Refusal> {
    const { head, sessionId } = row;
    const event = await this.#store.readEvent(row, head.sessionSequence);
    if (event === undefined) return refuseDamaged(head.sessionSequence);
    const payload = openPayload(event);
    if (isRefusal(payload)) return payload;
    const record = payload.record?.record;
    if (record?.case !== "session") return refuseDamaged(head.sessionSequence);
    const { position, sequence, chain } = head;
    return create(SessionSchema, {
      ...record.value,
      ...(head.activeRunId === undefined ? {} : { activeRunId: head.activeRunId }),
      highWater: head.highWater,
      updateTime: timestampFromMs(head.updateTimeMs),
      checkpoint: create(CheckpointSchema, { sessionId, position, sequence, chain }),
    });
  }

  async #record(
    row: SessionRow,
    recordId: string,
  ): Promise<EventRecord["record"] | undefined | Refusal> {
    const found = await this.#store.findRecord(row, recordId);
    if (found === undefined) return undefined;
    const payload = openPayload(found.event);
    return isRefusal(payload) ? payload : payload.record?.record;
  }

  async #listRecords<Item>(
    row: SessionRow,
    family: RecordFamily,
    toolCallId: string,
    page: PageRequest,
    itemOf: (record: EventRecord) => Promise<SizedItem<Item> | Refusal | undefined>,
  ): Promise<Page<Item> | Refusal> {
    const query = ["records", row.tenant, row.sessionId, String(family), toolCallId];
    const after = placeOf(query, page.pageToken);
    if (isRefusal(after)) return after;
    const builder = new PageBuilder<Item>(page.pageSize, this.#limits);
    const rows = await this.#store.listRecords(row, {
      family,
      toolCallId: toolCallId === "" ? undefined : toolCallId,
      afterFirstSequence: after,
      limit: builder.rowsToRead,
    });
    for (const indexed of rows) {
      const sized = await sizedItem(indexed, itemOf);
      if (isRefusal(sized)) return sized;
      if (!builder.take(sized.item, indexed.firstSequence, sized.sizeBytes)) break;
    }
    const hasMore = builder.items.length < rows.length;
    return builder.page(hasMore, (place) => pageTokenOf(query, place));
  }

  async #withBodies(row: SessionRow, call: ToolCall): Promise<ToolCall | Refusal> {
    const proposed = await this.#withData(row, call.proposed);
    if (isRefusal(proposed)) return proposed;
    const effective = await this.#withData(row, call.effective);
    if (isRefusal(effective)) return effective;
    const result = await this.#resultWithData(row, call.result);
    if (isRefusal(result)) return result;
    const lateResult = await this.#resultWithData(row, call.lateResult);
    if (isRefusal(lateResult)) return lateResult;
    return { ...call, proposed, effective, result, lateResult };
  }

  async #resultWithData(
    row: SessionRow,
    result: ToolResult | undefined,
  ): Promise<ToolResult | undefined | Refusal> {
    if (result === undefined) return undefined;
    const content = await this.#withData(row, result.content);
    return isRefusal(content) ? content : { ...result, content };
  }

  async #withData(row: SessionRow, body: Body | undefined): Promise<Body | undefined | Refusal> {
    if (body === undefined || body.sizeBytes > BigInt(this.#limits.inlineBodyBytes)) return body;
    const stored = await this.#store.readBody(row, body.bodyRef);
    if (stored === undefined || !equalBytes(sha256(stored.data), body.sha256)) {
      return refuseDamagedBody(body.bodyRef);
    }
    return { ...body, data: stored.data };
  }
}

interface SizedItem<Item> {
  readonly item: Item;
  readonly sizeBytes: number;
}

async function sizedItem<Item>(
  { event }: IndexedRecord,
  itemOf: (record: EventRecord) => Promise<SizedItem<Item> | Refusal | undefined>,
): Promise<SizedItem<Item> | Refusal> {
  const payload = openPayload(event);
  if (isRefusal(payload)) return payload;
  const item = payload.record === undefined ? undefined : await itemOf(payload.record);
  return item ?? refuseDamaged(event.sequence);
}

function sessionQuery(
  caller: Caller,
  { ownerSubject, state }: SessionFilter,
): Omit<SessionQuery, "afterCreatePosition" | "limit"> {
  return {
    tenant: caller.tenant,
    visibleToSubject: caller.scope === "tenant" ? undefined : caller.subject,
    ownerSubject: ownerSubject === "" ? undefined : ownerSubject,
    state: state === 0 ? undefined : state,
  };
}

function refuseDamagedBody(bodyRef: string): Refusal {
  return refuse(ErrorReason.DATA_DAMAGED, "a body does not match its digest and is not served", {
    id: bodyRef,
  });
}

function* chunksOf(body: BodyRow, offset: bigint, limit: bigint): Generator<BodyChunk> {
  const size = body.data.length;
  const start = Number(offset);
  const end = limit === 0n ? size : Math.min(size, start + Number(limit));
  let at = start;
  do {
    const chunk = body.data.subarray(at, Math.min(at + CHUNK_BYTES, end));
    yield {
      offsetBytes: BigInt(at),
      chunk,
      sizeBytes: BigInt(size),
      sha256: body.sha256,
    };
    at += CHUNK_BYTES;
  } while (at < end);
}
