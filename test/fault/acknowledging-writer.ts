import { toBinary, type DescMessage, type MessageShape } from "@bufbuild/protobuf";
import {
  AcceptTurnResponseSchema,
  OpenAskResponseSchema,
  RecordResultResponseSchema,
} from "../../gen/toolmark/engine/v1/call_service_pb.js";
import {
  PublishHookResponseSchema,
  RecordMessageResponseSchema,
} from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import {
  ApplyResponseSchema,
  BeginRunResponseSchema,
} from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { AnswerAskResponseSchema } from "../../gen/toolmark/v1/approval_service_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { MessageRole, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { CreateSessionResponseSchema } from "../../gen/toolmark/v1/session_service_pb.js";
import { AskKind, AskProvenance } from "../../gen/toolmark/v1/ask_pb.js";
import { answerTo, showAsk } from "../support/asking.js";
import { given, type OpenRun } from "../support/conversation.js";
import type { Clients } from "../support/service.js";

type Send = (clients: Clients) => Promise<Buffer>;

/** A command that was answered with OK. */
export interface Acknowledgement {
  readonly sessionId: string;
  readonly requestId: string;
  /** The reply as it was encoded. */
  readonly reply: Buffer;
  /** Sends the same request again. */
  readonly send: Send;
  /** Last sequence of the session after the command; 0 if nobody asked. */
  readonly sequenceAfter: bigint;
}

export interface WriterOptions {
  /** Its requests and its bodies begin with it. */
  readonly name: string;
  /** Size of each argument and result. */
  readonly bodyBytes: number;
  /** Whether to ask for the session's last sequence after each command. */
  readonly asksForSequence: boolean;
}

/** A harness with a session of its own that writes to every table and keeps what it was told. */
export class AcknowledgingWriter {
  readonly acknowledged: Acknowledgement[] = [];
  readonly #clients: Clients;
  readonly #options: WriterOptions;
  #run: OpenRun = { sessionId: "", runId: "" };
  #requests = 0;

  constructor(clients: Clients, options: WriterOptions) {
    this.#clients = clients;
    this.#options = options;
  }

