import type { AskEntry, CommandWrite, Deadline, NewEvent } from "../../src/ledger/store-port.js";
import { SessionState } from "../../gen/toolmark/v1/session_pb.js";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";

const NO_BYTES = new Uint8Array();

/** What an event says of an ask and of a deadline. */
export interface EventMarks {
  readonly ask?: AskEntry;
  readonly deadline?: Deadline;
}

export const OPEN_ASK: AskEntry = {
  toolName: "tool",
  state: AskState.OPEN,
  createTimeMs: 1,
  expireTimeMs: undefined,
};

function eventWith({ ask, deadline }: EventMarks): NewEvent {
  const row: NewEvent["row"] = {
    sequence: 1n,
    position: 1n,
    revision: undefined,
    kind: "ask_updated",
    timeMs: 1,
    payload: NO_BYTES,
    salt: NO_BYTES,
    commitment: NO_BYTES,
    privateCommitment: undefined,
    chain: NO_BYTES,
  };
  return { row, record: undefined, ask, deadline };
}

/** A write of a session whose events matter by their marks only. */
export function committedWrite(
  tenant: string,
  sessionId: string,
  marks: readonly EventMarks[],
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
  const subjects = { ownerSubject: "owner", createdBySubject: "owner" };
  const state = SessionState.OPEN;
  return {
    tenant,
    sessionId,
    session: { tenant, sessionId, ...subjects, state, createPosition: 1n, head },
    events: marks.map(eventWith),
    bodies: [],
    pairings: [],
    request: undefined,
    creation: undefined,
    snapshot: undefined,
  };
}
