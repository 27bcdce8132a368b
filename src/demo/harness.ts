import { ConnectError } from "@connectrpc/connect";
import { ErrorInfoSchema, type ErrorInfo } from "../../gen/google/rpc/error_details_pb.js";
import { AskKind, AskProvenance, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import type { Receipt } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind, type Session } from "../../gen/toolmark/v1/session_pb.js";
import { ToolCallState, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import type { Clients } from "./stage.js";

/** A tool call as a model returns it. */
export interface ModelCall {
  readonly tool: string;
  readonly args: string;
  readonly providerId: string;
}

const utf8 = new TextEncoder();

function jsonBody(text: string) {
  return { data: utf8.encode(text), mediaType: "application/json" };
}

function textBody(text: string) {
  return { data: utf8.encode(text), mediaType: "text/plain" };
}

/** The program that runs the agent: it tells the service what happens, and asks it what is known. */
export class Harness {
  #requests = 0;
  #sessionId = "";
  #runId = "";

  constructor(public clients: Clients) {}

  get sessionId(): string {
    return this.#sessionId;
  }

  get runId(): string {
    return this.#runId;
  }

  #request() {
    this.#requests += 1;
    const requestId = `demo-${this.#requests}`;
    return { sessionId: this.#sessionId, runId: this.#runId, requestId };
  }

  async begin(title: string): Promise<void> {
    const { sessions, runs } = this.clients;
    const created = await sessions.createSession({
      requestId: "demo-session",
      kind: SessionKind.MAIN,
      title,
    });
    this.#sessionId = known(created.session).sessionId;
    const startGate = StartGate.REQUIRED;
    const begun = await runs.beginRun({ ...this.#request(), startGate });
    this.#runId = known(begun.run).runId;
  }

  async acceptTurn(...calls: readonly ModelCall[]): Promise<ToolCall[]> {
    const { toolCalls } = await this.clients.calls.acceptTurn({
      ...this.#request(),
      command: {
        provider: "example",
        model: "example-1",
        calls: calls.map(({ tool, args, providerId }) => ({
          toolName: tool,
          arguments: jsonBody(args),
          pairing: { providerCallId: providerId },
        })),
      },
    });
    return toolCalls;
  }

  /** Tries a turn that must be refused, and returns why it was. */
  refusedTurn(...calls: readonly ModelCall[]): Promise<ErrorInfo> {
    return refusalOf(this.acceptTurn(...calls));
  }

  /** Asks a person whether a call may run. */
  async ask(toolCallId: string, prompt: string): Promise<Ask> {
    const kind = AskKind.ACTION;
    const provenance = AskProvenance.PERMISSION;
    const command = { toolCallId, kind, provenance, prompt };
    return known((await this.clients.calls.openAsk({ ...this.#request(), command })).ask);
  }

  async receipt(receiptId: string): Promise<Receipt> {
    const request = { sessionId: this.#sessionId, receiptId };
    return known((await this.clients.approvals.getReceipt(request)).receipt);
  }

  /** A hook forbids a call, and the harness records that it did not run. */
  async block(toolCallId: string, hookName: string, text: string): Promise<string> {
    const { hook } = await this.clients.evidence.publishHook({
      ...this.#request(),
      command: {
        ...{ toolCallId, phase: "pre_tool_use", hookName, text },
        decision: HookDecision.BLOCKED,
      },
    });
    const { hookId } = known(hook);
    const end = ToolCallState.BLOCKED;
    const value = { content: textBody(`Blocked: ${text}`), end, blockedByHookId: hookId };
    const command = { toolCallId, result: { case: "canonical" as const, value } };
    await this.clients.calls.recordResult({ ...this.#request(), command });
    return hookId;
  }

  async amend(toolCallId: string, args: string): Promise<void> {
    const command = { toolCallId, effective: jsonBody(args) };
    await this.clients.calls.amendToolCall({ ...this.#request(), command });
  }

  async start(toolCallId: string): Promise<void> {
    const { effective } = await this.call(toolCallId);
    const command = { toolCallId, argumentsSha256: known(effective).sha256 };
    await this.clients.calls.startToolCall({ ...this.#request(), command });
  }

  async recordResult(toolCallId: string, text: string): Promise<void> {
    const value = { content: textBody(text) };
    const command = { toolCallId, result: { case: "canonical" as const, value } };
    await this.clients.calls.recordResult({ ...this.#request(), command });
  }

  async endRun(interruptedToolCallIds: readonly string[]): Promise<void> {
    const outcome = RunOutcome.COMPLETED;
    const command = { outcome, interruptedToolCallIds: [...interruptedToolCallIds] };
    await this.clients.runs.endRun({ ...this.#request(), command });
  }

  async session(): Promise<Session> {
    return known((await this.clients.sessions.getSession({ sessionId: this.#sessionId })).session);
  }

  async call(toolCallId: string): Promise<ToolCall> {
    const request = { sessionId: this.#sessionId, toolCallId };
    return known((await this.clients.history.getToolCall(request)).toolCall);
  }

  async calls(): Promise<ToolCall[]> {
    const request = { sessionId: this.#sessionId };
    return (await this.clients.history.listToolCalls(request)).toolCalls;
  }
}

/** Why something was refused that must be. */
export async function refusalOf(refused: Promise<unknown>): Promise<ErrorInfo> {
  try {
    await refused;
  } catch (error) {
    const [info] = ConnectError.from(error).findDetails(ErrorInfoSchema);
    if (info !== undefined) return info;
    throw error;
  }
  throw new Error("it was not refused");
}

export function known<T>(value: T | undefined): T {
  if (value === undefined) throw new Error("a reply lacks its record");
  return value;
}
