import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { RequestOutcomeSchema } from "../../gen/toolmark/storage/v1/storage_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { SessionState } from "../../gen/toolmark/v1/session_pb.js";
import {
  CancelledDescendantSchema,
  type CancelledDescendant,
  type EndSessionRequest,
} from "../../gen/toolmark/v1/session_service_pb.js";
import { equalBytes } from "../domain/bytes.js";
import type { Limits } from "../domain/limits.js";
import type { Caller } from "../domain/principal.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { digestOf } from "../domain/sha256.js";
import type { Replies, Waiting } from "./batch-context.js";
import { requestChecksum } from "./checksums.js";
import { openPayload, refuseDamaged, refuseDamagedRow } from "./event-codec.js";
import type { Ledger } from "./ledger.js";
import type { Cancellation } from "./mutation.js";
import { listBytesMax } from "./page.js";
import { treeOf } from "./standing.js";
import type { RequestRow, SessionRef, SessionRow, Store } from "./store-port.js";
import { findVisible } from "./visibility.js";

/** How often it is looked again whether a run began below while others were ended. */
const PASSES_MAX = 3;
const PAGE_SESSIONS = 200;
const PAGE_BYTES = 4 * 1024 * 1024;

/** An ended session and what was ended below it. */
export interface EndedSession {
  readonly replies: Replies;
  /** In the order of creation. */
  readonly descendants: readonly CancelledDescendant[];
}

/**
 * Ends sessions, and what is unfinished below them if that is asked for: deepest first, each in a commit of its own.
 * Every session below remembers what was ended in it for the request, so that one that is sent again goes on where it
 * was cut off, and is told the whole.
 */
export class SessionEnding {
  readonly #ledger: Ledger;
  readonly #store: Store;
  readonly #limits: Limits;

  constructor(ledger: Ledger, store: Store, limits: Limits) {
    this.#ledger = ledger;
    this.#store = store;
    this.#limits = limits;
  }

  async end(
    caller: Caller,
    request: EndSessionRequest,
    waiting: Waiting,
  ): Promise<EndedSession | Refusal> {
    const mutation = { kind: "endSession", request } as const;
    if (!request.cancelDescendants) {
      return ended(await this.#ledger.submit(caller, mutation, waiting), []);
    }
    const row = await findVisible(this.#store, caller, request.sessionId);
    if (isRefusal(row)) return row;
    // Nothing is ended below a session that is not going to end.
    const first = await this.#ledger.tryOut(caller, mutation, waiting);
    if (isRefusal(first)) return first;
    const isNew = first.length === 0;
    if (isNew) {
      const refused = await this.#cancelBelow(caller, row, request.requestId, waiting);
      if (refused !== undefined) return refused;
    }
    const replies = isNew ? await this.#ledger.submit(caller, mutation, waiting) : first;
    if (isRefusal(replies)) return replies;
    const descendants = await this.#report(row, request.requestId);
    return isRefusal(descendants) ? descendants : ended(replies, descendants);
  }

  async #cancelBelow(
    caller: Caller,
    root: SessionRow,
    requestId: string,
    waiting: Waiting,
  ): Promise<Refusal | undefined> {
    // Whoever may end a session may end what works for it.
    const above: Caller = { ...caller, scope: "tenant" };
    // Those that are looked at again: what was ended before a cut-off may have begun anew since, and may be parked.
    let again = new Set<string>();
    for (let pass = 0; pass < PASSES_MAX; pass += 1) {
      const isLeft = ({ sessionId, head }: SessionRow): boolean =>
        pass === 0 || head.activeRunId !== undefined || again.has(sessionId);
      const left = (await this.#openBelow(root)).filter(isLeft);
      const cancellations = left.map(({ sessionId }) =>
        cancellationOf(root, requestId, { sessionId, pass }),
      );
      const tried = await this.#tryOut(above, cancellations, waiting);
      if (isRefusal(tried)) return tried;
      again = new Set(tried);
      for (const cancellation of cancellations) {
        const { sessionId } = cancellation.request;
        if (again.has(sessionId)) continue;
        const reply = await this.#ledger.submit(above, cancellation, waiting);
        if (isRefusal(reply) && !hasClosed(reply)) return ofSession(reply, sessionId);
      }
    }
    return undefined;
  }

  /** Which of them were carried out before. One that cannot be refuses all before any has an effect. */
  async #tryOut(
    above: Caller,
    cancellations: readonly Cancellation[],
    waiting: Waiting,
  ): Promise<string[] | Refusal> {
    const before: string[] = [];
    for (const cancellation of cancellations) {
      const { sessionId } = cancellation.request;
      const reply = await this.#ledger.tryOut(above, cancellation, waiting);
      if (isRefusal(reply)) {
        if (!hasClosed(reply)) return ofSession(reply, sessionId);
      } else if (reply.length > 0) before.push(sessionId);
    }
    return before;
  }

  /** The open sessions below one, deepest first. */
  async #openBelow(root: SessionRow): Promise<SessionRow[]> {
    const all = deepestFirst(await this.#below(root));
    return all.filter(({ state }) => state === SessionState.OPEN);
  }

  /** Every session below one, in the order of creation. */
  async #below(root: SessionRow): Promise<SessionRow[]> {
    const rows: SessionRow[] = [];
    for await (const page of this.#pagesBelow(root)) rows.push(...page);
    return rows;
  }

  async *#pagesBelow(root: SessionRow): AsyncGenerator<readonly SessionRow[]> {
    let after = root.createPosition;
    for (;;) {
      const page = await this.#store.listSessions({
        ...{ tenant: root.tenant, tree: treeOf(root) },
        ...{ visibleToSubject: undefined, ownerSubject: undefined, state: undefined },
        afterCreatePosition: after,
        limit: PAGE_SESSIONS,
      });
      const last = page.at(-1);
      if (last === undefined) return;
      after = last.createPosition;
      yield page;
    }
  }

  async #report(
    root: SessionRow,
    requestId: string,
  ): Promise<readonly CancelledDescendant[] | Refusal> {
    const cancelled: CancelledDescendant[] = [];
    const bytesMax = listBytesMax(this.#limits);
    let sizeBytes = 0;
    for await (const page of this.#pagesBelow(root)) {
      for (const session of page) {
        const found = await this.#cancelledIn(session, root, requestId);
        if (isRefusal(found)) return found;
        if (found === undefined) continue;
        sizeBytes += toBinary(CancelledDescendantSchema, found).length;
        if (sizeBytes > bytesMax) return cancelled;
        cancelled.push(found);
      }
    }
    return cancelled;
  }

  async #cancelledIn(
    session: SessionRow,
    root: SessionRow,
    requestId: string,
  ): Promise<CancelledDescendant | Refusal | undefined> {
    const passes = Array.from({ length: PASSES_MAX }, (_, pass) => ({
      session,
      requestId: requestIdBelow(root, requestId, pass),
    }));
    const records: EventRecord["record"][] = [];
    for (const row of await this.#store.findRequests(passes)) {
      const found = row === undefined ? [] : await this.#recordsOf(session, row);
      if (isRefusal(found)) return found;
      records.push(...found);
    }
    return records.length === 0 ? undefined : cancelledOf(session.sessionId, records);
  }

  /** What a remembered request wrote: adjacent events. */
  async #recordsOf(
    session: SessionRef,
    row: RequestRow,
  ): Promise<EventRecord["record"][] | Refusal> {
    if (!equalBytes(requestChecksum(session, row), row.checksum)) {
      return refuseDamagedRow(row.requestId);
    }
    const { commands } = fromBinary(RequestOutcomeSchema, row.outcome);
    const sequences = commands.flatMap((command) => command.sequences);
    const records: EventRecord["record"][] = [];
    for (let index = 0; index < sequences.length; index = records.length) {
      const after = (sequences[index] ?? 1n) - 1n;
      const left = sequences.length - index;
      const page = await this.#store.readEvents(session, after, left, PAGE_BYTES);
      if (page.length === 0) return refuseDamaged(after + 1n);
      for (const event of page) {
        const payload = openPayload(event);
        if (isRefusal(payload)) return payload;
        records.push(payload.record?.record ?? { case: undefined });
      }
    }
    return records;
  }
}

