import { create, toBinary, type MessageInitShape } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import type { CommandSchema } from "../../gen/toolmark/engine/v1/command_pb.js";
import {
  ApplyRequestSchema,
  BeginRunRequestSchema,
  TakeOver,
} from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { EventRecordSchema, type Event } from "../../gen/toolmark/v1/event_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { MessageRole, RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { CreateSessionRequestSchema } from "../../gen/toolmark/v1/session_service_pb.js";
import { ToolCallState, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { DEFAULT_LIMITS } from "../../src/domain/limits.js";
import { isRefusal, type Refusal } from "../../src/domain/refusal.js";
import { sha256 } from "../../src/domain/sha256.js";
import type { Replies } from "../../src/ledger/batch.js";
import { Ledger } from "../../src/ledger/ledger.js";
import type { LoadWarning } from "../../src/ledger/load-session.js";
import type { Mutation, SessionMutation } from "../../src/ledger/mutation.js";
import { Reader } from "../../src/ledger/reader.js";
import type { Store } from "../../src/ledger/store-port.js";
import { FaultyStore } from "./faulty-store.js";
import { OutsideWorld, TENANT_CALLER, WAITING } from "./outside-world.js";

/** One step of a random history. Picks are resolved against what is there when the step is taken. */
export type Step =
  | { readonly kind: "beginRun"; readonly gate: StartGate; readonly takeOver: TakeOver | undefined }
  | { readonly kind: "endRun"; readonly outcome: RunOutcome; readonly listed: number }
  | { readonly kind: "acceptTurn"; readonly providerIds: readonly string[] }
  | { readonly kind: "amend" | "start" | "reconcile"; readonly pick: number; readonly salt: number }
  | {
      readonly kind: "result";
      readonly pick: number;
      readonly end: ToolCallState;
      readonly bare: boolean;
    }
  | { readonly kind: "provisional" | "hook"; readonly pick: number }
  | { readonly kind: "message" | "restart" | "crash" | "loseSnapshot" }
  | { readonly kind: "failCommit"; readonly stored: boolean }
  | { readonly kind: "retry"; readonly pick: number; readonly changed: boolean };

const pick = fc.nat({ max: 1000 });
const providerIds = fc.array(
  fc.constantFrom("", "", "", "call_0", "call_1", "bash", "x", "y", "z"),
  {
    minLength: 1,
    maxLength: 3,
  },
);

export const beginRunStep = fc.record({
  kind: fc.constant("beginRun" as const),
  gate: fc.constantFrom(StartGate.REQUIRED, StartGate.OFF),
  takeOver: fc.constantFrom(undefined, TakeOver.END, TakeOver.RESUME),
});

export const acceptTurnStep = fc.record({
  kind: fc.constant("acceptTurn" as const),
  providerIds,
});

/** Steps in roughly the mix of a real history, with faults in between. */
export const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 2, arbitrary: beginRunStep },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("endRun" as const),
      outcome: fc.constantFrom(RunOutcome.COMPLETED, RunOutcome.PARKED, RunOutcome.INTERRUPTED),
      listed: pick,
    }),
  },
  { weight: 4, arbitrary: acceptTurnStep },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constantFrom("amend" as const, "start" as const, "reconcile" as const),
      pick,
      salt: fc.nat({ max: 2 }),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("result" as const),
      pick,
      end: fc.constantFrom(
        ToolCallState.UNSPECIFIED,
        ToolCallState.UNSPECIFIED,
        ToolCallState.FAILED,
        ToolCallState.BLOCKED,
        ToolCallState.WITHHELD,
        ToolCallState.TIMED_OUT,
      ),
      bare: fc.boolean(),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constantFrom("provisional" as const, "hook" as const),
      pick,
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constantFrom(
        "message" as const,
        "restart" as const,
        "crash" as const,
        "loseSnapshot" as const,
      ),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant("failCommit" as const), stored: fc.boolean() }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("retry" as const),
      pick,
      changed: fc.boolean(),
    }),
  },
);

/** A store that can be closed and opened again on the same data, with the faults that a history needs. */
export interface Disk {
  open(): Promise<Store>;
  /** Drops or damages the newest snapshot of every session. */
  damageNewestSnapshot(): Promise<void>;
  remove(): Promise<void>;
}

interface Sent {
  readonly mutation: Mutation;
  readonly reply: Replies;
}

/** Drives one session of a ledger through a random history and keeps what it was told. */
export class LedgerMachine {
  readonly sent: Sent[] = [];
  readonly refusals: Refusal[] = [];
  readonly warnings: LoadWarning[] = [];
  sessionId = "";
  #runId = "run_none";
  #requests = 0;
  #store: FaultyStore;
  #ledger: Ledger;
  readonly #disk: Disk;
  readonly #world: OutsideWorld;
  readonly #snapshotEvery: number;

