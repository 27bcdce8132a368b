import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { recordId, type RevisedRecord } from "../domain/merge-law.js";

/**
 * Where a record is shown among others. All of it is said by the record itself, so that every order of arrival ends
 * in the same order of display; only records of older systems, which may have neither time nor revision, are told
 * apart by `place`.
 */
export interface RecordOrder {
  /** Nanoseconds since 1970 of the record's first update. */
  readonly timeNs: bigint | undefined;
  /** Of a record without a time: its number in what brought it. */
  readonly place: number;
  /** Of a call: its turn. Calls of one turn stand in the order of `index`. */
  readonly turnId: string;
  readonly index: number;
  readonly revision: bigint;
  readonly id: string;
}

export function compareValues<T extends string | number | bigint>(left: T, right: T): number {
  if (left === right) return 0;
  return left < right ? -1 : 1;
}

function timeOf(record: RevisedRecord): Timestamp | undefined {
  return record.$typeName === "toolmark.v1.Receipt" ? record.answerTime : record.createTime;
}

export function orderOf(record: RevisedRecord, place: number): RecordOrder {
  const time = timeOf(record);
  const isCall = record.$typeName === "toolmark.v1.ToolCall";
  return {
    timeNs: time && time.seconds * 1_000_000_000n + BigInt(time.nanos),
    place: time === undefined ? place : 0,
    turnId: isCall ? record.turnId : "",
    index: isCall ? record.index : 0,
    revision: isCall ? 0n : (record.revision ?? -1n),
    id: recordId(record),
  };
}

/** Earlier records first, those without a time before all others. */
export function compareOrder(left: RecordOrder, right: RecordOrder): number {
  return (
    compareValues(left.timeNs ?? -1n, right.timeNs ?? -1n) ||
    compareValues(left.place, right.place) ||
    compareValues(left.turnId, right.turnId) ||
    compareValues(left.index, right.index) ||
    compareValues(left.revision, right.revision) ||
    compareValues(left.id, right.id)
  );
}
