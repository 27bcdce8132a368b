import { create, toBinary } from "@bufbuild/protobuf";
import {
  BaseRecordSchema,
  BaseStateSchema,
  type BaseRecord,
} from "../../gen/toolmark/v1/base_state_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import type { ForkSessionRequest } from "../../gen/toolmark/v1/session_service_pb.js";
import type { MintId } from "../domain/identity.js";
import { bodyRef } from "../domain/identity.js";
import { inheritedRecord, isCopied } from "../domain/inherited.js";
import { invariant } from "../domain/invariant.js";
import type { Limits } from "../domain/limits.js";
import type { Caller } from "../domain/principal.js";
import { recordIdOf, toolCallIdOf } from "../domain/record-id.js";
import { storedBodiesOf } from "../domain/record-bodies.js";
import { isRefusal, refuse, refuseField, type Refusal } from "../domain/refusal.js";
import { inheritedRecords } from "./base-state.js";
import type { Replies, Waiting } from "./batch-context.js";
import { isIntactBody, refuseDamagedBody } from "./body-reader.js";
import { adoptedRow } from "./adopted-row.js";
import { readHistory, type CopiedRecord, type History } from "./fork-history.js";
import type { Ledger } from "./ledger.js";
import type { SessionCopy } from "./mutation.js";
import { provenPairings } from "./proven-pairings.js";
import { findVisible } from "./visibility.js";
import type { BodyCopy, PairingRow, SessionRow, Store } from "./store-port.js";

/** Others have their turn after so many bytes of bodies; reading the smallest takes as long as this many bytes. */
const PAUSE_BYTES = 1024 * 1024;
const BODY_COST_BYTES = 16 * 1024;
/** The items of a response are as large as the response. */
const PAIRINGS_PER_READ = 16;

export interface SessionForkOptions {
  readonly ledger: Ledger;
  readonly store: Store;
  readonly limits: Limits;
  readonly mintId: MintId;
  /** Gives others their turn, since reads are synchronous. */
  readonly pause: () => Promise<void>;
}

/**
 * Copies sessions. The copy is made from the log before the command is decided: what is copied does not change any
 * more, and others need not wait.
 */
export class SessionFork {
  readonly #options: SessionForkOptions;

  constructor(options: SessionForkOptions) {
    this.#options = options;
  }

  async fork(
    caller: Caller,
    request: ForkSessionRequest,
    waiting: Waiting,
  ): Promise<Replies | Refusal> {
    const { store, ledger } = this.#options;
    const row = await findVisible(store, caller, request.sessionId);
    if (isRefusal(row)) return row;
    const first = await ledger.tryOut(caller, { kind: "forkSession", request }, waiting);
    if (isRefusal(first) || first.length > 0) return first;
    if (request.throughSequence > row.head.sequence) return refuseBeyondHead();
    const stored = await adoptedRow(ledger, store, row);
    if (isRefusal(stored)) return stored;
    const copy = await this.#copy(stored, request, waiting);
    if (isRefusal(copy)) return copy;
    return ledger.submit(caller, { kind: "forkSession", request, copy }, waiting);
  }

