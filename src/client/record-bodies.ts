import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import type { RevisedRecord } from "../domain/merge-law.js";

/** Bytes of bodies by their digest in hex. */
export type KnownBytes = Map<string, Uint8Array>;

function bodiesOf(record: RevisedRecord): Body[] {
  switch (record.$typeName) {
    case "toolmark.v1.ToolCall": {
      const { proposed, effective, result, lateResult } = record;
      return [proposed, effective, result?.content, lateResult?.content].flatMap(
        (body) => body ?? [],
      );
    }
    case "toolmark.v1.Ask":
      return record.presented === undefined ? [] : [record.presented];
    default:
      return [];
  }
}

const hexOf = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Takes the bytes out of a record: lists have them and events do not, and still it is the same record. */
export function takeOutBytes(record: RevisedRecord, taken: KnownBytes): void {
  for (const body of bodiesOf(record)) {
    if (body.data === undefined || body.sha256.length === 0) continue;
    taken.set(hexOf(body.sha256), body.data);
    delete body.data;
  }
}

/** Whether a record has a body with one of these digests. */
export function hasBodyIn(record: RevisedRecord, digests: ReadonlySet<string>): boolean {
  return digests.size > 0 && bodiesOf(record).some(({ sha256 }) => digests.has(hexOf(sha256)));
}

/** Puts a copy of the known bytes into a record's bodies. */
export function putInBytes(record: RevisedRecord, known: ReadonlyMap<string, Uint8Array>): void {
  if (known.size === 0) return;
  for (const body of bodiesOf(record)) {
    const data = body.data ?? known.get(hexOf(body.sha256));
    if (data !== undefined) body.data = data.slice();
  }
}
