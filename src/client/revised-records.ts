import { toBinary, type DescMessage } from "@bufbuild/protobuf";
import { AskSchema, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationSchema, type Authorization } from "../../gen/toolmark/v1/authorization_pb.js";
import { HookSchema, type Hook } from "../../gen/toolmark/v1/hook_pb.js";
import { ReceiptSchema, type Receipt } from "../../gen/toolmark/v1/receipt_pb.js";
import { ToolCallSchema, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { isUnderItsOwnId } from "../domain/attachment.js";
import { isSameRecord, recordId } from "../domain/merge-law.js";
import type { merge, MergeOutcome, RevisedRecord } from "../domain/merge-law.js";
import { detachedCopy } from "./detached-copy.js";
import { hasBodyIn, putInBytes, takeOutBytes, type KnownBytes } from "./record-bodies.js";
import { compareOrder, compareValues, orderOf } from "./record-order.js";

/** The records by the names of their kinds. */
export interface RecordsByKind {
  readonly toolCall: ToolCall;
  readonly hook: Hook;
  readonly ask: Ask;
  readonly receipt: Receipt;
  readonly authorization: Authorization;
}
export type RecordKind = keyof RecordsByKind;

const KINDS: Readonly<Record<RevisedRecord["$typeName"], RecordKind>> = {
  "toolmark.v1.ToolCall": "toolCall",
  "toolmark.v1.Hook": "hook",
  "toolmark.v1.Ask": "ask",
  "toolmark.v1.Receipt": "receipt",
  "toolmark.v1.Authorization": "authorization",
};

const SCHEMAS: Readonly<Record<RecordKind, DescMessage>> = {
  toolCall: ToolCallSchema,
  hook: HookSchema,
  ask: AskSchema,
  receipt: ReceiptSchema,
  authorization: AuthorizationSchema,
};

export const kindOf = (record: RevisedRecord): RecordKind => KINDS[record.$typeName];
export const keyOf = (record: RevisedRecord): string => `${kindOf(record)}/${recordId(record)}`;

export function copyOf<R extends RevisedRecord>(record: R): R {
  return detachedCopy(SCHEMAS[kindOf(record)], record);
}

/** Why a record stands alone whatever calls there are: it contradicts the one with its id, or names itself wrongly. */
export type ConflictReason = "contradiction" | "reference";

export interface Conflict {
  /** The same for the same payload. */
  readonly key: string;
  readonly reason: ConflictReason;
  readonly record: RevisedRecord;
}

interface Kept {
  record: RevisedRecord;
  /** What it was before its first revision, and as of which event. Absent while that is not known. */
  base: { readonly record: RevisedRecord; asOf: bigint } | undefined;
  place: number;
  readonly bytes: KnownBytes;
}

/** What a record was taken as: nothing that shows, a change of its state or its bytes, or new conflict evidence. */
export type TakenAs = "unchanged" | "changed" | "conflict";

/** Where a base state has a record: its number there, and the sequence of the event that brought the base state. */
export interface BasePlace {
  readonly number: number;
  readonly asOf: bigint;
}

/** Numbers of records that no base state has: those without a revision by arrival, then all others. */
const NUMBER_UNREVISED = 1e9;
const NUMBER_REVISED = 2e9;

/** The one store of a session's revised records: by the merge law, attached or not, with what contradicts them. */
export class RevisedRecords {
  readonly #kept = new Map<string, Kept>();
  readonly #conflicts = new Map<string, Conflict>();
  readonly #law: typeof merge;

  constructor(law: typeof merge) {
    this.#law = law;
  }

  /** Takes a record: of an event or a list, or, with a place, of a base state. */
  take(given: RevisedRecord, base?: BasePlace): TakenAs {
    const incoming = copyOf(given);
    const bytes: KnownBytes = new Map();
    takeOutBytes(incoming, bytes);
    if (!isUnderOwnId(incoming)) return this.#standAlone(incoming, "reference");
    const kept = this.#kept.get(keyOf(incoming));
    if (kept === undefined) {
      this.#keep(incoming, bytes, base);
      return "changed";
    }
    const outcome = this.#update(kept, incoming, base);
    if (outcome === "conflict") return this.#standAlone(incoming, "contradiction");
    const learned = addBytes(kept, bytes);
    return outcome === "advanced" || learned ? "changed" : "unchanged";
  }

  /** The record itself, not to be given away. */
  peek<Kind extends RecordKind>(
    kind: Kind,
    id: string | undefined,
  ): RecordsByKind[Kind] | undefined {
    const record = this.#kept.get(`${kind}/${id ?? ""}`)?.record;
    return record as RecordsByKind[Kind] | undefined;
  }

  /** Copies of all records of a kind in the order of display. */
  all<Kind extends RecordKind>(kind: Kind): RecordsByKind[Kind][] {
    const ids = [...this.#kept.values()].flatMap(({ record }) =>
      kindOf(record) === kind ? [recordId(record)] : [],
    );
    return this.some(kind, ids);
  }

  /** Copies of the records with these ids, in the order of display. */
  some<Kind extends RecordKind>(kind: Kind, ids: Iterable<string>): RecordsByKind[Kind][] {
    const found = [...ids].flatMap((id) => this.#kept.get(`${kind}/${id}`) ?? []);
    const ordered = found.map((kept) => ({ kept, order: orderOf(kept.record, kept.place) }));
    ordered.sort((left, right) => compareOrder(left.order, right.order));
    return ordered.map(({ kept }) => shown(kept) as RecordsByKind[Kind]);
  }

  /** Copies of what stands alone, in an order that does not depend on arrival. */
  conflicts(): Conflict[] {
    const all = [...this.#conflicts.values()];
    all.sort((left, right) => compareValues(left.key, right.key));
    return all.map((conflict) => ({ ...conflict, record: copyOf(conflict.record) }));
  }

  /** Records with this call's id that cannot be the call itself: with them, evidence is about one of several. */
  rivalsOf(toolCallId: string): ToolCall[] {
    const call = this.peek("toolCall", toolCallId);
    return [...this.#conflicts.values()].flatMap(({ record }) => {
      const isRival =
        record.$typeName === "toolmark.v1.ToolCall" && record.toolCallId === toolCallId;
      return isRival && call !== undefined && !isSameRecord(call, record) ? [record] : [];
    });
  }

  #keep(record: RevisedRecord, bytes: KnownBytes, base: BasePlace | undefined): void {
    const isRevised = record.revision !== undefined;
    const number = isRevised ? NUMBER_REVISED : NUMBER_UNREVISED + this.#kept.size;
    this.#kept.set(keyOf(record), {
      record,
      base: isRevised ? undefined : { record, asOf: base?.asOf ?? -1n },
      place: base?.number ?? number,
      bytes,
    });
  }

  #update(kept: Kept, incoming: RevisedRecord, base: BasePlace | undefined): MergeOutcome {
    if (incoming.revision === undefined) {
      const outcome = this.#updateBase(kept, incoming, base);
      if (outcome !== undefined) return outcome;
    }
    const outcome = this.#law(kept.record, incoming);
    if (outcome === "advanced") kept.record = incoming;
    return outcome;
  }

  /**
   * A base state says what was there before any revision: it is history for a record that has one, and a later base
   * state knows more than an earlier one. Lists and replays may repeat it. Undefined: that is not it.
   */
  #updateBase(
    kept: Kept,
    incoming: RevisedRecord,
    place: BasePlace | undefined,
  ): MergeOutcome | undefined {
    const { base } = kept;
    const isRepeated = base !== undefined && this.#law(base.record, incoming) === "repeated";
    if (place === undefined) return isRepeated ? "repeated" : undefined;
    if (!isSameRecord(kept.record, incoming)) return undefined;
    kept.place = Math.min(kept.place, place.number);
    if (base !== undefined && isRepeated) {
      if (place.asOf > base.asOf) base.asOf = place.asOf;
      return "repeated";
    }
    if (base !== undefined && place.asOf < base.asOf) return "older";
    if (base?.asOf === place.asOf) return "conflict";
    kept.base = { record: incoming, asOf: place.asOf };
    if (kept.record.revision !== undefined) return "older";
    kept.record = incoming;
    return "advanced";
  }

  #standAlone(record: RevisedRecord, reason: ConflictReason): TakenAs {
    const revision = (record.revision ?? 0n).toString().padStart(20, "0");
    const key = `${keyOf(record)}/${revision}/${payloadText(record)}`;
    if (this.#conflicts.has(key)) return "unchanged";
    this.#conflicts.set(key, { key, reason, record });
    return "conflict";
  }
}

function isUnderOwnId(record: RevisedRecord): boolean {
  if (recordId(record) === "") return false;
  return record.$typeName !== "toolmark.v1.Hook" || isUnderItsOwnId(record);
}

/** Whether bytes came that a body of the record now shows. */
function addBytes({ record, bytes: known }: Kept, bytes: KnownBytes): boolean {
  const learned = new Set<string>();
  for (const [digest, data] of bytes) {
    if (known.has(digest)) continue;
    known.set(digest, data);
    learned.add(digest);
  }
  return hasBodyIn(record, learned);
}

function shown({ record, bytes }: Kept): RevisedRecord {
  const copy = copyOf(record);
  putInBytes(copy, bytes);
  return copy;
}

function payloadText(record: RevisedRecord): string {
  return Array.from(toBinary(SCHEMAS[kindOf(record)], record), (byte) =>
    String.fromCharCode(byte),
  ).join("");
}
