import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { CommandSchema } from "../gen/toolmark/engine/v1/command_pb.js";
import {
  ApplyRequestSchema,
  BeginRunRequestSchema,
} from "../gen/toolmark/engine/v1/run_service_pb.js";
import type { EventRecord } from "../gen/toolmark/v1/event_pb.js";
import { StartGate } from "../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../gen/toolmark/v1/session_pb.js";
import { CreateSessionRequestSchema } from "../gen/toolmark/v1/session_service_pb.js";
import type { Caller } from "../src/domain/principal.js";
import { isRefusal } from "../src/domain/refusal.js";
import { answerTokens } from "../src/ledger/answer-token.js";
import { CommitFeed } from "../src/ledger/commit-feed.js";
import { Ledger } from "../src/ledger/ledger.js";
import type { Mutation } from "../src/ledger/mutation.js";
import { ReviewDetails } from "../src/ledger/review-details.js";
import type { SessionRef, Store } from "../src/ledger/store-port.js";
import { readConfig } from "../src/server/config.js";
import { readProviderTurn } from "../src/provider/read-provider-turn.js";
import { mintId, nowMs, randomBytes } from "../src/server/system.js";

export type CommandInit = NonNullable<MessageInitShape<typeof CommandSchema>["command"]>;
type AnyRecord = EventRecord["record"];
export type Records = readonly AnyRecord[];
type RecordCase = Exclude<AnyRecord["case"], undefined>;
type RecordOf<Case extends RecordCase> = Extract<AnyRecord, { case: Case }>["value"];

const CALLER: Caller = { tenant: "default", subject: "loopback", scope: "tenant" };
const SECRET_BYTES = 32;

/** A session with an active run. */
export interface WrittenRun extends SessionRef {
  readonly runId: string;
}

/** The ledger of a store, with the service's own settings. */
export function ledgerOn(store: Store): Ledger {
  const outcome = readConfig([], {});
  if (outcome.kind !== "config") throw new Error("there are no default settings");
  const { limits, snapshotEvery } = outcome.config;
  const tokens = answerTokens(randomBytes(SECRET_BYTES), store.generation);
  const commits = new CommitFeed();
  const details = new ReviewDetails();
  return new Ledger(
    {
      ...{ store, limits, snapshotEvery, mintId, randomBytes, tokens, commits, details, nowMs },
      readProviderTurn,
    },
    {
      sessionDamaged: ({ cause }) => {
        throw new Error(cause);
      },
      commitFailed: ({ cause }) => {
        throw cause;
      },
    },
  );
}

/** Writes through a ledger. Throws for whatever it refuses. */
export class LedgerWriter {
  readonly #ledger: Ledger;
  readonly #name: string;
  #requests = 0;

  /** No other writer to the same store may have the same name. */
  constructor(ledger: Ledger, name: string) {
    this.#ledger = ledger;
    this.#name = name;
  }

  async beginRun(): Promise<WrittenRun> {
    const creation = { requestId: this.#nextRequest(), kind: SessionKind.MAIN };
    const made = await this.#submit({
      kind: "createSession",
      request: create(CreateSessionRequestSchema, creation),
    });
    const { sessionId } = only(recordsOf(made, "session"));
    const begin = { sessionId, requestId: this.#nextRequest(), startGate: StartGate.OFF };
    const begun = await this.#submit({
      kind: "beginRun",
      request: create(BeginRunRequestSchema, begin),
    });
    const { runId } = only(recordsOf(begun, "run"));
    return { tenant: CALLER.tenant, sessionId, runId };
  }

  /** In one commit. Gives the records of the replies. */
  apply({ sessionId, runId }: WrittenRun, commands: readonly CommandInit[]): Promise<Records> {
    const request = create(ApplyRequestSchema, {
      ...{ sessionId, runId, requestId: this.#nextRequest() },
      commands: commands.map((command) => ({ command })),
    });
    return this.#submit({ kind: "apply", request });
  }

  async #submit(mutation: Mutation): Promise<Records> {
    const replies = await this.#ledger.submit(CALLER, mutation, { aborted: undefined });
    if (isRefusal(replies)) throw new Error(replies.message);
    return replies.flat().map(({ record }) => record);
  }

  #nextRequest(): string {
    this.#requests += 1;
    return `${this.#name}-${this.#requests}`;
  }
}

/** The records of one kind, in order. */
export function recordsOf<Case extends RecordCase>(
  records: Records,
  wanted: Case,
): RecordOf<Case>[] {
  return records.flatMap((record) =>
    record.case === wanted ? [record.value as RecordOf<Case>] : [],
  );
}

export function only<Value>(values: readonly Value[]): Value {
  const [value] = values;
  if (value === undefined || values.length > 1) throw new Error(`${values.length} instead of one`);
  return value;
}
