import { toJsonString, type DescMessage, type MessageShape } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import {
  AcceptTurnResponseSchema,
  OpenAskResponseSchema,
  RecordResultResponseSchema,
  SettleAskResponseSchema,
} from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { PublishHookResponseSchema } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { AskKind, AskProvenance } from "../../gen/toolmark/v1/ask_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { ReceiptPath, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import type { Checkpoint } from "../../gen/toolmark/v1/session_pb.js";
import type { RestartingServer, ServerLife } from "./restarting-server.js";
import type { Clients, Wire } from "./service.js";

/** What a writer writes to. */
export interface WrittenRun {
  readonly sessionId: string;
  readonly runId: string;
}

type Send = (clients: Clients) => Promise<string>;

interface Acknowledged {
  readonly requestId: string;
  readonly reply: string;
  readonly send: Send;
}

/** What all writers were told. */
export interface WrittenSoFar {
  /** Each call, under the request that made it. */
  readonly toolCallIds: Map<string, string>;
  /** Each hook record, under the request that made it. */
  readonly hookIds: Map<string, string>;
  /** The receipt of each ask that was settled. */
  readonly receiptIds: Map<string, string>;
  /** The result of each call. */
  readonly results: Map<string, string>;
  readonly checkpoints: Checkpoint[];
  /** What a server must never answer: other replies than before, refusals of what is sound. */
  readonly faults: string[];
  acknowledged: number;
  retried: number;
  /** Requests that were sent again after an acknowledgement, in a later life of the server. */
  repeated: number;
}

export function nothingWritten(): WrittenSoFar {
  const map = () => new Map<string, string>();
  const maps = { toolCallIds: map(), hookIds: map(), receiptIds: map(), results: map() };
  const counts = { acknowledged: 0, retried: 0, repeated: 0 };
  return { ...maps, checkpoints: [], faults: [], ...counts };
}

const utf8 = new TextEncoder();
const MAY_BE_RETRIED = new Set(["DRAINING", "STORE_BUSY", "COMMIT_UNCERTAIN"]);

/** Whether an error tells nothing of what became of the request, or asks to send it again. */
function mayBeRetried(error: unknown): boolean {
  if (!(error instanceof ConnectError)) return false;
  const [info] = error.findDetails(ErrorInfoSchema);
  return info === undefined || MAY_BE_RETRIED.has(info.reason);
}

/** A harness that sends each command until it is acknowledged, whatever becomes of the server. */
export class RetryingWriter {
  #count = 0;
  #connected: { readonly life: ServerLife; readonly clients: Clients } | undefined;
  #last: Acknowledged | undefined;

  constructor(
    readonly name: string,
    readonly wire: Wire,
    readonly server: RestartingServer,
    readonly run: WrittenRun,
    readonly written: WrittenSoFar,
    /** Whether each call is asked about. */
    readonly asks = false,
  ) {}

  /** Makes calls with a hook and a result each until there are enough, or a request is refused. */
  async writeUntil(isEnough: () => boolean): Promise<void> {
    try {
      while (!isEnough()) await this.#writeCall();
    } catch (error) {
      if (!(error instanceof ConnectError)) throw error;
      this.written.faults.push(`${this.name}-${this.#count}: ${error.message}`);
    }
  }

