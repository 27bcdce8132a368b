import type { ProviderPairing } from "../../gen/toolmark/engine/v1/command_pb.js";
import type { CallOccurrence } from "../../gen/toolmark/v1/base_state_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { LegacySourceFormat } from "../../gen/toolmark/v1/legacy_pb.js";
import type { Label, SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import type { NewBody } from "./decide/draft.js";

/**
 * A session of an older system in the terms of this service. It is the same for the same sources, whatever the clock
 * says: ids come from places in the sources, and times are those of the sources.
 */
export interface LegacySession {
  /** Verbatim. */
  readonly sessionId: string;
  readonly kind: SessionKind;
  readonly title: string;
  readonly labels: readonly Pick<Label, "key" | "value">[];
  /** Absent if the sources do not say. */
  readonly createTimeMs: number | undefined;
  /** Every record as it stands, without revisions, in the order of first mention. At most one is an open ask. */
  readonly records: readonly EventRecord["record"][];
  readonly bodies: readonly NewBody[];
  /** By tool_call_id. Private. */
  readonly pairings: ReadonlyMap<string, ProviderPairing>;
  /** Which id each call got, in their order. */
  readonly occurrences: readonly Pick<CallOccurrence, "occurrence" | "toolCallId">[];
}

/** The bytes that a session was read from. Private: they hold what providers called things. */
export interface SourceBytes {
  readonly format: LegacySourceFormat;
  readonly data: Uint8Array;
}

/** Why a source cannot be read. */
export interface MalformedSource {
  readonly format: LegacySourceFormat;
  /** What is wrong, in words. Never a value of the source. */
  readonly malformed: string;
  /** Where: the path of the value, such as `$.messages[3].tool_calls[0].ID`. */
  readonly path: string;
  /** Where: bytes before it in the source. */
  readonly offsetBytes: number;
}

/** Reads the sources of one session whole, or says which of them cannot be read, and where. */
export type ReadSources = (
  sessionId: string,
  sources: readonly SourceBytes[],
) => LegacySession | MalformedSource;
