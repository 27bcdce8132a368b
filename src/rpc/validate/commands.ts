import { ProviderWireSchema } from "../../../gen/toolmark/engine/v1/command_pb.js";
import type {
  AcceptProviderTurnCommand,
  AcceptTurnCommand,
  AmendToolCallCommand,
  CanonicalResult,
  Command,
  EndRunCommand,
  NewToolCall,
  ProviderPairing,
  ProvisionalDelta,
  ReconcileToolCallCommand,
  RecordMessageCommand,
  RecordResultCommand,
  StartToolCallCommand,
} from "../../../gen/toolmark/engine/v1/command_pb.js";
import {
  MessageRoleSchema,
  RunOutcome,
  RunOutcomeSchema,
} from "../../../gen/toolmark/v1/run_pb.js";
import { ToolCallState } from "../../../gen/toolmark/v1/tool_call_pb.js";
import { unreachable } from "../../domain/invariant.js";
import {
  PROVIDER_ID_BYTES,
  PROVIDER_OPAQUE_BYTES,
  TOOL_NAME_BYTES,
  type Limits,
} from "../../domain/limits.js";
import { refuseField } from "../../domain/refusal.js";
import {
  checkOpenAsk,
  checkParkToolCall,
  checkSettleAsk,
  checkSettleAuthorization,
  checkWithdrawAsk,
} from "./asks.js";
import { checkBody, checkOptionalBody } from "./body.js";
import {
  checkCount,
  checkCountMax,
  checkEach,
  type Checked,
  checkEnum,
  checkId,
  checkListedOnce,
  checkOptionalText,
  checkRequiredText,
  checkSha256,
  type CommandCheck,
  fieldPath,
  specifiedValues,
} from "./checks.js";
import { checkPublishHook, checkPublishReview } from "./evidence.js";

export const PROVIDER_BYTES = 128;
const MODEL_BYTES = 256;

export const PROVIDER_WIRES = specifiedValues(ProviderWireSchema);
const MESSAGE_ROLES = specifiedValues(MessageRoleSchema);
const RUN_OUTCOMES = specifiedValues(RunOutcomeSchema);
const RESULT_ENDS: ReadonlySet<number> = new Set([
  ToolCallState.UNSPECIFIED,
  ToolCallState.BLOCKED,
  ToolCallState.WITHHELD,
  ToolCallState.FAILED,
  ToolCallState.TIMED_OUT,
]);
const RECONCILED_ENDS: ReadonlySet<number> = new Set([
  ToolCallState.COMPLETED,
  ToolCallState.FAILED,
  ToolCallState.CANCELLED,
  ToolCallState.INTERRUPTED,
  ToolCallState.TIMED_OUT,
]);

export const checkRecordMessage: CommandCheck<RecordMessageCommand> = (command, at, limits) =>
  checkEnum(command.role, at, "role", MESSAGE_ROLES) ??
  checkBody(command.content, at, "content", limits);

export const checkAcceptTurn: CommandCheck<AcceptTurnCommand> = (command, at, limits) =>
  checkOptionalText(command.provider, at, "provider", PROVIDER_BYTES) ??
  checkOptionalText(command.model, at, "model", MODEL_BYTES) ??
  checkCount(command.calls.length, at, "calls", limits.callsPerTurn) ??
  checkEach(command.calls, (call, index) =>
    checkNewToolCall(call, fieldPath(at, `calls[${index}]`), limits),
  );

export const checkAcceptProviderTurn: CommandCheck<AcceptProviderTurnCommand> = (
  command,
  at,
  limits,
) =>
  checkEnum(command.wire, at, "wire", PROVIDER_WIRES) ??
  checkBody(command.payload, at, "payload", limits) ??
  checkOptionalText(command.provider, at, "provider", PROVIDER_BYTES) ??
  checkOptionalText(command.model, at, "model", MODEL_BYTES);

function checkNewToolCall(call: NewToolCall, at: string, limits: Limits): Checked {
  return (
    checkRequiredText(call.toolName, at, "tool_name", TOOL_NAME_BYTES) ??
    checkBody(call.arguments, at, "arguments", limits) ??
    (call.pairing === undefined ? undefined : checkPairing(call.pairing, fieldPath(at, "pairing")))
  );
}

function checkOpaque(sizeBytes: number, at: string): Checked {
  if (sizeBytes <= PROVIDER_OPAQUE_BYTES) return undefined;
  return refuseField(fieldPath(at, "opaque"), `must be at most ${PROVIDER_OPAQUE_BYTES} bytes`);
}

function checkPairing(pairing: ProviderPairing, at: string): Checked {
  return (
    checkOptionalText(pairing.providerCallId, at, "provider_call_id", PROVIDER_ID_BYTES) ??
    checkOptionalText(pairing.providerItemId, at, "provider_item_id", PROVIDER_ID_BYTES) ??
    checkOpaque(pairing.opaque?.length ?? 0, at)
  );
}

export const checkAmendToolCall: CommandCheck<AmendToolCallCommand> = (command, at, limits) =>
  checkId(command.toolCallId, at, "tool_call_id") ??
  checkBody(command.effective, at, "effective", limits);

