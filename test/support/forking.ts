import { createHash } from "node:crypto";
import { fromBinary, toJson } from "@bufbuild/protobuf";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { BaseStateSchema, type BaseState } from "../../gen/toolmark/v1/base_state_pb.js";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import { EventRecordSchema, type Event, type EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { SpendState } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunState } from "../../gen/toolmark/v1/run_pb.js";
import type { Forked, Session } from "../../gen/toolmark/v1/session_pb.js";
import { recordIdOf } from "../../src/domain/record-id.js";
import { allEvents, freshRequestId, given } from "./conversation.js";
import type { Clients } from "./service.js";

export type AnyRecord = EventRecord["record"];

/** Copies a session, up to its head unless a sequence is given. */
export async function fork(
  clients: Clients,
  sessionId: string,
  throughSequence = 0n,
  requestId = freshRequestId(),
): Promise<Session> {
  const request = { requestId, sessionId, throughSequence };
  return given((await clients.sessions.forkSession(request)).session, "session");
}

/** The first event's record of a fork. */
export function forkedOf([first]: readonly Event[]): Forked {
  const record = first?.record?.record;
  if (record?.case !== "forked") throw new Error("the session does not begin as a fork");
  return record.value;
}

export async function readBytes(
  { history }: Clients,
  sessionId: string,
  bodyRef: string,
): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const { chunk } of history.readBody({ sessionId, bodyRef })) chunks.push(chunk);
  return Buffer.concat(chunks);
}

export async function readBase(clients: Clients, sessionId: string): Promise<BaseState> {
  const { base } = forkedOf(await allEvents(clients, sessionId));
  const { bodyRef } = given(base, "base");
  return fromBinary(BaseStateSchema, await readBytes(clients, sessionId, bodyRef));
}

/** The id of a record that has one of its own, of all but sessions and compactions. */
export function idOf(record: AnyRecord): string | undefined {
  return record.case === "session" || record.case === "forked" ? undefined : recordIdOf(record);
}

/** What still waits for somebody or something. */
export function isUnfinished(record: AnyRecord): boolean {
  switch (record.case) {
    case "run":
      return record.value.state === RunState.ACTIVE;
    case "ask":
      return record.value.state === AskState.OPEN;
    case "receipt":
      return record.value.spendState === SpendState.UNSPENT;
    case "authorization":
      return record.value.state === AuthorizationState.PENDING;
    case "toolCall":
      return record.value.result === undefined;
    default:
      return false;
  }
}

/** Each record of a log as of an event, in the order of their first; before them those that the session copied. */
export function recordsAsOf(
  events: readonly Event[],
  through: bigint,
  base?: BaseState,
): Map<string, AnyRecord> {
  const records = new Map<string, AnyRecord>();
  const brought = (base?.records ?? []).flatMap(({ record }) => record ?? []);
  const written = events.filter(({ sequence }) => sequence <= through);
  for (const { record } of [...brought, ...written.flatMap((event) => event.record ?? [])]) {
    const id = idOf(record);
    if (id !== undefined) records.set(id, record);
  }
  return records;
}

/** The turns of a log that go on after an event: one of their calls has no result yet. */
export function openTurns(records: ReadonlyMap<string, AnyRecord>): string[] {
  const lacksResult = (id: string): boolean => {
    const call = records.get(id);
    return call?.case !== "toolCall" || call.value.result === undefined;
  };
  return [...records.values()].flatMap((record) =>
    record.case === "turn" && record.value.toolCallIds.some(lacksResult)
      ? [record.value.turnId]
      : [],
  );
}

/** The highest event at or before another after which no turn goes on: by trying each. */
export function highestPoint(events: readonly Event[], through: bigint, base?: BaseState): bigint {
  let point = through;
  while (point > 1n && openTurns(recordsAsOf(events, point, base)).length > 0) point -= 1n;
  return point;
}

/** A record as text, without what a fork changes: the references of bodies and where a call was copied from. */
export function plain(record: AnyRecord): string {
  const json = toJson(EventRecordSchema, { $typeName: "toolmark.v1.EventRecord", record });
  const changed: ReadonlySet<string> = new Set(["bodyRef", "inheritedFromSessionId", "data"]);
  return JSON.stringify(json, (key, value: unknown) => (changed.has(key) ? undefined : value));
}

/** The bodies of a record whose bytes the service has. */
export function bodiesIn(record: AnyRecord): Body[] {
  const bodies: (Body | undefined)[] = [];
  if (record.case === "message") bodies.push(record.value.content);
  if (record.case === "ask") bodies.push(record.value.presented);
  if (record.case === "toolCall") {
    const { proposed, effective, result, lateResult } = record.value;
    bodies.push(proposed, effective, result?.content, lateResult?.content);
  }
  return bodies.flatMap((body) => (body === undefined || body.bodyRef === "" ? [] : [body]));
}

