import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { CommandSchema } from "../../gen/toolmark/engine/v1/command_pb.js";
import {
  ApplyRequestSchema,
  BeginRunRequestSchema,
  type TakeOver,
} from "../../gen/toolmark/engine/v1/run_service_pb.js";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { CreateSessionRequestSchema } from "../../gen/toolmark/v1/session_service_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { decideApply } from "../../src/domain/decide/apply.js";
import { beginRun } from "../../src/domain/decide/begin-run.js";
import { Draft, type Facts } from "../../src/domain/decide/draft.js";
import { createSession } from "../../src/domain/decide/session.js";
import { evolve } from "../../src/domain/evolve.js";
import { DEFAULT_LIMITS } from "../../src/domain/limits.js";
import { recordIdOf } from "../../src/domain/record-id.js";
import { isRefusal, type Refusal } from "../../src/domain/refusal.js";
import type { DraftEvent, SessionState } from "../../src/domain/session-state.js";
import { OutsideWorld, TENANT_CALLER } from "./outside-world.js";

export type CommandInit = NonNullable<MessageInitShape<typeof CommandSchema>["command"]>;

/** Plays commands against the pure rules: given what was done before, when a command comes, then its events. */
export class Decider {
  readonly sessionId = "ses_1";
  readonly history: DraftEvent[] = [];
  readonly #records = new Map<string, EventRecord["record"]>();
  readonly #world = new OutsideWorld("decider");
  #state: SessionState | undefined;
  #runId = "";

  constructor(gate = StartGate.OFF) {
    const request = create(CreateSessionRequestSchema, { kind: SessionKind.MAIN });
    const draft = new Draft(this.sessionId, undefined, this.#facts());
    const created = createSession(draft, request);
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
    this.#keep(decided.events);
    return decided.events;
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

  #keep(events: readonly DraftEvent[]): void {
    this.#state = evolve(this.#state, events);
    this.history.push(...events);
    for (const { record } of events) {
      const id = recordIdOf(record.record);
      if (id !== undefined) this.#records.set(id, record.record);
    }
  }

  #facts(): Facts {
    return {
      now: timestampFromMs(this.#world.nowMs()),
      caller: TENANT_CALLER,
      limits: DEFAULT_LIMITS,
      mintId: this.#world.mintId,
      settledRecord: (id) => this.#records.get(id),
      storedBody: () => undefined,
    };
  }
}
