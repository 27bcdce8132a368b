import type { Event, EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { given } from "./conversation.js";
import { copiedIn } from "./forking.js";
import { projectionFaults, projectionOf, resultsOf, retainedOf } from "./projection.js";
import type { ModelSession } from "./tree-model.js";

type AnyRecord = EventRecord["record"];
type Step = Pick<ModelSession["path"][number], "sessionId" | "toolCallId">;

/** What is wrong with a session's log as that of a session of a tree, one line each. */
export function logFaults(session: ModelSession, log: readonly Event[]): string[] {
  const { sessionId } = session;
  const faults = log.flatMap((event) => {
    const foreign = event.sessionId === sessionId ? [] : [`${sessionId} has an event of another`];
    const record = event.record?.record;
    return record === undefined ? foreign : [...foreign, ...recordFaults(session, record)];
  });
  return [...faults, ...callFaults(session, log), ...archiveFaults(session, log)];
}

/** Whose a record is, and where it stands. */
function recordFaults(session: ModelSession, record: AnyRecord): string[] {
  switch (record.case) {
    case "session":
      return standingFaults(session, record.value);
    case "forked":
      return standingFaults(session, given(record.value.session, "session"));
    case "toolCall":
    case "hook":
    case "ask":
    case "receipt": {
      const { origin, toolCallId = "" } = record.value;
      const isOwn = origin?.sessionId === session.sessionId;
      const isAttached = session.calls.some((call) => call.toolCallId === toolCallId);
      const path = record.case === "ask" ? pathFaults(session, record.value.delegationPath) : [];
      return [
        ...(isOwn ? [] : [`a ${record.case} of ${session.sessionId} has another origin`]),
        ...(isAttached ? [] : [`a ${record.case} of ${session.sessionId} is about no call of it`]),
        ...path,
      ];
    }
    default:
      return [];
  }
}

function standingFaults(
  session: ModelSession,
  { sessionId, delegation, delegationPath }: Extract<AnyRecord, { case: "session" }>["value"],
): string[] {
  const { parent } = session;
  const isRight =
    sessionId === session.sessionId &&
    delegation?.parentSessionId === parent?.session.sessionId &&
    delegation?.parentToolCallId === parent?.toolCallId;
  const faults = pathFaults(session, delegationPath);
  return isRight ? faults : [...faults, `${session.sessionId} works for another call`];
}

function pathFaults(session: ModelSession, path: readonly Step[]): string[] {
  return pathText(path) === pathText(session.path)
    ? []
    : [`${session.sessionId} stands elsewhere: ${pathText(path)}, not ${pathText(session.path)}`];
}

export function pathText(path: readonly Step[]): string {
  return path.map(({ sessionId, toolCallId }) => `${sessionId}/${toolCallId}`).join(" ");
}

/** Which calls there are, which sessions work for them, and what results they had. */
function callFaults(session: ModelSession, log: readonly Event[]): string[] {
  const last = lastCalls(log);
  const ids = session.calls.map(({ toolCallId }) => toolCallId);
  const faults = [...last.keys()].join() === ids.join() ? [] : ["other calls were accepted"];
  for (const { toolCallId, state, children } of session.calls) {
    const { delegatedSessionIds = [], result } = last.get(toolCallId) ?? {};
    const expected = children.map(({ sessionId }) => sessionId);
    if (delegatedSessionIds.join() !== expected.join()) {
      faults.push(`${toolCallId} names ${delegatedSessionIds.join()}, not ${expected.join()}`);
    }
    if ((state === "answered") !== (result !== undefined)) {
      faults.push(`${toolCallId} is ${state}, and has its result: ${String(result !== undefined)}`);
    }
    if (resultsOf(log, toolCallId).length > 1) faults.push(`${toolCallId} has several results`);
  }
  return faults;
}

function lastCalls(log: readonly Event[]): ReadonlyMap<string, ToolCall> {
  const calls = new Map<string, ToolCall>();
  for (const { record } of log) {
    if (record?.record.case !== "toolCall") continue;
    calls.set(record.record.value.toolCallId, record.record.value);
  }
  return calls;
}

/** What a reader makes of what was not archived. */
function archiveFaults(session: ModelSession, log: readonly Event[]): string[] {
  const { throughSequence } = retainedOf(log);
  const { base } = session;
  const copied = base === undefined ? [] : copiedIn(base);
  const copiedCalls = copied.flatMap((of) => (of.case === "toolCall" ? of.value : []));
  const calls = [...copiedCalls, ...lastCalls(log).values()];
  const faults = projectionFaults(projectionOf(log, base), calls);
  if (throughSequence === session.compactedThrough) return faults;
  return [...faults, `archived through ${throughSequence}, not ${session.compactedThrough}`];
}
