import type {
  PublishHookCommand,
  PublishReviewCommand,
} from "../../../gen/toolmark/engine/v1/command_pb.js";
import { HookDecisionSchema } from "../../../gen/toolmark/v1/hook_pb.js";
import type { Origin } from "../../../gen/toolmark/v1/origin_pb.js";
import {
  ReviewAssessment,
  ReviewAssessmentSchema,
  ReviewDisposition,
  ReviewDispositionSchema,
  ReviewInspection,
  ReviewInspectionSchema,
  ReviewJob,
  ReviewJobSchema,
  type EvidenceRef,
  type Review,
} from "../../../gen/toolmark/v1/review_pb.js";
import { TOOL_NAME_BYTES } from "../../domain/limits.js";
import { refuseField } from "../../domain/refusal.js";
import {
  checkEach,
  type Checked,
  checkEnum,
  checkId,
  checkIdOrEmpty,
  checkOptionalId,
  checkRequiredText,
  checkText,
  type CommandCheck,
  fieldPath,
  specifiedValues,
} from "./checks.js";

const PHASE_BYTES = 128;
const HOOK_NAME_BYTES = 512;
/** Of a reason code, a rule, its origin and a checker. */
const REVIEW_TEXT_BYTES = 512;
const EVIDENCE_REF_BYTES = 512;
const EVIDENCE_CATEGORY_BYTES = 128;
const EVIDENCE_REFS = 32;
const SNAKE_CASE = /^(?:[A-Z][A-Z0-9_]*|[a-z][a-z0-9_]*)$/;

const HOOK_DECISIONS = specifiedValues(HookDecisionSchema);
const REVIEW_JOBS = specifiedValues(ReviewJobSchema);
const REVIEW_ASSESSMENTS = specifiedValues(ReviewAssessmentSchema);
const REVIEW_INSPECTIONS = specifiedValues(ReviewInspectionSchema);
const REVIEW_DISPOSITIONS = specifiedValues(ReviewDispositionSchema);
const PHASES_OF_A_CALL: ReadonlySet<string> = new Set(["pre_tool_use", "post_tool_use"]);

/** The dispositions that only one job has. */
const JOB_OF_DISPOSITION: ReadonlyMap<ReviewDisposition, ReviewJob> = new Map([
  [ReviewDisposition.EXECUTE, ReviewJob.ACTION],
  [ReviewDisposition.ASK_ACTION, ReviewJob.ACTION],
  [ReviewDisposition.RELEASE_RESULT, ReviewJob.INBOUND],
  [ReviewDisposition.WITHHOLD_RESULT, ReviewJob.INBOUND],
  [ReviewDisposition.ALLOW_ONCE, ReviewJob.PERMISSION],
  [ReviewDisposition.PRESERVE_PERMISSION_ASK, ReviewJob.PERMISSION],
]);

export const checkPublishHook: CommandCheck<PublishHookCommand> = (command, at, limits) =>
  checkOptionalOrigin(command.origin, at) ??
  checkOptionalId(command.toolCallId, at, "tool_call_id") ??
  checkRequiredText(command.phase, at, "phase", PHASE_BYTES) ??
  checkPhaseHasCall(command, at) ??
  checkText(command.hookName, at, "hook_name", HOOK_NAME_BYTES) ??
  checkText(command.toolName, at, "tool_name", TOOL_NAME_BYTES) ??
  checkEnum(command.decision, at, "decision", HOOK_DECISIONS) ??
  checkText(command.text, at, "text", limits.inlineBodyBytes);

function checkOptionalOrigin(origin: Origin | undefined, at: string): Checked {
  if (origin === undefined) return undefined;
  return checkId(origin.sessionId, fieldPath(at, "origin"), "session_id");
}

function checkPhaseHasCall(command: PublishHookCommand, at: string): Checked {
  if (command.toolCallId !== undefined || !PHASES_OF_A_CALL.has(command.phase)) return undefined;
  return refuseField(fieldPath(at, "tool_call_id"), `is required for phase ${command.phase}`);
}

export const checkPublishReview: CommandCheck<PublishReviewCommand> = (command, at, limits) =>
  checkOptionalOrigin(command.origin, at) ??
  checkId(command.toolCallId, at, "tool_call_id") ??
  checkRequiredText(command.phase, at, "phase", PHASE_BYTES) ??
  (command.review === undefined
    ? refuseField(fieldPath(at, "review"), "is required")
    : checkReview(command.review, fieldPath(at, "review"))) ??
  checkText(command.text, at, "text", limits.inlineBodyBytes) ??
  checkText(command.detail, at, "detail", limits.inlineBodyBytes);

function checkReview(review: Review, at: string): Checked {
  return (
    checkIdOrEmpty(review.reviewId, at, "review_id") ??
    checkEnum(review.job, at, "job", REVIEW_JOBS) ??
    checkEnum(review.assessment, at, "assessment", REVIEW_ASSESSMENTS) ??
    checkEnum(review.inspection, at, "inspection", REVIEW_INSPECTIONS) ??
    checkEnum(review.disposition, at, "disposition", REVIEW_DISPOSITIONS) ??
    checkFindsNothingIfFailed(review, at) ??
    checkDispositionOfJob(review, at) ??
    checkReasonCode(review.reasonCode, at) ??
    checkText(review.ruleId, at, "rule_id", REVIEW_TEXT_BYTES) ??
    checkText(review.ruleOrigin, at, "rule_origin", REVIEW_TEXT_BYTES) ??
    checkText(review.checker, at, "checker", REVIEW_TEXT_BYTES) ??
    checkEvidenceRefs(review.concerns, at, "concerns") ??
    checkEvidenceRefs(review.sources, at, "sources")
  );
}

function checkReasonCode(reasonCode: string, at: string): Checked {
  if (reasonCode !== "" && !SNAKE_CASE.test(reasonCode)) {
    return refuseField(fieldPath(at, "reason_code"), "must be in upper or lower snake case");
  }
  return checkText(reasonCode, at, "reason_code", REVIEW_TEXT_BYTES);
}

function checkFindsNothingIfFailed({ inspection, assessment }: Review, at: string): Checked {
  if (inspection !== ReviewInspection.OPERATIONAL_FAILURE) return undefined;
  if (assessment === ReviewAssessment.UNRESOLVED) return undefined;
  const rule = "must be UNRESOLVED if inspection is OPERATIONAL_FAILURE";
  return refuseField(fieldPath(at, "assessment"), rule);
}

function checkDispositionOfJob({ disposition, job }: Review, at: string): Checked {
  const jobOfDisposition = JOB_OF_DISPOSITION.get(disposition);
  if (jobOfDisposition === undefined || jobOfDisposition === job) return undefined;
  const rule = `must be one of the job ${ReviewJob[job]}`;
  return refuseField(fieldPath(at, "disposition"), rule);
}

function checkEvidenceRefs(refs: readonly EvidenceRef[], at: string, name: string): Checked {
  if (refs.length > EVIDENCE_REFS) {
    return refuseField(fieldPath(at, name), `must have at most ${EVIDENCE_REFS} entries`);
  }
  return checkEach(refs, ({ ref, category }, index) => {
    const entry = fieldPath(at, `${name}[${index}]`);
    return (
      checkRequiredText(ref, entry, "ref", EVIDENCE_REF_BYTES) ??
      checkText(category, entry, "category", EVIDENCE_CATEGORY_BYTES)
    );
  });
}