  async #copy(
    row: SessionRow,
    { throughSequence }: ForkSessionRequest,
    waiting: Waiting,
  ): Promise<SessionCopy | Refusal> {
    const { sequence: head } = row.head;
    const through = throughSequence === 0n ? head : throughSequence;
    const history = await this.#settledHistory(row, through, waiting);
    if (isRefusal(history)) return history;
    const { session: source, chain: sourceChain, highWater } = history;
    invariant(source !== undefined, "a log begins with its session");
    const newSessionId = this.#options.mintId("session");
    const records = copiedRecords(history);
    const base = baseOf(records, history, { newSessionId, sourceId: row.sessionId });
    const bytes = toBinary(BaseStateSchema, base);
    const { bodyBytes } = this.#options.limits;
    if (bytes.length > bodyBytes) return refuseLarge(bodyBytes);
    const copies = bodyCopies(records, row, newSessionId);
    const pairings = await this.#pairings(row, records);
    if (isRefusal(pairings)) return pairings;
    const refused = await this.#refuseDamaged(copies, waiting);
    if (refused !== undefined) return refused;
    return {
      newSessionId,
      source,
      point: { sessionId: row.sessionId, sequence: history.sequence },
      sourceChain,
      highWater,
      base: bytes,
      inherited: inheritedRecords(base, "forked"),
      bodyCopies: copies,
      pairings,
    };
  }

  /** The history up to an event, or to an earlier one after which no turn goes on. */
  async #settledHistory(
    row: SessionRow,
    through: bigint,
    waiting: Waiting,
  ): Promise<History | Refusal> {
    const { store, pause } = this.#options;
    const read = (last: bigint): Promise<History | Refusal> =>
      readHistory(store, row, last, { pause, waiting });
    const history = await read(through);
    if (isRefusal(history)) return history;
    const cut = history.spans.cutAt(through);
    const { adoptedSequence } = history;
    const settled = cut < adoptedSequence ? adoptedSequence : cut;
    return settled === through ? history : read(settled);
  }

  /** What is damaged in the source would be damaged in the fork. */
  async #refuseDamaged(
    copies: readonly BodyCopy[],
    waiting: Waiting,
  ): Promise<Refusal | undefined> {
    const { store, pause } = this.#options;
    let sizeBytes = 0;
    for (const { from, bodyRef: ref } of copies) {
      if (waiting.aborted !== undefined) return waiting.aborted;
      const body = await store.readBody(from, ref);
      if (body === undefined || !isIntactBody(from, body)) return refuseDamagedBody(ref);
      sizeBytes += body.data.length + BODY_COST_BYTES;
      if (sizeBytes < PAUSE_BYTES) continue;
      sizeBytes = 0;
      await pause();
    }
    return undefined;
  }

  async #pairings(
    row: SessionRow,
    records: readonly CopiedRecord[],
  ): Promise<PairingRow[] | Refusal> {
    const commitments = new Map<string, Uint8Array>();
    for (const { record, privateCommitment } of records) {
      const recordId = recordIdOf(record.record);
      if (recordId === undefined || privateCommitment === undefined) continue;
      commitments.set(recordId, privateCommitment);
    }
    const { store, pause } = this.#options;
    const pairings: PairingRow[] = [];
    const entries = [...commitments];
    for (let at = 0; at < entries.length; at += PAIRINGS_PER_READ) {
      const named = new Map(entries.slice(at, at + PAIRINGS_PER_READ));
      const proven = await provenPairings(store, row, named);
      if (isRefusal(proven)) return proven;
      // Covered by the commitments in the base state, which the first event brings.
      pairings.push(...proven.map((pairing) => ({ ...pairing, sequence: 1n })));
      await pause();
    }
    return pairings;
  }
}

/** An adopted session is brought by one event: what was unfinished in it then is left out by its turns. */
function copiedRecords({ records, spans }: History): CopiedRecord[] {
  const unfinished = spans.unfinishedTurnIds;
  const ofTurns = new Set<string>();
  for (const { record } of records.values()) {
    if (record.record.case !== "toolCall" || !unfinished.has(record.record.value.turnId)) continue;
    ofTurns.add(record.record.value.toolCallId);
  }
  return [...records.values()].filter(({ record: { record } }) => {
    if (record.case === "turn" && unfinished.has(record.value.turnId)) return false;
    const callId = record.case === "toolCall" ? record.value.toolCallId : toolCallIdOf(record);
    return isCopied(record) && (callId === undefined || !ofTurns.has(callId));
  });
}

function baseOf(
  records: readonly CopiedRecord[],
  { archivedThrough, summary }: History,
  { newSessionId, sourceId }: { readonly newSessionId: string; readonly sourceId: string },
) {
  const copied = records.map(({ record, privateCommitment }): BaseRecord => {
    const value = inheritedRecord(record.record, newSessionId, sourceId);
    return create(BaseRecordSchema, {
      record: { record: value },
      ...(privateCommitment === undefined ? {} : { privateCommitment }),
    });
  });
  const archived = records.filter((each) => each.isArchived || each.first <= archivedThrough);
  return create(BaseStateSchema, {
    records: copied,
    archivedRecordCount: archived.length,
    summary: archived.length === 0 ? "" : summary,
  });
}

function bodyCopies(
  records: readonly CopiedRecord[],
  from: SessionRow,
  newSessionId: string,
): BodyCopy[] {
  const copies = new Map<string, BodyCopy>();
  for (const { record } of records) {
    for (const body of storedBodiesOf(record.record)) {
      const newBodyRef = bodyRef(newSessionId, body.sha256);
      copies.set(newBodyRef, { from, bodyRef: body.bodyRef, newBodyRef });
    }
  }
  return [...copies.values()];
}

function refuseBeyondHead(): Refusal {
  return refuseField("through_sequence", "must be at most the head of the log");
}

function refuseLarge(limit: number): Refusal {
  const message = "the copied records would be larger than a body may be";
  const metadata = { field: "through_sequence", limit: String(limit) };
  return refuse(ErrorReason.BODY_TOO_LARGE, message, metadata);
}
