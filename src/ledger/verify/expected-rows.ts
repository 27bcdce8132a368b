import type { BaseState } from "../../../gen/toolmark/v1/base_state_pb.js";
import type { Body } from "../../../gen/toolmark/v1/body_pb.js";
import type { EventRecord } from "../../../gen/toolmark/v1/event_pb.js";
import { equalBytes } from "../../domain/bytes.js";
import { archiveOf, isRefOf } from "../../domain/archive.js";
import { storedBodiesOf } from "../../domain/record-bodies.js";
import { recordIdOf } from "../../domain/record-id.js";
import { baseBodyOf, bringsRecords } from "../../domain/session-record.js";
import { inheritedIndexOf, inheritedPlace, type Bringing } from "../base-state.js";
import { indexOf } from "../event-codec.js";
import type { AskEntry, Deadline, EventRow, RecordKey } from "../store-port.js";

/** What the events say of one record's place in the index. */
export interface ExpectedRecord extends RecordKey {
  readonly firstSequence: bigint;
  readonly firstPosition: bigint;
  lastSequence: bigint;
  lastPosition: bigint;
  /** As text, which takes a fraction of the memory of bytes. */
  lastChain: string;
  /** The inbox entry, exactly if the record is an ask. */
  ask: AskEntry | undefined;
  isListed: boolean;
  isAskListed: boolean;
}

export interface ExpectedDeadline {
  readonly timeMs: number;
  readonly position: bigint;
  readonly setTimeMs: number;
  readonly sequence: bigint;
  isListed: boolean;
}

export interface ExpectedBody {
  /** As text. */
  readonly sha256: string;
  readonly sizeBytes: bigint;
  readonly isJsonObject: boolean;
  readonly firstSequence: bigint;
  isListed: boolean;
}

export interface ExpectedPairing {
  /** Which kind of record it is of. */
  readonly of: "toolCall" | "turn";
  readonly firstSequence: bigint;
  readonly commitment: Uint8Array;
  isListed: boolean;
}

/** The rows beside the log that its events ask for, in small entries. */
export class ExpectedRows {
  readonly records = new Map<string, ExpectedRecord>();
  readonly deadlines = new Map<string, ExpectedDeadline>();
  readonly bodies = new Map<string, ExpectedBody>();
  readonly pairings = new Map<string, ExpectedPairing>();
  readonly #sessionId: string;

  constructor(sessionId: string) {
    this.#sessionId = sessionId;
  }

  /** Takes in an event. What is wrong with it, if it contradicts those before it. */
  add(row: EventRow, record: EventRecord["record"]): string | undefined {
    const { record: key, ask, deadline } = indexOf(record);
    if (key !== undefined && deadline !== undefined) this.#setDeadline(row, key, deadline);
    return (
      (key === undefined ? undefined : this.#addRecord(row, key, ask)) ??
      this.#addPairing(row, record) ??
      this.#addBodies(row, record)
    );
  }

  /** Takes in what an event brings, once its bytes were checked. */
  addInherited(row: EventRow, base: BaseState, by: Bringing): string | undefined {
    for (const [index, { record, privateCommitment }] of base.records.entries()) {
      const key = inheritedIndexOf(record?.record ?? { case: undefined }, by);
      if (record === undefined || key === undefined) return "brings a record without an id";
      if (this.records.get(key.recordId)?.lastSequence === row.sequence) {
        return "brings a record twice";
      }
      if (key.deadline !== undefined) this.#setDeadline(row, key, key.deadline);
      const paired = { ...row, privateCommitment: nonEmpty(privateCommitment) };
      const fault =
        this.#addRecord(row, key, key.ask, inheritedPlace(base, by, index)) ??
        this.#addPairing(paired, record.record) ??
        this.#addBodies(row, record.record);
      if (fault !== undefined) return fault;
    }
    return undefined;
  }

  #addRecord(
    row: EventRow,
    key: RecordKey,
    ask: AskEntry | undefined,
    firstSequence = row.sequence,
  ): string | undefined {
    const { sequence, position } = row;
    const lastChain = digestText(row.chain);
    const known = this.records.get(key.recordId);
    if (known === undefined) {
      this.records.set(key.recordId, {
        recordId: key.recordId,
        family: key.family,
        toolCallId: key.toolCallId,
        firstSequence,
        firstPosition: position,
        lastSequence: sequence,
        lastPosition: position,
        lastChain,
        ask,
        isListed: false,
        isAskListed: false,
      });
      return undefined;
    }
    if (known.family !== key.family || known.toolCallId !== key.toolCallId) {
      return "changes the kind or the call of its record";
    }
    known.lastSequence = sequence;
    known.lastPosition = position;
    known.lastChain = lastChain;
    known.ask = ask;
    return undefined;
  }

  #addPairing(row: EventRow, record: EventRecord["record"]): string | undefined {
    const { privateCommitment: commitment, sequence: firstSequence } = row;
    if (commitment === undefined) return undefined;
    const recordId = recordIdOf(record);
    const isOfProvider = record.case === "toolCall" || record.case === "turn";
    if (!isOfProvider || recordId === undefined) {
      return "has a private commitment without a call or turn";
    }
    const known = this.pairings.get(recordId)?.commitment;
    if (known !== undefined) {
      return equalBytes(known, commitment) ? undefined : "pairs a record for the second time";
    }
    const entry = { of: record.case, firstSequence, commitment, isListed: false };
    this.pairings.set(recordId, entry);
    return undefined;
  }

  #addBodies(row: EventRow, record: EventRecord["record"]): string | undefined {
    if (bringsRecords(record) && record.value.base === undefined) return "brings no base state";
    for (const body of this.#bodiesOf(record)) {
      const fault = this.#addBody(row, body);
      if (fault !== undefined) return fault;
    }
    return undefined;
  }

  #bodiesOf(record: EventRecord["record"]): readonly Body[] {
    const base = baseBodyOf(record);
    if (base === undefined) return storedBodiesOf(record);
    const sources = record.case === "adopted" ? record.value.sources : [];
    return [base, ...sources.map((source) => archiveOf(this.#sessionId, source))];
  }

  #addBody({ sequence }: EventRow, body: Body): string | undefined {
    const { bodyRef: ref, sizeBytes, isJsonObject } = body;
    const known = this.bodies.get(ref);
    if (known === undefined) {
      const isItsOwn = isRefOf(this.#sessionId, ref, body.sha256);
      if (!isItsOwn) return "names a body by another's digest";
      const sha256 = digestText(body.sha256);
      const entry = { sha256, sizeBytes, isJsonObject, firstSequence: sequence, isListed: false };
      this.bodies.set(ref, entry);
      return undefined;
    }
    const isSame = known.sizeBytes === sizeBytes && known.isJsonObject === isJsonObject;
    return isSame ? undefined : "says of a body what an event before it does not";
  }

  #setDeadline(
    { position, sequence, timeMs: setTimeMs }: EventRow,
    { recordId }: RecordKey,
    { timeMs }: Deadline,
  ) {
    if (timeMs === undefined) this.deadlines.delete(recordId);
    else this.deadlines.set(recordId, { timeMs, position, setTimeMs, sequence, isListed: false });
  }
}

function nonEmpty(bytes: Uint8Array): Uint8Array | undefined {
  return bytes.length === 0 ? undefined : bytes;
}

/** A digest as text. */
export function digestText(digest: Uint8Array): string {
  return Buffer.from(digest.buffer, digest.byteOffset, digest.byteLength).toString("latin1");
}
