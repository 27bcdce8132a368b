import { create, toBinary } from "@bufbuild/protobuf";
import type { ProviderPairing } from "../../gen/toolmark/engine/v1/command_pb.js";
import {
  SessionStateSchema,
  type ProviderTurn,
  type HeldResult,
  type OpenCall as StoredOpenCall,
  type SessionState as StoredSessionState,
} from "../../gen/toolmark/storage/v1/storage_pb.js";
import type { Ask, AskKind } from "../../gen/toolmark/v1/ask_pb.js";
import type { Authorization } from "../../gen/toolmark/v1/authorization_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { Receipt } from "../../gen/toolmark/v1/receipt_pb.js";
import type { Run } from "../../gen/toolmark/v1/run_pb.js";
import type { Session } from "../../gen/toolmark/v1/session_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";

/** An allow that can still be used, and what was asked. */
export interface UnspentAllow {
  readonly receipt: Receipt;
  readonly kind: AskKind;
}

/** A call without a canonical or synthetic result. */
export interface OpenCall {
  readonly call: ToolCall;
  /** Sequence of the call's last event. */
  readonly sequence: bigint;
  /** The provider's id of the call, empty if it has none. Private. */
  readonly providerCallId: string;
  /** Oldest first. */
  readonly unspentAllows: readonly UnspentAllow[];
  /** The arguments changed after the call was asked about, and no newer ask has allowed it. */
  readonly needsAllow: boolean;
  /** Where a result stands whose release was asked for. */
  readonly heldResult: HeldResult;
  /** Digest of that result; empty if nobody asked. */
  readonly heldSha256: Uint8Array;
  /** The ask that amended arguments superseded, until a newer one of the call opens. */
  readonly supersededAskId: string | undefined;
}

/** What deciding the next command of a session needs: counters and what is open. */
export interface SessionState {
  /** The Session record as of its last own event. */
  readonly session: Session;
  readonly sequence: bigint;
  readonly sessionSequence: bigint;
  readonly highWater: bigint;
  readonly activeRun: Run | undefined;
  /** In the order of acceptance. */
  readonly openCalls: ReadonlyMap<string, OpenCall>;
  /** In the order of opening. */
  readonly openAsks: ReadonlyMap<string, Ask>;
  /** In the order of parking. */
  readonly pendingAuthorizations: ReadonlyMap<string, Authorization>;
  /** Sequence of the last archived event, 0 if none was. */
  readonly compactedThrough: bigint;
  /** Sequence of the last event that brought records of an older system, 0 if none did. */
  readonly adoptedSequence: bigint;
}

/** An event as decided: what `evolve` folds and what is committed. */
export interface DraftEvent {
  readonly kind: string;
  readonly revision: bigint | undefined;
  readonly record: EventRecord;
  /** Provider pairing data to be stored beside the event. Private. */
  readonly pairing: ProviderPairing | undefined;
  /** What the provider gave with a turn, stored in the same way. Absent: nothing. Private. */
  readonly providerTurn?: ProviderTurn | undefined;
}

function storedCall(open: OpenCall): Omit<StoredOpenCall, "$typeName"> {
  const { call, sequence, unspentAllows, needsAllow, heldResult, heldSha256 } = open;
  const { supersededAskId } = open;
  return {
    toolCall: call,
    sequence,
    unspentAllows: unspentAllows.map((allow) => ({
      $typeName: "toolmark.storage.v1.UnspentAllow",
      ...allow,
    })),
    needsAllow,
    heldResult,
    heldSha256,
    ...(supersededAskId === undefined ? {} : { supersededAskId }),
  };
}

function storedState(state: SessionState): StoredSessionState {
  return create(SessionStateSchema, {
    session: state.session,
    ...(state.activeRun === undefined ? {} : { activeRun: state.activeRun }),
    openCalls: [...state.openCalls.values()].map(storedCall),
    sessionSequence: state.sessionSequence,
    openAsks: [...state.openAsks.values()],
    pendingAuthorizations: [...state.pendingAuthorizations.values()],
    compactedThrough: state.compactedThrough,
    adoptedSequence: state.adoptedSequence,
  });
}

/** The state as the bytes of a snapshot. */
export function encodeState(state: SessionState): Uint8Array {
  return toBinary(SessionStateSchema, storedState(state));
}
