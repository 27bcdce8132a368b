import { create, fromBinary } from "@bufbuild/protobuf";
import {
  ApplyRequestSchema,
  BeginRunRequestSchema,
} from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { AnswerAskRequestSchema } from "../../gen/toolmark/v1/approval_service_pb.js";
import { BaseStateSchema } from "../../gen/toolmark/v1/base_state_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { DelegationKind, SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import {
  CancelledDescendantSchema,
  CompactSessionRequestSchema,
  CreateSessionRequestSchema,
  EndSessionRequestSchema,
  ForkSessionRequestSchema,
  type CancelledDescendant,
} from "../../gen/toolmark/v1/session_service_pb.js";
import { isRefusal, type Refusal } from "../../src/domain/refusal.js";
import type { Replies } from "../../src/ledger/batch-context.js";
import type { EndedSession } from "../../src/ledger/session-ending.js";
import type { SessionMutation } from "../../src/ledger/mutation.js";
import { given } from "./conversation.js";
import type { CommandInit } from "./decider.js";
import { accepted } from "./forking-store.js";
import { baseFaults, highestPoint } from "./forking.js";
import type { Disk } from "./ledger-machine.js";
import { TENANT_CALLER, WAITING } from "./outside-world.js";
import { aboutCall, commandOf, noteCommand } from "./tree-commands.js";
import { TreeLife, type TreeMistakes } from "./tree-life.js";
import { delegationTo, ModelSession, TreeModel, type ModelDelegation } from "./tree-model.js";
import { isUnanswered, pickCall, pickOf } from "./tree-picks.js";
import { recordOf, replyText, textOf, type Reply } from "./tree-replies.js";
import type { AgentStep, OutsideStep, TreeStep } from "./tree-steps.js";
import { highestCut } from "./turn-logs.js";

/** A step of an agent of which the model knows what it changes. */
type ActStep = Exclude<AgentStep, { kind: "touchCopied" }>;
type StepOf<Kind extends TreeStep["kind"]> = Extract<TreeStep, { kind: Kind }>;

interface Sent {
  readonly send: () => Promise<Reply | Refusal>;
  readonly reply: string;
}

const CHILD_KIND: Partial<Record<DelegationKind, SessionKind>> = {
  [DelegationKind.PARALLEL_BRANCH]: SessionKind.PARALLEL_BRANCH,
  [DelegationKind.TEAM_MEMBER]: SessionKind.TEAM_MEMBER,
};

/** How many of the newest sessions get children, so that trees grow deep. */
const RECENT_SESSIONS = 3;

/**
 * Drives a ledger through a random history of trees of sessions, and holds what it says against a model of them. A new
 * kind of step is one more case of `take`.
 */
export class TreeMachine {
  readonly model = new TreeModel();
  readonly life: TreeLife;
  readonly #sent: Sent[] = [];
  #requests = 0;

  private constructor(life: TreeLife) {
    this.life = life;
  }

  static async start(disk: Disk, name: string, mistakes: TreeMistakes = {}): Promise<TreeMachine> {
    return new TreeMachine(await TreeLife.begin(disk, name, mistakes));
  }

  async take(taken: TreeStep): Promise<void> {
    switch (taken.kind) {
      case "createRoot":
        await this.#create(undefined, taken.gate);
        break;
      case "createChild":
        await this.#createChild(taken);
        break;
      case "compact":
        await this.#compact(taken);
        break;
      case "fork":
        await this.#fork(taken);
        break;
      case "touchCopied":
        await this.#touchCopied(taken);
        break;
      case "endSession":
        await this.#end(taken);
        break;
      case "restart":
      case "crash":
      case "loseSnapshot":
      case "retry":
        await this.#suffer(taken);
        break;
      default:
        await this.#act(taken);
    }
    await this.life.watchersLook();
  }

  async stop(): Promise<void> {
    await this.life.stop();
  }

