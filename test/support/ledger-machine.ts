import { create, toBinary } from "@bufbuild/protobuf";
import {
  ApplyRequestSchema,
  BeginRunRequestSchema,
} from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { AnswerAskRequestSchema } from "../../gen/toolmark/v1/approval_service_pb.js";
import type { Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { EventRecordSchema, type Event } from "../../gen/toolmark/v1/event_pb.js";
import { ActorKind } from "../../gen/toolmark/v1/origin_pb.js";
import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import {
  CreateSessionRequestSchema,
  EndSessionRequestSchema,
} from "../../gen/toolmark/v1/session_service_pb.js";
import { DEFAULT_LIMITS } from "../../src/domain/limits.js";
import { isRefusal, type Refusal } from "../../src/domain/refusal.js";
import type { Replies } from "../../src/ledger/batch-context.js";
import { Ledger, type LedgerOptions } from "../../src/ledger/ledger.js";
import type { LoadWarning } from "../../src/ledger/load-session.js";
import type { Mutation, SessionMutation } from "../../src/ledger/mutation.js";
import { Reader } from "../../src/ledger/reader.js";
import type { SessionRef, Store } from "../../src/ledger/store-port.js";
import type { CommandInit } from "./decider.js";
import { FaultyStore } from "./faulty-store.js";
import type { FaultStep, Step } from "./ledger-steps.js";
import { OutsideWorld, TENANT_CALLER, WAITING } from "./outside-world.js";
import { RecordLog } from "./record-log.js";
import { answerFaults } from "./rules-machine.js";
import { actionOf, bytes, type Action } from "./step-actions.js";

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
  #log = new RecordLog<Event>();
  #store: FaultyStore;
  #options: LedgerOptions;
  #ledger: Ledger;
  readonly #disk: Disk;
  readonly #world: OutsideWorld;
  readonly #snapshotEvery: number;

  private constructor(disk: Disk, store: Store, world: OutsideWorld, snapshotEvery: number) {
    this.#disk = disk;
    this.#world = world;
    this.#snapshotEvery = snapshotEvery;
    this.#store = new FaultyStore(store);
    this.#options = world.ledgerOptions(this.#store, snapshotEvery);
    this.#ledger = this.#newLedger();
  }

  static async start(disk: Disk, name: string, snapshotEvery: number): Promise<LedgerMachine> {
    const store = await disk.open();
    const machine = new LedgerMachine(disk, store, new OutsideWorld(name), snapshotEvery);
    const request = create(CreateSessionRequestSchema, {
      requestId: "create",
      kind: SessionKind.MAIN,
    });
    const reply = await machine.#ledger.submit(
      TENANT_CALLER,
      { kind: "createSession", request },
      WAITING,
    );
    const record = isRefusal(reply) ? undefined : reply[0]?.[0]?.record;
    if (isRefusal(reply) || record?.case !== "session") {
      throw new Error("the session was not created");
    }
    machine.sent.push({ mutation: { kind: "createSession", request }, reply });
    machine.sessionId = record.value.sessionId;
    return machine;
  }

  /** Sends a request and holds what it wrote against how it was answered. */
  async send(mutation: SessionMutation): Promise<Replies | Refusal> {
    const reply = await this.#ledger.submit(TENANT_CALLER, mutation, WAITING);
    const written = await this.#read();
    if (isRefusal(reply)) {
      this.refusals.push(reply);
      const [fault] = refusalFaults(reply, written);
      if (fault !== undefined) throw new Error(fault);
    } else {
      this.sent.push({ mutation, reply });
    }
    return reply;
  }

  async take(taken: Step): Promise<void> {
    switch (taken.kind) {
      case "restart":
      case "crash":
      case "loseSnapshot":
      case "failCommit":
      case "retry":
        return this.#suffer(taken);
      default: {
        await this.#read();
        const tokenOf = (ask: Ask): string => this.#options.tokens.tokenOf(this.#session(), ask);
        const scene = { log: this.#log, nowMs: this.#world.timeMs, tokenOf };
        const action = actionOf(taken, scene);
        if (action !== undefined) await this.#act(action);
      }
    }
  }

  /** A unary command as its Apply. */
  apply(command: CommandInit): SessionMutation {
    const request = create(ApplyRequestSchema, {
      ...this.#requestBase(),
      runId: this.#runId,
      commands: [{ command }],
    });
    return { kind: "apply", request };
  }

  /** The whole log, read anew. */
  async events(): Promise<Event[]> {
    return this.#eventsAfter(0n);
  }

  get store(): Store {
    return this.#store;
  }

  async stop(): Promise<void> {
    await this.#ledger.close();
    await this.#store.close();
    await this.#disk.remove();
  }

  async #act(action: Action): Promise<void> {
    switch (action.kind) {
      case "jump":
        this.#world.timeMs += action.byMs;
        return;
      case "expire": {
        await this.#ledger.expire(this.#session(), action.dueIds);
        const [fault] = expiryFaults(await this.#read());
        if (fault !== undefined) throw new Error(fault);
        return;
      }
      case "command":
        await this.send(this.apply(action.command));
        return;
      case "answer": {
        const request = create(AnswerAskRequestSchema, {
          ...this.#requestBase(),
          ...action.request,
        });
        const reply = await this.send({ kind: "answerAsk", request });
        const [fault] = answerFaults(action.isRight, reply);
        if (fault !== undefined) throw new Error(fault);
        return;
      }
      case "endSession": {
        const request = create(EndSessionRequestSchema, this.#requestBase());
        await this.send({ kind: "endSession", request });
        return;
      }
      case "beginRun":
        return this.#begin(action);
    }
  }

  async #begin({ gate, takeOver }: Extract<Action, { kind: "beginRun" }>): Promise<void> {
    const request = create(BeginRunRequestSchema, {
      ...this.#requestBase(),
      startGate: gate,
      ...(takeOver === undefined ? {} : { takeOver }),
    });
    const reply = await this.send({ kind: "beginRun", request });
    const record = isRefusal(reply) ? undefined : reply[0]?.[0]?.record;
    if (record?.case === "run") this.#runId = record.value.runId;
  }

  async #suffer(taken: FaultStep): Promise<void> {
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
    }
  }

  /** What was written since the last look. */
  async #read(): Promise<Event[]> {
    const read = await this.#eventsAfter(BigInt(this.#log.entries.length));
    this.#log.add(read);
    return read;
  }

  async #eventsAfter(sequence: bigint): Promise<Event[]> {
    const reader = new Reader(this.#store, DEFAULT_LIMITS);
    const all: Event[] = [];
    let pageToken = "";
    do {
      const page = { pageSize: 500, pageToken };
      const got = await reader.listEvents(TENANT_CALLER, this.sessionId, sequence, page);
      if (isRefusal(got)) throw new Error(got.message);
      all.push(...got.items);
      pageToken = got.nextPageToken;
    } while (pageToken !== "");
    return all;
  }

  #newLedger(): Ledger {
    return new Ledger(this.#options, {
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
    this.#options = this.#world.ledgerOptions(this.#store, this.#snapshotEvery);
    this.#ledger = this.#newLedger();
  }

  async #retry(index: number, changed: boolean): Promise<void> {
    const sent = this.sent[index % this.sent.length];
    if (sent === undefined) return;
    await this.#read();
    if (!changed || sent.mutation.kind === "createSession") {
      const reply = await this.#ledger.submit(TENANT_CALLER, sent.mutation, WAITING);
      if (isRefusal(reply)) throw new Error(`a retry was refused: ${reply.message}`);
      if (!equalReplies(reply, sent.reply)) throw new Error("a retry was answered differently");
    } else {
      const value = { role: MessageRole.SYSTEM, content: { data: bytes(`other ${index}`) } };
      const other = this.apply({ case: "recordMessage", value });
      other.request.requestId = sent.mutation.request.requestId;
      const reply = await this.#ledger.submit(TENANT_CALLER, other, WAITING);
      if (!isRefusal(reply)) throw new Error("another message was taken under a used request id");
    }
    if ((await this.#read()).length > 0) throw new Error("a retry wrote events");
  }

  #session(): SessionRef {
    return { tenant: TENANT_CALLER.tenant, sessionId: this.sessionId };
  }

  #requestBase(): { readonly sessionId: string; readonly requestId: string } {
    this.#requests += 1;
    return { sessionId: this.sessionId, requestId: `request ${this.#requests}` };
  }
}

