import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { RunState } from "../../gen/toolmark/v1/run_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { invariant } from "./invariant.js";
import { merge } from "./merge-law.js";
import type { DraftEvent, OpenCall, SessionState } from "./session-state.js";

/** The state after events, in order. A session's first event must carry the Session record. */
export function evolve(
  before: SessionState | undefined,
  events: readonly DraftEvent[],
): SessionState {
  return new Fold(before).add(events);
}

/** Folds events bit by bit. Of the states that it gives only the last may be kept: they share one map. */
export class Fold {
  #state: SessionState | undefined;
  readonly #openCalls: LazyMap;

  constructor(before: SessionState | undefined) {
    this.#state = before;
    this.#openCalls = new LazyMap(before?.openCalls);
  }

  add(events: readonly DraftEvent[]): SessionState {
    let state = this.#state;
    for (const event of events) state = evolveRecord(state, event, this.#openCalls);
    invariant(state !== undefined, "a session begins with its own record");
    this.#state = { ...state, openCalls: this.#openCalls.current };
    return this.#state;
  }
}

function evolveRecord(
  before: SessionState | undefined,
  event: DraftEvent,
  openCalls: LazyMap,
): SessionState {
  const { record } = event.record;
  if (before === undefined) {
    invariant(record.case === "session", "a session begins with its own record");
    return {
      session: record.value,
      sequence: 1n,
      sessionSequence: 1n,
      highWater: event.revision ?? 0n,
      activeRun: undefined,
      openCalls: openCalls.current,
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
      evolveCall(openCalls, record.value, sequence, event.pairing?.providerCallId);
      return counted;
    default:
      return counted;
  }
}

type RunRecord = Extract<EventRecord["record"], { case: "run" }>["value"];

function activeRunAfter(before: SessionState, run: RunRecord): SessionState["activeRun"] {
  if (run.state === RunState.ACTIVE) return run;
  return before.activeRun?.runId === run.runId ? undefined : before.activeRun;
}

function evolveCall(
  openCalls: LazyMap,
  call: ToolCall,
  sequence: bigint,
  providerCallId: string | undefined,
): void {
  const known = openCalls.current.get(call.toolCallId);
  invariant(merge(known?.call, call) === "advanced", "an update advances its call");
  if (call.result === undefined) {
    openCalls.set(call.toolCallId, {
      call,
      sequence,
      providerCallId: known?.providerCallId ?? providerCallId ?? "",
    });
  } else if (known !== undefined) {
    openCalls.delete(call.toolCallId);
  }
}

/** A map that is copied before its first change only. */
class LazyMap {
  #current: ReadonlyMap<string, OpenCall>;
  #copy: Map<string, OpenCall> | undefined;

  constructor(start: ReadonlyMap<string, OpenCall> | undefined) {
    this.#current = start ?? new Map<string, OpenCall>();
  }

  get current(): ReadonlyMap<string, OpenCall> {
    return this.#current;
  }

  set(id: string, call: OpenCall): void {
    this.#own().set(id, call);
  }

  delete(id: string): void {
    this.#own().delete(id);
  }

  #own(): Map<string, OpenCall> {
    this.#copy ??= new Map(this.#current);
    this.#current = this.#copy;
    return this.#copy;
  }
}
