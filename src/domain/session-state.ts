import { create, toBinary } from "@bufbuild/protobuf";
import type { ProviderPairing } from "../../gen/toolmark/engine/v1/command_pb.js";
import {
  SessionStateSchema,
  type SessionState as StoredSessionState,
} from "../../gen/toolmark/storage/v1/storage_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { Run } from "../../gen/toolmark/v1/run_pb.js";
import type { Session } from "../../gen/toolmark/v1/session_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";

/** A call without a canonical or synthetic result. */
export interface OpenCall {
  readonly call: ToolCall;
  /** Sequence of the call's last event. */
  readonly sequence: bigint;
  /** The provider's id of the call, empty if it has none. Private. */
  readonly providerCallId: string;
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
}

/** An event as decided: what `evolve` folds and what is committed. */
export interface DraftEvent {
  readonly kind: string;
  readonly revision: bigint | undefined;
  readonly record: EventRecord;
  /** Provider pairing data to be stored beside the event. Private. */
  readonly pairing: ProviderPairing | undefined;
}

function storedState(state: SessionState): StoredSessionState {
  return create(SessionStateSchema, {
    session: state.session,
    ...(state.activeRun === undefined ? {} : { activeRun: state.activeRun }),
    openCalls: [...state.openCalls.values()].map(({ call, sequence }) => ({
      toolCall: call,
      sequence,
    })),
    sessionSequence: state.sessionSequence,
  });
}

/** The state as the bytes of a snapshot. */
export function encodeState(state: SessionState): Uint8Array {
  return toBinary(SessionStateSchema, storedState(state));
}
