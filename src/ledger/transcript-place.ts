import type { Refusal } from "../domain/refusal.js";
import { isRefusal } from "../domain/refusal.js";
import { treePageTokenOf, treePlaceOf } from "./page-token.js";
import type { SessionRef, Store } from "./store-port.js";

/** Where an entry of a transcript stands. Never changes, whatever is written later. */
export interface TranscriptPlace {
  /** That of the record in the lists of its session: below 0 if another record's event brought it. */
  readonly sequence: bigint;
  /** 0 for a record; 1 for what stands right behind it. */
  readonly behind: 0n | 1n;
}

export function isBefore(one: TranscriptPlace, other: TranscriptPlace): boolean {
  return one.sequence === other.sequence
    ? one.behind < other.behind
    : one.sequence < other.sequence;
}

type ListedLog = Pick<Store, "storeId" | "generation">;

function queryOf({ tenant, sessionId }: SessionRef): string[] {
  return ["transcript", tenant, sessionId];
}

/** A token for the page after a place. */
export function transcriptTokenOf(
  log: ListedLog,
  session: SessionRef,
  { sequence, behind }: TranscriptPlace,
): string {
  return treePageTokenOf(log, queryOf(session), { after: behind, within: sequence });
}

/** The place after which the page begins: before every record without a token. */
export function transcriptPlaceOf(
  log: ListedLog,
  session: SessionRef,
  pageToken: string,
): TranscriptPlace | Refusal {
  const place = treePlaceOf(log, queryOf(session), pageToken);
  if (isRefusal(place)) return place;
  return { sequence: place.within, behind: place.after === 0n ? 0n : 1n };
}