export const checkStartToolCall: CommandCheck<StartToolCallCommand> = (command, at) =>
  checkId(command.toolCallId, at, "tool_call_id") ??
  checkSha256(command.argumentsSha256, at, "arguments_sha256");

export const checkRecordResult: CommandCheck<RecordResultCommand> = (command, at, limits) =>
  checkId(command.toolCallId, at, "tool_call_id") ?? checkResult(command.result, at, limits);

function checkResult(result: RecordResultCommand["result"], at: string, limits: Limits): Checked {
  switch (result.case) {
    case "provisional":
      return checkProvisional(result.value, fieldPath(at, "provisional"), limits);
    case "canonical":
      return checkCanonical(result.value, fieldPath(at, "canonical"), limits);
    case undefined:
      return refuseField(fieldPath(at, "result"), "is required");
    default:
      return unreachable(result);
  }
}

function checkProvisional(delta: ProvisionalDelta, at: string, limits: Limits): Checked {
  const size = delta.chunk.length;
  if (size > 0 && size <= limits.inlineBodyBytes) return undefined;
  const rule = `must be 1 to ${limits.inlineBodyBytes} bytes`;
  return refuseField(fieldPath(at, "chunk"), rule);
}

function checkCanonical(result: CanonicalResult, at: string, limits: Limits): Checked {
  const { end } = result;
  const contentRequired = end === ToolCallState.UNSPECIFIED || end === ToolCallState.WITHHELD;
  return (
    checkEnum(end, at, "end", RESULT_ENDS) ??
    (contentRequired ? checkBody : checkOptionalBody)(result.content, at, "content", limits) ??
    checkBlockedBy(result, at)
  );
}

function checkBlockedBy(result: CanonicalResult, at: string): Checked {
  const { blockedByHookId } = result;
  if (result.end === ToolCallState.BLOCKED) {
    return checkId(blockedByHookId ?? "", at, "blocked_by_hook_id");
  }
  if (blockedByHookId === undefined) return undefined;
  return refuseField(fieldPath(at, "blocked_by_hook_id"), "must be absent unless end is BLOCKED");
}

export const checkReconcileToolCall: CommandCheck<ReconcileToolCallCommand> = (
  command,
  at,
  limits,
) =>
  checkId(command.toolCallId, at, "tool_call_id") ??
  checkEnum(command.end, at, "end", RECONCILED_ENDS) ??
  checkOptionalBody(command.content, at, "content", limits);

export const checkEndRun: CommandCheck<EndRunCommand> = (command, at, limits) => {
  const lists = [
    { name: "not_run_tool_call_ids", ids: command.notRunToolCallIds },
    { name: "interrupted_tool_call_ids", ids: command.interruptedToolCallIds },
  ];
  const listed = new Set<string>();
  return (
    checkEnum(command.outcome, at, "outcome", RUN_OUTCOMES) ??
    checkEach(lists, ({ name, ids }) =>
      ids.length > 0 && command.outcome === RunOutcome.PARKED
        ? refuseField(fieldPath(at, name), "must be empty if outcome is PARKED")
        : (checkCountMax(ids.length, at, name, limits.openCallsPerSession) ??
          checkListedOnce(ids, at, name, listed)),
    )
  );
};

/** One command of Apply. */
export function checkCommand({ command }: Command, at: string, limits: Limits): Checked {
  switch (command.case) {
    case "recordMessage":
      return checkRecordMessage(command.value, fieldPath(at, "record_message"), limits);
    case "acceptTurn":
      return checkAcceptTurn(command.value, fieldPath(at, "accept_turn"), limits);
    case "acceptProviderTurn":
      return checkAcceptProviderTurn(command.value, fieldPath(at, "accept_provider_turn"), limits);
    case "amendToolCall":
      return checkAmendToolCall(command.value, fieldPath(at, "amend_tool_call"), limits);
    case "startToolCall":
      return checkStartToolCall(command.value, fieldPath(at, "start_tool_call"), limits);
    case "recordResult":
      return checkRecordResult(command.value, fieldPath(at, "record_result"), limits);
    case "reconcileToolCall":
      return checkReconcileToolCall(command.value, fieldPath(at, "reconcile_tool_call"), limits);
    case "publishHook":
      return checkPublishHook(command.value, fieldPath(at, "publish_hook"), limits);
    case "endRun":
      return checkEndRun(command.value, fieldPath(at, "end_run"), limits);
    case "openAsk":
      return checkOpenAsk(command.value, fieldPath(at, "open_ask"), limits);
    case "withdrawAsk":
      return checkWithdrawAsk(command.value, fieldPath(at, "withdraw_ask"), limits);
    case "settleAsk":
      return checkSettleAsk(command.value, fieldPath(at, "settle_ask"), limits);
    case "parkToolCall":
      return checkParkToolCall(command.value, fieldPath(at, "park_tool_call"), limits);
    case "settleAuthorization":
      return checkSettleAuthorization(command.value, fieldPath(at, "settle_authorization"), limits);
    case "publishReview":
      return checkPublishReview(command.value, fieldPath(at, "publish_review"), limits);
    case undefined:
      return refuseField(fieldPath(at, "command"), "is required");
    default:
      return unreachable(command);
  }
}