  private constructor(disk: Disk, store: Store, world: OutsideWorld, snapshotEvery: number) {
    this.#disk = disk;
    this.#world = world;
    this.#snapshotEvery = snapshotEvery;
    this.#store = new FaultyStore(store);
    this.#ledger = this.#newLedger();
  }

  static async start(disk: Disk, name: string, snapshotEvery: number): Promise<LedgerMachine> {
    const store = await disk.open();
    const machine = new LedgerMachine(disk, store, new OutsideWorld(name), snapshotEvery);
    const request = create(CreateSessionRequestSchema, {
      requestId: "create",
      kind: SessionKind.MAIN,
    });
    const reply = await machine.send({ kind: "createSession", request });
    const record = isRefusal(reply) ? undefined : reply[0]?.[0]?.record;
    if (record?.case !== "session") throw new Error("the session was not created");
    machine.sessionId = record.value.sessionId;
    return machine;
  }

  async send(mutation: Mutation): Promise<Replies | Refusal> {
    const reply = await this.#ledger.submit(TENANT_CALLER, mutation, WAITING);
    if (isRefusal(reply)) this.refusals.push(reply);
    else this.sent.push({ mutation, reply });
    return reply;
  }

  async take(taken: Step): Promise<void> {
    switch (taken.kind) {
      case "restart":
        return this.#restart(true);
      case "crash":
        return this.#restart(false);
      case "loseSnapshot":
        await this.#store.close();
        await this.#disk.damageNewestSnapshot();
        return this.#reopen();
      case "failCommit":
        this.#store.failNext = taken.stored ? "after" : "before";
        return;
      case "retry":
        return this.#retry(taken.pick, taken.changed);
      case "beginRun": {
        const { gate: startGate, takeOver } = taken;
        const request = create(BeginRunRequestSchema, {
          sessionId: this.sessionId,
          requestId: this.#nextRequestId(),
          startGate,
          ...(takeOver === undefined ? {} : { takeOver }),
        });
        const reply = await this.send({ kind: "beginRun", request });
        const record = isRefusal(reply) ? undefined : reply[0]?.[0]?.record;
        if (record?.case === "run") this.#runId = record.value.runId;
        return;
      }
      default: {
        const command = await this.#commandOf(taken);
        if (command !== undefined) await this.send(this.apply(command));
      }
    }
  }

  /** A unary command as its Apply. */
  apply(command: MessageInitShape<typeof CommandSchema>["command"]): SessionMutation {
    const request = create(ApplyRequestSchema, {
      sessionId: this.sessionId,
      runId: this.#runId,
      requestId: this.#nextRequestId(),
      commands: [{ command: command ?? { case: undefined } }],
    });
    return { kind: "apply", request };
  }

  async events(): Promise<Event[]> {
    const reader = new Reader(this.#store, DEFAULT_LIMITS);
    const all: Event[] = [];
    let pageToken = "";
    do {
      const page = { pageSize: 500, pageToken };
      const got = await reader.listEvents(TENANT_CALLER, this.sessionId, 0n, page);
      if (isRefusal(got)) throw new Error(got.message);
      all.push(...got.items);
      pageToken = got.nextPageToken;
    } while (pageToken !== "");
    return all;
  }

  /** The last state of every call, as the log has it. */
  async calls(): Promise<ToolCall[]> {
    const calls = new Map<string, ToolCall>();
    for (const { record } of await this.events()) {
      if (record?.record.case === "toolCall") {
        calls.set(record.record.value.toolCallId, record.record.value);
      }
    }
    return [...calls.values()];
  }

  get store(): Store {
    return this.#store;
  }

  async stop(): Promise<void> {
    await this.#ledger.close();
    await this.#store.close();
    await this.#disk.remove();
  }

  #newLedger(): Ledger {
    const options = this.#world.ledgerOptions(this.#store, this.#snapshotEvery);
    return new Ledger(options, {
      sessionDamaged: (warning) => this.warnings.push(warning),
      commitFailed: () => undefined,
    });
  }

