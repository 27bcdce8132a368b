import { Code } from "@connectrpc/connect";
import { TakeOver } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import type { Ask } from "../../gen/toolmark/v1/ask_pb.js";
import type { Authorization } from "../../gen/toolmark/v1/authorization_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { MessageRole, RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { ToolCallState, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { bytes, newCall, of, publishHook, type CommandInit, type OpenRun } from "./conversation.js";
import type { Clients } from "./service.js";

const BODY_LIMIT = 1000;
/** Limits that the wrong calls are too large for. */
export const FLAGS = [
  ...["--limit-body-bytes", String(BODY_LIMIT), "--limit-inline-body-bytes", "500"],
  ...["--limit-message-bytes", "4000", "--limit-calls-per-turn", "3"],
  ...["--limit-commands-per-apply", "4", "--limit-open-asks-per-session", "3"],
];

/** What wrong calls are about: a session in every state that they need, and another one. */
export interface Scene {
  readonly clients: Clients;
  readonly run: OpenRun;
  readonly endedRunId: string;
  readonly accepted: ToolCall;
  readonly started: ToolCall;
  readonly completed: ToolCall;
  readonly hookId: string;
  /** The review of `accepted` for the job ACTION. */
  readonly reviewId: string;
  readonly asks: SceneAsks;
  /** Of the first of two parked calls; the other waits behind it. */
  readonly pending: Authorization;
  readonly granted: Authorization;
  readonly other: {
    readonly run: OpenRun;
    readonly call: ToolCall;
    readonly hookId: string;
    readonly ask: Ask;
    readonly pending: Authorization;
  };
  readonly otherBodyRef: string;
}

/** Each about a call of its own. */
export interface SceneAsks {
  /** It takes no ALLOW_ALWAYS. */
  readonly open: Ask;
  readonly answered: Ask;
  readonly withdrawn: Ask;
  readonly expired: Ask;
  /** By amended arguments, with no newer ask. */
  readonly superseded: Ask;
  /** A RESULT_RELEASE ask that is open, of a started call. */
  readonly held: Ask;
  /** One that was denied. */
  readonly barred: Ask;
  /** One that was allowed. */
  readonly released: Ask;
}

export interface WrongCall {
  readonly what: string;
  readonly code: Code;
  readonly reason: string;
  readonly metadata: Readonly<Record<string, string>> | ((scene: Scene) => Record<string, string>);
  readonly send: (scene: Scene, requestId: string) => Promise<unknown>;
  readonly reuse?: (scene: Scene, requestId: string) => Promise<unknown>;
}

export const UNKNOWN = "tc_00000000000000000000000000";
const TEXT = { data: bytes("x") };
const HOOK = { phase: "session_start", decision: HookDecision.INFO };

export function apply({ clients, run }: Scene, requestId: string, ...commands: CommandInit[]) {
  const list = commands.map((command) => ({ command }));
  return clients.runs.apply({ ...of(run, requestId), commands: list });
}

/** A command that is refused by its fields alone. */
export function malformed(
  what: string,
  field: string,
  rule: string,
  send: WrongCall["send"],
): WrongCall {
  const metadata = { field, rule };
  return { what, code: Code.InvalidArgument, reason: "FIELD_INVALID", metadata, send };
}

export const createAgain: NonNullable<WrongCall["reuse"]> = ({ clients }, requestId) =>
  clients.sessions.createSession({ requestId, kind: SessionKind.MAIN });

