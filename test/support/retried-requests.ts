import { create, toBinary } from "@bufbuild/protobuf";
import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import {
  ApplyResponseSchema,
  BeginRunResponseSchema,
  CommandResultSchema,
  TakeOver,
  type CommandResult,
} from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { AnswerAskResponseSchema } from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskKind, AskProvenance } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { ReceiptPath, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { ReviewJob } from "../../gen/toolmark/v1/review_pb.js";
import { MessageRole, RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { CreateSessionResponseSchema } from "../../gen/toolmark/v1/session_service_pb.js";
import { ToolCallState, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  answer,
  answerTo,
  openAsk,
  park,
  publishReview,
  reviewOf,
  showAsk,
  startCall,
} from "./asking.js";
import {
  acceptCall,
  acceptTurn,
  bytes,
  createSession,
  given,
  newCall,
  of,
  openRun,
  publishHook,
  type CommandInit,
  type OpenRun,
} from "./conversation.js";
import { endSession, RETRIED_STRUCTURE } from "./retried-structure.js";
import type { Clients } from "./service.js";

/** Sends one request under an id; gives the encoded reply. */
export type Way = (clients: Clients, requestId: string) => Promise<Uint8Array>;

/** A request that may be sent again, after what it needs was put in place. */
export interface Prepared {
  /** Every way to send the same request. */
  readonly ways: readonly Way[];
  /** Absent if the request makes the session. */
  readonly sessionId: string | undefined;
  /** Requests that are not equal to it, by the same method. Absent: whatever ends the session. */
  readonly others?: readonly Way[];
}

export interface Retried {
  readonly name: string;
  readonly prepare: (clients: Clients) => Promise<Prepared>;
}

const TEXT = { data: bytes("text") };
const ANTHROPIC_RESPONSE = `{"type":"message","role":"assistant","content":[
  {"type":"text","text":"Looking."},
  {"type":"tool_use","id":"toolu_1","name":"bash","input":{"command":"ls"}}]}`;
const HOOK = { phase: "session_start", decision: HookDecision.INFO };

/** Sends a command by its own method. */
export async function sendAlone(
  { calls, evidence, replays, runs }: Clients,
  head: OpenRun & { requestId: string },
  { case: kind, value: command }: CommandInit,
): Promise<CommandResult["result"]> {
  switch (kind) {
    case "recordMessage":
      return { case: kind, value: await evidence.recordMessage({ ...head, command }) };
    case "publishHook":
      return { case: kind, value: await evidence.publishHook({ ...head, command }) };
    case "acceptTurn":
      return { case: kind, value: await calls.acceptTurn({ ...head, command }) };
    case "acceptProviderTurn":
      return { case: kind, value: await replays.acceptProviderTurn({ ...head, command }) };
    case "amendToolCall":
      return { case: kind, value: await calls.amendToolCall({ ...head, command }) };
    case "startToolCall":
      return { case: kind, value: await calls.startToolCall({ ...head, command }) };
    case "recordResult":
      return { case: kind, value: await calls.recordResult({ ...head, command }) };
    case "reconcileToolCall":
      return { case: kind, value: await calls.reconcileToolCall({ ...head, command }) };
    case "openAsk":
      return { case: kind, value: await calls.openAsk({ ...head, command }) };
    case "withdrawAsk":
      return { case: kind, value: await calls.withdrawAsk({ ...head, command }) };
    case "settleAsk":
      return { case: kind, value: await calls.settleAsk({ ...head, command }) };
    case "parkToolCall":
      return { case: kind, value: await calls.parkToolCall({ ...head, command }) };
    case "settleAuthorization":
      return { case: kind, value: await calls.settleAuthorization({ ...head, command }) };
    case "publishReview":
      return { case: kind, value: await evidence.publishReview({ ...head, command }) };
    case "endRun":
      return { case: kind, value: await runs.endRun({ ...head, command }) };
  }
}

function encodeResult(result: CommandResult["result"] | undefined): Uint8Array {
  return toBinary(CommandResultSchema, create(CommandResultSchema, result ? { result } : {}));
}

/** A command of a run: by its own method, and as an Apply of one. */
function commandOfRun(
  name: string,
  init: (clients: Clients, run: OpenRun) => CommandInit | Promise<CommandInit>,
  gate = StartGate.OFF,
): Retried {
  return {
    name,
    prepare: async (clients) => {
      const run = await openRun(clients, gate);
      const prepared = await init(clients, run);
      const alone: Way = async (by, id) => encodeResult(await sendAlone(by, of(run, id), prepared));
      const inApply: Way = async (by, id) => {
        const commands = [{ command: prepared }];
        const { results } = await by.runs.apply({ ...of(run, id), commands });
        return encodeResult(results[0]?.result);
      };
      return { sessionId: run.sessionId, ways: [alone, inApply] };
    },
  };
}

function canonical(
  toolCallId: string,
  value: { end?: ToolCallState; content?: typeof TEXT; blockedByHookId?: string },
): CommandInit {
  return { case: "recordResult", value: { toolCallId, result: { case: "canonical", value } } };
}

function amend({ toolCallId }: ToolCall, text: string): CommandInit {
  return { case: "amendToolCall", value: { toolCallId, effective: { data: bytes(text) } } };
}

async function endRun(clients: Clients, run: OpenRun): Promise<void> {
  await clients.runs.endRun({ ...of(run), command: { outcome: RunOutcome.FAILED } });
}

const RESULTS: readonly Retried[] = [
  commandOfRun("RecordResult of a part", async (clients, run) => {
    const { toolCallId } = await acceptCall(clients, run);
    const result = { case: "provisional" as const, value: { chunk: bytes("part") } };
    return { case: "recordResult", value: { toolCallId, result } };
  }),
  commandOfRun("RecordResult", async (clients, run) =>
    canonical((await acceptCall(clients, run)).toolCallId, { content: TEXT }),
  ),
  commandOfRun("RecordResult of an empty result", async (clients, run) =>
    canonical((await acceptCall(clients, run)).toolCallId, {
      content: { data: new Uint8Array(0) },
    }),
  ),
  ...[ToolCallState.FAILED, ToolCallState.TIMED_OUT].map((end) =>
    commandOfRun(`RecordResult ${ToolCallState[end]} with a synthetic text`, async (clients, run) =>
      canonical((await acceptCall(clients, run)).toolCallId, { end }),
    ),
  ),
  commandOfRun("RecordResult WITHHELD", async (clients, run) =>
    canonical((await acceptCall(clients, run)).toolCallId, {
      ...{ content: TEXT, end: ToolCallState.WITHHELD },
    }),
  ),
  commandOfRun("RecordResult BLOCKED", async (clients, run) => {
    const { toolCallId } = await acceptCall(clients, run);
    const { hookId: blockedByHookId } = await publishHook(clients, run, toolCallId);
    return canonical(toolCallId, { end: ToolCallState.BLOCKED, blockedByHookId });
  }),
  commandOfRun("RecordResult of a late result", async (clients, run) => {
    const { toolCallId } = await acceptCall(clients, run);
    await endRun(clients, run);
    return canonical(toolCallId, { content: TEXT });
  }),
];

async function startOf(clients: Clients, run: OpenRun, toolCallId: string): Promise<CommandInit> {
  const { toolCall } = await clients.history.getToolCall({ sessionId: run.sessionId, toolCallId });
  const argumentsSha256 = given(given(toolCall, "call").effective, "body").sha256;
  return { case: "startToolCall", value: { toolCallId, argumentsSha256 } };
}

/** A new call that waits for an answer. */
async function askedCall(clients: Clients, run: OpenRun) {
  const call = await acceptCall(clients, run);
  return { call, ask: await openAsk(clients, run, call.toolCallId) };
}

const ASK = { kind: AskKind.ACTION, provenance: AskProvenance.PERMISSION };
const RELEASE = { kind: AskKind.RESULT_RELEASE, provenance: AskProvenance.HOOK_GUARDRAIL };
const HELD = { heldSha256: new Uint8Array(32).fill(7), heldSizeBytes: 4n };

const ASKS: readonly Retried[] = [
  commandOfRun("OpenAsk", async (clients, run) => {
    const { toolCallId } = await acceptCall(clients, run);
    const expireTime = { seconds: 253_000_000_000n, nanos: 0 };
    return { case: "openAsk", value: { ...ASK, toolCallId, prompt: "May it?", expireTime } };
  }),
  commandOfRun("OpenAsk that replaces another", async (clients, run) => {
    const { toolCallId } = (await askedCall(clients, run)).call;
    const review = reviewOf(toolCallId, { job: ReviewJob.PERMISSION });
    const { hookId: reviewId } = await publishReview(clients, run, review);
    return { case: "openAsk", value: { ...ASK, toolCallId, reviewId } };
  }),
  commandOfRun("OpenAsk of a release", async (clients, run) => {
    const { toolCallId } = await acceptCall(clients, run);
    await startCall(clients, run, toolCallId);
    return { case: "openAsk", value: { ...RELEASE, ...HELD, toolCallId } };
  }),
  commandOfRun("WithdrawAsk", async (clients, run) => {
    const { askId } = (await askedCall(clients, run)).ask;
    return { case: "withdrawAsk", value: { askId, reason: "no need" } };
  }),
  commandOfRun("SettleAsk by a rule that allows", async (clients, run) => {
    const { askId } = (await askedCall(clients, run)).ask;
    const by = { path: ReceiptPath.RULE, rule: "rule 1" };
    return { case: "settleAsk", value: { askId, ...by, verdict: Verdict.ALLOW_ALWAYS } };
  }),
  commandOfRun("SettleAsk by a hook that denies", async (clients, run) => {
    const { call, ask } = await askedCall(clients, run);
    const { hookId } = await publishHook(clients, run, call.toolCallId);
    const by = { path: ReceiptPath.HOOK, hookId };
    return { case: "settleAsk", value: { askId: ask.askId, ...by, verdict: Verdict.DENY } };
  }),
  commandOfRun("StartToolCall that spends an allow", async (clients, run) => {
    const { call, ask } = await askedCall(clients, run);
    await answer(clients, ask);
    return startOf(clients, run, call.toolCallId);
  }),
  commandOfRun("AmendToolCall of a call that waits for an answer", async (clients, run) =>
    amend((await askedCall(clients, run)).call, '{"command":"ls -l"}'),
  ),
  commandOfRun("RecordResult of the text of a denied call", async (clients, run) => {
    const { call, ask } = await askedCall(clients, run);
    await answer(clients, ask, Verdict.DENY);
    return canonical(call.toolCallId, { content: TEXT });
  }),
  commandOfRun("RecordResult BLOCKED of a call that waits for an answer", async (clients, run) => {
    const { toolCallId } = (await askedCall(clients, run)).call;
    const { hookId: blockedByHookId } = await publishHook(clients, run, toolCallId);
    return canonical(toolCallId, { end: ToolCallState.BLOCKED, blockedByHookId });
  }),
];

/** A new turn of two calls, the first parked and the second behind it. */
async function parkedTurn(clients: Clients, run: OpenRun) {
  const [first, second] = await acceptTurn(clients, run, [newCall("a"), newCall("b")]);
  const deferredToolCallIds = [given(second, "call").toolCallId];
  return park(clients, run, given(first, "call").toolCallId, { deferredToolCallIds });
}

const AUTHORIZATIONS: readonly Retried[] = [
  commandOfRun("ParkToolCall with a call behind it", async (clients, run) => {
    const [first, second] = await acceptTurn(clients, run, [newCall("a"), newCall("b")]);
    const deferredToolCallIds = [given(second, "call").toolCallId];
    const { toolCallId } = given(first, "call");
    return {
      case: "parkToolCall",
      value: { toolCallId, displayName: "calendar", deferredToolCallIds },
    };
  }),
  ...[AuthorizationState.GRANTED, AuthorizationState.DENIED].map((outcome) =>
    commandOfRun(`SettleAuthorization ${AuthorizationState[outcome]}`, async (clients, run) => {
      const { authorizationId } = await parkedTurn(clients, run);
      return { case: "settleAuthorization", value: { authorizationId, outcome } };
    }),
  ),
];

const REVIEWS: readonly Retried[] = [
  commandOfRun("PublishReview", async (clients, run) => {
    const { toolCallId } = await acceptCall(clients, run);
    return { case: "publishReview", value: reviewOf(toolCallId, {}, { detail: "why" }) };
  }),
  commandOfRun("PublishReview that updates", async (clients, run) => {
    const { toolCallId } = await acceptCall(clients, run);
    await publishReview(clients, run, reviewOf(toolCallId, { checker: "first" }));
    return { case: "publishReview", value: reviewOf(toolCallId, { checker: "second" }) };
  }),
];

function answerAsk(verdict: Verdict): Retried {
  return {
    name: `AnswerAsk ${Verdict[verdict]}`,
    prepare: async (clients) => {
      const run = await openRun(clients);
      const { sessionId } = run;
      const { ask } = await askedCall(clients, run);
      const request = answerTo(await showAsk(clients, sessionId, ask.askId), verdict);
      const way: Way = async ({ approvals }, requestId) => {
        const reply = await approvals.answerAsk({ ...request, requestId });
        return toBinary(AnswerAskResponseSchema, reply);
      };
      return { sessionId, ways: [way] };
    },
  };
}

const COMMANDS: readonly Retried[] = [
  commandOfRun("RecordMessage", () => ({
    case: "recordMessage",
    value: { role: MessageRole.USER, content: TEXT },
  })),
  commandOfRun("AcceptTurn", () => ({
    case: "acceptTurn",
    value: { provider: "p", model: "m", calls: [newCall("a"), newCall("b"), newCall("")] },
  })),
  commandOfRun("AcceptProviderTurn", () => ({
    case: "acceptProviderTurn",
    value: {
      wire: ProviderWire.ANTHROPIC_MESSAGES,
      payload: { data: bytes(ANTHROPIC_RESPONSE) },
      provider: "p",
      model: "m",
    },
  })),
  commandOfRun("AmendToolCall", async (clients, run) =>
    amend(await acceptCall(clients, run), '{"command":"ls -l"}'),
  ),
  commandOfRun("AmendToolCall that changes nothing", async (clients, run) =>
    amend(await acceptCall(clients, run), '{"command":"ls"}'),
  ),
  commandOfRun(
    "StartToolCall",
    async (clients, run) => startOf(clients, run, (await acceptCall(clients, run)).toolCallId),
    StartGate.REQUIRED,
  ),
  ...RESULTS,
  commandOfRun("ReconcileToolCall", async (clients, run) => {
    const { toolCallId } = await acceptCall(clients, run);
    await endRun(clients, run);
    const end = ToolCallState.COMPLETED;
    return { case: "reconcileToolCall", value: { toolCallId, end, content: TEXT } };
  }),
  commandOfRun("PublishHook", async (clients, run) => {
    const { toolCallId } = await acceptCall(clients, run);
    return { case: "publishHook", value: { ...HOOK, toolCallId } };
  }),
  commandOfRun("EndRun with calls that it ends", async (clients, run) => {
    const [first] = await acceptTurn(clients, run, [newCall("a"), newCall("b")]);
    const notRunToolCallIds = [given(first, "call").toolCallId];
    return { case: "endRun", value: { outcome: RunOutcome.CANCELLED, notRunToolCallIds } };
  }),
  ...ASKS,
  ...AUTHORIZATIONS,
  ...REVIEWS,
  commandOfRun("EndRun with calls that wait", async (clients, run) => {
    await askedCall(clients, run);
    await parkedTurn(clients, run);
    return { case: "endRun", value: { outcome: RunOutcome.CANCELLED } };
  }),
  commandOfRun("EndRun that parks", async (clients, run) => {
    await acceptCall(clients, run);
    return { case: "endRun", value: { outcome: RunOutcome.PARKED } };
  }),
];

function beginRun(name: string, takeOver?: TakeOver): Retried {
  return {
    name,
    prepare: async (clients) => {
      const run = takeOver === undefined ? undefined : await openRun(clients);
      if (run !== undefined) await acceptCall(clients, run, newCall("a"));
      const sessionId = run?.sessionId ?? (await createSession(clients));
      const rest = { sessionId, startGate: StartGate.OFF };
      const request = takeOver === undefined ? rest : { ...rest, takeOver };
      const way: Way = async ({ runs }, requestId) =>
        toBinary(BeginRunResponseSchema, await runs.beginRun({ ...request, requestId }));
      return { sessionId, ways: [way] };
    },
  };
}

/** Every mutating request that this server answers. */
export const RETRIED: readonly Retried[] = [
  {
    name: "CreateSession",
    prepare: async () => {
      const request = { kind: SessionKind.MAIN, title: "t", labels: [{ key: "k", value: "v" }] };
      const way: Way = async ({ sessions }, requestId) => {
        const reply = await sessions.createSession({ ...request, requestId });
        return toBinary(CreateSessionResponseSchema, reply);
      };
      return { sessionId: undefined, ways: [way] };
    },
  },
  {
    name: "EndSession",
    prepare: async (clients) => {
      const run = await openRun(clients);
      await acceptCall(clients, run);
      const { sessionId } = run;
      return { sessionId, ways: [endSession(sessionId, false)] };
    },
  },
  ...RETRIED_STRUCTURE,
  answerAsk(Verdict.ALLOW_ONCE),
  answerAsk(Verdict.DENY),
  beginRun("BeginRun"),
  beginRun("BeginRun that ends another", TakeOver.END),
  beginRun("BeginRun that resumes another", TakeOver.RESUME),
  ...COMMANDS,
  {
    name: "Apply of several commands",
    prepare: async (clients) => {
      const run = await openRun(clients);
      const call = await acceptCall(clients, run, newCall("a"));
      const { toolCallId } = await acceptCall(clients, run, newCall("c"));
      const { ask } = await askedCall(clients, run);
      const rule = { path: ReceiptPath.RULE, rule: "rule 1", verdict: Verdict.DENY };
      const list: CommandInit[] = [
        { case: "publishReview", value: reviewOf(ask.toolCallId) },
        { case: "openAsk", value: { ...ASK, toolCallId } },
        { case: "settleAsk", value: { askId: ask.askId, ...rule } },
        { case: "publishHook", value: { ...HOOK, toolCallId: call.toolCallId } },
        amend(call, '{"command":"ls -l"}'),
        amend(call, '{"command":"ls -l"}'),
        canonical(call.toolCallId, { content: TEXT }),
        { case: "acceptTurn", value: { calls: [newCall("a"), newCall("b")] } },
        { case: "endRun", value: { outcome: RunOutcome.COMPLETED } },
      ];
      const commands = list.map((each) => ({ command: each }));
      const way: Way = async ({ runs }, requestId) =>
        toBinary(ApplyResponseSchema, await runs.apply({ ...of(run, requestId), commands }));
      return { sessionId: run.sessionId, ways: [way] };
    },
  },
];
