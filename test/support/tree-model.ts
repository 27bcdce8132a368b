import type { Ask } from "../../gen/toolmark/v1/ask_pb.js";
import type { BaseState } from "../../gen/toolmark/v1/base_state_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import type { DelegationKind } from "../../gen/toolmark/v1/session_pb.js";
import { copiedIn, idOf } from "./forking.js";

/** A call as far as its place in a tree matters. */
export interface ModelCall {
  readonly toolCallId: string;
  /** Whether it has its result, or was denied and has none yet. */
  state: "open" | "denied" | "answered";
  hasStarted: boolean;
  /** In the order of creation. */
  readonly children: ModelSession[];
}

interface ModelAsk {
  readonly ask: Ask;
  isOpen: boolean;
}

interface ModelRun {
  readonly runId: string;
  readonly gate: StartGate;
}

/** Where a session works for another one. */
export interface ModelParent {
  readonly session: ModelSession;
  readonly toolCallId: string;
}

/** How a session comes to work for another one. */
export interface ModelDelegation extends ModelParent {
  readonly as: DelegationKind;
}

/** What is known of a session without looking into its log. */
export class ModelSession {
  /** In the order of acceptance. */
  readonly calls: ModelCall[] = [];
  /** In the order of opening. */
  readonly asks: ModelAsk[] = [];
  readonly hookIds: string[] = [];
  run: ModelRun | undefined;
  /** Of the run that was begun last, active or not: results may still come from it. */
  lastRunId = "run_none";
  isEnded = false;
  compactedThrough = 0n;

  constructor(
    readonly sessionId: string,
    readonly parent: ModelParent | undefined,
    /** What a fork copied. */
    readonly base?: BaseState,
  ) {}

  /** The ids of all calls, first of those that were copied, in the order of acceptance. */
  get callIds(): string[] {
    return [...this.copiedIds("toolCall"), ...this.calls.map(({ toolCallId }) => toolCallId)];
  }

  /** The ids of all hook records, first of those that were copied. */
  get allHookIds(): string[] {
    return [...this.copiedIds("hook"), ...this.hookIds];
  }

  copiedIds(kind: "toolCall" | "hook"): string[] {
    const copied = this.base === undefined ? [] : copiedIn(this.base);
    return copied.flatMap((record) => (record.case === kind ? (idOf(record) ?? []) : []));
  }

  /** The delegating calls from the root on. */
  get path(): readonly { readonly sessionId: string; readonly toolCallId: string }[] {
    if (this.parent === undefined) return [];
    const { session, toolCallId } = this.parent;
    return [...session.path, { sessionId: session.sessionId, toolCallId }];
  }

  isBelow(other: ModelSession): boolean {
    const above = this.parent?.session;
    return above !== undefined && (above === other || above.isBelow(other));
  }

  get unanswered(): ModelCall[] {
    return this.calls.filter(({ state }) => state !== "answered");
  }

  get openAsks(): ModelAsk[] {
    return this.asks.filter(({ isOpen }) => isOpen);
  }

  openAskOf({ toolCallId }: ModelCall): ModelAsk | undefined {
    return this.openAsks.find(({ ask }) => ask.toolCallId === toolCallId);
  }

  /** Whether a session may be made to work for the call now. */
  mayDelegate(call: ModelCall): boolean {
    if (this.isEnded || call.state !== "open" || this.openAskOf(call) !== undefined) return false;
    return call.hasStarted || this.run?.gate === StartGate.OFF;
  }

  begin(run: ModelRun): void {
    this.run = run;
    this.lastRunId = run.runId;
  }

  /** Everything that waits or is unfinished ends. Whether there was anything. */
  close(): { readonly runId: string | undefined; readonly calls: number; readonly asks: number } {
    const closed = {
      runId: this.run?.runId,
      calls: this.unanswered.length,
      asks: this.openAsks.length,
    };
    for (const call of this.calls) call.state = "answered";
    for (const ask of this.asks) ask.isOpen = false;
    this.run = undefined;
    return closed;
  }
}

export function delegationTo({ session, toolCallId, as }: ModelDelegation) {
  return { parentSessionId: session.sessionId, parentToolCallId: toolCallId, kind: as };
}

/** Trees of sessions. */
export class TreeModel {
  /** In the order of creation. */
  readonly sessions: ModelSession[] = [];

  below(session: ModelSession): ModelSession[] {
    return this.sessions.filter((other) => other.isBelow(session));
  }

  /** The session and those below it, in the order of creation. */
  treeOf(session: ModelSession): ModelSession[] {
    return this.sessions.filter((other) => other === session || other.isBelow(session));
  }
}
