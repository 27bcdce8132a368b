import { LegacySourceFormat } from "../../gen/toolmark/v1/legacy_pb.js";
import type { LegacySession, MalformedSource, SourceBytes } from "../domain/legacy-session.js";
import { decodeLog } from "./decode-log.js";
import { decodeSnapshot } from "./decode-snapshot.js";
import { isMalformed } from "./malformed.js";
import type { OldSnapshot } from "./old-session.js";
import { cutText, TITLE_BYTES } from "./shown-text.js";
import { translateSession } from "./translate-session.js";

const LABEL_VALUE_BYTES_MAX = 256;

/** Reads and translates what is there of one session: its snapshot, its event log, or both. */
export function readSources(
  sessionId: string,
  sources: readonly SourceBytes[],
): LegacySession | MalformedSource {
  const { SNAPSHOT, EVENT_LOG } = LegacySourceFormat;
  const bytesOf = (format: LegacySourceFormat): Uint8Array | undefined =>
    sources.find((source) => source.format === format)?.data;
  const snapshotBytes = bytesOf(SNAPSHOT);
  const snapshot = snapshotBytes && decodeSnapshot(snapshotBytes, sessionId);
  if (snapshot !== undefined && isMalformed(snapshot)) return { format: SNAPSHOT, ...snapshot };
  const logBytes = bytesOf(EVENT_LOG);
  const log = logBytes && decodeLog(logBytes);
  if (log !== undefined && isMalformed(log)) return { format: EVENT_LOG, ...log };
  const translation = translateSession({ sessionId, snapshot, log });
  const labels = snapshot === undefined ? [] : labelsOf(snapshot);
  return { ...translation, title: cutText(translation.title, TITLE_BYTES), labels };
}

/** What the older system knew of a session and no field here says, by keys in ascending order. */
function labelsOf({ state, relationship }: OldSnapshot): { key: string; value: string }[] {
  const { parentSessionId, branchIndex, teamId, memberName } = relationship;
  const labels: [string, string | undefined][] = [
    ["legacy_branch_index", branchIndex?.toString()],
    ["legacy_member_name", memberName],
    ["legacy_parent_session_id", parentSessionId],
    ["legacy_state", state],
    ["legacy_team_id", teamId],
  ];
  return labels.flatMap(([key, value = ""]) =>
    value === "" || Buffer.byteLength(value) > LABEL_VALUE_BYTES_MAX ? [] : [{ key, value }],
  );
}
