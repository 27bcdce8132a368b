import { create, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import {
  CommandSchema,
  type Command,
  type OpenAskCommandSchema,
} from "../../gen/toolmark/engine/v1/command_pb.js";
import {
  ApplyRequestSchema,
  BeginRunRequestSchema,
} from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { AnswerAskRequestSchema } from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskKind, AskProvenance, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { Verdict, type Receipt } from "../../gen/toolmark/v1/receipt_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { CreateSessionRequestSchema } from "../../gen/toolmark/v1/session_service_pb.js";
import type { Limits } from "../../src/domain/limits.js";
import type { Caller } from "../../src/domain/principal.js";
import { isRefusal } from "../../src/domain/refusal.js";
import { AskReader, type Viewer } from "../../src/ledger/ask-reader.js";
import { Ledger, type LedgerOptions } from "../../src/ledger/ledger.js";
import type { Mutation } from "../../src/ledger/mutation.js";
import { Reader } from "../../src/ledger/reader.js";
import { createMemoryStore } from "../../src/store/memory/memory-store.js";
import { FaultyStore } from "./faulty-store.js";
import { OutsideWorld, TENANT_CALLER, WAITING } from "./outside-world.js";

export type OpenAskInit = Exclude<MessageInitShape<typeof OpenAskCommandSchema>, Message>;
type RecordCase = Exclude<EventRecord["record"]["case"], undefined>;
type RecordOf<Case extends RecordCase> = Extract<EventRecord["record"], { case: Case }>["value"];

/** A session with an active run, and who made it. */
export interface AskingRun {
  readonly caller: Caller;
  readonly sessionId: string;
  readonly runId: string;
}

/** What an ask is about. */
export interface AskedCall {
  readonly toolName?: string;
  /** Size of its arguments. */
  readonly bytes?: number;
}

/** Who reads and may answer everything in the tenant. */
export const APPROVER: Viewer = { caller: TENANT_CALLER, approver: TENANT_CALLER };

/** A ledger in memory with what reads asks beside it. Its store's reads can be replaced. */
export class AskingLedger {
  readonly world = new OutsideWorld("asking");
  readonly store = new FaultyStore(createMemoryStore());
  readonly options: LedgerOptions;
  readonly ledger: Ledger;
  readonly reader: Reader;
  readonly asks: AskReader;
  #requests = 0;

  constructor(limits: Partial<Limits> = {}) {
    const options = this.world.ledgerOptions(this.store);
    this.options = { ...options, limits: { ...options.limits, ...limits } };
    this.ledger = new Ledger(this.options, {
      sessionDamaged: () => undefined,
      commitFailed: () => undefined,
    });
    this.reader = new Reader(this.store, this.options.limits);
    this.asks = new AskReader(this.options);
  }

  async run(caller = TENANT_CALLER): Promise<AskingRun> {
    const kind = SessionKind.MAIN;
    const creation = create(CreateSessionRequestSchema, { requestId: this.#next(), kind });
    const made = await this.#taken(caller, { kind: "createSession", request: creation }, "session");
    const { sessionId } = made;
    const begin = create(BeginRunRequestSchema, {
      ...{ sessionId, requestId: this.#next(), startGate: StartGate.OFF },
    });
    const { runId } = await this.#taken(caller, { kind: "beginRun", request: begin }, "run");
    return { caller, sessionId, runId };
  }

  /** Accepts a call and opens an ask about it. */
  async ask(run: AskingRun, init: OpenAskInit = {}, call: AskedCall = {}): Promise<Ask> {
    const { toolName = "bash", bytes = 2 } = call;
    const turn = { toolName, arguments: { data: new Uint8Array(bytes) } };
    const value = { calls: [turn] };
    const { toolCallId } = await this.command(run, { case: "acceptTurn", value }, "toolCall");
    const asked = { toolCallId, kind: AskKind.ACTION, provenance: AskProvenance.PERMISSION };
    return this.command(run, { case: "openAsk", value: { ...asked, ...init } }, "ask");
  }

  async answer(run: AskingRun, ask: Ask, verdict = Verdict.ALLOW_ONCE): Promise<Receipt> {
    const { askId, toolCallId } = ask;
    const session = { tenant: run.caller.tenant, sessionId: run.sessionId };
    const answerToken = this.options.tokens.tokenOf(session, ask);
    const request = create(AnswerAskRequestSchema, {
      ...{ requestId: this.#next(), sessionId: run.sessionId },
      ...{ askId, toolCallId, answerToken, verdict },
    });
    return this.#taken(run.caller, { kind: "answerAsk", request }, "receipt");
  }

  /** Carries out one command and gives the first record of a kind that it made. */
  command<Case extends RecordCase>(
    run: AskingRun,
    command: NonNullable<MessageInitShape<typeof CommandSchema>["command"]>,
    wanted: Case,
  ): Promise<RecordOf<Case>> {
    const commands: Command[] = [create(CommandSchema, { command })];
    const { sessionId, runId } = run;
    const request = create(ApplyRequestSchema, {
      ...{ sessionId, runId, requestId: this.#next(), commands },
    });
    return this.#taken(run.caller, { kind: "apply", request }, wanted);
  }

  async #taken<Case extends RecordCase>(
    caller: Caller,
    mutation: Mutation,
    wanted: Case,
  ): Promise<RecordOf<Case>> {
    const replies = await this.ledger.submit(caller, mutation, WAITING);
    if (isRefusal(replies)) throw new Error(replies.message);
    const found = replies.flat().find(({ record }) => record.case === wanted);
    if (found === undefined) throw new Error(`the reply has no ${wanted}`);
    return found.record.value as RecordOf<Case>;
  }

  #next(): string {
    this.#requests += 1;
    return `request ${this.#requests}`;
  }
}
