import {
  TakeOverSchema,
  type ApplyRequest,
  type BeginRunRequest,
} from "../../../gen/toolmark/engine/v1/run_service_pb.js";
import type {
  GetAuthorizationRequest,
  GetHookRequest,
  GetReviewDetailRequest,
  GetToolCallRequest,
  GetTranscriptRequest,
  ListAuthorizationsRequest,
  ListEventsRequest,
  ListHooksRequest,
  ListToolCallsRequest,
  ReadBodyRequest,
} from "../../../gen/toolmark/v1/history_service_pb.js";
import { StartGateSchema } from "../../../gen/toolmark/v1/run_pb.js";
import {
  DelegationKind,
  DelegationKindSchema,
  SessionKind,
  SessionKindSchema,
  SessionState,
  SessionStateSchema,
  type Checkpoint,
  type Delegation,
  type Label,
} from "../../../gen/toolmark/v1/session_pb.js";
import type {
  CompactSessionRequest,
  CreateSessionRequest,
  EndSessionRequest,
  ForkSessionRequest,
  GetSessionRequest,
  ListSessionsRequest,
  VerifySessionRequest,
} from "../../../gen/toolmark/v1/session_service_pb.js";
import type { Limits } from "../../domain/limits.js";
import { refuseField, type Refusal } from "../../domain/refusal.js";
import {
  checkCount,
  checkEach,
  type Checked,
  checkEnum,
  checkId,
  checkIdOrEmpty,
  checkPageToken,
  checkRequestId,
  checkRequiredText,
  checkSha256,
  checkText,
  type CommandCheck,
  fieldPath,
  OWNER_SUBJECT_BYTES,
  specifiedValues,
} from "./checks.js";
import { checkCommand } from "./commands.js";

/** Stores count in signed 64-bit numbers. */
const SEQUENCE_MAX = 2n ** 63n - 1n;
const TITLE_BYTES = 1024;
const SUMMARY_BYTES = 64 * 1024;
const LABELS = 64;
const LABEL_KEY_BYTES = 63;
const LABEL_VALUE_BYTES = 256;

const SESSION_KINDS = specifiedValues(SessionKindSchema);
const DELEGATION_KINDS = specifiedValues(DelegationKindSchema);
const START_GATES = specifiedValues(StartGateSchema);
const TAKE_OVERS = specifiedValues(TakeOverSchema);
const SESSION_STATES_OR_ALL: ReadonlySet<number> = new Set([
  SessionState.UNSPECIFIED,
  ...specifiedValues(SessionStateSchema),
]);

export function checkCreateSession(request: CreateSessionRequest): Checked {
  return (
    checkRequestId(request.requestId) ??
    checkText(request.ownerSubject, "", "owner_subject", OWNER_SUBJECT_BYTES) ??
    checkEnum(request.kind, "", "kind", SESSION_KINDS) ??
    checkText(request.title, "", "title", TITLE_BYTES) ??
    checkLabels(request.labels) ??
    (request.delegation === undefined ? undefined : checkDelegation(request.delegation, request))
  );
}

function checkLabels(labels: readonly Label[]): Checked {
  if (labels.length > LABELS) {
    return refuseField("labels", `must have at most ${LABELS} entries`);
  }
  let previousKey: Buffer | undefined;
  return checkEach(labels, (label, index) => {
    const at = `labels[${index}]`;
    const key = Buffer.from(label.key, "utf8");
    const ascends = previousKey === undefined || Buffer.compare(previousKey, key) < 0;
    previousKey = key;
    return (
      checkRequiredText(label.key, at, "key", LABEL_KEY_BYTES) ??
      checkText(label.value, at, "value", LABEL_VALUE_BYTES) ??
      (ascends ? undefined : refuseField(fieldPath(at, "key"), "must be above the key before it"))
    );
  });
}

/** The kind of session that each kind of delegation makes. */
const KIND_OF_DELEGATED: Partial<Record<DelegationKind, SessionKind>> = {
  [DelegationKind.SUBAGENT]: SessionKind.SUBAGENT,
  [DelegationKind.PARALLEL_BRANCH]: SessionKind.PARALLEL_BRANCH,
  [DelegationKind.TEAM_MEMBER]: SessionKind.TEAM_MEMBER,
};

function checkDelegation(delegation: Delegation, { kind }: CreateSessionRequest): Checked {
  const at = "delegation";
  return (
    checkId(delegation.parentSessionId, at, "parent_session_id") ??
    checkId(delegation.parentToolCallId, at, "parent_tool_call_id") ??
    checkEnum(delegation.kind, at, "kind", DELEGATION_KINDS) ??
    (KIND_OF_DELEGATED[delegation.kind] === kind
      ? undefined
      : refuseField("kind", "must be the one of the same name as delegation.kind"))
  );
}

export function checkGetSession(request: GetSessionRequest): Checked {
  return checkId(request.sessionId, "", "session_id");
}

export function checkListSessions(request: ListSessionsRequest): Checked {
  return (
    checkPageToken(request.pageToken) ??
    checkText(request.ownerSubject, "", "owner_subject", OWNER_SUBJECT_BYTES) ??
    checkEnum(request.state, "", "state", SESSION_STATES_OR_ALL) ??
    checkIdOrEmpty(request.ancestorSessionId, "", "ancestor_session_id")
  );
}

export function checkEndSession(request: EndSessionRequest): Checked {
  return checkRequestId(request.requestId) ?? checkId(request.sessionId, "", "session_id");
}

export function checkForkSession({
  requestId,
  sessionId,
  throughSequence,
}: ForkSessionRequest): Checked {
  return (
    checkRequestId(requestId) ??
    checkId(sessionId, "", "session_id") ??
    (throughSequence <= SEQUENCE_MAX
      ? undefined
      : refuseField("through_sequence", "must be the sequence of an event"))
  );
}

