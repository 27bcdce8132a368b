import type { MessageInitShape } from "@bufbuild/protobuf";
import type {
  CommandSchema,
  EndRunCommandSchema,
  NewToolCallSchema,
} from "../../gen/toolmark/engine/v1/command_pb.js";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import { HookDecision, type Hook } from "../../gen/toolmark/v1/hook_pb.js";
import { MessageRole, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind, type Session } from "../../gen/toolmark/v1/session_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import type { Clients } from "./service.js";

/** What a harness says to a service, in the words of a test. */
export interface OpenRun {
  readonly sessionId: string;
  readonly runId: string;
}

export type CallInit = MessageInitShape<typeof NewToolCallSchema>;
export type CommandInit = NonNullable<MessageInitShape<typeof CommandSchema>["command"]> & {
  case: string;
};

let requests = 0;

export function freshRequestId(): string {
  requests += 1;
  return `request ${requests}`;
}

/** The head of a request of a run. */
export function of(run: OpenRun, requestId = freshRequestId()): OpenRun & { requestId: string } {
  return { sessionId: run.sessionId, runId: run.runId, requestId };
}

export async function createSession(clients: Clients): Promise<string> {
  const request = { requestId: freshRequestId(), kind: SessionKind.MAIN };
  const { session } = await clients.sessions.createSession(request);
  return given(session, "session").sessionId;
}

export async function beginRun(
  clients: Clients,
  sessionId: string,
  startGate = StartGate.OFF,
): Promise<OpenRun> {
  const requestId = freshRequestId();
  const { run } = await clients.runs.beginRun({ sessionId, requestId, startGate });
  return { sessionId, runId: given(run, "run").runId };
}

/** A new session with an active run. */
export async function openRun(clients: Clients, startGate = StartGate.OFF): Promise<OpenRun> {
  return beginRun(clients, await createSession(clients), startGate);
}

/** A call as a model makes it. Without a provider id it has no pairing data at all. */
export function newCall(
  providerCallId?: string,
  toolName = "bash",
  argumentsText = '{"command":"ls"}',
): CallInit {
  const call = { toolName, arguments: { data: bytes(argumentsText) } };
  return providerCallId === undefined ? call : { ...call, pairing: { providerCallId } };
}

export async function acceptTurn(
  clients: Clients,
  run: OpenRun,
  calls: CallInit[],
): Promise<ToolCall[]> {
  return (await clients.calls.acceptTurn({ ...of(run), command: { calls } })).toolCalls;
}

export async function acceptCall(clients: Clients, run: OpenRun, call = newCall()) {
  return given((await acceptTurn(clients, run, [call]))[0], "call");
}

/** Records a call's canonical result. */
export async function complete(
  clients: Clients,
  run: OpenRun,
  toolCallId: string,
  text = "done",
): Promise<ToolCall> {
  const result = { case: "canonical" as const, value: { content: { data: bytes(text) } } };
  const command = { toolCallId, result };
  const { toolCall } = await clients.calls.recordResult({ ...of(run), command });
  return given(toolCall, "call");
}

/** Changes what a call will be started with. */
export async function amendCall(
  clients: Clients,
  run: OpenRun,
  toolCallId: string,
  argumentsText: string,
): Promise<ToolCall> {
  const command = { toolCallId, effective: { data: bytes(argumentsText) } };
  return given((await clients.calls.amendToolCall({ ...of(run), command })).toolCall, "call");
}

/** Ends a run. The calls that ended with it. */
export async function endRun(
  clients: Clients,
  run: OpenRun,
  command: MessageInitShape<typeof EndRunCommandSchema>,
): Promise<string[]> {
  return (await clients.runs.endRun({ ...of(run), command })).toolCallIds;
}

export async function publishHook(
  clients: Clients,
  run: OpenRun,
  toolCallId?: string,
  requestId = freshRequestId(),
): Promise<Hook> {
  const command = {
    phase: toolCallId === undefined ? "session_start" : "pre_tool_use",
    decision: HookDecision.BLOCKED,
    text: `no, says ${requestId}`,
    ...(toolCallId === undefined ? {} : { toolCallId }),
  };
  const { hook } = await clients.evidence.publishHook({ ...of(run, requestId), command });
  return given(hook, "hook");
}

export async function recordMessage(
  clients: Clients,
  run: OpenRun,
  requestId = freshRequestId(),
): Promise<string> {
  const command = { role: MessageRole.USER, content: { data: bytes("hello") } };
  const { message } = await clients.evidence.recordMessage({ ...of(run, requestId), command });
  return given(message, "message").messageId;
}

export async function readSession(clients: Clients, sessionId: string): Promise<Session> {
  return given((await clients.sessions.getSession({ sessionId })).session, "session");
}

export async function readCall(
  clients: Clients,
  sessionId: string,
  toolCallId: string,
): Promise<ToolCall> {
  const { toolCall } = await clients.history.getToolCall({ sessionId, toolCallId });
  return given(toolCall, "call");
}

/** Every event after a sequence, page by page. */
export async function allEvents(
  { history }: Clients,
  sessionId: string,
  afterSequence = 0n,
): Promise<Event[]> {
  const all: Event[] = [];
  let pageToken = "";
  do {
    const page = { sessionId, afterSequence, pageSize: 500, pageToken };
    const { events, nextPageToken } = await history.listEvents(page);
    all.push(...events);
    pageToken = nextPageToken;
  } while (pageToken !== "");
  return all;
}

/** Every call of a session, page by page. */
export async function allCalls({ history }: Clients, sessionId: string): Promise<ToolCall[]> {
  const all: ToolCall[] = [];
  let pageToken = "";
  do {
    const page = { sessionId, pageSize: 500, pageToken };
    const { toolCalls, nextPageToken } = await history.listToolCalls(page);
    all.push(...toolCalls);
    pageToken = nextPageToken;
  } while (pageToken !== "");
  return all;
}

export function bytes(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}

/** What a reply must have. */
export function given<T>(value: T | undefined, what: string): T {
  if (value === undefined) throw new Error(`the reply has no ${what}`);
  return value;
}