  async #writeCall(): Promise<void> {
    this.#count += 1;
    const toolCallId = await this.#makeCall();
    await this.#publishHook(toolCallId);
    if (this.asks) await this.#settleAsk(await this.#openAsk(toolCallId));
    await this.#recordResult(toolCallId);
    await this.#takeCheckpoint();
  }

  async #makeCall(): Promise<string> {
    const requestId = `${this.name}-${this.#count}-call`;
    // The same provider id each time: it is free again once its call has a result.
    const pairing = { providerCallId: `provider-${this.name}` };
    const args = { data: utf8.encode(`{"n":${this.#count}}`) };
    const calls = [{ toolName: "count", arguments: args, pairing }];
    const reply = await this.#acknowledge(requestId, AcceptTurnResponseSchema, (clients) =>
      clients.calls.acceptTurn({ ...this.run, requestId, command: { calls } }),
    );
    const [call] = reply.toolCalls;
    if (call === undefined) throw new Error(`${requestId} made no call`);
    this.written.toolCallIds.set(requestId, call.toolCallId);
    return call.toolCallId;
  }

  async #publishHook(toolCallId: string): Promise<void> {
    const requestId = `${this.name}-${this.#count}-hook`;
    const command = {
      toolCallId,
      phase: "pre_tool_use",
      decision: HookDecision.INFO,
      text: requestId,
    };
    const { hook } = await this.#acknowledge(requestId, PublishHookResponseSchema, (clients) =>
      clients.evidence.publishHook({ ...this.run, requestId, command }),
    );
    this.written.hookIds.set(requestId, hook?.hookId ?? "");
  }

  async #openAsk(toolCallId: string): Promise<string> {
    const requestId = `${this.name}-${this.#count}-ask`;
    const { ACTION: kind } = AskKind;
    const { PERMISSION: provenance } = AskProvenance;
    const command = { toolCallId, kind, provenance };
    const { ask } = await this.#acknowledge(requestId, OpenAskResponseSchema, (clients) =>
      clients.calls.openAsk({ ...this.run, requestId, command }),
    );
    return ask?.askId ?? "";
  }

  async #settleAsk(askId: string): Promise<void> {
    const requestId = `${this.name}-${this.#count}-settle`;
    const verdict = Verdict.ALLOW_ONCE;
    const command = { askId, path: ReceiptPath.RULE, rule: "everybody may", verdict };
    const { receipt } = await this.#acknowledge(requestId, SettleAskResponseSchema, (clients) =>
      clients.calls.settleAsk({ ...this.run, requestId, command }),
    );
    this.written.receiptIds.set(askId, receipt?.receiptId ?? "");
  }

  async #recordResult(toolCallId: string): Promise<void> {
    const requestId = `${this.name}-${this.#count}-result`;
    const value = { content: { data: utf8.encode(requestId) } };
    const command = { toolCallId, result: { case: "canonical" as const, value } };
    await this.#acknowledge(requestId, RecordResultResponseSchema, (clients) =>
      clients.calls.recordResult({ ...this.run, requestId, command }),
    );
    this.written.results.set(toolCallId, requestId);
  }

  async #takeCheckpoint(): Promise<void> {
    const { sessionId } = this.run;
    const { session } = await this.#untilAnswered(({ sessions }) =>
      sessions.getSession({ sessionId }),
    );
    if (session?.checkpoint === undefined) throw new Error(`${sessionId} has no checkpoint`);
    this.written.checkpoints.push(session.checkpoint);
  }

  async #acknowledge<Desc extends DescMessage>(
    requestId: string,
    schema: Desc,
    call: (clients: Clients) => Promise<MessageShape<Desc>>,
  ): Promise<MessageShape<Desc>> {
    const reply = await this.#untilAnswered(call);
    const send = async (clients: Clients) => toJsonString(schema, await call(clients));
    this.#last = { requestId, reply: toJsonString(schema, reply), send };
    this.written.acknowledged += 1;
    return reply;
  }

  async #untilAnswered<Reply>(send: (clients: Clients) => Promise<Reply>): Promise<Reply> {
    for (;;) {
      try {
        return await send(await this.#clients());
      } catch (error) {
        if (!mayBeRetried(error)) throw error;
        this.written.retried += 1;
      }
    }
  }

  /** A new life is first asked again what an earlier one acknowledged. */
  async #clients(): Promise<Clients> {
    const life = await this.server.life();
    if (this.#connected?.life !== life) {
      const clients = life.clients(this.wire);
      const last = this.#last;
      if (last !== undefined) {
        const reply = await last.send(clients);
        if (reply !== last.reply) {
          this.written.faults.push(`${last.requestId}: ${last.reply} now ${reply}`);
        }
        this.written.repeated += 1;
      }
      this.#connected = { life, clients };
    }
    return this.#connected.clients;
  }
}