const UNSPECIFIED_ENUMS: readonly WrongCall[] = [
  {
    ...malformed("a session of no kind", "kind", "is required", ({ clients }, requestId) =>
      clients.sessions.createSession({ requestId }),
    ),
    reuse: createAgain,
  },
  malformed("a run with no start gate", "start_gate", "is required", ({ clients, run }, id) =>
    clients.runs.beginRun({ sessionId: run.sessionId, requestId: id, takeOver: TakeOver.END }),
  ),
  malformed(
    "a take-over that is given and unspecified",
    "take_over",
    "is required",
    ({ clients, run: { sessionId } }, requestId) =>
      clients.runs.beginRun({
        ...{ sessionId, requestId, startGate: StartGate.OFF },
        takeOver: TakeOver.UNSPECIFIED,
      }),
  ),
  malformed("a message of nobody", "command.role", "is required", ({ clients, run }, requestId) =>
    clients.evidence.recordMessage({ ...of(run, requestId), command: { content: TEXT } }),
  ),
  malformed("a hook with no decision", "command.decision", "is required", (scene, requestId) =>
    scene.clients.evidence.publishHook({
      ...of(scene.run, requestId),
      command: { phase: "session_start" },
    }),
  ),
  malformed("an end of a run with no outcome", "command.outcome", "is required", (scene, id) =>
    scene.clients.runs.endRun({ ...of(scene.run, id), command: {} }),
  ),
  malformed(
    "a decision that no version knows",
    "command.decision",
    "must be one of the values allowed here",
    ({ clients, run }, requestId) =>
      clients.evidence.publishHook({
        ...of(run, requestId),
        command: Object.assign({ ...HOOK }, { decision: 99 }),
      }),
  ),
  malformed(
    "a result that ends a call as the service alone may",
    "command.canonical.end",
    "must be one of the values allowed here",
    ({ clients, run, accepted: { toolCallId } }, requestId) =>
      clients.calls.recordResult({
        ...of(run, requestId),
        command: {
          toolCallId,
          result: { case: "canonical", value: { content: TEXT, end: ToolCallState.CANCELLED } },
        },
      }),
  ),
];

const MISSING_FIELDS: readonly WrongCall[] = [
  malformed("no command", "command", "is required", ({ clients, run }, requestId) =>
    clients.calls.acceptTurn({ ...of(run, requestId) }),
  ),
  malformed("a turn of no calls", "command.calls", "must have at least one entry", (scene, id) =>
    scene.clients.calls.acceptTurn({ ...of(scene.run, id), command: {} }),
  ),
  malformed("a call with no tool", "command.calls[1].tool_name", "is required", (scene, id) => {
    const calls = [newCall(), { ...newCall(), toolName: "" }];
    return scene.clients.calls.acceptTurn({ ...of(scene.run, id), command: { calls } });
  }),
  malformed("a call with no arguments", "command.calls[0].arguments", "is required", (scene, id) =>
    scene.clients.calls.acceptTurn({
      ...of(scene.run, id),
      command: { calls: [{ toolName: "bash" }] },
    }),
  ),
  malformed(
    "a body of neither bytes nor reference",
    "command.content",
    "must have data or body_ref",
    ({ clients, run }, requestId) =>
      clients.evidence.recordMessage({
        ...of(run, requestId),
        command: { role: MessageRole.USER, content: {} },
      }),
  ),
  malformed("no result", "command.result", "is required", ({ clients, run, accepted }, requestId) =>
    clients.calls.recordResult({
      ...of(run, requestId),
      command: { toolCallId: accepted.toolCallId },
    }),
  ),
  malformed(
    "a tool hook about no call",
    "command.tool_call_id",
    "is required for phase pre_tool_use",
    ({ clients, run }, requestId) =>
      clients.evidence.publishHook({
        ...of(run, requestId),
        command: { ...HOOK, phase: "pre_tool_use" },
      }),
  ),
  malformed("an Apply of nothing", "commands", "must have at least one entry", apply),
];

