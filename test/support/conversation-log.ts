import { create, fromJson, toJson } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import * as fc from "fast-check";
import { AskProvenance } from "../../gen/toolmark/v1/ask_pb.js";
import { EventSchema, type Event } from "../../gen/toolmark/v1/event_pb.js";
import { ActorSchema } from "../../gen/toolmark/v1/origin_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { DelegationKind, DelegationSchema, SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { SessionState } from "../../gen/toolmark/v1/session_pb.js";
import { ToolCallSchema } from "../../gen/toolmark/v1/tool_call_pb.js";
import type { DraftEvent } from "../../src/domain/session-state.js";
import { Decider } from "./decider.js";
import { asked, idIn, openAction, review } from "./rule-commands.js";
import { histories, ruleStep, type RuleStep } from "./ledger-steps.js";
import { RecordLog } from "./record-log.js";
import { actionOf, type Action } from "./step-actions.js";

export const ROOT = "ses_1";
export const CHILD = "ses_2";
const STEPS_MAX = 40;
/** One log of so many begins with a review that is handed over. */
const HANDED_OVER_OF = 4;

/** What a server would give of a root session and one that works for a call of it. */
export interface RecordedLog {
  readonly events: readonly Event[];
  /** Bytes of bodies by reference or digest. */
  readonly bytes: ReadonlyMap<string, Uint8Array>;
}

export const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

/** Logs of the real rules: everything that they decide, and the parts of results with rising offsets. */
export const recordedLogs: fc.Arbitrary<RecordedLog> = fc
  .record({
    root: histories(ruleStep, STEPS_MAX),
    child: histories(ruleStep, STEPS_MAX / 4),
    kind: fc.constantFrom(SessionKind.SUBAGENT, SessionKind.TEAM_MEMBER),
    pick: fc.nat({ max: 100 }),
  })
  .map(({ root, child, kind, pick }) => recordLog(root, child, kind, pick));

function recordLog(
  root: readonly RuleStep[],
  child: readonly RuleStep[],
  kind: SessionKind,
  pick: number,
): RecordedLog {
  const parent = play(root, pick % HANDED_OVER_OF === 0);
  const delegating = delegate(parent, pick);
  const below = play(child);
  const events = [
    ...eventsOf(parent.history),
    // Both count their ids from the same start: a child repeats every id of the root.
    ...eventsOf(below.history).map((event) => asChild(event, kind, delegating)),
  ];
  const bodies = [...parent.bodies, ...below.bodies];
  return { events, bytes: new Map(bodies.map(({ sha256, data }) => [hexOf(sha256), data])) };
}

/** Drives the rules through a history, behind a call whose review was handed over to a person if that is wanted. */
function play(steps: readonly RuleStep[], isHandedOver = false): Decider {
  const decider = new Decider(StartGate.OFF);
  if (isHandedOver) handOver(decider);
  const log = new RecordLog<DraftEvent>();
  for (const step of steps) {
    log.add(decider.history.slice(log.entries.length));
    if (decider.state.session.state === SessionState.ENDED) break;
    const tokenOf = ({ askId }: { readonly askId: string }): string => `token of ${askId}`;
    const action = actionOf(step, { log, nowMs: decider.nowMs, tokenOf });
    if (action !== undefined) take(decider, action);
  }
  return decider;
}

/** Histories of single steps seldom come to it: a review asks, and the person who is asked allows. */
function handOver(decider: Decider): void {
  const [toolCallId = ""] = decider.calls("handed over");
  const reviewId = idIn(decider.given(review(toolCallId)), "hook");
  const provenance = AskProvenance.HOOK_GUARDRAIL;
  decider.answer(
    asked(decider, openAction(toolCallId, { reviewId, provenance })),
    Verdict.ALLOW_ONCE,
  );
}

function take(decider: Decider, action: Action): void {
  switch (action.kind) {
    case "jump":
      decider.jump(action.byMs);
      return;
    case "expire":
      decider.pass(0, action.dueIds);
      return;
    default:
      decider.pass(1);
  }
  switch (action.kind) {
    case "beginRun":
      decider.begin(action.gate, action.takeOver);
      return;
    case "endSession":
      decider.end();
      return;
    case "command":
      decider.when([action.command]);
      return;
    case "answer":
      decider.send(action.request);
  }
}

/** An open call of the root gets a session below it. Empty if none is open. */
function delegate(decider: Decider, pick: number): string {
  const open = [...decider.state.openCalls.keys()];
  const id = open[pick % Math.max(1, open.length)];
  if (id === undefined) return "";
  const call = decider.call(id);
  decider.happened("TOOL_CALL_DELEGATED", (revision) => ({
    case: "toolCall",
    value: create(ToolCallSchema, { ...call, revision, delegatedSessionIds: [CHILD] }),
  }));
  return id;
}

/** The events as they are read: numbered, bodies by reference. */
export function eventsOf(history: readonly DraftEvent[], sessionId = ROOT): Event[] {
  const offsets = new Map<string, bigint>();
  return history.map(({ kind, revision, record }, index) => {
    const event = create(EventSchema, {
      sessionId,
      sequence: BigInt(index + 1),
      position: BigInt(index + 1),
      ...(revision === undefined ? {} : { revision }),
      recordTime: timestampFromMs(1_700_000_000_000 + index),
      actor: create(ActorSchema, { subject: "tester" }),
      kind,
      record,
    });
    if (record.record.case !== "provisional") return event;
    const copy = fromJson(EventSchema, toJson(EventSchema, event));
    if (copy.record?.record.case !== "provisional") throw new Error("a copy is another record");
    const { toolCallId, chunk } = copy.record.record.value;
    copy.record.record.value.offsetBytes = offsets.get(toolCallId) ?? 0n;
    offsets.set(toolCallId, (offsets.get(toolCallId) ?? 0n) + BigInt(chunk.length));
    return copy;
  });
}

function asChild(event: Event, kind: SessionKind, delegating: string): Event {
  const text = JSON.stringify(toJson(EventSchema, event)).replaceAll(`"${ROOT}"`, `"${CHILD}"`);
  const child = fromJson(EventSchema, JSON.parse(text) as never);
  const record = child.record?.record;
  if (record?.case === "session") {
    record.value.kind = kind;
    record.value.delegation = create(DelegationSchema, {
      parentSessionId: ROOT,
      parentToolCallId: delegating,
      kind: kind === SessionKind.TEAM_MEMBER ? DelegationKind.TEAM_MEMBER : DelegationKind.SUBAGENT,
    });
  }
  return child;
}
