import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { CommandSchema } from "../../gen/toolmark/engine/v1/command_pb.js";
import {
  ApplyRequestSchema,
  BeginRunRequestSchema,
  type TakeOver,
} from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { AnswerAskRequestSchema } from "../../gen/toolmark/v1/approval_service_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { ActorKind, ActorSchema } from "../../gen/toolmark/v1/origin_pb.js";
import type { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { CreateSessionRequestSchema } from "../../gen/toolmark/v1/session_service_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { answerAsk } from "../../src/domain/decide/answer-ask.js";
import { decideApply } from "../../src/domain/decide/apply.js";
import { beginRun } from "../../src/domain/decide/begin-run.js";
import { Draft, type Facts, type NewBody } from "../../src/domain/decide/draft.js";
import { expireDue, SYSTEM_ACTOR } from "../../src/domain/decide/expire-due.js";
import { createSession, endSession } from "../../src/domain/decide/session.js";
import { evolve } from "../../src/domain/evolve.js";
import { DEFAULT_LIMITS, type Limits } from "../../src/domain/limits.js";
import { recordIdOf } from "../../src/domain/record-id.js";
import { isRefusal, type Refusal } from "../../src/domain/refusal.js";
import type { DraftEvent, SessionState } from "../../src/domain/session-state.js";
import { readProviderTurn } from "../../src/provider/read-provider-turn.js";
import { OutsideWorld, TENANT_CALLER } from "./outside-world.js";

type RecordCase = Exclude<EventRecord["record"]["case"], undefined>;
type RecordOf<Case extends RecordCase> = Extract<EventRecord["record"], { case: Case }>["value"];

export type CommandInit = NonNullable<MessageInitShape<typeof CommandSchema>["command"]>;

/** Rules that differ from ours: in what is kept of a decision, and in what they make of it. */
export interface BentRules {
  readonly events?: (events: readonly DraftEvent[], before: SessionState) => readonly DraftEvent[];
  readonly state?: (after: SessionState, before: SessionState) => SessionState;
}

/**
 * Plays commands against the pure rules: given what was done before, when a command comes, then its events. Its clock
 * stands still unless it is moved.
 */
export class Decider {
  readonly sessionId = "ses_1";
  readonly history: DraftEvent[] = [];
  limits: Limits = DEFAULT_LIMITS;
  readonly bodies: NewBody[] = [];
  readonly #records = new Map<string, EventRecord["record"]>();
  readonly #world = new OutsideWorld("decider");
  #state: SessionState | undefined;
  #runId = "";
  readonly #bent: BentRules;

  constructor(gate = StartGate.OFF, bent: BentRules = {}) {
    this.#bent = bent;
    const request = create(CreateSessionRequestSchema, { kind: SessionKind.MAIN });
    const draft = new Draft(this.sessionId, undefined, this.#facts());
    const created = createSession(draft, request, undefined);
    if (isRefusal(created)) throw new Error(created.message);
    this.#keep(created.events);
    this.begin(gate);
  }

  get state(): SessionState {
    if (this.#state === undefined) throw new Error("no session");
    return this.#state;
  }

  get runId(): string {
    return this.#runId;
  }

  begin(startGate: StartGate, takeOver?: TakeOver): Refusal | undefined {
    const request = create(BeginRunRequestSchema, {
      startGate,
      ...(takeOver === undefined ? {} : { takeOver }),
    });
    const draft = new Draft(this.sessionId, this.state, this.#facts());
    const begun = beginRun(draft, this.state, request);
    if (isRefusal(begun)) return begun;
    this.#keep(begun.events);
    this.#runId = this.state.activeRun?.runId ?? "";
    return undefined;
  }

  /** The events of commands as one Apply, kept if they were not refused. */
  when(commands: readonly CommandInit[], runId = this.#runId): readonly DraftEvent[] | Refusal {
    const request = create(ApplyRequestSchema, {
      sessionId: this.sessionId,
      runId,
      commands: commands.map((command) => ({ command })),
    });
    const decided = decideApply(this.state, request, this.#facts());
    if (isRefusal(decided)) return decided;
    this.bodies.push(...decided.bodies);
    return this.#keep(decided.events);
  }

  /** As `when`, for commands that must be taken. */
  given(...commands: readonly CommandInit[]): readonly DraftEvent[] {
    const events = this.when(commands);
    if (isRefusal(events)) throw new Error(events.message);
    return events;
  }

  /** Accepts one turn of calls with these provider ids; gives their ids. */
  calls(...providerIds: readonly string[]): string[] {
    const calls = providerIds.map((providerCallId) => ({
      toolName: "bash",
      arguments: { data: new TextEncoder().encode("{}") },
      pairing: { providerCallId },
    }));
    return this.given({ case: "acceptTurn", value: { calls } }).flatMap(({ record }) =>
      record.record.case === "toolCall" ? [record.record.value.toolCallId] : [],
    );
  }

  call(toolCallId: string): ToolCall {
    const record = this.#records.get(toolCallId);
    if (record?.case !== "toolCall") throw new Error(`no call ${toolCallId}`);
    return record.value;
  }

  /** A human's answer to an ask. The default references are the ask's own. */
  answer(
    askId: string,
    verdict: Verdict,
    changed: MessageInitShape<typeof AnswerAskRequestSchema> = {},
  ): readonly DraftEvent[] | Refusal {
    const ask = this.record("ask", askId);
    return this.send({
      askId,
      answerToken: `token of ${askId}`,
      toolCallId: ask.toolCallId,
      ...(ask.reviewId === undefined ? {} : { reviewId: ask.reviewId }),
      verdict,
      ...changed,
    });
  }

  /** An answer as it is. */
  send(answer: MessageInitShape<typeof AnswerAskRequestSchema>): readonly DraftEvent[] | Refusal {
    const request = create(AnswerAskRequestSchema, answer);
    const draft = new Draft(this.sessionId, this.state, this.#facts());
    const decided = answerAsk(draft, this.state, request);
    if (isRefusal(decided)) return decided;
    return this.#keep(decided.events);
  }

  /** An event that these rules would not decide: from an older system, say. */
  happened(kind: string, build: (revision: bigint) => EventRecord["record"]): void {
    const draft = new Draft(this.sessionId, this.state, this.#facts());
    draft.revise(kind, build);
    this.#keep(draft.events);
  }

  /** Ends the session. */
  end(): readonly DraftEvent[] {
    const draft = new Draft(this.sessionId, this.state, this.#facts());
    const ended = endSession(draft, this.state);
    if (isRefusal(ended)) throw new Error(ended.message);
    return this.#keep(ended.events);
  }

  /** Lets time pass, and expires what has waited long enough by then. */
  pass(ms: number, dueIds: readonly string[] = []): readonly DraftEvent[] {
    this.#world.timeMs += ms;
    const facts = { ...this.#facts(), actor: SYSTEM_ACTOR };
    const { events } = expireDue(this.sessionId, this.state, facts, new Set(dueIds));
    return this.#keep(events);
  }

  /** Moves the clock, and does nothing else. */
  jump(byMs: number): void {
    this.#world.timeMs += byMs;
  }

  get nowMs(): number {
    return this.#world.timeMs;
  }

  /** A record as of its last event. */
  record<Case extends RecordCase>(wanted: Case, id: string): RecordOf<Case> {
    const record = this.#records.get(id);
    if (record?.case !== wanted) throw new Error(`no ${wanted} ${id}`);
    return record.value as RecordOf<Case>;
  }

  #keep(decided: readonly DraftEvent[]): readonly DraftEvent[] {
    const before = this.#state;
    const { events: bend, state: mistake } = this.#bent;
    const events = before === undefined ? decided : (bend?.(decided, before) ?? decided);
    const after = evolve(before, events);
    this.#state = before === undefined ? after : (mistake?.(after, before) ?? after);
    this.history.push(...events);
    for (const { record } of events) {
      const id = recordIdOf(record.record);
      if (id !== undefined) this.#records.set(id, record.record);
    }
    return events;
  }

  #facts(): Facts {
    return {
      now: timestampFromMs(this.#world.timeMs),
      caller: TENANT_CALLER,
      actor: create(ActorSchema, { subject: TENANT_CALLER.subject, kind: ActorKind.PRINCIPAL }),
      limits: this.limits,
      mintId: this.#world.mintId,
      settledRecord: (id) => this.#records.get(id),
      storedBody: () => undefined,
      readProviderTurn,
      isAnswerToken: ({ askId }, token) => token === `token of ${askId}`,
    };
  }
}