const OTHER_SESSIONS: readonly WrongCall[] = [
  {
    what: "a result for another session's call",
    code: Code.NotFound,
    reason: "TOOL_CALL_NOT_FOUND",
    metadata: {},
    send: ({ clients, run, other }, requestId) =>
      clients.calls.recordResult({
        ...of(run, requestId),
        command: {
          toolCallId: other.call.toolCallId,
          result: { case: "canonical", value: { content: TEXT } },
        },
      }),
  },
  {
    what: "a block by another session's hook",
    code: Code.NotFound,
    reason: "HOOK_NOT_FOUND",
    metadata: {},
    send: (scene, requestId) => block(scene, requestId, scene.other.hookId),
  },
  {
    what: "a hook on another session's call",
    code: Code.NotFound,
    reason: "TOOL_CALL_NOT_FOUND",
    metadata: {},
    send: ({ clients, run, other }, requestId) =>
      publishHook(clients, run, other.call.toolCallId, requestId),
  },
  {
    what: "a command of another session's run",
    code: Code.NotFound,
    reason: "RUN_NOT_FOUND",
    metadata: {},
    send: ({ clients, run, other }, requestId) =>
      publishHook(clients, { ...run, runId: other.run.runId }, undefined, requestId),
  },
  {
    what: "a body of another session",
    code: Code.NotFound,
    reason: "BODY_NOT_FOUND",
    metadata: { field: "command.content" },
    send: ({ clients, run, otherBodyRef: bodyRef }, requestId) =>
      clients.evidence.recordMessage({
        ...of(run, requestId),
        command: { role: MessageRole.USER, content: { bodyRef } },
      }),
  },
  {
    what: "evidence that was born in another session",
    code: Code.InvalidArgument,
    reason: "ORIGIN_MISMATCH",
    metadata: { field: "command.origin" },
    send: ({ clients, run, other }, requestId) =>
      clients.evidence.publishHook({
        ...of(run, requestId),
        command: { ...HOOK, origin: { sessionId: other.run.sessionId } },
      }),
  },
];

const MALFORMED_IDS: readonly WrongCall[] = [
  malformed(
    "an id with a control character",
    "command.tool_call_id",
    "must not have control characters",
    ({ clients, run }, requestId) => publishHook(clients, run, "tc_\u0000", requestId),
  ),
  malformed(
    "an id of more than 512 bytes",
    "command.tool_call_id",
    "must be at most 512 bytes",
    ({ clients, run }, requestId) => publishHook(clients, run, "é".repeat(257), requestId),
  ),
  malformed("an empty id", "run_id", "is required", ({ clients, run }, requestId) =>
    publishHook(clients, { ...run, runId: "" }, undefined, requestId),
  ),
  ...["", "x".repeat(129), "Ж", "a\u007f"].map((requestId) =>
    malformed(
      `the request id ${JSON.stringify(requestId.slice(0, 9))}`,
      "request_id",
      "must be 1 to 128 printable ASCII characters",
      ({ clients, run }) => publishHook(clients, run, undefined, requestId),
    ),
  ),
];

