import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { Adopted } from "../../gen/toolmark/v1/legacy_pb.js";
import { RunState } from "../../gen/toolmark/v1/run_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { evolveAsk, evolveAuthorization, evolveReceipt } from "./evolve-asks.js";
import { invariant } from "./invariant.js";
import { LazyMap } from "./lazy-map.js";
import { merge } from "./merge-law.js";
import { NOTHING_ASKED, type OpenRecords } from "./open-records.js";
import { sessionOf } from "./session-record.js";
import type { DraftEvent, OpenCall, SessionState } from "./session-state.js";

/** The state after events, in order. A session's first event must carry the Session record. */
export function evolve(
  before: SessionState | undefined,
  events: readonly DraftEvent[],
): SessionState {
  return new Fold(before).add(events);
}

/** Folds events bit by bit. Of the states that it gives only the last may be kept: they share their maps. */
export class Fold {
  #state: SessionState | undefined;
  readonly #open: OpenRecords;

  constructor(before: SessionState | undefined) {
    this.#state = before;
    this.#open = {
      calls: new LazyMap(before?.openCalls),
      asks: new LazyMap(before?.openAsks),
      authorizations: new LazyMap(before?.pendingAuthorizations),
    };
  }

  add(events: readonly DraftEvent[]): SessionState {
    let state = this.#state;
    for (const event of events) state = evolveRecord(state, event, this.#open);
    invariant(state !== undefined, "a session begins with its own record");
    this.#state = { ...state, ...openOf(this.#open) };
    return this.#state;
  }
}

function openOf(
  open: OpenRecords,
): Pick<SessionState, "openCalls" | "openAsks" | "pendingAuthorizations"> {
  return {
    openCalls: open.calls.current,
    openAsks: open.asks.current,
    pendingAuthorizations: open.authorizations.current,
  };
}

function evolveRecord(
  before: SessionState | undefined,
  event: DraftEvent,
  open: OpenRecords,
): SessionState {
  const { record } = event.record;
  if (before === undefined) {
    const session = sessionOf(record);
    invariant(session !== undefined, "a session begins with its own record");
    if (record.case === "adopted") evolveAdopted(open, record.value, 1n);
    return {
      session,
      sequence: 1n,
      sessionSequence: 1n,
      highWater: record.case === "forked" ? record.value.highWater : 0n,
      activeRun: undefined,
      compactedThrough: 0n,
      adoptedSequence: record.case === "adopted" ? 1n : 0n,
      ...openOf(open),
    };
  }
  const sequence = before.sequence + 1n;
  const counted: SessionState = {
    ...before,
    sequence,
    highWater: event.revision ?? before.highWater,
  };
  invariant(
    event.revision === undefined || event.revision > before.highWater,
    "revisions of a session rise",
  );
  switch (record.case) {
    case "session":
      return { ...counted, session: record.value, sessionSequence: sequence };
    case "run":
      return { ...counted, activeRun: activeRunAfter(before, record.value) };
    case "toolCall":
      evolveCall(open.calls, record.value, sequence, event.pairing?.providerCallId);
      return counted;
    case "ask":
      evolveAsk(open, record.value);
      return counted;
    case "receipt":
      evolveReceipt(open, record.value);
      return counted;
    case "authorization":
      evolveAuthorization(open, record.value);
      return counted;
    case "adopted":
      return adoptedAgain(counted, record.value, open);
    case "compaction":
      return { ...counted, compactedThrough: record.value.throughSequence };
    default:
      return counted;
  }
}

/** What can go on of an older session stands in the event itself, so that no body is needed to fold it. */
function evolveAdopted(open: OpenRecords, adopted: Adopted, sequence: bigint): void {
  for (const call of adopted.openCalls) {
    open.calls.set(call.toolCallId, { ...NOTHING_ASKED, providerCallId: "", call, sequence });
  }
  for (const ask of adopted.asks) evolveAsk(open, ask);
  for (const pending of adopted.pendingAuthorizations) evolveAuthorization(open, pending);
}

function adoptedAgain(counted: SessionState, adopted: Adopted, open: OpenRecords): SessionState {
  const { session } = adopted;
  const { sequence, adoptedSequence } = counted;
  invariant(adoptedSequence === sequence - 1n, "a session is adopted before it is written to");
  invariant(session !== undefined, "an adopted session has its own record");
  for (const each of [open.calls, open.asks, open.authorizations]) each.clear();
  evolveAdopted(open, adopted, sequence);
  return { ...counted, session, sessionSequence: sequence, adoptedSequence: sequence };
}

type RunRecord = Extract<EventRecord["record"], { case: "run" }>["value"];

function activeRunAfter(before: SessionState, run: RunRecord): SessionState["activeRun"] {
  if (run.state === RunState.ACTIVE) return run;
  return before.activeRun?.runId === run.runId ? undefined : before.activeRun;
}

function evolveCall(
  openCalls: LazyMap<OpenCall>,
  call: ToolCall,
  sequence: bigint,
  providerCallId: string | undefined,
): void {
  const known = openCalls.get(call.toolCallId);
  invariant(merge(known?.call, call) === "advanced", "an update advances its call");
  if (call.result === undefined) {
    openCalls.set(call.toolCallId, {
      ...(known ?? { ...NOTHING_ASKED, providerCallId: providerCallId ?? "" }),
      call,
      sequence,
    });
  } else {
    openCalls.delete(call.toolCallId);
  }
}
