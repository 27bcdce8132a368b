import {
  RecordFamily,
  type AskEntry,
  type CommandWrite,
  type Deadline,
  type NewEvent,
} from "../../src/ledger/store-port.js";
import { SessionState } from "../../gen/toolmark/v1/session_pb.js";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";

const NO_BYTES = new Uint8Array();

/** What an event says of an ask and of a deadline, and where and when. */
export interface EventMarks {
  readonly ask?: AskEntry;
  readonly askId?: string;
  readonly deadline?: Deadline;
  readonly position?: bigint;
  readonly timeMs?: number;
}

/** Whose session it is. */
export type Subjects = Pick<CommandWrite["session"], "ownerSubject" | "createdBySubject">;

const OWNED: Subjects = { ownerSubject: "owner", createdBySubject: "owner" };

export const OPEN_ASK: AskEntry = {
  toolName: "tool",
  state: AskState.OPEN,
  createTimeMs: 1,
  expireTimeMs: undefined,
};

function eventWith(marks: EventMarks): NewEvent {
  const { ask, askId: recordId, deadline, position = 1n, timeMs = 1 } = marks;
  const row: NewEvent["row"] = {
    sequence: 1n,
    position,
    revision: undefined,
    kind: "ask_updated",
    timeMs,
    payload: NO_BYTES,
    salt: NO_BYTES,
    commitment: NO_BYTES,
    privateCommitment: undefined,
    chain: NO_BYTES,
  };
  const family = RecordFamily.ask;
  const record = recordId === undefined ? undefined : { recordId, family, toolCallId: undefined };
  return { row, record, ask, deadline };
}

/** A write of a session whose events matter by their marks only. */
export function committedWrite(
  tenant: string,
  sessionId: string,
  marks: readonly EventMarks[],
  subjects = OWNED,
): CommandWrite {
  const head: CommandWrite["session"]["head"] = {
    sequence: 1n,
    position: 1n,
    highWater: 0n,
    chain: NO_BYTES,
    sessionSequence: 1n,
    activeRunId: undefined,
    updateTimeMs: 1,
  };
  const state = SessionState.OPEN;
  return {
    tenant,
    sessionId,
    session: {
      ...{ tenant, sessionId, ...subjects, state, createPosition: 1n, head },
      ...{ parentSessionId: undefined, rootSessionId: sessionId },
      checksum: NO_BYTES,
    },
    events: marks.map(eventWith),
    bodies: [],
    pairings: [],
    request: undefined,
    creation: undefined,
    snapshot: undefined,
  };
}