const TOO_LARGE: readonly WrongCall[] = [
  {
    what: "arguments above the body limit",
    code: Code.ResourceExhausted,
    reason: "BODY_TOO_LARGE",
    metadata: { field: "command.calls[0].arguments.data", limit: String(BODY_LIMIT) },
    send: ({ clients, run }, requestId) => {
      const calls = [newCall("", "bash", "x".repeat(BODY_LIMIT + 1))];
      return clients.calls.acceptTurn({ ...of(run, requestId), command: { calls } });
    },
  },
  {
    what: "a result above the body limit",
    code: Code.ResourceExhausted,
    reason: "BODY_TOO_LARGE",
    metadata: { field: "command.canonical.content.data", limit: String(BODY_LIMIT) },
    send: ({ clients, run, accepted }, requestId) =>
      clients.calls.recordResult({
        ...of(run, requestId),
        command: {
          toolCallId: accepted.toolCallId,
          result: {
            case: "canonical",
            value: { content: { data: new Uint8Array(BODY_LIMIT + 1) } },
          },
        },
      }),
  },
  malformed(
    "a part of a result above the inline limit",
    "command.provisional.chunk",
    "must be 1 to 500 bytes",
    ({ clients, run, accepted: { toolCallId } }, requestId) =>
      clients.calls.recordResult({
        ...of(run, requestId),
        command: {
          toolCallId,
          result: { case: "provisional", value: { chunk: new Uint8Array(501) } },
        },
      }),
  ),
  {
    what: "a message above the message limit, raised before a handler",
    code: Code.ResourceExhausted,
    reason: "",
    metadata: {},
    send: ({ clients, run }, requestId) => {
      const calls = [newCall("", "bash", "x".repeat(4001))];
      return clients.calls.acceptTurn({ ...of(run, requestId), command: { calls } });
    },
  },
  {
    what: "more calls than a turn may have",
    code: Code.ResourceExhausted,
    reason: "QUOTA_EXCEEDED",
    metadata: { field: "command.calls", limit: "3" },
    send: ({ clients, run }, requestId) => {
      const calls = [newCall(), newCall(), newCall(), newCall()];
      return clients.calls.acceptTurn({ ...of(run, requestId), command: { calls } });
    },
  },
  {
    what: "more commands than an Apply may have",
    code: Code.ResourceExhausted,
    reason: "QUOTA_EXCEEDED",
    metadata: { field: "commands", limit: "4" },
    send: (scene, requestId) =>
      apply(
        scene,
        requestId,
        ...Array.from({ length: 5 }, () => ({ case: "publishHook" as const, value: HOOK })),
      ),
  },
];

const WRONG_REFERENCES: readonly WrongCall[] = [
  {
    what: "a hook on an unknown call",
    code: Code.NotFound,
    reason: "TOOL_CALL_NOT_FOUND",
    metadata: {},
    send: ({ clients, run }, requestId) => publishHook(clients, run, UNKNOWN, requestId),
  },
  {
    what: "a hook that names another tool than its call's",
    code: Code.InvalidArgument,
    reason: "REFERENCE_MISMATCH",
    metadata: { field: "command.tool_name" },
    send: ({ clients, run, accepted: { toolCallId } }, requestId) =>
      clients.evidence.publishHook({
        ...of(run, requestId),
        command: { ...HOOK, toolCallId, toolName: "other" },
      }),
  },
  {
    what: "a block by a hook about another call",
    code: Code.InvalidArgument,
    reason: "REFERENCE_MISMATCH",
    metadata: { field: "command.canonical.blocked_by_hook_id" },
    send: (scene, requestId) => block(scene, requestId, scene.hookId),
  },
  malformed(
    "bytes with the digest of others",
    "command.content.sha256",
    "is not the digest of the bytes",
    ({ clients, run }, requestId) =>
      clients.evidence.recordMessage({
        ...of(run, requestId),
        command: { role: MessageRole.USER, content: { ...TEXT, sha256: new Uint8Array(32) } },
      }),
  ),
  {
    what: "a command of an unknown run",
    code: Code.NotFound,
    reason: "RUN_NOT_FOUND",
    metadata: {},
    send: ({ clients, run }, requestId) =>
      publishHook(clients, { ...run, runId: "run_unknown" }, undefined, requestId),
  },
];

