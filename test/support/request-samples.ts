import {
  create,
  type DescMessage,
  type DescMethod,
  type Message,
  type MessageInitShape,
} from "@bufbuild/protobuf";

import { CallService } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { ProviderWire, type CommandSchema } from "../../gen/toolmark/engine/v1/command_pb.js";
import { EvidenceService } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { ReplayService } from "../../gen/toolmark/engine/v1/replay_service_pb.js";
import { RunService, TakeOver } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { ApprovalService } from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskKind, AskProvenance, AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { LegacySourceFormat } from "../../gen/toolmark/v1/legacy_pb.js";
import { ReceiptPath, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import {
  ReviewAssessment,
  ReviewDisposition,
  ReviewInspection,
  ReviewJob,
} from "../../gen/toolmark/v1/review_pb.js";
import { MessageRole, RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { DelegationKind, SessionKind, SessionState } from "../../gen/toolmark/v1/session_pb.js";
import { SessionService } from "../../gen/toolmark/v1/session_service_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";

/** Well-formed requests of one method. Together they set every string and enum field that the request has. */
export interface RequestSamples {
  readonly method: DescMethod;
  readonly requests: readonly Message[];
}

function samples<Input extends DescMessage>(
  method: DescMethod & { readonly input: Input },
  ...requests: readonly MessageInitShape<Input>[]
): RequestSamples {
  return { method, requests: requests.map((init) => create(method.input, init)) };
}

const session = SessionService.method;
const history = HistoryService.method;
const approval = ApprovalService.method;
const run = RunService.method;
const call = CallService.method;
const evidence = EvidenceService.method;
const replay = ReplayService.method;

const sessionId = "ses_1";
const toolCallId = "tc_1";
const ofRun = { sessionId, runId: "run_1", requestId: "request 1" };
const sha256 = new Uint8Array(32).fill(7);
const inline = { data: new Uint8Array([123, 125]), mediaType: "application/json", sha256 };
const empty = { data: new Uint8Array() };
const stored = { bodyRef: "body_1", mediaType: "text/plain" };

type Case = NonNullable<MessageInitShape<typeof CommandSchema>["command"]>;
type InitOf<Name extends string> =
  Extract<Case, { case: Name }> extends { value: infer Init } ? Init : never;

const recordMessage: InitOf<"recordMessage">[] = [
  { role: MessageRole.USER, content: inline },
  { role: MessageRole.SYSTEM, content: stored },
  { role: MessageRole.ASSISTANT, content: empty },
];

const acceptTurn: InitOf<"acceptTurn">[] = [
  {
    provider: "provider",
    model: "model",
    calls: [
      {
        toolName: "read_file",
        arguments: inline,
        pairing: { providerCallId: "call_0", providerItemId: "fc_0", opaque: sha256 },
      },
      { toolName: "read_file", arguments: empty, pairing: { providerCallId: "" } },
    ],
  },
  { calls: [{ toolName: "read_file", arguments: stored }] },
];

const acceptProviderTurn: InitOf<"acceptProviderTurn">[] = [
  {
    wire: ProviderWire.OPENAI_RESPONSES,
    payload: inline,
    provider: "provider",
    model: "model",
  },
  { wire: ProviderWire.MISTRAL, payload: stored },
];

const amendToolCall: InitOf<"amendToolCall">[] = [
  { toolCallId, effective: inline },
  { toolCallId, effective: stored },
];

const startToolCall: InitOf<"startToolCall">[] = [{ toolCallId, argumentsSha256: sha256 }];

function canonical(
  value: Extract<NonNullable<InitOf<"recordResult">["result"]>, { case: "canonical" }>["value"],
): InitOf<"recordResult"> {
  return { toolCallId, result: { case: "canonical", value } };
}

const recordResult: InitOf<"recordResult">[] = [
  { toolCallId, result: { case: "provisional", value: { chunk: sha256 } } },
  canonical({ content: empty }),
  canonical({ content: stored, isError: true }),
  canonical({ end: ToolCallState.BLOCKED, blockedByHookId: "hk_1" }),
  canonical({ end: ToolCallState.WITHHELD, content: inline }),
  canonical({ end: ToolCallState.FAILED }),
  canonical({ end: ToolCallState.TIMED_OUT, content: inline }),
];

const reconcileToolCall: InitOf<"reconcileToolCall">[] = [
  { toolCallId, end: ToolCallState.COMPLETED, content: inline },
  { toolCallId, end: ToolCallState.FAILED, content: stored },
  { toolCallId, end: ToolCallState.CANCELLED },
  { toolCallId, end: ToolCallState.INTERRUPTED },
  { toolCallId, end: ToolCallState.TIMED_OUT },
];

const publishHook: InitOf<"publishHook">[] = [
  {
    origin: { sessionId },
    toolCallId,
    phase: "pre_tool_use",
    hookName: "guard",
    toolName: "read_file",
    decision: HookDecision.BLOCKED,
    text: "not there",
  },
  { phase: "session_start", decision: HookDecision.INFO },
];

const publishReview: InitOf<"publishReview">[] = [
  {
    origin: { sessionId },
    toolCallId,
    phase: "pre_tool_use",
    review: {
      reviewId: "rv_1",
      job: ReviewJob.ACTION,
      assessment: ReviewAssessment.PROHIBITED,
      inspection: ReviewInspection.COMPLETE,
      disposition: ReviewDisposition.ASK_ACTION,
      reasonCode: "NOT_THERE",
      ruleId: "rule 1",
      ruleOrigin: "settings",
      checker: "checker",
      concerns: [{ ref: "file 1", category: "secret" }],
      sources: [{ ref: "file 2", category: "source" }, { ref: "file 3" }],
    },
    text: "not there",
    detail: "because",
  },
  {
    toolCallId,
    phase: "result",
    review: {
      job: ReviewJob.INBOUND,
      assessment: ReviewAssessment.UNRESOLVED,
      inspection: ReviewInspection.OPERATIONAL_FAILURE,
      disposition: ReviewDisposition.CONTINUE_WARNING,
    },
  },
];

const askId = "ask_1";
const time = { seconds: 1_700_000_000n, nanos: 999_999_999 };

const openAsk: InitOf<"openAsk">[] = [
  {
    toolCallId,
    kind: AskKind.ACTION,
    provenance: AskProvenance.PLAN,
    reviewId: "rv_1",
    display: "display",
    prompt: "May it?",
    expireTime: time,
    allowedVerdicts: [Verdict.DENY, Verdict.ALLOW_ALWAYS, Verdict.ALLOW_ONCE],
  },
  {
    toolCallId,
    kind: AskKind.RESULT_RELEASE,
    provenance: AskProvenance.HOOK_GUARDRAIL,
    allowedVerdicts: [Verdict.ALLOW_ONCE, Verdict.DENY],
    heldSha256: sha256,
    heldSizeBytes: 3n,
  },
  { toolCallId, kind: AskKind.ACTION, provenance: AskProvenance.PERMISSION },
];

const withdrawAsk: InitOf<"withdrawAsk">[] = [{ askId, reason: "no need" }, { askId }];

const settleAsk: InitOf<"settleAsk">[] = [
  { askId, path: ReceiptPath.RULE, rule: "rule 1", verdict: Verdict.ALLOW_ONCE, reason: "why" },
  { askId, path: ReceiptPath.HOOK, hookId: "hk_1", verdict: Verdict.DENY },
];

const parkToolCall: InitOf<"parkToolCall">[] = [
  {
    toolCallId,
    displayName: "calendar",
    expireTime: time,
    deferredToolCallIds: ["tc_2", "tc_3"],
  },
  { toolCallId, displayName: "calendar" },
];

const settleAuthorization: InitOf<"settleAuthorization">[] = [
  { authorizationId: "aut_1", outcome: AuthorizationState.GRANTED },
  { authorizationId: "aut_1", outcome: AuthorizationState.FAILED },
];

const endRun: InitOf<"endRun">[] = [
  {
    outcome: RunOutcome.FAILED,
    notRunToolCallIds: ["tc_1", "tc_2"],
    interruptedToolCallIds: ["tc_3"],
  },
  { outcome: RunOutcome.PARKED },
];

const commands: { readonly command: Case }[] = [
  ...recordMessage.map((value) => ({ command: { case: "recordMessage" as const, value } })),
  ...acceptTurn.map((value) => ({ command: { case: "acceptTurn" as const, value } })),
  ...acceptProviderTurn.map((value) => ({
    command: { case: "acceptProviderTurn" as const, value },
  })),
  ...amendToolCall.map((value) => ({ command: { case: "amendToolCall" as const, value } })),
  ...startToolCall.map((value) => ({ command: { case: "startToolCall" as const, value } })),
  ...recordResult.map((value) => ({ command: { case: "recordResult" as const, value } })),
  ...reconcileToolCall.map((value) => ({
    command: { case: "reconcileToolCall" as const, value },
  })),
  ...publishHook.map((value) => ({ command: { case: "publishHook" as const, value } })),
  ...publishReview.map((value) => ({ command: { case: "publishReview" as const, value } })),
  ...openAsk.map((value) => ({ command: { case: "openAsk" as const, value } })),
  ...withdrawAsk.map((value) => ({ command: { case: "withdrawAsk" as const, value } })),
  ...settleAsk.map((value) => ({ command: { case: "settleAsk" as const, value } })),
  ...parkToolCall.map((value) => ({ command: { case: "parkToolCall" as const, value } })),
  ...settleAuthorization.map((value) => ({
    command: { case: "settleAuthorization" as const, value },
  })),
  ...endRun.map((value) => ({ command: { case: "endRun" as const, value } })),
];

/** Well-formed requests of every method that the validator knows. */
export const REQUEST_SAMPLES: readonly RequestSamples[] = [
  samples(
    session.createSession,
    {
      requestId: "request 1",
      ownerSubject: "owner",
      kind: SessionKind.SUBAGENT,
      title: "title",
      labels: [
        { key: "a", value: "" },
        { key: "b", value: "1" },
      ],
      delegation: {
        parentSessionId: sessionId,
        parentToolCallId: toolCallId,
        kind: DelegationKind.SUBAGENT,
      },
    },
    { requestId: "request 1", kind: SessionKind.MAIN, labels: [{ key: "a", value: "1" }] },
  ),
  samples(session.getSession, { sessionId }),
  samples(
    session.listSessions,
    {
      pageSize: 5,
      pageToken: "token",
      ownerSubject: "owner",
      state: SessionState.OPEN,
      ancestorSessionId: sessionId,
    },
    {},
  ),
  samples(
    session.endSession,
    { requestId: "request 1", sessionId },
    { requestId: "request 1", sessionId, cancelDescendants: true },
  ),
  samples(session.forkSession, {
    requestId: "request 1",
    sessionId,
    throughSequence: 5n,
  }),
  samples(session.compactSession, {
    requestId: "request 1",
    sessionId,
    throughSequence: 5n,
    summary: "what came before",
  }),
  samples(session.importSession, {
    requestId: "request 1",
    sessionId,
    ownerSubject: "owner",
    sources: [{ format: LegacySourceFormat.SNAPSHOT, sizeBytes: 9n, sha256 }],
    parts: [{ format: LegacySourceFormat.SNAPSHOT, offsetBytes: 1n, data: new Uint8Array(8) }],
  }),
  samples(
    session.verifySession,
    { sessionId, checkpoint: { sessionId, sequence: 5n, position: 7n, chain: sha256 } },
    { sessionId },
  ),
  samples(history.getToolCall, { sessionId, toolCallId }),
  samples(
    history.listToolCalls,
    { sessionId, pageToken: "token" },
    { sessionId, includeDescendants: true },
  ),
  samples(history.getHook, { sessionId, hookId: "hk_1" }),
  samples(
    history.listHooks,
    { sessionId, pageToken: "token", toolCallId },
    { sessionId, includeDescendants: true },
  ),
  samples(history.readBody, { sessionId, bodyRef: "body_1", offsetBytes: 1n, limitBytes: 2n }),
  samples(history.listEvents, { sessionId, pageToken: "token" }, { sessionId, afterSequence: 3n }),
  samples(
    history.watchEvents,
    { sessionId, cursor: "cursor", includeDescendants: true, kinds: ["ASK_OPENED"] },
    { sessionId },
  ),
  samples(history.getTranscript, { sessionId, pageToken: "token" }),
  samples(history.getReviewDetail, { sessionId, reviewId: "rv_1" }),
  samples(history.getAuthorization, { sessionId, authorizationId: "aut_1" }),
  samples(
    history.listAuthorizations,
    { sessionId, pageToken: "token", toolCallId: "tc_1" },
    { sessionId },
  ),
  samples(
    approval.listAsks,
    {
      pageSize: 5,
      pageToken: "token",
      sessionId,
      includeDescendants: true,
      state: AskState.WITHDRAWN,
      ownerSubject: "owner",
      toolName: "read_file",
      createdBefore: time,
      createdAfter: time,
      expiringBefore: time,
    },
    {},
  ),
  samples(approval.getAsk, { sessionId, askId }),
  samples(
    approval.answerAsk,
    {
      requestId: "request 1",
      sessionId,
      askId,
      answerToken: "token",
      toolCallId,
      reviewId: "rv_1",
      verdict: Verdict.ALLOW_ALWAYS,
      reason: "I know it",
      presentedSha256: sha256,
    },
    {
      requestId: "request 1",
      sessionId,
      askId,
      answerToken: "token",
      toolCallId,
      verdict: Verdict.DENY,
    },
  ),
  samples(approval.watchAsks, { sessionId, cursor: "cursor", includeDescendants: true }, {}),
  samples(approval.getReceipt, { sessionId, receiptId: "rcp_1" }),
  samples(
    approval.listReceipts,
    { sessionId, pageToken: "token", toolCallId: "tc_1" },
    { sessionId },
  ),
  samples(
    run.beginRun,
    {
      sessionId,
      requestId: "request 1",
      startGate: StartGate.REQUIRED,
      takeOver: TakeOver.RESUME,
    },
    { sessionId, requestId: "request 1", startGate: StartGate.OFF },
  ),
  samples(run.endRun, ...endRun.map((command) => ({ ...ofRun, command }))),
  samples(run.apply, ...commands.map((command) => ({ ...ofRun, commands: [command] }))),
  samples(call.acceptTurn, ...acceptTurn.map((command) => ({ ...ofRun, command }))),
  samples(call.amendToolCall, ...amendToolCall.map((command) => ({ ...ofRun, command }))),
  samples(call.startToolCall, ...startToolCall.map((command) => ({ ...ofRun, command }))),
  samples(call.recordResult, ...recordResult.map((command) => ({ ...ofRun, command }))),
  samples(call.reconcileToolCall, ...reconcileToolCall.map((command) => ({ ...ofRun, command }))),
  samples(call.openAsk, ...openAsk.map((command) => ({ ...ofRun, command }))),
  samples(call.awaitAsk, { sessionId, askId, waitMs: 1 }, { sessionId, askId }),
  samples(call.withdrawAsk, ...withdrawAsk.map((command) => ({ ...ofRun, command }))),
  samples(call.settleAsk, ...settleAsk.map((command) => ({ ...ofRun, command }))),
  samples(call.parkToolCall, ...parkToolCall.map((command) => ({ ...ofRun, command }))),
  samples(
    call.settleAuthorization,
    ...settleAuthorization.map((command) => ({ ...ofRun, command })),
  ),
  samples(
    replay.acceptProviderTurn,
    ...acceptProviderTurn.map((command) => ({ ...ofRun, command })),
  ),
  samples(replay.getReplay, { sessionId }),
  samples(
    replay.projectReplay,
    { sessionId, wire: ProviderWire.GEMINI, provider: "provider" },
    { sessionId, wire: ProviderWire.ANTHROPIC_MESSAGES },
  ),
  samples(evidence.publishReview, ...publishReview.map((command) => ({ ...ofRun, command }))),
  samples(evidence.recordMessage, ...recordMessage.map((command) => ({ ...ofRun, command }))),
  samples(
    evidence.writeBody,
    { sessionId, mediaType: "text/plain", chunk: sha256, sha256 },
    { sessionId, private: true },
  ),
  samples(evidence.publishHook, ...publishHook.map((command) => ({ ...ofRun, command }))),
];
