import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs, type Timestamp } from "@bufbuild/protobuf/wkt";
import type { TakeOver } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import type { AnswerAskRequestSchema } from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskKind, AskProvenance, AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import type { Authorization } from "../../gen/toolmark/v1/authorization_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { ReceiptPath } from "../../gen/toolmark/v1/receipt_pb.js";
import { ReviewAssessment, ReviewInspection, ReviewJob } from "../../gen/toolmark/v1/review_pb.js";
import { MessageRole, RunOutcome, type StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { ToolCallState, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { unreachable } from "../../src/domain/invariant.js";
import { sha256 } from "../../src/domain/sha256.js";
import type { CommandInit } from "./decider.js";
import type { CallStep, CommandStep, RuleStep, WrongReference } from "./ledger-steps.js";
import type { RecordLog } from "./record-log.js";

type AnswerInit = MessageInitShape<typeof AnswerAskRequestSchema>;

/** What a step comes to. */
export type Action =
  | {
      readonly kind: "beginRun";
      readonly gate: StartGate;
      readonly takeOver: TakeOver | undefined;
    }
  | { readonly kind: "command"; readonly command: CommandInit }
  | {
      readonly kind: "answer";
      /** Of an ask that is open, with every reference its own. Its time may be over. */
      readonly isRight: boolean;
      readonly request: AnswerInit;
    }
  | { readonly kind: "jump"; readonly byMs: number }
  | { readonly kind: "expire"; readonly dueIds: readonly string[] }
  | { readonly kind: "endSession" };

/** What a step sees. */
export interface Scene {
  readonly log: RecordLog;
  readonly nowMs: number;
  readonly tokenOf: (ask: Ask) => string;
}

export function bytes(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}

export function actionOf(taken: RuleStep, scene: Scene): Action | undefined {
  switch (taken.kind) {
    case "beginRun":
    case "jump":
    case "endSession":
      return taken;
    case "answer":
      return answerOf(taken, scene);
    case "expire": {
      const waiting = [...scene.log.openAsks(), ...scene.log.pendingAuthorizations()];
      const chosen = taken.named ? pickOf(waiting, taken.pick) : undefined;
      return { kind: "expire", dueIds: chosen === undefined ? [] : [waitingId(chosen)] };
    }
    default:
      return { kind: "command", command: commandOf(taken, scene) };
  }
}

function waitingId(record: Ask | Authorization): string {
  return record.$typeName === "toolmark.v1.Ask" ? record.askId : record.authorizationId;
}

function pickOf<T>(all: readonly T[], pick: number): T | undefined {
  return all[pick % Math.max(1, all.length)];
}

/** Mostly one of those that something can still become of, now and then any. */
function pickLiving<T>(
  all: readonly T[],
  isLiving: (one: T) => boolean,
  pick: number,
): T | undefined {
  const living = all.filter(isLiving);
  return pickOf(pick % 5 === 4 || living.length === 0 ? all : living, Math.floor(pick / 5));
}

function pickCall({ log }: Scene, pick: number): ToolCall | undefined {
  return pickLiving([...log.calls.values()], ({ result }) => result === undefined, pick);
}

function pickAsk({ log }: Scene, pick: number): Ask | undefined {
  return pickLiving([...log.asks.values()], ({ state }) => state === AskState.OPEN, pick);
}

type AnswerStep = Extract<RuleStep, { kind: "answer" }>;

function answerOf({ pick, verdict, wrong }: AnswerStep, scene: Scene): Action | undefined {
  const ask = pickAsk(scene, pick);
  if (ask === undefined) return undefined;
  const { askId, toolCallId, reviewId } = ask;
  const right: AnswerInit = {
    askId,
    answerToken: scene.tokenOf(ask),
    toolCallId,
    ...(reviewId === undefined ? {} : { reviewId }),
    verdict,
    presentedSha256: ask.presented?.sha256 ?? new Uint8Array(0),
  };
  const changed = wrong === undefined ? {} : wrongReference(wrong, ask, scene);
  const isRight = wrong === undefined && ask.state === AskState.OPEN;
  return { kind: "answer", isRight, request: { ...right, ...changed } };
}

/** A reference that would fit another ask, where there is one. */
function wrongReference(wrong: WrongReference, ask: Ask, { log, tokenOf }: Scene): AnswerInit {
  const other = [...log.asks.values()].find(({ askId }) => askId !== ask.askId);
  const otherCall = [...log.calls.keys()].find((id) => id !== ask.toolCallId);
  switch (wrong) {
    case "token":
      return { answerToken: other === undefined ? "" : tokenOf(other) };
    case "call":
      return { toolCallId: otherCall ?? "tc_none" };
    case "review":
      return { reviewId: "rv_none" };
    case "digest":
      return { presentedSha256: sha256(bytes("shown to nobody")) };
  }
}

function commandOf(taken: CommandStep, scene: Scene): CommandInit {
  switch (taken.kind) {
    case "message":
      return {
        case: "recordMessage",
        value: { role: MessageRole.USER, content: { data: bytes("hello") } },
      };
    case "acceptTurn":
      return { case: "acceptTurn", value: { calls: taken.providerIds.map(newCall) } };
    case "endRun":
      return endRunOf(taken, scene);
    case "withdraw":
    case "settle":
      return settlingOf(taken, scene);
    case "settleAuthorization": {
      const { log } = scene;
      const all = [...log.authorizations.values()];
      const pending = new Set(log.pendingAuthorizations());
      const chosen = pickLiving(all, (authorization) => pending.has(authorization), taken.pick);
      const authorizationId = chosen?.authorizationId ?? "aut_none";
      return { case: taken.kind, value: { authorizationId, outcome: taken.outcome } };
    }
    default:
      return commandOfCall(taken, scene);
  }
}

function commandOfCall(taken: CallStep, scene: Scene): CommandInit {
  const call = pickCall(scene, taken.pick);
  const toolCallId = call?.toolCallId ?? "tc_none";
  switch (taken.kind) {
    case "amend": {
      const effective = { data: bytes(`{"amended":${taken.salt}}`) };
      return { case: "amendToolCall", value: { toolCallId, effective } };
    }
    case "start": {
      const right = call?.effective?.sha256 ?? sha256(bytes(""));
      const argumentsSha256 = taken.salt === 0 ? sha256(bytes("wrong")) : right;
      return { case: "startToolCall", value: { toolCallId, argumentsSha256 } };
    }
    case "reconcile": {
      const ends = [ToolCallState.COMPLETED, ToolCallState.CANCELLED, ToolCallState.TIMED_OUT];
      const end = ends[taken.salt] ?? ToolCallState.FAILED;
      const content = { data: bytes("found") };
      return { case: "reconcileToolCall", value: { toolCallId, end, content } };
    }
    case "provisional": {
      const result = { case: taken.kind, value: { chunk: bytes("part") } };
      return { case: "recordResult", value: { toolCallId, result } };
    }
    case "hook":
      return { case: "publishHook", value: hookOf(call) };
    case "review":
      return reviewOf(taken, toolCallId);
    case "result":
      return resultOf(taken, toolCallId, scene);
    case "openAsk":
      return openAskOf(taken, toolCallId, scene);
    case "park":
      return parkOf(taken, call, scene);
    default:
      return unreachable(taken);
  }
}

function newCall(providerCallId: string) {
  const pairing = { providerCallId };
  return { toolName: "bash", arguments: { data: bytes('{"command":"ls"}') }, pairing };
}

type Taken<Kind extends RuleStep["kind"]> = Extract<RuleStep, { kind: Kind }>;

function endRunOf({ outcome, listed }: Taken<"endRun">, { log }: Scene): CommandInit {
  const open = [...log.calls.values()].filter(({ result }) => result === undefined);
  const id = open[Math.floor(listed / 2) % Math.max(1, open.length * 2)]?.toolCallId;
  const list = listed % 2 === 0 ? "notRunToolCallIds" : "interruptedToolCallIds";
  const lists = id === undefined || outcome === RunOutcome.PARKED ? {} : { [list]: [id] };
  return { case: "endRun", value: { outcome, ...lists } };
}

function settlingOf(taken: Taken<"withdraw" | "settle">, scene: Scene): CommandInit {
  const ask = pickAsk(scene, taken.pick);
  const askId = ask?.askId ?? "ask_none";
  if (taken.kind === "withdraw") return { case: "withdrawAsk", value: { askId } };
  const { verdict, byHook } = taken;
  const by = byHook
    ? { path: ReceiptPath.HOOK, hookId: hookOfCall(scene, ask?.toolCallId) }
    : { path: ReceiptPath.RULE, rule: "allow ls" };
  return { case: "settleAsk", value: { askId, verdict, ...by } };
}

function hookOfCall({ log }: Scene, toolCallId: string | undefined): string {
  const hooks = [...log.hooks.values()];
  const own = hooks.find((hook) => hook.toolCallId === toolCallId && hook.review === undefined);
  return own?.hookId ?? hooks[0]?.hookId ?? "hk_none";
}

function hookOf(call: ToolCall | undefined) {
  const decision = HookDecision.BLOCKED;
  if (call === undefined) return { phase: "session_start", decision, text: "no" };
  return { toolCallId: call.toolCallId, phase: "pre_tool_use", decision, text: "no" };
}

function reviewOf({ job, disposition }: Taken<"review">, toolCallId: string): CommandInit {
  const assessment = ReviewAssessment.PROHIBITED;
  const inspection = ReviewInspection.COMPLETE;
  const review = { job, assessment, inspection, disposition, checker: "guard" };
  return { case: "publishReview", value: { toolCallId, phase: "review", review } };
}

function resultOf({ end, bare }: Taken<"result">, toolCallId: string, scene: Scene): CommandInit {
  const needsContent = end === ToolCallState.UNSPECIFIED || end === ToolCallState.WITHHELD;
  const content = { content: { data: bytes(`result of ${toolCallId}`) } };
  const value = {
    end,
    ...(needsContent || !bare ? content : {}),
    ...(end === ToolCallState.BLOCKED ? { blockedByHookId: hookOfCall(scene, toolCallId) } : {}),
  };
  const result = { case: "canonical" as const, value };
  return { case: "recordResult", value: { toolCallId, result } };
}

function openAskOf(taken: Taken<"openAsk">, toolCallId: string, scene: Scene): CommandInit {
  const { asks: kind, lifeMs, reviewed, other } = taken;
  const held = bytes(other ? "other" : `result of ${toolCallId}`);
  const reviewId = reviewed ? reviewOfCall(scene, toolCallId, kind) : undefined;
  const heldResult = { heldSha256: sha256(held), heldSizeBytes: BigInt(held.length) };
  return {
    case: "openAsk",
    value: {
      toolCallId,
      kind,
      provenance: AskProvenance.PERMISSION,
      ...(reviewId === undefined ? {} : { reviewId }),
      ...expireIn(scene, lifeMs),
      ...(kind === AskKind.RESULT_RELEASE ? heldResult : {}),
    },
  };
}

function reviewOfCall({ log }: Scene, toolCallId: string, kind: AskKind): string | undefined {
  const isInbound = kind === AskKind.RESULT_RELEASE;
  const fitting = [...log.hooks.values()].find(
    ({ review, toolCallId: about }) =>
      about === toolCallId &&
      review !== undefined &&
      (review.job === ReviewJob.INBOUND) === isInbound,
  );
  return fitting?.hookId;
}

function expireIn({ nowMs }: Scene, lifeMs: number | undefined): { expireTime?: Timestamp } {
  return lifeMs === undefined ? {} : { expireTime: timestampFromMs(nowMs + lifeMs) };
}

const UNRESOLVED: ReadonlySet<ToolCallState> = new Set([
  ToolCallState.ACCEPTED,
  ToolCallState.AWAITING_ANSWER,
  ToolCallState.AWAITING_AUTHORIZATION,
]);

function parkOf(taken: Taken<"park">, call: ToolCall | undefined, scene: Scene): CommandInit {
  const { calls, asks } = scene.log;
  const held = new Set(
    [...asks.values()].flatMap(({ kind, toolCallId }) =>
      kind === AskKind.RESULT_RELEASE ? [toolCallId] : [],
    ),
  );
  const siblings = [...calls.values()].filter(
    ({ toolCallId, turnId, index, state }) =>
      turnId === call?.turnId &&
      index > call.index &&
      UNRESOLVED.has(state) &&
      (taken.behind === "held too" || !held.has(toolCallId)),
  );
  const named = siblings.map(({ toolCallId }) => toolCallId);
  return {
    case: "parkToolCall",
    value: {
      toolCallId: call?.toolCallId ?? "tc_none",
      displayName: "the other side",
      deferredToolCallIds: taken.behind === "wrong" ? [...named, "tc_none"] : named,
      ...expireIn(scene, taken.lifeMs),
    },
  };
}