  async #create(parent: ModelDelegation | undefined, gate: StartGate): Promise<void> {
    const request = create(CreateSessionRequestSchema, {
      requestId: this.#requestId(),
      kind:
        parent === undefined ? SessionKind.MAIN : (CHILD_KIND[parent.as] ?? SessionKind.SUBAGENT),
      ...(parent === undefined ? {} : { delegation: delegationTo(parent) }),
    });
    const mutation = { kind: "createSession", request } as const;
    const changed = parent === undefined ? [] : [parent.session];
    const reply = await this.#send(changed, () =>
      this.life.ledger.submit(TENANT_CALLER, mutation, WAITING),
    );
    const record = isRefusal(reply) ? undefined : recordOf(reply as Replies, "session");
    if (record === undefined) return;
    const session = new ModelSession(record.sessionId, parent);
    parent?.session.calls
      .find(({ toolCallId }) => toolCallId === parent.toolCallId)
      ?.children.push(session);
    await this.#begun(session, gate);
  }

  async #begun(session: ModelSession, gate: StartGate): Promise<void> {
    this.model.sessions.push(session);
    await this.life.watch(session.sessionId);
    await this.#act({ kind: "beginRun", session: 0, gate }, session);
    await this.#act({ kind: "acceptTurn", session: 0, calls: 2 }, session);
  }

  async #createChild(taken: StepOf<"createChild">): Promise<void> {
    const session = this.#pickSession(taken.session, RECENT_SESSIONS);
    const call = session && pickCall(session.calls, (one) => session.mayDelegate(one), taken.call);
    if (session === undefined || call === undefined) return;
    const mayDelegate = session.mayDelegate(call);
    const count = this.model.sessions.length;
    const { toolCallId } = call;
    await this.#create({ session, toolCallId, as: taken.as }, taken.gate);
    if (this.model.sessions.length > count !== mayDelegate) {
      throw new Error(`a delegation of ${toolCallId} was ${mayDelegate ? "refused" : "taken"}`);
    }
  }

  async #compact({ session: pick, percent }: StepOf<"compact">): Promise<void> {
    const session = this.#pickSession(pick);
    if (session === undefined) return;
    const { sessionId, compactedThrough } = session;
    const log = await this.life.events(sessionId);
    const through = Math.max(1, Math.floor((log.length * percent) / 100));
    const request = create(CompactSessionRequestSchema, {
      ...{ sessionId, requestId: this.#requestId(), summary: `summary of ${through}` },
      throughSequence: BigInt(through),
    });
    const reply = await this.#send([session], () => this.life.compact(request));
    const cut = BigInt(
      highestCut(
        log.map(({ record }) => record),
        through,
      ),
    );
    if (isRefusal(reply)) {
      const { reason } = reply;
      const isRight = session.isEnded
        ? reason === ErrorReason.SESSION_ENDED
        : reason === ErrorReason.NOTHING_TO_COMPACT &&
          reply.metadata["through_sequence"] === String(compactedThrough);
      if (isRight && (session.isEnded || cut <= compactedThrough)) return;
      throw new Error(`a compaction through ${through} was refused: ${reply.message}`);
    }
    const { throughSequence = 0n } = recordOf(reply as Replies, "compaction") ?? {};
    if (throughSequence !== cut) {
      throw new Error(`the log was cut at ${throughSequence}, not ${cut}`);
    }
    session.compactedThrough = cut;
  }

  /** No session is written to by a fork but the new one; its source's chain stays as it is. */
  async #fork({ session: pick, percent }: StepOf<"fork">): Promise<void> {
    const source = this.#pickSession(pick);
    if (source === undefined) return;
    const { sessionId, base: copiedBefore } = source;
    const events = await this.life.events(sessionId);
    const through = BigInt(Math.max(1, Math.floor((events.length * percent) / 100)));
    const request = create(ForkSessionRequestSchema, {
      ...{ sessionId, requestId: this.#requestId(), throughSequence: through },
    });
    const reply = accepted(await this.#send([], () => this.life.fork(request)));
    const forked = given(recordOf(reply as Replies, "forked"), "fork");
    const { sessionId: forkId, forkedFrom } = given(forked.session, "session");
    const point = highestPoint(events, through, copiedBefore);
    if (forkedFrom?.sequence !== point) throw new Error(`forked at ${forkedFrom?.sequence}`);
    const bytes = await this.life.body(forkId, given(forked.base, "base").bodyRef);
    const base = fromBinary(BaseStateSchema, bytes);
    const faults = baseFaults({ sessionId, events, base: copiedBefore }, point, base);
    if (faults.length > 0) throw new Error(`${forkId}: ${faults.join()}`);
    await this.#begun(new ModelSession(forkId, undefined, base), StartGate.OFF);
  }

  async #touchCopied({ session: pick, call, as }: StepOf<"touchCopied">): Promise<void> {
    const forks = this.model.sessions.filter(({ base, isEnded }) => base !== undefined && !isEnded);
    const session = pickOf(forks, pick);
    const toolCallId = session && pickOf(session.copiedIds("toolCall"), call);
    if (session === undefined || toolCallId === undefined) return;
    const reply = await this.#apply(session, aboutCall(as, toolCallId));
    const reason = isRefusal(reply) ? reply.reason : undefined;
    if (reason === ErrorReason.CALL_INHERITED) return;
    if (reason === ErrorReason.RUN_NOT_ACTIVE && session.run === undefined) return;
    throw new Error(`a copied call took a ${as}: ${isRefusal(reply) ? reply.message : ""}`);
  }

  async #end({ session: pick, cancels }: StepOf<"endSession">): Promise<void> {
    const session = this.#pickSession(pick);
    if (session === undefined) return;
    const { sessionId } = session;
    const request = create(EndSessionRequestSchema, {
      ...{ sessionId, requestId: this.#requestId(), cancelDescendants: cancels },
    });
    const changed = cancels ? this.model.treeOf(session) : [session];
    const reply = await this.#send(changed, () =>
      this.life.ending.end(TENANT_CALLER, request, WAITING),
    );
    if (isRefusal(reply) !== session.isEnded) throw new Error("an ended session ended again");
    if (isRefusal(reply)) return;
    const below = cancels ? this.model.below(session) : [];
    const expected = below.flatMap((one) => (one.isEnded ? [] : reportOf(one)));
    session.close();
    session.isEnded = true;
    const told = (reply as EndedSession).descendants;
    if (textOf(told) !== textOf(expected)) {
      throw new Error(`what ended below was told as ${textOf(told)}, not ${textOf(expected)}`);
    }
  }

  async #act(taken: ActStep, session = this.#pickSession(taken.session)): Promise<void> {
    if (session === undefined) return;
    if (taken.kind === "beginRun") return this.#begin(session, taken.gate);
    if (taken.kind === "answer") return this.#answer(session, taken);
    const call = "call" in taken ? pickCall(session.calls, isUnanswered, taken.call) : undefined;
    const command = commandOf(taken, session, call);
    if (command === undefined) return;
    const reply = await this.#apply(session, command);
    if (!isRefusal(reply)) noteCommand(taken, session, call, reply);
  }

  async #begin(session: ModelSession, gate: StartGate): Promise<void> {
    const { sessionId } = session;
    const request = create(BeginRunRequestSchema, {
      ...{ sessionId, requestId: this.#requestId(), startGate: gate },
    });
    const reply = await this.#submit(session, { kind: "beginRun", request });
    const run = isRefusal(reply) ? undefined : recordOf(reply, "run");
    if (run !== undefined) session.begin({ runId: run.runId, gate });
  }

  async #answer(session: ModelSession, { call, verdict }: StepOf<"answer">): Promise<void> {
    const { sessionId, asks } = session;
    const open = pickOf(session.openAsks, call) ?? pickOf(asks, call);
    if (open === undefined) return;
    const { askId, toolCallId } = open.ask;
    const request = create(AnswerAskRequestSchema, {
      ...{ sessionId, requestId: this.#requestId(), askId, toolCallId, verdict },
      answerToken: this.life.tokenOf(sessionId, open.ask),
    });
    const reply = await this.#submit(session, { kind: "answerAsk", request });
    if (isRefusal(reply) === open.isOpen) throw new Error(`an answer to ${askId} went wrong`);
    if (isRefusal(reply)) return;
    open.isOpen = false;
    const about = session.calls.find((one) => one.toolCallId === toolCallId);
    if (about !== undefined && verdict === Verdict.DENY) about.state = "denied";
  }

  async #suffer(taken: OutsideStep): Promise<void> {
    if (taken.kind !== "retry") return this.life.next(taken.kind);
    const sent = pickOf(this.#sent, taken.pick);
    if (sent === undefined) return;
    const reply = await this.#send([], sent.send);
    if (isRefusal(reply)) throw new Error(`a retry was refused: ${reply.message}`);
    if (replyText(reply) !== sent.reply) throw new Error("a retry was answered differently");
  }

  #apply(session: ModelSession, command: CommandInit): Promise<Replies | Refusal> {
    const { sessionId, lastRunId: runId } = session;
    const request = create(ApplyRequestSchema, {
      ...{ sessionId, requestId: this.#requestId(), runId },
      commands: [{ command }],
    });
    return this.#submit(session, { kind: "apply", request });
  }

  async #submit(session: ModelSession, mutation: SessionMutation): Promise<Replies | Refusal> {
    const reply = await this.#send([session], () =>
      this.life.ledger.submit(TENANT_CALLER, mutation, WAITING),
    );
    return reply as Replies | Refusal;
  }

  /** Sends a request that may write to some sessions: to no other one, and to none if it is refused. */
  async #send(changed: readonly ModelSession[], send: Sent["send"]): Promise<Reply | Refusal> {
    const before = await this.#heads();
    const reply = await send();
    const after = await this.#heads();
    for (const [session, head] of before) {
      if (after.get(session) === head || (changed.includes(session) && !isRefusal(reply))) continue;
      const what = isRefusal(reply) ? `was refused: ${reply.message}` : "is not about it";
      throw new Error(`${session.sessionId} was written to by a request that ${what}`);
    }
    if (!isRefusal(reply)) this.#sent.push({ send, reply: replyText(reply) });
    return reply;
  }

  async #heads(): Promise<ReadonlyMap<ModelSession, string>> {
    const heads = new Map<ModelSession, string>();
    for (const session of this.model.sessions) {
      heads.set(session, await this.life.headOf(session.sessionId));
    }
    return heads;
  }

  /** Mostly one of the newest that take commands. */
  #pickSession(pick: number, newest = Infinity): ModelSession | undefined {
    const living = this.model.sessions.filter(({ isEnded }) => !isEnded);
    return pickOf(pick % 8 === 0 ? this.model.sessions : living.slice(-newest), pick);
  }

  #requestId(): string {
    this.#requests += 1;
    return `request ${this.#requests}`;
  }
}

/** What ends in a session because one above it does, as the reply tells it. */
function reportOf(session: ModelSession): CancelledDescendant[] {
  const { sessionId } = session;
  const { runId, calls: endedToolCallCount, asks: withdrawnAskCount } = session.close();
  if (runId === undefined && endedToolCallCount === 0) return [];
  const counts = { endedToolCallCount, withdrawnAskCount };
  const ofRun = runId === undefined ? {} : { runId };
  return [create(CancelledDescendantSchema, { sessionId, ...ofRun, ...counts })];
}
