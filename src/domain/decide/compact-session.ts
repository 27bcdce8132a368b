import { create } from "@bufbuild/protobuf";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { CompactionSchema } from "../../../gen/toolmark/v1/session_pb.js";
import { EventKind } from "../event-kind.js";
import { refuse } from "../refusal.js";
import type { SessionState } from "../session-state.js";
import type { Decided, Draft } from "./draft.js";

/** What is to be archived: up to an event that splits no turn, see `TurnSpans`. */
export interface CompactionPoint {
  readonly throughSequence: bigint;
  readonly summary: string;
}

/** Archives everything up to an event behind a summary. One event; the archived ones stay as they are. */
export function compactSession(
  draft: Draft,
  { compactedThrough }: SessionState,
  { throughSequence, summary }: CompactionPoint,
): Decided {
  if (throughSequence <= compactedThrough) {
    const metadata = { through_sequence: compactedThrough.toString() };
    const message = `nothing after event ${compactedThrough} can be archived`;
    return refuse(ErrorReason.NOTHING_TO_COMPACT, message, metadata);
  }
  const value = create(CompactionSchema, { throughSequence, summary });
  return draft.decision([draft.write(EventKind.compacted, { case: "compaction", value })]);
}
