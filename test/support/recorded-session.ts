import type { MessageInitShape } from "@bufbuild/protobuf";
import type { AcceptTurnCommandSchema } from "../../gen/toolmark/engine/v1/command_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { MessageRole, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import type {
  RecordedCall,
  RecordedExchange,
  RecordedMessage,
  RecordedResult,
  RecordedStep,
} from "./recorded-exchanges.js";
import { refused, type Refused } from "./refused.js";
import type { Clients } from "./service.js";

export const ARGUMENTS_TYPE = "application/json";
export const TEXT_TYPE = "text/plain; charset=utf-8";

/** A recorded call and what the service made of it. */
export interface PlayedCall {
  readonly recorded: RecordedCall;
  readonly toolCallId: string;
  readonly hookId: string;
  /** Whether it was accepted with a provider id: there is one, and it was free. */
  readonly hasProviderId: boolean;
  result: RecordedResult | undefined;
}

/** An exchange that went through the service. */
export interface PlayedSession {
  readonly exchange: RecordedExchange;
  readonly sessionId: string;
  readonly runId: string;
  readonly messages: readonly RecordedMessage[];
  readonly calls: readonly PlayedCall[];
  /** The kinds of event that the commands must have led to. */
  readonly eventKinds: readonly string[];
  /** Turns that the contract refuses, made by the exchange itself. */
  readonly refusedTurns: number;
  /** Refusals that were provoked on purpose. */
  readonly provoked: readonly Refused[];
}

interface RunRequest {
  readonly sessionId: string;
  readonly runId: string;
  readonly requestId: string;
}

type NewCalls = NonNullable<MessageInitShape<typeof AcceptTurnCommandSchema>["calls"]>;

const BEGIN = "begin";
const utf8 = new TextEncoder();
const ROLES = { user: MessageRole.USER, system: MessageRole.SYSTEM };
const TURN_REFUSALS = ["DUPLICATE_PROVIDER_CALL_ID", "PROVIDER_CALL_ID_OUTSTANDING"];

/** Plays one exchange into a session of its own, as the harness that made it would have. */
export async function playExchange(
  clients: Clients,
  exchange: RecordedExchange,
  startGate: StartGate,
): Promise<PlayedSession> {
  const { session } = await clients.sessions.createSession({
    requestId: exchange.file,
    kind: SessionKind.MAIN,
    title: `a session over ${exchange.wire}`,
  });
  const sessionId = session?.sessionId ?? "";
  const { run } = await clients.runs.beginRun({ sessionId, requestId: BEGIN, startGate });
  const player = new Player(clients, exchange, { sessionId, runId: run?.runId ?? "" }, startGate);
  for (const step of exchange.steps) await player.play(step);
  return player.played();
}

class Player {
  readonly #messages: RecordedMessage[] = [];
  readonly #calls: PlayedCall[] = [];
  readonly #eventKinds = ["SESSION_CREATED", "RUN_BEGUN"];
  readonly #provoked: Refused[] = [];
  #refusedTurns = 0;
  #requests = 0;

  constructor(
    readonly clients: Clients,
    readonly exchange: RecordedExchange,
    readonly run: { readonly sessionId: string; readonly runId: string },
    readonly startGate: StartGate,
  ) {}

  played(): PlayedSession {
    return {
      exchange: this.exchange,
      ...this.run,
      messages: this.#messages,
      calls: this.#calls,
      eventKinds: this.#eventKinds,
      refusedTurns: this.#refusedTurns,
      provoked: this.#provoked,
    };
  }

  async play({ inputs, calls }: RecordedStep): Promise<void> {
    for (const input of inputs) {
      if (input.kind === "message") await this.#recordMessage(input);
      else await this.#recordResult(input);
    }
    if (calls.length === 0) return;
    const isFirstTurn = this.#calls.length === 0;
    if (isFirstTurn) await this.#writingNothing(() => this.#provokeDuplicate(calls));
    await this.#acceptTurn(calls);
    if (isFirstTurn) await this.#writingNothing(() => this.#provokeOthers());
  }