  /** What is written once, before the rounds. */
  async begin(): Promise<void> {
    const kind = SessionKind.MAIN;
    const { session } = await this.#told(CreateSessionResponseSchema, (requestId) => {
      return ({ sessions }) => sessions.createSession({ requestId, kind });
    });
    const { sessionId } = given(session, "session");
    const { run } = await this.#told(
      BeginRunResponseSchema,
      (requestId) =>
        ({ runs }) =>
          runs.beginRun({ sessionId, requestId, startGate: StartGate.OFF }),
      sessionId,
    );
    this.#run = { sessionId, runId: given(run, "run").runId };
  }

  /** Two calls from the model's turn to their results, with a hook, an ask and a message. */
  async round(): Promise<void> {
    const [first, second] = await this.#acceptTurn();
    await this.#publishHook(first);
    await this.#askAndAnswer(first);
    await this.#recordResult(first);
    await this.#recordMessage();
    await this.#recordResultAndHook(second);
  }

  /** One small command after the other. */
  async append(commands: number): Promise<void> {
    for (let number = 0; number < commands; number += 1) await this.#recordMessage();
  }

  async #acceptTurn(): Promise<readonly [string, string]> {
    const { toolCalls } = await this.#told(AcceptTurnResponseSchema, (requestId) => {
      const calls = [1, 2].map((number) => ({
        toolName: "count",
        arguments: { data: this.#body(`${requestId} ${number}`) },
        pairing: { providerCallId: `${requestId}-${number}` },
      }));
      return (clients) => clients.calls.acceptTurn({ ...this.#run, requestId, command: { calls } });
    });
    const [first, second] = toolCalls.map(({ toolCallId }) => toolCallId);
    return [given(first, "call"), given(second, "call")];
  }

  async #publishHook(toolCallId: string): Promise<void> {
    await this.#told(PublishHookResponseSchema, (requestId) => {
      const command = { ...hookOf(toolCallId), text: requestId };
      return ({ evidence }) => evidence.publishHook({ ...this.#run, requestId, command });
    });
  }

  async #askAndAnswer(toolCallId: string): Promise<void> {
    const asked = { kind: AskKind.ACTION, provenance: AskProvenance.PERMISSION };
    const { ask } = await this.#told(OpenAskResponseSchema, (requestId) => {
      const command = { toolCallId, ...asked };
      return ({ calls }) => calls.openAsk({ ...this.#run, requestId, command });
    });
    const shown = await showAsk(this.#clients, this.#run.sessionId, given(ask, "ask").askId);
    const answer = answerTo(shown);
    await this.#told(AnswerAskResponseSchema, (requestId) => {
      return ({ approvals }) => approvals.answerAsk({ ...answer, requestId });
    });
  }

  async #recordResult(toolCallId: string): Promise<void> {
    await this.#told(RecordResultResponseSchema, (requestId) => {
      const command = this.#resultOf(toolCallId, requestId);
      return ({ calls }) => calls.recordResult({ ...this.#run, requestId, command });
    });
  }

  async #recordMessage(): Promise<void> {
    await this.#told(RecordMessageResponseSchema, (requestId) => {
      const command = { role: MessageRole.USER, content: { data: Buffer.from(requestId) } };
      return ({ evidence }) => evidence.recordMessage({ ...this.#run, requestId, command });
    });
  }

  /** Two commands in one request. */
  async #recordResultAndHook(toolCallId: string): Promise<void> {
    await this.#told(ApplyResponseSchema, (requestId) => {
      const hook = { ...hookOf(toolCallId), text: requestId };
      const result = this.#resultOf(toolCallId, requestId);
      const commands = [
        { command: { case: "publishHook" as const, value: hook } },
        { command: { case: "recordResult" as const, value: result } },
      ];
      return ({ runs }) => runs.apply({ ...this.#run, requestId, commands });
    });
  }

  #resultOf(toolCallId: string, requestId: string) {
    const value = { content: { data: this.#body(requestId) } };
    return { toolCallId, result: { case: "canonical" as const, value } };
  }

  #body(text: string): Buffer {
    return Buffer.from(`{"of":"${text}"}`.padEnd(this.#options.bodyBytes, " "));
  }

  /** Sends a new request and keeps the reply. */
  async #told<Desc extends DescMessage>(
    schema: Desc,
    request: (requestId: string) => (clients: Clients) => Promise<MessageShape<Desc>>,
    sessionId = this.#run.sessionId,
  ): Promise<MessageShape<Desc>> {
    this.#requests += 1;
    // Of one length, so that none is the beginning of another.
    const requestId = `${this.#options.name}-${String(this.#requests).padStart(5, "0")}`;
    const call = request(requestId);
    const reply = await call(this.#clients);
    const encoded = Buffer.from(toBinary(schema, reply));
    const send: Send = async (clients) => Buffer.from(toBinary(schema, await call(clients)));
    const ofSession = sessionId === "" ? sessionIn(reply) : sessionId;
    const sequenceAfter = await this.#sequence(ofSession);
    const told = { sessionId: ofSession, requestId, reply: encoded, send, sequenceAfter };
    this.acknowledged.push(told);
    return reply;
  }

  async #sequence(sessionId: string): Promise<bigint> {
    if (!this.#options.asksForSequence) return 0n;
    const { session } = await this.#clients.sessions.getSession({ sessionId });
    return given(session?.checkpoint, "checkpoint").sequence;
  }
}

function hookOf(toolCallId: string) {
  return { toolCallId, phase: "pre_tool_use", decision: HookDecision.INFO };
}

/** The session that a reply made. */
function sessionIn(reply: object): string {
  const { session } = reply as { readonly session?: { readonly sessionId: string } };
  return given(session, "session").sessionId;
}
