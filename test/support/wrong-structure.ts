import { Code } from "@connectrpc/connect";
import { DelegationKind, SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { createAgain, malformed, UNKNOWN, type Scene, type WrongCall } from "./wrong-calls.js";

/** The last event of the scene's session that is archived. */
export const ARCHIVED_THROUGH = 3n;

function compact({ clients, run: { sessionId } }: Scene, requestId: string, through: bigint) {
  const archive = { sessionId, throughSequence: through, summary: "before" };
  return clients.sessions.compactSession({ ...archive, requestId });
}

const WRONG_ARCHIVES: readonly WrongCall[] = [
  {
    what: "an archive of what is archived",
    code: Code.FailedPrecondition,
    reason: "NOTHING_TO_COMPACT",
    metadata: { through_sequence: String(ARCHIVED_THROUGH) },
    send: (scene, requestId) => compact(scene, requestId, ARCHIVED_THROUGH),
  },
  malformed(
    "an archive of what is not written yet",
    "through_sequence",
    "must be at most the head of the log",
    (scene, requestId) => compact(scene, requestId, 10_000n),
  ),
  malformed(
    "an archive of nothing",
    "through_sequence",
    "must be the sequence of an event",
    (scene, requestId) => compact(scene, requestId, 0n),
  ),
  malformed(
    "an archive with no summary",
    "summary",
    "is required",
    ({ clients, run: { sessionId } }, requestId) =>
      clients.sessions.compactSession({ sessionId, requestId, throughSequence: 4n }),
  ),
];

interface Work {
  readonly parentSessionId: string;
  readonly parentToolCallId: string;
}

/** A session that is to work for a call. */
function delegate(
  what: string,
  work: (scene: Scene) => Work,
  refusal: Pick<WrongCall, "code" | "reason" | "metadata">,
  kind = SessionKind.SUBAGENT,
): WrongCall {
  const send: WrongCall["send"] = (scene, requestId) => {
    const delegation = { ...work(scene), kind: DelegationKind.SUBAGENT };
    return scene.clients.sessions.createSession({ requestId, kind, delegation });
  };
  return { what, ...refusal, send, reuse: createAgain };
}

function workFor({ run }: Scene, { toolCallId }: Pick<ToolCall, "toolCallId">): Work {
  return { parentSessionId: run.sessionId, parentToolCallId: toolCallId };
}

const NO_CALL = { code: Code.NotFound, reason: "TOOL_CALL_NOT_FOUND", metadata: {} };

const WRONG_DELEGATIONS: readonly WrongCall[] = [
  delegate(
    "a delegation by an unknown call",
    (scene) => workFor(scene, { toolCallId: UNKNOWN }),
    NO_CALL,
  ),
  delegate(
    "a delegation by another session's call",
    (scene) => workFor(scene, scene.other.call),
    NO_CALL,
  ),
  delegate(
    "a delegation by an unknown session",
    (scene) => ({ ...workFor(scene, scene.accepted), parentSessionId: "ses_unknown" }),
    { code: Code.NotFound, reason: "SESSION_NOT_FOUND", metadata: {} },
  ),
  delegate("a delegation by a call that has ended", (scene) => workFor(scene, scene.completed), {
    ...{ code: Code.FailedPrecondition, reason: "TOOL_CALL_ENDED" },
    metadata: ({ completed: { toolCallId } }) => ({
      ...{ tool_call_id: toolCallId, state: "COMPLETED" },
    }),
  }),
  delegate(
    "a session of another kind than its delegation",
    (scene) => workFor(scene, scene.started),
    {
      ...{ code: Code.InvalidArgument, reason: "FIELD_INVALID" },
      metadata: { field: "kind", rule: "must be the one of the same name as delegation.kind" },
    },
    SessionKind.MAIN,
  ),
];

/** Wrong calls about archives and about sessions that are to work for others. */
export const WRONG_STRUCTURE: readonly WrongCall[] = [...WRONG_ARCHIVES, ...WRONG_DELEGATIONS];