  #request(): RunRequest {
    this.#requests += 1;
    return { ...this.run, requestId: `request-${this.#requests}` };
  }

  async #recordMessage(message: RecordedMessage): Promise<void> {
    const content = { data: utf8.encode(message.text), mediaType: TEXT_TYPE };
    const command = { role: ROLES[message.role], content };
    await this.clients.evidence.recordMessage({ ...this.#request(), command });
    this.#messages.push(message);
    this.#eventKinds.push("MESSAGE_RECORDED");
  }

  async #recordResult(result: RecordedResult): Promise<void> {
    const call = this.#calls[result.callNumber];
    if (call === undefined) throw new Error(`${this.exchange.file}: a result before its call`);
    const { toolCallId } = call;
    if (this.startGate === StartGate.REQUIRED) await this.#startToolCall(toolCallId);
    const content = { data: result.content, mediaType: TEXT_TYPE };
    const value = { content, isError: result.isError };
    const command = { toolCallId, result: { case: "canonical" as const, value } };
    await this.clients.calls.recordResult({ ...this.#request(), command });
    call.result = result;
    this.#eventKinds.push("RESULT_RECORDED");
  }

  async #startToolCall(toolCallId: string): Promise<void> {
    const { history, calls } = this.clients;
    const { toolCall } = await history.getToolCall({ ...this.run, toolCallId });
    const command = { toolCallId, argumentsSha256: toolCall?.effective?.sha256 ?? utf8.encode("") };
    await calls.startToolCall({ ...this.#request(), command });
    this.#eventKinds.push("TOOL_CALL_STARTED");
  }

  /**
   * A turn that is refused is made again without the provider ids that the refusal points at, and
   * with the request id of the first try, which a refusal leaves free.
   */
  async #acceptTurn(recorded: readonly RecordedCall[]): Promise<void> {
    const calls = recorded.map(newCall);
    const withoutId = new Set<number>();
    const request = this.#request();
    let accepted = await this.#tryTurn(request, calls);
    while (!Array.isArray(accepted)) {
      this.#refusedTurns += 1;
      const positions = (accepted.metadata["positions"] ?? "").split(",").map(Number);
      if (positions.every((position) => withoutId.has(position))) {
        throw new Error(`${this.exchange.file}: ${JSON.stringify(accepted)}`);
      }
      for (const position of positions) {
        withoutId.add(position);
        delete calls[position]?.pairing?.providerCallId;
      }
      accepted = await this.#tryTurn(request, calls);
    }
    this.#eventKinds.push("TURN_ACCEPTED", ...recorded.map(() => "TOOL_CALL_ACCEPTED"));
    for (const [index, call] of recorded.entries()) {
      const hasProviderId = (call.providerCallId ?? "") !== "" && !withoutId.has(index);
      await this.#publishHook(call, accepted[index] ?? "", hasProviderId);
    }
  }

  /** The ids of the calls, or why there are none. */
  async #tryTurn(request: RunRequest, calls: NewCalls): Promise<string[] | Refused> {
    const { wire: provider, models } = this.exchange;
    const [model = "unknown"] = models;
    const command = { provider, model, calls };
    const accepting = this.clients.calls.acceptTurn({ ...request, command });
    const ids = await accepting.then(
      ({ toolCalls }) => toolCalls.map(({ toolCallId }) => toolCallId),
      () => undefined,
    );
    if (ids !== undefined) return ids;
    const refusal = await refused(accepting);
    if (TURN_REFUSALS.includes(refusal.reason)) return refusal;
    throw new Error(`${this.exchange.file}: ${JSON.stringify(refusal)}`);
  }

  async #publishHook(
    recorded: RecordedCall,
    toolCallId: string,
    hasProviderId: boolean,
  ): Promise<void> {
    const command = {
      toolCallId,
      phase: "pre_tool_use",
      hookName: "observer",
      decision: HookDecision.INFO,
      text: `call ${recorded.number}`,
    };
    const { hook } = await this.clients.evidence.publishHook({ ...this.#request(), command });
    const hookId = hook?.hookId ?? "";
    this.#calls.push({ recorded, toolCallId, hookId, hasProviderId, result: undefined });
    this.#eventKinds.push("HOOK_PUBLISHED");
  }

  async #provokeDuplicate(calls: readonly RecordedCall[]): Promise<void> {
    const withId = calls.find(({ providerCallId = "" }) => providerCallId !== "");
    if (withId === undefined) return;
    const twice = [newCall(withId), newCall(withId)];
    const request = () => ({ ...this.#request(), command: { calls: twice } });
    await this.#provoke(() => this.clients.calls.acceptTurn(request()));
  }

  /** Errors about ids that exist, that do not, and that are the provider's. */
  async #provokeOthers(): Promise<void> {
    const { calls, evidence, history } = this.clients;
    const { sessionId } = this.run;
    const open = this.#calls.find((call) => call.hasProviderId) ?? this.#calls[0];
    if (open === undefined) return;
    const { recorded } = open;
    const again = { command: { calls: [newCall(recorded)] } };
    if (open.hasProviderId) {
      await this.#provoke(() => calls.acceptTurn({ ...this.#request(), ...again }));
    }
    const used = { ...this.run, requestId: BEGIN };
    await this.#provoke(() => calls.acceptTurn({ ...used, ...again }));
    const toolCallId = privateIdOf(recorded) ?? "tc_unknown";
    await this.#provoke(() => history.getToolCall({ sessionId, toolCallId }));
    await this.#provoke(() => history.getHook({ sessionId, hookId: toolCallId }));
    await this.#provoke(() => history.listEvents({ sessionId, pageToken: toolCallId }));
    const result = { case: "canonical" as const, value: { content: { data: utf8.encode("x") } } };
    await this.#provoke(() =>
      calls.recordResult({ ...this.#request(), command: { toolCallId, result } }),
    );
    const hook = { toolCallId, phase: "pre_tool_use", decision: HookDecision.INFO };
    await this.#provoke(() => evidence.publishHook({ ...this.#request(), command: hook }));
  }

  async #provoke(call: () => Promise<unknown>): Promise<void> {
    this.#provoked.push(await refused(call()));
  }

  async #head(): Promise<bigint | undefined> {
    const { session } = await this.clients.sessions.getSession({ sessionId: this.run.sessionId });
    return session?.checkpoint?.sequence;
  }

  async #writingNothing(provoke: () => Promise<void>): Promise<void> {
    const before = await this.#head();
    await provoke();
    if ((await this.#head()) !== before) {
      throw new Error(`${this.exchange.file}: a refused request has written something`);
    }
  }
}

function privateIdOf({ providerCallId, providerItemId }: RecordedCall): string | undefined {
  return [providerCallId, providerItemId].find((id) => id !== undefined && id !== "");
}

function newCall(recorded: RecordedCall): NewCalls[number] {
  const { toolName, providerCallId, providerItemId, opaque } = recorded;
  const pairing = {
    ...(providerCallId === undefined ? {} : { providerCallId }),
    ...(providerItemId === undefined ? {} : { providerItemId }),
    ...(opaque === undefined ? {} : { opaque }),
  };
  return { toolName, arguments: { data: recorded.arguments, mediaType: ARGUMENTS_TYPE }, pairing };
}