const WRONG_STATES: readonly WrongCall[] = [
  {
    what: "a second canonical result",
    code: Code.FailedPrecondition,
    reason: "RESULT_ALREADY_RECORDED",
    metadata: ({ completed: { toolCallId } }) => ({ tool_call_id: toolCallId }),
    send: ({ clients, run, completed: { toolCallId } }, requestId) =>
      clients.calls.recordResult({
        ...of(run, requestId),
        command: { toolCallId, result: { case: "canonical", value: { content: TEXT } } },
      }),
  },
  {
    what: "a command of a run that has ended",
    code: Code.FailedPrecondition,
    reason: "RUN_NOT_ACTIVE",
    metadata: {},
    send: ({ clients, run, endedRunId: runId }, requestId) =>
      publishHook(clients, { ...run, runId }, undefined, requestId),
  },
  {
    what: "a run beside the active one",
    code: Code.FailedPrecondition,
    reason: "RUN_ACTIVE",
    metadata: ({ run }) => ({ run_id: run.runId }),
    send: ({ clients, run: { sessionId } }, requestId) =>
      clients.runs.beginRun({ sessionId, requestId, startGate: StartGate.OFF }),
  },
  {
    what: "a second start",
    code: Code.FailedPrecondition,
    reason: "TOOL_CALL_STARTED",
    metadata: ({ started: { toolCallId } }) => ({ tool_call_id: toolCallId }),
    send: ({ clients, run, started }, requestId) => start(clients, run, started, requestId),
  },
  {
    what: "a start of a call that has ended",
    code: Code.FailedPrecondition,
    reason: "TOOL_CALL_ENDED",
    metadata: ({ completed: { toolCallId } }) => ({
      ...{ tool_call_id: toolCallId, state: "COMPLETED" },
    }),
    send: ({ clients, run, completed }, requestId) => start(clients, run, completed, requestId),
  },
  {
    what: "a start with other arguments",
    code: Code.FailedPrecondition,
    reason: "ARGUMENTS_MISMATCH",
    metadata: ({ accepted: { toolCallId } }) => ({ tool_call_id: toolCallId }),
    send: ({ clients, run, accepted: { toolCallId } }, requestId) =>
      clients.calls.startToolCall({
        ...of(run, requestId),
        command: { toolCallId, argumentsSha256: new Uint8Array(32) },
      }),
  },
  {
    what: "a reconciliation of a call whose outcome is known",
    code: Code.FailedPrecondition,
    reason: "OUTCOME_KNOWN",
    metadata: ({ accepted: { toolCallId } }) => ({
      ...{ tool_call_id: toolCallId, state: "ACCEPTED" },
    }),
    send: ({ clients, run, accepted: { toolCallId } }, requestId) =>
      clients.calls.reconcileToolCall({
        ...of(run, requestId),
        command: { toolCallId, end: ToolCallState.COMPLETED },
      }),
  },
  {
    what: "an end of the run against a recorded start",
    code: Code.FailedPrecondition,
    reason: "RUN_END_CONTRADICTS_START",
    metadata: ({ started: { toolCallId } }) => ({ tool_call_id: toolCallId }),
    send: ({ clients, run, started: { toolCallId } }, requestId) =>
      clients.runs.endRun({
        ...of(run, requestId),
        command: { outcome: RunOutcome.FAILED, notRunToolCallIds: [toolCallId] },
      }),
  },
  {
    what: "an Apply whose second command is refused",
    code: Code.NotFound,
    reason: "TOOL_CALL_NOT_FOUND",
    metadata: { command: "1" },
    send: (scene, requestId) =>
      apply(
        scene,
        requestId,
        { case: "publishHook", value: HOOK },
        { case: "publishHook", value: { ...HOOK, toolCallId: UNKNOWN } },
      ),
  },
];

export const WRONG_CALLS: readonly WrongCall[] = [
  ...UNSPECIFIED_ENUMS,
  ...MISSING_FIELDS,
  ...OTHER_SESSIONS,
  ...MALFORMED_IDS,
  ...TOO_LARGE,
  ...WRONG_REFERENCES,
  ...WRONG_STATES,
];

function block({ clients, run, accepted }: Scene, requestId: string, blockedByHookId: string) {
  return clients.calls.recordResult({
    ...of(run, requestId),
    command: {
      toolCallId: accepted.toolCallId,
      result: { case: "canonical", value: { end: ToolCallState.BLOCKED, blockedByHookId } },
    },
  });
}

export function start(
  clients: Clients,
  run: OpenRun,
  { toolCallId, effective }: ToolCall,
  requestId?: string,
) {
  const argumentsSha256 = effective?.sha256 ?? new Uint8Array(0);
  return clients.calls.startToolCall({
    ...of(run, requestId),
    command: { toolCallId, argumentsSha256 },
  });
}
