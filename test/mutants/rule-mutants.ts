import { HeldResult } from "../../gen/toolmark/storage/v1/storage_pb.js";
import { Ran, ToolCallState, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { EventKind } from "../../src/domain/event-kind.js";
import type { DraftEvent, OpenCall, SessionState } from "../../src/domain/session-state.js";
import type { BentRules } from "../support/decider.js";

/** Rules with one mistake, and the fault that must be found in what they write. */
export interface RuleMutant {
  readonly name: string;
  readonly fault: RegExp;
  readonly bent: BentRules;
}

/** Leaves out the events of these kinds. */
function without(...kinds: readonly EventKind[]): BentRules {
  const left: ReadonlySet<string> = new Set(kinds);
  return { events: (events) => events.filter(({ kind }) => !left.has(kind)) };
}

/** Leaves out the events of one kind where the same decision has one of another. */
function withoutBeside(left: EventKind, beside: EventKind): BentRules {
  return {
    events: (events) =>
      events.some(({ kind }) => kind === beside)
        ? events.filter(({ kind }) => kind !== left)
        : events,
  };
}

/** Changes what is known of each open call. */
function mistaking(change: (open: OpenCall, before: OpenCall | undefined) => OpenCall): BentRules {
  return {
    state: (after, before) => ({
      ...after,
      openCalls: new Map(
        [...after.openCalls].map(([id, open]) => [id, change(open, before.openCalls.get(id))]),
      ),
    }),
  };
}

/** Changes the calls of events of one kind. */
function changingCalls(kind: EventKind, change: (call: ToolCall) => ToolCall): BentRules {
  return { events: (events) => events.map((event) => withCall(event, kind, change)) };
}

function withCall(
  event: DraftEvent,
  kind: EventKind,
  change: (call: ToolCall) => ToolCall,
): DraftEvent {
  const { record } = event.record;
  if (event.kind !== kind || record.case !== "toolCall") return event;
  const changed = { case: record.case, value: change(record.value) };
  return { ...event, record: { ...event.record, record: changed } };
}

/** Says the last event of a kind twice, the second time at the next revision. */
function repeating(wanted: EventKind): BentRules {
  return {
    events: (events) => {
      const last = events.at(-1);
      const again = events.findLast(({ kind }) => kind === wanted);
      if (again === undefined || last === undefined) return events;
      return [...events, atRevision(again, (last.revision ?? 0n) + 1n)];
    },
  };
}

function atRevision(event: DraftEvent, revision: bigint): DraftEvent {
  const { record } = event.record;
  if (record.case !== "receipt") return event;
  const value = { ...record.value, revision };
  return { ...event, revision, record: { ...event.record, record: { ...record, value } } };
}

function forgettingToClose(after: SessionState, before: SessionState): SessionState {
  return { ...after, openAsks: new Map([...before.openAsks, ...after.openAsks]) };
}

export const RULE_MUTANTS: readonly RuleMutant[] = [
  {
    name: "forget to void an allow when arguments change",
    fault: /was spent on other arguments/,
    bent: withoutBeside(EventKind.receiptVoided, EventKind.toolCallAmended),
  },
  {
    name: "forget that changed arguments need an allow",
    fault: /arguments that nobody allowed/,
    bent: mistaking((open) => ({ ...open, needsAllow: false })),
  },
  {
    name: "take the withdrawal of a newer ask for an allow",
    fault: /arguments that nobody allowed/,
    bent: mistaking((open, before) =>
      before?.call.state === ToolCallState.AWAITING_ANSWER ? { ...open, needsAllow: false } : open,
    ),
  },
  {
    name: "leave an ask open when arguments change",
    fault: /is ACCEPTED, and asked about/,
    bent: withoutBeside(EventKind.askSuperseded, EventKind.toolCallAmended),
  },
  {
    name: "leave the older ask open beside a newer one",
    fault: /is a second open ask/,
    bent: withoutBeside(EventKind.askSuperseded, EventKind.askOpened),
  },
  {
    name: "take answers to settled asks",
    fault: /settles ask_\w+, which was settled/,
    bent: { state: forgettingToClose },
  },
  {
    name: "spend twice",
    fault: /left SPENT/,
    bent: repeating(EventKind.receiptSpent),
  },
  {
    name: "start without spending",
    fault: /was not spent by the start/,
    bent: withoutBeside(EventKind.receiptSpent, EventKind.toolCallStarted),
  },
  {
    name: "forget a start",
    fault: /started (twice|from STARTED)/,
    bent: mistaking((open, before) =>
      open.call.state === ToolCallState.STARTED && before !== undefined
        ? { ...open, call: { ...open.call, state: before.call.state } }
        : open,
    ),
  },
  {
    name: "let a denied call go on",
    fault: /started after a no/,
    bent: mistaking((open) =>
      open.call.state === ToolCallState.DENIED
        ? { ...open, call: { ...open.call, state: ToolCallState.ACCEPTED } }
        : open,
    ),
  },
  {
    name: "take an expiry for an allow",
    fault: /started after a no/,
    bent: mistaking((open) =>
      open.call.state === ToolCallState.EXPIRED
        ? { ...open, call: { ...open.call, state: ToolCallState.ACCEPTED } }
        : open,
    ),
  },
  {
    name: "leave an allow unspent beside a result",
    fault: /ended with an unspent receipt/,
    bent: withoutBeside(EventKind.receiptVoided, EventKind.resultRecorded),
  },
  {
    name: "leave an allow unspent beside a denial",
    fault: /ended with an unspent receipt/,
    bent: withoutBeside(EventKind.receiptVoided, EventKind.askAnswered),
  },
  {
    name: "leave an allow unspent beside a newer question about the same result",
    fault: /was opened beside an unspent allow/,
    bent: withoutBeside(EventKind.receiptVoided, EventKind.askOpened),
  },
  {
    name: "take answers when the time is over",
    fault: /came when the time was over/,
    bent: {
      events: (events) => (events.some(({ kind }) => kind === EventKind.askExpired) ? [] : events),
    },
  },
  {
    name: "take a result that is held",
    fault: /gave a result that was not released/,
    bent: mistaking((open) => ({ ...open, heldResult: HeldResult.UNSPECIFIED })),
  },
  {
    name: "take any result after a release",
    fault: /gave another result than was released/,
    bent: mistaking((open) =>
      open.heldResult === HeldResult.RELEASED
        ? { ...open, heldResult: HeldResult.UNSPECIFIED }
        : open,
    ),
  },
  {
    name: "give a held result an end of its own at the run's end",
    fault: /gave a result that was not released/,
    bent: changingCalls(EventKind.toolCallEnded, (call) =>
      call.state === ToolCallState.WITHHELD
        ? { ...call, state: ToolCallState.OUTCOME_UNKNOWN, ran: Ran.UNKNOWN }
        : call,
    ),
  },
  {
    name: "say that a denied call ran",
    fault: /is DENIED and ran is YES/,
    bent: changingCalls(EventKind.toolCallEnded, (call) =>
      call.state === ToolCallState.DENIED ? { ...call, ran: Ran.YES } : call,
    ),
  },
  {
    name: "settle an ask without a receipt",
    fault: /is (ANSWERED|WITHDRAWN|EXPIRED) and has 0 receipts/,
    bent: without(EventKind.receiptWritten),
  },
  {
    name: "leave asks open at the run's end",
    fault: /was open after the end of run_/,
    bent: withoutBeside(EventKind.askWithdrawn, EventKind.runEnded),
  },
  {
    name: "leave authorizations pending at the run's end",
    fault: /was pending after the end of run_/,
    bent: withoutBeside(EventKind.authorizationSettled, EventKind.runEnded),
  },
  {
    name: "leave the calls behind a parked one waiting",
    fault: /AWAITING_AUTHORIZATION, and parked: false/,
    bent: {
      events: (events) => {
        const isSettled = events[0]?.kind === EventKind.authorizationSettled;
        return isSettled ? events.slice(0, 2) : events;
      },
    },
  },
  {
    name: "let a call go on without its authorization",
    fault: /outlived its authorization/,
    bent: changingCalls(EventKind.toolCallEnded, (call) =>
      call.state === ToolCallState.FAILED
        ? { ...call, state: ToolCallState.ACCEPTED, result: undefined }
        : call,
    ),
  },
  {
    name: "park a call that waits for an answer",
    fault: /is AWAITING_AUTHORIZATION, and asked about/,
    bent: mistaking((open) =>
      open.call.state === ToolCallState.AWAITING_ANSWER
        ? { ...open, call: { ...open.call, state: ToolCallState.ACCEPTED } }
        : open,
    ),
  },
];
