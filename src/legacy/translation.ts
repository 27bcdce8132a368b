import type { ProviderPairing } from "../../gen/toolmark/engine/v1/command_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import type { NewBody } from "../domain/decide/draft.js";
import type { OldRelationship, OldReplay } from "./old-session.js";

/** A record of any kind, as an event would carry it. */
export type AnyRecord = EventRecord["record"];

/**
 * An old session in the terms of this service. It is the same for the same sources, whatever the clock says: ids come
 * from places in the sources, and times are those of the sources.
 */
export interface Translation {
  readonly sessionId: string;
  readonly kind: SessionKind;
  readonly title: string;
  /** Absent if the sources do not say. */
  readonly createTimeMs: number | undefined;
  /** What the session works for, in the old system's terms. Private. */
  readonly relationship: OldRelationship;
  /** Every record as it stands, without revisions, in the order of first mention. */
  readonly records: readonly AnyRecord[];
  readonly bodies: readonly NewBody[];
  /** By tool_call_id. Private. */
  readonly pairings: ReadonlyMap<string, ProviderPairing>;
  /** What a provider wants back of a message or a turn, by their ids. Private. */
  readonly replays: ReadonlyMap<string, OldReplay>;
  /** Which id each call got, in their order. */
  readonly occurrences: readonly CallOccurrence[];
}

/** Where a call stands in a source, and its id. */
export interface CallOccurrence {
  readonly occurrence: string;
  readonly toolCallId: string;
}
