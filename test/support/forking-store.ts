import { create, toBinary } from "@bufbuild/protobuf";
import { expect } from "vitest";
import {
  ApplyRequestSchema,
  BeginRunRequestSchema,
} from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { EventRecordSchema, type Event } from "../../gen/toolmark/v1/event_pb.js";
import { MessageRole, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { ForkSessionRequestSchema } from "../../gen/toolmark/v1/session_service_pb.js";
import { DEFAULT_LIMITS } from "../../src/domain/limits.js";
import { isRefusal, type Refusal } from "../../src/domain/refusal.js";
import type { Replies } from "../../src/ledger/batch-context.js";
import { Ledger } from "../../src/ledger/ledger.js";
import type { Mutation } from "../../src/ledger/mutation.js";
import { Reader } from "../../src/ledger/reader.js";
import { SessionFork } from "../../src/ledger/session-fork.js";
import type { Store } from "../../src/ledger/store-port.js";
import { bytes } from "./conversation.js";
import { OutsideWorld, TENANT_CALLER, WAITING } from "./outside-world.js";

const PACE = { pause: () => Promise.resolve() };

/** A store that is forked in, with whatever its history left. */
export class ForkingStore {
  readonly #ledger: Ledger;
  readonly #fork: SessionFork;
  readonly #reader: Reader;
  #requests = 0;

  constructor(
    readonly store: Store,
    name: string,
  ) {
    const world = new OutsideWorld(`forks of ${name}`);
    const options = { ...world.ledgerOptions(store, 3), nowMs: () => 1_900_000_000_000 };
    this.#ledger = new Ledger(options, {
      sessionDamaged: ({ cause }) => {
        throw new Error(cause);
      },
      commitFailed: () => undefined,
    });
    const { limits, mintId } = options;
    const { pause } = PACE;
    this.#fork = new SessionFork({ store, ledger: this.#ledger, limits, mintId, pause });
    this.#reader = new Reader(store, DEFAULT_LIMITS);
  }

  async fork(sessionId: string, throughSequence: bigint): Promise<string> {
    const requestId = this.#requestId();
    const request = create(ForkSessionRequestSchema, { requestId, sessionId, throughSequence });
    const reply = accepted(await this.#fork.fork(TENANT_CALLER, request, WAITING));
    const again = accepted(await this.#fork.fork(TENANT_CALLER, request, WAITING));
    expect(repliesText(again)).toBe(repliesText(reply));
    const record = reply[0]?.[0]?.record;
    if (record?.case !== "forked") throw new Error("a fork is answered by its record");
    return record.value.session?.sessionId ?? "";
  }

  async events(sessionId: string): Promise<Event[]> {
    const page = { pageSize: 500, pageToken: "" };
    return accepted(
      await this.#reader.listEvents(TENANT_CALLER, sessionId, 0n, page),
    ).items.slice();
  }

  async body(sessionId: string, bodyRef: string): Promise<Buffer> {
    const range = { offsetBytes: 0n, limitBytes: 0n };
    const chunks = accepted(await this.#reader.readBody(TENANT_CALLER, sessionId, bodyRef, range));
    return Buffer.concat([...chunks].map(({ chunk }) => chunk));
  }

  /** A turn of the fork's own, with a provider's id that may have been copied. */
  async goOn(sessionId: string): Promise<void> {
    const begin = create(BeginRunRequestSchema, {
      ...{ sessionId, requestId: this.#requestId(), startGate: StartGate.OFF },
    });
    const run = (await this.#submit({ kind: "beginRun", request: begin }))[0]?.[0]?.record;
    const runId = run?.case === "run" ? run.value.runId : "";
    const call = { toolName: "bash", arguments: { data: bytes("{}") } };
    const calls = [{ ...call, pairing: { providerCallId: "call_0" } }];
    const message = { role: MessageRole.USER, content: { data: bytes("go on") } };
    const commands = [
      { command: { case: "acceptTurn" as const, value: { calls } } },
      { command: { case: "recordMessage" as const, value: message } },
    ];
    const request = create(ApplyRequestSchema, {
      ...{ sessionId, requestId: this.#requestId(), runId, commands },
    });
    await this.#submit({ kind: "apply", request });
  }

  async #submit(mutation: Mutation): Promise<Replies> {
    return accepted(await this.#ledger.submit(TENANT_CALLER, mutation, WAITING));
  }

  #requestId(): string {
    this.#requests += 1;
    return `fork request ${this.#requests}`;
  }
}

/** What was answered. Throws if it was refused. */
export function accepted<Answer>(answer: Answer | Refusal): Answer {
  if (isRefusal(answer)) throw new Error(answer.message);
  return answer;
}

function repliesText(replies: Replies): string {
  const records = replies.flat().map((record) => toBinary(EventRecordSchema, record));
  return records.map((record) => Buffer.from(record).toString("hex")).join();
}
