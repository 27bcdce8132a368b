import { create, toBinary } from "@bufbuild/protobuf";
import {
  ApplyResponseSchema,
  BeginRunResponseSchema,
  CommandResultSchema,
  TakeOver,
  type CommandResult,
} from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { MessageRole, RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import {
  CreateSessionResponseSchema,
  EndSessionResponseSchema,
} from "../../gen/toolmark/v1/session_service_pb.js";
import { ToolCallState, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
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
import type { Clients } from "./service.js";

/** Sends one request under an id; gives the encoded reply. */
export type Way = (clients: Clients, requestId: string) => Promise<Uint8Array>;

/** A request that may be sent again, after what it needs was put in place. */
export interface Prepared {
  /** Every way to send the same request. */
  readonly ways: readonly Way[];
  /** Absent if the request makes the session. */
  readonly sessionId: string | undefined;
}

export interface Retried {
  readonly name: string;
  readonly prepare: (clients: Clients) => Promise<Prepared>;
}

const TEXT = { data: bytes("text") };
const HOOK = { phase: "session_start", decision: HookDecision.INFO };

/** Sends a command by its own method. */
export async function sendAlone(
  { calls, evidence, runs }: Clients,
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
    case "amendToolCall":
      return { case: kind, value: await calls.amendToolCall({ ...head, command }) };
    case "startToolCall":
      return { case: kind, value: await calls.startToolCall({ ...head, command }) };
    case "recordResult":
      return { case: kind, value: await calls.recordResult({ ...head, command }) };
    case "reconcileToolCall":
      return { case: kind, value: await calls.reconcileToolCall({ ...head, command }) };
    case "endRun":
      return { case: kind, value: await runs.endRun({ ...head, command }) };
    default:
      throw new Error(`no test sends ${kind}`);
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

const COMMANDS: readonly Retried[] = [
  commandOfRun("RecordMessage", () => ({
    case: "recordMessage",
    value: { role: MessageRole.USER, content: TEXT },
  })),
  commandOfRun("AcceptTurn", () => ({
    case: "acceptTurn",
    value: { provider: "p", model: "m", calls: [newCall("a"), newCall("b"), newCall("")] },
  })),
  commandOfRun("AmendToolCall", async (clients, run) =>
    amend(await acceptCall(clients, run), '{"command":"ls -l"}'),
  ),
  commandOfRun("AmendToolCall that changes nothing", async (clients, run) =>
    amend(await acceptCall(clients, run), '{"command":"ls"}'),
  ),
  commandOfRun(
    "StartToolCall",
    async (clients, run) => {
      const { toolCallId, effective } = await acceptCall(clients, run);
      const argumentsSha256 = given(effective, "body").sha256;
      return { case: "startToolCall", value: { toolCallId, argumentsSha256 } };
    },
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
      const way: Way = async ({ sessions }, requestId) =>
        toBinary(EndSessionResponseSchema, await sessions.endSession({ sessionId, requestId }));
      return { sessionId, ways: [way] };
    },
  },
  beginRun("BeginRun"),
  beginRun("BeginRun that ends another", TakeOver.END),
  beginRun("BeginRun that resumes another", TakeOver.RESUME),
  ...COMMANDS,
  {
    name: "Apply of several commands",
    prepare: async (clients) => {
      const run = await openRun(clients);
      const call = await acceptCall(clients, run, newCall("a"));
      const list: CommandInit[] = [
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