function ended(
  replies: Replies | Refusal,
  descendants: readonly CancelledDescendant[],
): EndedSession | Refusal {
  return isRefusal(replies) ? replies : { replies, descendants };
}

/** Names what is ended below a session for one request. No caller can send such an id: it is not printable. */
function requestIdBelow({ sessionId }: SessionRow, requestId: string, pass: number): string {
  const digest = digestOf(["cancel-descendants", sessionId, requestId, BigInt(pass)]);
  return `\u0001${Buffer.from(digest).toString("hex")}`;
}

function cancellationOf(
  root: SessionRow,
  requestId: string,
  { sessionId, pass }: { readonly sessionId: string; readonly pass: number },
): Cancellation {
  const request = { sessionId, requestId: requestIdBelow(root, requestId, pass) };
  return { kind: "cancelUnfinished", request };
}

/** `sessions` are all below one, in the order of creation: each comes after its parent. */
function deepestFirst(sessions: readonly SessionRow[]): SessionRow[] {
  const depths = new Map<string, number>();
  const depthOf = (id: string | undefined): number => depths.get(id ?? "") ?? 0;
  for (const { sessionId, parentSessionId } of sessions) {
    depths.set(sessionId, depthOf(parentSessionId) + 1);
  }
  return sessions.toSorted((left, right) => depthOf(right.sessionId) - depthOf(left.sessionId));
}

/** It ended by itself meanwhile: nothing is unfinished in it. */
function hasClosed({ reason }: Refusal): boolean {
  return reason === ErrorReason.SESSION_ENDED || reason === ErrorReason.SESSION_ERASED;
}

function ofSession(refusal: Refusal, sessionId: string): Refusal {
  return { ...refusal, metadata: { ...refusal.metadata, session_id: sessionId } };
}

function cancelledOf(
  sessionId: string,
  records: readonly EventRecord["record"][],
): CancelledDescendant {
  const calls = new Set<string>();
  const asks = new Set<string>();
  let runId: string | undefined;
  for (const record of records) {
    if (record.case === "run") ({ runId } = record.value);
    if (record.case === "toolCall") calls.add(record.value.toolCallId);
    if (record.case === "ask") asks.add(record.value.askId);
  }
  return create(CancelledDescendantSchema, {
    sessionId,
    ...(runId === undefined ? {} : { runId }),
    endedToolCallCount: calls.size,
    withdrawnAskCount: asks.size,
  });
}
