import type {
  OpenAskCommand,
  ParkToolCallCommand,
  SettleAskCommand,
  SettleAuthorizationCommand,
  WithdrawAskCommand,
} from "../../../gen/toolmark/engine/v1/command_pb.js";
import { AskKind, AskKindSchema, AskProvenanceSchema } from "../../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../../gen/toolmark/v1/authorization_pb.js";
import { ReceiptPath, Verdict } from "../../../gen/toolmark/v1/receipt_pb.js";
import { refuseField } from "../../domain/refusal.js";
import {
  checkEach,
  checkEnum,
  checkId,
  checkListedOnce,
  checkOptionalId,
  checkOptionalTimestamp,
  checkRequiredText,
  checkSha256,
  checkText,
  fieldPath,
  REASON_BYTES,
  specifiedValues,
  type Checked,
  type CommandCheck,
  checkCountMax,
} from "./checks.js";

const ASK_TEXT_BYTES = 16 * 1024;
const RULE_BYTES = 512;
const DISPLAY_NAME_BYTES = 512;

/** What somebody may decide; the other verdicts are the service's own. */
export const VERDICTS_TO_GIVE: ReadonlySet<number> = new Set([
  Verdict.DENY,
  Verdict.ALLOW_ONCE,
  Verdict.ALLOW_ALWAYS,
]);

const ASK_KINDS = specifiedValues(AskKindSchema);
const ASK_PROVENANCES = specifiedValues(AskProvenanceSchema);
const SETTLING_PATHS: ReadonlySet<number> = new Set([ReceiptPath.RULE, ReceiptPath.HOOK]);
const AUTHORIZATION_OUTCOMES: ReadonlySet<number> = new Set([
  AuthorizationState.GRANTED,
  AuthorizationState.DENIED,
  AuthorizationState.CANCELLED,
  AuthorizationState.EXPIRED,
  AuthorizationState.INTERRUPTED,
  AuthorizationState.FAILED,
]);

export const checkOpenAsk: CommandCheck<OpenAskCommand> = (command, at) =>
  checkId(command.toolCallId, at, "tool_call_id") ??
  checkEnum(command.kind, at, "kind", ASK_KINDS) ??
  checkEnum(command.provenance, at, "provenance", ASK_PROVENANCES) ??
  checkOptionalId(command.reviewId, at, "review_id") ??
  checkText(command.display, at, "display", ASK_TEXT_BYTES) ??
  checkText(command.prompt, at, "prompt", ASK_TEXT_BYTES) ??
  checkOptionalTimestamp(command.expireTime, at, "expire_time") ??
  checkAllowedVerdicts(command, at) ??
  checkHeldResult(command, at);

function checkAllowedVerdicts({ allowedVerdicts, kind }: OpenAskCommand, at: string): Checked {
  const listed = new Set<Verdict>();
  const refusal = checkEach(allowedVerdicts, (verdict, index) => {
    const name = `allowed_verdicts[${index}]`;
    const field = fieldPath(at, name);
    if (listed.has(verdict)) return refuseField(field, "must not be listed twice");
    listed.add(verdict);
    if (verdict === Verdict.ALLOW_ALWAYS && kind === AskKind.RESULT_RELEASE) {
      return refuseField(field, "must not be ALLOW_ALWAYS for RESULT_RELEASE");
    }
    return checkEnum(verdict, at, name, VERDICTS_TO_GIVE);
  });
  if (refusal !== undefined || listed.size === 0 || listed.has(Verdict.DENY)) return refusal;
  return refuseField(fieldPath(at, "allowed_verdicts"), "must have DENY unless empty");
}

function checkHeldResult(command: OpenAskCommand, at: string): Checked {
  if (command.kind === AskKind.RESULT_RELEASE) {
    return checkSha256(command.heldSha256, at, "held_sha256");
  }
  if (command.heldSha256.length > 0) {
    return refuseField(fieldPath(at, "held_sha256"), "must be empty unless kind is RESULT_RELEASE");
  }
  if (command.heldSizeBytes === 0n) return undefined;
  return refuseField(fieldPath(at, "held_size_bytes"), "must be 0 unless kind is RESULT_RELEASE");
}

export const checkWithdrawAsk: CommandCheck<WithdrawAskCommand> = (command, at) =>
  checkId(command.askId, at, "ask_id") ?? checkText(command.reason, at, "reason", REASON_BYTES);

export const checkSettleAsk: CommandCheck<SettleAskCommand> = (command, at) =>
  checkId(command.askId, at, "ask_id") ??
  checkEnum(command.path, at, "path", SETTLING_PATHS) ??
  checkSettledBy(command, at) ??
  checkEnum(command.verdict, at, "verdict", VERDICTS_TO_GIVE) ??
  checkText(command.reason, at, "reason", REASON_BYTES);

/** The rule or the hook, as the path says, and not the other. */
function checkSettledBy({ path, rule, hookId }: SettleAskCommand, at: string): Checked {
  if (path === ReceiptPath.RULE) {
    if (hookId !== undefined) {
      return refuseField(fieldPath(at, "hook_id"), "must be absent unless path is HOOK");
    }
    return checkRequiredText(rule ?? "", at, "rule", RULE_BYTES);
  }
  if (rule !== undefined) {
    return refuseField(fieldPath(at, "rule"), "must be absent unless path is RULE");
  }
  return checkId(hookId ?? "", at, "hook_id");
}

export const checkParkToolCall: CommandCheck<ParkToolCallCommand> = (command, at, limits) => {
  const { deferredToolCallIds } = command;
  const deferred = "deferred_tool_call_ids";
  return (
    checkId(command.toolCallId, at, "tool_call_id") ??
    checkRequiredText(command.displayName, at, "display_name", DISPLAY_NAME_BYTES) ??
    checkOptionalTimestamp(command.expireTime, at, "expire_time") ??
    checkCountMax(deferredToolCallIds.length, at, deferred, limits.openCallsPerSession) ??
    checkListedOnce(deferredToolCallIds, at, deferred)
  );
};

export const checkSettleAuthorization: CommandCheck<SettleAuthorizationCommand> = (command, at) =>
  checkId(command.authorizationId, at, "authorization_id") ??
  checkEnum(command.outcome, at, "outcome", AUTHORIZATION_OUTCOMES);
