import { fromBinary } from "@bufbuild/protobuf";
import {
  SessionStateSchema,
  type OpenCall as StoredOpenCall,
  type SessionState as StoredSessionState,
} from "../../gen/toolmark/storage/v1/storage_pb.js";
import { equalBytes } from "../domain/bytes.js";
import { encodeState, type OpenCall, type SessionState } from "../domain/session-state.js";
import { digestOf } from "../domain/sha256.js";
import type { SnapshotRow } from "./store-port.js";

function snapshotDigest(snapshot: Omit<SnapshotRow, "digest">): Uint8Array {
  const { sequence, highWater, chain, state } = snapshot;
  return digestOf([sequence, highWater, chain, state]);
}

/** The write-side state after its last event, to be loaded instead of the events before it. */
export function takeSnapshot(state: SessionState, chain: Uint8Array): SnapshotRow {
  const { sequence, highWater } = state;
  const snapshot = { sequence, highWater, chain, state: encodeState(state) };
  return { ...snapshot, digest: snapshotDigest(snapshot) };
}

/** The state of a sound snapshot. Absent if its bytes are not those that were written. */
export function openSnapshot(row: SnapshotRow): StoredSessionState | undefined {
  if (!equalBytes(snapshotDigest(row), row.digest)) return undefined;
  return fromBinary(SessionStateSchema, row.state);
}

/** The write-side state that a snapshot holds; provider call ids are added by the loader. */
export function restoreState(
  row: SnapshotRow,
  stored: StoredSessionState,
): SessionState | undefined {
  if (stored.session === undefined) return undefined;
  const { openAsks, pendingAuthorizations } = stored;
  return {
    session: stored.session,
    sequence: row.sequence,
    sessionSequence: stored.sessionSequence,
    highWater: row.highWater,
    activeRun: stored.activeRun,
    openCalls: new Map(stored.openCalls.flatMap(restoreCall)),
    openAsks: new Map(openAsks.map((ask) => [ask.askId, ask])),
    pendingAuthorizations: new Map(
      pendingAuthorizations.map((pending) => [pending.authorizationId, pending]),
    ),
    compactedThrough: stored.compactedThrough,
    adoptedSequence: stored.adoptedSequence,
  };
}

function restoreCall(stored: StoredOpenCall): (readonly [string, OpenCall])[] {
  const { toolCall: call, sequence, needsAllow, heldResult, heldSha256 } = stored;
  const { supersededAskId } = stored;
  if (call === undefined) return [];
  const unspentAllows = stored.unspentAllows.flatMap(({ receipt, kind }) =>
    receipt === undefined ? [] : [{ receipt, kind }],
  );
  const asked = { unspentAllows, needsAllow, heldResult, heldSha256, supersededAskId };
  return [[call.toolCallId, { call, sequence, providerCallId: "", ...asked }]];
}