/** A refused request wrote nothing of its own: only the service's expirations, found before it was decided. */
export function refusalFaults({ reason }: Refusal, written: readonly Event[]): string[] {
  // Nobody knows what became of this one.
  return reason === ErrorReason.COMMIT_UNCERTAIN ? [] : expiryFaults(written);
}

const EXPIRY_KINDS: ReadonlySet<string> = new Set([
  "RECEIPT_WRITTEN",
  "ASK_EXPIRED",
  // Of a call that waited for an answer behind a parked one whose time is over.
  "ASK_WITHDRAWN",
  "RECEIPT_VOIDED",
  "AUTHORIZATION_SETTLED",
  "TOOL_CALL_ENDED",
]);

/** Events that no expiry writes. */
function expiryFaults(written: readonly Event[]): string[] {
  return written
    .filter(({ actor, kind }) => actor?.kind !== ActorKind.SYSTEM || !EXPIRY_KINDS.has(kind))
    .map(({ kind }) => `${kind} was written by what was refused or by time`);
}

function equalReplies(left: Replies, right: Replies): boolean {
  const encode = (replies: Replies) =>
    replies.map((reply) =>
      reply.map((record) => Buffer.from(toBinary(EventRecordSchema, record)).toString("base64")),
    );
  return JSON.stringify(encode(left)) === JSON.stringify(encode(right));
}