  async #restart(drains: boolean): Promise<void> {
    if (drains) await this.#ledger.close();
    await this.#store.close();
    await this.#reopen();
  }

  async #reopen(): Promise<void> {
    this.#store = new FaultyStore(await this.#disk.open());
    this.#ledger = this.#newLedger();
  }

  async #retry(index: number, changed: boolean): Promise<void> {
    const sent = this.sent[index % this.sent.length];
    if (sent === undefined) return;
    if (!changed || sent.mutation.kind === "createSession") {
      const eventsBefore = (await this.events()).length;
      const reply = await this.#ledger.submit(TENANT_CALLER, sent.mutation, WAITING);
      if (isRefusal(reply)) throw new Error(`a retry was refused: ${reply.message}`);
      if (!equalReplies(reply, sent.reply)) throw new Error("a retry was answered differently");
      if ((await this.events()).length !== eventsBefore) throw new Error("a retry wrote events");
      return;
    }
    const { requestId } = sent.mutation.request;
    const other = this.apply({
      case: "recordMessage",
      value: { role: MessageRole.SYSTEM, content: { data: new Uint8Array([index % 251]) } },
    });
    other.request.requestId = requestId;
    const reply = await this.#ledger.submit(TENANT_CALLER, other, WAITING);
    if (!isRefusal(reply)) throw new Error("another message was taken under a used request id");
  }

  #nextRequestId(): string {
    this.#requests += 1;
    return `request ${this.#requests}`;
  }

  async #commandOf(
    taken: Exclude<Step, { kind: "beginRun" | "retry" | "failCommit" }>,
  ): Promise<MessageInitShape<typeof CommandSchema>["command"] | undefined> {
    const calls = await this.calls();
    const call = "pick" in taken ? calls[taken.pick % calls.length] : undefined;
    const toolCallId = call?.toolCallId ?? "tc_none";
    switch (taken.kind) {
      case "message":
        return {
          case: "recordMessage",
          value: { role: MessageRole.USER, content: { data: bytes("hello") } },
        };
      case "acceptTurn":
        return { case: "acceptTurn", value: { calls: taken.providerIds.map(newCall) } };
      case "amend":
        return {
          case: "amendToolCall",
          value: { toolCallId, effective: { data: bytes(`{"amended":${taken.salt}}`) } },
        };
      case "start": {
        const right = call?.effective?.sha256 ?? sha256(bytes(""));
        const argumentsSha256 = taken.salt === 0 ? sha256(bytes("wrong")) : right;
        return { case: "startToolCall", value: { toolCallId, argumentsSha256 } };
      }
      case "reconcile":
        return {
          case: "reconcileToolCall",
          value: { toolCallId, end: ToolCallState.COMPLETED, content: { data: bytes("found") } },
        };
      case "provisional":
        return {
          case: "recordResult",
          value: { toolCallId, result: { case: "provisional", value: { chunk: bytes("part") } } },
        };
      case "hook":
        return {
          case: "publishHook",
          value: {
            ...(call === undefined ? {} : { toolCallId }),
            phase: call === undefined ? "session_start" : "pre_tool_use",
            decision: HookDecision.BLOCKED,
            text: "no",
          },
        };
      case "result":
        return {
          case: "recordResult",
          value: { toolCallId, result: await this.#resultOf(taken, toolCallId) },
        };
      case "endRun": {
        const listed = calls.filter(({ result }) => result === undefined);
        const id = listed[taken.listed % Math.max(1, listed.length * 2)]?.toolCallId;
        const lists =
          id === undefined || taken.outcome === RunOutcome.PARKED
            ? {}
            : { notRunToolCallIds: [id] };
        return { case: "endRun", value: { outcome: taken.outcome, ...lists } };
      }
      default:
        return undefined;
    }
  }

  async #resultOf(
    taken: Extract<Step, { kind: "result" }>,
    toolCallId: string,
  ): Promise<{
    case: "canonical";
    value: {
      content?: { data: Uint8Array<ArrayBuffer> };
      end: ToolCallState;
      blockedByHookId?: string;
    };
  }> {
    const { end } = taken;
    const needsContent = end === ToolCallState.UNSPECIFIED || end === ToolCallState.WITHHELD;
    const content = { content: { data: bytes(`result of ${toolCallId}`) } };
    const hooks = (await this.events()).flatMap(({ record }) =>
      record?.record.case === "hook" && record.record.value.toolCallId === toolCallId
        ? [record.record.value.hookId]
        : [],
    );
    return {
      case: "canonical",
      value: {
        ...(needsContent || !taken.bare ? content : {}),
        end,
        ...(end === ToolCallState.BLOCKED ? { blockedByHookId: hooks[0] ?? "hk_none" } : {}),
      },
    };
  }
}

function newCall(providerCallId: string): {
  toolName: string;
  arguments: { data: Uint8Array<ArrayBuffer> };
  pairing: { providerCallId: string };
} {
  return {
    toolName: "bash",
    arguments: { data: bytes('{"command":"ls"}') },
    pairing: { providerCallId },
  };
}

function equalReplies(left: Replies, right: Replies): boolean {
  const encode = (replies: Replies) =>
    replies.map((reply) =>
      reply.map((record) => Buffer.from(toBinary(EventRecordSchema, record)).toString("base64")),
    );
  return JSON.stringify(encode(left)) === JSON.stringify(encode(right));
}

export function bytes(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}