export function checkCompactSession(request: CompactSessionRequest): Checked {
  const { throughSequence } = request;
  const isSequence = throughSequence >= 1n && throughSequence <= SEQUENCE_MAX;
  return (
    checkRequestId(request.requestId) ??
    checkId(request.sessionId, "", "session_id") ??
    (isSequence
      ? undefined
      : refuseField("through_sequence", "must be the sequence of an event")) ??
    checkRequiredText(request.summary, "", "summary", SUMMARY_BYTES)
  );
}

export function checkVerifySession({ sessionId, checkpoint }: VerifySessionRequest): Checked {
  return (
    checkId(sessionId, "", "session_id") ??
    (checkpoint === undefined ? undefined : checkCheckpoint(checkpoint))
  );
}

function checkCheckpoint({ sessionId, sequence, position, chain }: Checkpoint): Checked {
  const at = "checkpoint";
  return (
    checkId(sessionId, at, "session_id") ??
    checkPlace(sequence, at, "sequence") ??
    checkPlace(position, at, "position") ??
    checkSha256(chain, at, "chain")
  );
}

/** Places of a log are counted from 1. */
function checkPlace(place: bigint, at: string, name: string): Checked {
  if (place > 0n && place <= SEQUENCE_MAX) return undefined;
  return refuseField(fieldPath(at, name), "must be at least 1 and below 2^63");
}

export function checkGetToolCall(request: GetToolCallRequest): Checked {
  return (
    checkId(request.sessionId, "", "session_id") ?? checkId(request.toolCallId, "", "tool_call_id")
  );
}

export function checkListToolCalls(request: ListToolCallsRequest): Checked {
  return checkId(request.sessionId, "", "session_id") ?? checkPageToken(request.pageToken);
}

export function checkGetTranscript(request: GetTranscriptRequest): Checked {
  return checkId(request.sessionId, "", "session_id") ?? checkPageToken(request.pageToken);
}

export function checkGetHook(request: GetHookRequest): Checked {
  return checkId(request.sessionId, "", "session_id") ?? checkId(request.hookId, "", "hook_id");
}

export function checkListHooks(request: ListHooksRequest): Checked {
  return (
    checkId(request.sessionId, "", "session_id") ??
    checkPageToken(request.pageToken) ??
    checkIdOrEmpty(request.toolCallId, "", "tool_call_id") ??
    (request.includeDescendants && request.toolCallId !== ""
      ? refuseField("include_descendants", "must not be set with tool_call_id")
      : undefined)
  );
}

export function checkGetReviewDetail(request: GetReviewDetailRequest): Checked {
  return checkId(request.sessionId, "", "session_id") ?? checkId(request.reviewId, "", "review_id");
}

export function checkGetAuthorization(request: GetAuthorizationRequest): Checked {
  return (
    checkId(request.sessionId, "", "session_id") ??
    checkId(request.authorizationId, "", "authorization_id")
  );
}

export function checkListAuthorizations(request: ListAuthorizationsRequest): Checked {
  return (
    checkId(request.sessionId, "", "session_id") ??
    checkPageToken(request.pageToken) ??
    checkIdOrEmpty(request.toolCallId, "", "tool_call_id")
  );
}

export function checkReadBody(request: ReadBodyRequest): Checked {
  return checkId(request.sessionId, "", "session_id") ?? checkId(request.bodyRef, "", "body_ref");
}

export function checkListEvents(request: ListEventsRequest): Checked {
  return (
    checkId(request.sessionId, "", "session_id") ??
    checkPageToken(request.pageToken) ??
    (request.afterSequence > SEQUENCE_MAX
      ? refuseField("after_sequence", "must be below 2^63")
      : undefined)
  );
}

export function checkBeginRun(request: BeginRunRequest): Checked {
  return (
    checkId(request.sessionId, "", "session_id") ??
    checkRequestId(request.requestId) ??
    checkEnum(request.startGate, "", "start_gate", START_GATES) ??
    (request.takeOver === undefined
      ? undefined
      : checkEnum(request.takeOver, "", "take_over", TAKE_OVERS))
  );
}

interface OfRun {
  readonly sessionId: string;
  readonly runId: string;
  readonly requestId: string;
}

function checkOfRun(request: OfRun): Checked {
  return (
    checkId(request.sessionId, "", "session_id") ??
    checkId(request.runId, "", "run_id") ??
    checkRequestId(request.requestId)
  );
}

/** The unary request of a command, with the check that the command has inside Apply too. */
export function commandRequest<T>(check: CommandCheck<T>) {
  return (request: OfRun & { readonly command?: T | undefined }, limits: Limits): Checked =>
    checkOfRun(request) ??
    (request.command === undefined
      ? refuseField("command", "is required")
      : check(request.command, "command", limits));
}

export function checkApply(request: ApplyRequest, limits: Limits): Checked {
  const last = request.commands.length - 1;
  return (
    checkOfRun(request) ??
    checkCount(request.commands.length, "", "commands", limits.commandsPerApply) ??
    checkEach(request.commands, (command, index) => {
      const at = `commands[${index}]`;
      const refusal =
        command.command.case === "endRun" && index !== last
          ? refuseField(fieldPath(at, "end_run"), "must be the last command")
          : checkCommand(command, at, limits);
      return refusal === undefined ? undefined : withPosition(refusal, index);
    })
  );
}

function withPosition(refusal: Refusal, index: number): Refusal {
  return { ...refusal, metadata: { ...refusal.metadata, command: String(index) } };
}
