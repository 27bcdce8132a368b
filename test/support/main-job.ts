import { createHash } from "node:crypto";
import type {
  DescMessage,
  DescMethodServerStreaming,
  DescMethodUnary,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import { CallService } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { EvidenceService } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { RunService } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { ApprovalService } from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskKind, AskProvenance } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { ReviewDisposition } from "../../gen/toolmark/v1/review_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { SessionService } from "../../gen/toolmark/v1/session_service_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { reviewOf } from "./asking.js";

/** What a client was told instead of a reply. */
export interface ToldRefusal {
  /** Number of the status code. */
  readonly code: number;
  readonly message: string;
  readonly reason: string;
  readonly metadata: Readonly<Record<string, string>>;
}

/** A client of any make. */
export interface AnyClient {
  unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
  ): Promise<MessageShape<O>>;
  /** All messages of a stream. */
  stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
  ): Promise<MessageShape<O>[]>;
  /** What the client makes of a refusal of this call. */
  refusal<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
  ): Promise<ToldRefusal>;
  close(): void;
}

/** What a job needs to be read back, and what was refused in it. */
export interface JobDone {
  readonly sessionId: string;
  readonly toolCallIds: readonly string[];
  readonly asked: Asked;
  readonly refusal: ToldRefusal;
}

/** The ids of what a call waited for. */
interface Asked {
  readonly askId: string;
  readonly receiptId: string;
  readonly authorizationId: string;
}

const utf8 = new TextEncoder();
const json = (text: string) => ({ data: utf8.encode(text), mediaType: "application/json" });
const call = CallService.method;
const approval = ApprovalService.method;

/**
 * What the service is for: a turn of two calls, of which a hook blocks one; the other is amended, reviewed, asked
 * about, allowed, parked, granted, started and given its result.
 */
export async function doMainJob(client: AnyClient): Promise<JobDone> {
  const created = await client.unary(SessionService.method.createSession, {
    requestId: crypto.randomUUID(),
    kind: SessionKind.MAIN,
    title: "gr\u00fcezi",
    labels: [{ key: "team", value: "blue" }],
  });
  const { sessionId } = present(created.session);
  const begun = await client.unary(RunService.method.beginRun, {
    sessionId,
    requestId: "begin",
    startGate: StartGate.REQUIRED,
  });
  const { runId } = present(begun.run);
  const ofRun = (requestId: string) => ({ sessionId, runId, requestId });
  const { toolCalls } = await client.unary(call.acceptTurn, {
    ...ofRun("turn"),
    command: {
      provider: "example",
      model: "example-1",
      calls: [
        {
          toolName: "read_file",
          arguments: json('{ "path": "a.txt" }'),
          pairing: { providerCallId: "call_0", opaque: new Uint8Array([0, 255]) },
        },
        { toolName: "remove_file", arguments: json('{"path":"\u00fc"}') },
      ],
    },
  });
  const toolCallIds = toolCalls.map(({ toolCallId }) => toolCallId);
  const [readId = "", removeId = ""] = toolCallIds;
  await block(client, ofRun, removeId);
  await amend(client, ofRun, readId);
  const asked = await getConsent(client, ofRun, readId);
  await carryOut(client, ofRun, readId);
  const refusal = await client.refusal(call.startToolCall, {
    ...ofRun("again"),
    command: { toolCallId: readId, argumentsSha256: new Uint8Array(32) },
  });
  await client.unary(RunService.method.endRun, {
    ...ofRun("end"),
    command: { outcome: RunOutcome.COMPLETED },
  });
  return { sessionId, toolCallIds, asked, refusal };
}

type OfRun = (requestId: string) => { sessionId: string; runId: string; requestId: string };

async function block(client: AnyClient, ofRun: OfRun, toolCallId: string): Promise<void> {
  const { hook } = await client.unary(EvidenceService.method.publishHook, {
    ...ofRun("hook"),
    command: {
      toolCallId,
      phase: "pre_tool_use",
      hookName: "guard",
      decision: HookDecision.BLOCKED,
      text: "never remove",
    },
  });
  const blockedByHookId = present(hook).hookId;
  const value = { content: { data: utf8.encode("blocked") }, blockedByHookId };
  const end = ToolCallState.BLOCKED;
  const result = { case: "canonical" as const, value: { ...value, end } };
  await client.unary(call.recordResult, {
    ...ofRun("blocked"),
    command: { toolCallId, result },
  });
}

