import type {
  DescMessage,
  DescMethodServerStreaming,
  DescMethodUnary,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import { CallService } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { EvidenceService } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { RunService } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { SessionService } from "../../gen/toolmark/v1/session_service_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";

/** What a client was told instead of a reply. */
export interface ToldRefusal {
  /** Number of the status code. */
  readonly code: number;
  readonly message: string;
  readonly reason: string;
  readonly metadata: Readonly<Record<string, string>>;
}

/** A client of any make. */
export interface AnyClient {
  unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
  ): Promise<MessageShape<O>>;
  /** All messages of a stream. */
  stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
  ): Promise<MessageShape<O>[]>;
  /** What the client makes of a refusal of this call. */
  refusal<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
  ): Promise<ToldRefusal>;
  close(): void;
}

/** What a job needs to be read back, and what was refused in it. */
export interface JobDone {
  readonly sessionId: string;
  readonly toolCallIds: readonly string[];
  readonly refusal: ToldRefusal;
}

const utf8 = new TextEncoder();
const json = (text: string) => ({ data: utf8.encode(text), mediaType: "application/json" });
const call = CallService.method;

/**
 * What the service is for: a turn of two calls, of which a hook blocks one; the other is amended,
 * started and answered.
 */
export async function doMainJob(client: AnyClient): Promise<JobDone> {
  const created = await client.unary(SessionService.method.createSession, {
    requestId: crypto.randomUUID(),
    kind: SessionKind.MAIN,
    title: "gr\u00fcezi",
    labels: [{ key: "team", value: "blue" }],
  });
  const { sessionId } = present(created.session);
  const begun = await client.unary(RunService.method.beginRun, {
    sessionId,
    requestId: "begin",
    startGate: StartGate.REQUIRED,
  });
  const { runId } = present(begun.run);
  const ofRun = (requestId: string) => ({ sessionId, runId, requestId });
  const { toolCalls } = await client.unary(call.acceptTurn, {
    ...ofRun("turn"),
    command: {
      provider: "example",
      model: "example-1",
      calls: [
        {
          toolName: "read_file",
          arguments: json('{ "path": "a.txt" }'),
          pairing: { providerCallId: "call_0", opaque: new Uint8Array([0, 255]) },
        },
        { toolName: "remove_file", arguments: json('{"path":"\u00fc"}') },
      ],
    },
  });
  const toolCallIds = toolCalls.map(({ toolCallId }) => toolCallId);
  const [readId = "", removeId = ""] = toolCallIds;
  await block(client, ofRun, removeId);
  await carryOut(client, ofRun, readId);
  const refusal = await client.refusal(call.startToolCall, {
    ...ofRun("again"),
    command: { toolCallId: readId, argumentsSha256: new Uint8Array(32) },
  });
  await client.unary(RunService.method.endRun, {
    ...ofRun("end"),
    command: { outcome: RunOutcome.COMPLETED },
  });
  return { sessionId, toolCallIds, refusal };
}

type OfRun = (requestId: string) => { sessionId: string; runId: string; requestId: string };

async function block(client: AnyClient, ofRun: OfRun, toolCallId: string): Promise<void> {
  const { hook } = await client.unary(EvidenceService.method.publishHook, {
    ...ofRun("hook"),
    command: {
      toolCallId,
      phase: "pre_tool_use",
      hookName: "guard",
      decision: HookDecision.BLOCKED,
      text: "never remove",
    },
  });
  const blockedByHookId = present(hook).hookId;
  const value = { content: { data: utf8.encode("blocked") }, blockedByHookId };
  const end = ToolCallState.BLOCKED;
  const result = { case: "canonical" as const, value: { ...value, end } };
  await client.unary(call.recordResult, {
    ...ofRun("blocked"),
    command: { toolCallId, result },
  });
}

async function carryOut(client: AnyClient, ofRun: OfRun, toolCallId: string): Promise<void> {
  const amended = await client.unary(call.amendToolCall, {
    ...ofRun("amend"),
    command: { toolCallId, effective: json('{"path":"b.txt"}') },
  });
  const argumentsSha256 = present(present(amended.toolCall).effective).sha256;
  await client.unary(call.startToolCall, {
    ...ofRun("start"),
    command: { toolCallId, argumentsSha256 },
  });
  const value = { content: { data: utf8.encode("\u0000 any bytes \u2713") }, isError: true };
  await client.unary(call.recordResult, {
    ...ofRun("result"),
    command: { toolCallId, result: { case: "canonical", value } },
  });
}

/** Everything that can be read of the job's session. */
export async function readMainJob(client: AnyClient, { sessionId, toolCallIds }: JobDone) {
  const history = HistoryService.method;
  const calls = await Promise.all(
    toolCallIds.map((toolCallId) => client.unary(history.getToolCall, { sessionId, toolCallId })),
  );
  const { bodyRef } = present(present(calls[0]?.toolCall?.result).content);
  const [session, listed, hooks, events, result] = await Promise.all([
    client.unary(SessionService.method.getSession, { sessionId }),
    client.unary(history.listToolCalls, { sessionId }),
    client.unary(history.listHooks, { sessionId }),
    client.unary(history.listEvents, { sessionId }),
    client.stream(history.readBody, { sessionId, bodyRef }),
  ]);
  return { session, calls, listed, hooks, events, result };
}

function present<T>(value: T | undefined): T {
  if (value === undefined) throw new Error("a reply lacks what it must have");
  return value;
}