/** A log, and what its session copied itself. */
export interface SourceLog {
  readonly sessionId: string;
  readonly events: readonly Event[];
  readonly base?: BaseState | undefined;
}

export function copiedIn({ records }: BaseState): AnyRecord[] {
  return records.map(({ record }) => record?.record ?? { case: undefined });
}

/** What is wrong with a base state, held against the events of its source. */
export function baseFaults(source: SourceLog, point: bigint, base: BaseState): string[] {
  const faults: string[] = [];
  const asOf = [...recordsAsOf(source.events, point, source.base).values()];
  const expected = asOf.filter((record) => !isUnfinished(record)).map(plain);
  const copied = copiedIn(base);
  if (JSON.stringify(copied.map(plain)) !== JSON.stringify(expected)) {
    faults.push("the copied records are not those of the source");
  }
  const ids = new Set(copied.map(idOf));
  for (const record of copied) {
    if (record.case === "toolCall" && record.value.inheritedFromSessionId !== source.sessionId) {
      faults.push(`${record.value.toolCallId} is not marked as copied`);
    }
    if (record.case === "ask" && !ids.has(record.value.receiptId ?? record.value.askId)) {
      faults.push(`${record.value.askId} has no receipt`);
    }
  }
  return faults;
}

/** What is wrong with a fork, held against the source's own events. */
export async function copyFaults(
  clients: Clients,
  source: Omit<SourceLog, "sessionId">,
  forked: Session,
): Promise<string[]> {
  const { sessionId } = forked;
  const point = given(forked.forkedFrom, "fork point");
  const base = await readBase(clients, sessionId);
  const copied = copiedIn(base);
  const faults = baseFaults({ ...source, sessionId: point.sessionId }, point.sequence, base);
  const references = new Map(copied.flatMap(bodiesIn).map((body) => [body.bodyRef, body.sha256]));
  for (const [bodyRef, sha256] of references) {
    const bytes = await readBytes(clients, sessionId, bodyRef);
    if (!createHash("sha256").update(bytes).digest().equals(sha256)) faults.push(bodyRef);
  }
  for (const record of copied) {
    const read = await readRecord(clients, sessionId, record);
    if (read !== undefined && plain(read) !== plain(record)) faults.push(idOf(record) ?? "");
  }
  return faults;
}

/** A record as its own method gives it. Absent for those that have none. */
export async function readRecord(
  { history, approvals }: Clients,
  sessionId: string,
  record: AnyRecord,
): Promise<AnyRecord | undefined> {
  switch (record.case) {
    case "toolCall": {
      const { toolCallId } = record.value;
      const { toolCall } = await history.getToolCall({ sessionId, toolCallId });
      return { case: "toolCall", value: given(toolCall, "call") };
    }
    case "hook": {
      const { hook } = await history.getHook({ sessionId, hookId: record.value.hookId });
      return { case: "hook", value: given(hook, "hook") };
    }
    case "ask": {
      const { ask } = await approvals.getAsk({ sessionId, askId: record.value.askId });
      return { case: "ask", value: given(ask?.ask, "ask") };
    }
    case "receipt": {
      const { receiptId } = record.value;
      const { receipt } = await approvals.getReceipt({ sessionId, receiptId });
      return { case: "receipt", value: given(receipt, "receipt") };
    }
    case "authorization": {
      const { authorizationId } = record.value;
      const read = await history.getAuthorization({ sessionId, authorizationId });
      return { case: "authorization", value: given(read.authorization, "authorization") };
    }
    default:
      return undefined;
  }
}

interface Page {
  readonly nextPageToken: string;
}

/** The lists of a session, read in pages of a size. */
export async function readLists(clients: Clients, sessionId: string, pageSize: number) {
  const { history, approvals } = clients;
  const all = async <P extends Page, Entry>(
    read: (pageToken: string) => Promise<P>,
    entriesOf: (page: P) => readonly Entry[],
  ): Promise<Entry[]> => {
    const entries: Entry[] = [];
    let pageToken = "";
    do {
      const page = await read(pageToken);
      entries.push(...entriesOf(page));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    return entries;
  };
  const page = (pageToken: string) => ({ sessionId, pageSize, pageToken });
  return {
    events: await allEvents(clients, sessionId),
    calls: await all(
      (token) => history.listToolCalls(page(token)),
      (reply) => reply.toolCalls,
    ),
    hooks: await all(
      (token) => history.listHooks(page(token)),
      (reply) => reply.hooks,
    ),
    receipts: await all(
      (token) => approvals.listReceipts(page(token)),
      (reply) => reply.receipts,
    ),
    authorizations: await all(
      (token) => history.listAuthorizations(page(token)),
      (reply) => reply.authorizations,
    ),
  };
}