const AMENDED = json('{"path":"b.txt"}');

async function amend(client: AnyClient, ofRun: OfRun, toolCallId: string): Promise<void> {
  await client.unary(call.amendToolCall, {
    ...ofRun("amend"),
    command: { toolCallId, effective: AMENDED },
  });
}

/** A review has a person asked, who allows it; then the tool needs a consent from elsewhere. */
async function getConsent(client: AnyClient, ofRun: OfRun, toolCallId: string): Promise<Asked> {
  const { hook } = await client.unary(EvidenceService.method.publishReview, {
    ...ofRun("review"),
    command: reviewOf(toolCallId, { disposition: ReviewDisposition.ASK_ACTION, checker: "c" }),
  });
  const opened = await client.unary(call.openAsk, {
    ...ofRun("ask"),
    command: {
      ...{ toolCallId, kind: AskKind.ACTION, provenance: AskProvenance.HOOK_GUARDRAIL },
      ...{ reviewId: present(hook).hookId, prompt: "May it?" },
    },
  });
  const { askId } = present(opened.ask);
  const receiptId = await allow(client, ofRun("answer").sessionId, askId);
  const parked = await client.unary(call.parkToolCall, {
    ...ofRun("park"),
    command: { toolCallId, displayName: "calendar" },
  });
  const { authorizationId } = present(parked.authorization);
  await client.unary(call.settleAuthorization, {
    ...ofRun("grant"),
    command: { authorizationId, outcome: AuthorizationState.GRANTED },
  });
  return { askId, receiptId, authorizationId };
}

async function allow(client: AnyClient, sessionId: string, askId: string): Promise<string> {
  const { ask: shown } = await client.unary(approval.getAsk, { sessionId, askId });
  const { ask, answerToken } = present(shown);
  const { toolCallId, reviewId } = present(ask);
  const { receipt } = await client.unary(approval.answerAsk, {
    ...{ requestId: "answer", sessionId, askId, answerToken, toolCallId },
    ...(reviewId === undefined ? {} : { reviewId }),
    ...{ verdict: Verdict.ALLOW_ONCE, reason: "gr\u00fcezi" },
  });
  return present(receipt).receiptId;
}

async function carryOut(client: AnyClient, ofRun: OfRun, toolCallId: string): Promise<void> {
  const argumentsSha256 = createHash("sha256").update(AMENDED.data).digest();
  await client.unary(call.startToolCall, {
    ...ofRun("start"),
    command: { toolCallId, argumentsSha256 },
  });
  const value = { content: { data: utf8.encode("\u0000 any bytes \u2713") }, isError: true };
  await client.unary(call.recordResult, {
    ...ofRun("result"),
    command: { toolCallId, result: { case: "canonical", value } },
  });
}

/** Everything that can be read of the job's session. */
export async function readMainJob(client: AnyClient, job: JobDone) {
  const { sessionId, toolCallIds, asked } = job;
  const history = HistoryService.method;
  const calls = await Promise.all(
    toolCallIds.map((toolCallId) => client.unary(history.getToolCall, { sessionId, toolCallId })),
  );
  const { bodyRef } = present(present(calls[0]?.toolCall?.result).content);
  const [session, listed, hooks, events, result] = await Promise.all([
    client.unary(SessionService.method.getSession, { sessionId }),
    client.unary(history.listToolCalls, { sessionId }),
    client.unary(history.listHooks, { sessionId }),
    client.unary(history.listEvents, { sessionId }),
    client.stream(history.readBody, { sessionId, bodyRef }),
  ]);
  const [ask, receipt, authorization] = await Promise.all([
    client.unary(approval.getAsk, { sessionId, askId: asked.askId }),
    client.unary(approval.getReceipt, { sessionId, receiptId: asked.receiptId }),
    client.unary(history.getAuthorization, { sessionId, authorizationId: asked.authorizationId }),
  ]);
  return { session, calls, listed, hooks, events, result, ask, receipt, authorization };
}

function present<T>(value: T | undefined): T {
  if (value === undefined) throw new Error("a reply lacks what it must have");
  return value;
}
