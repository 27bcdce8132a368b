import { HookDecision, type Hook } from "../../gen/toolmark/v1/hook_pb.js";
import {
  ReviewAssessment,
  ReviewDisposition,
  ReviewInspection,
  ReviewJob,
  type Review,
} from "../../gen/toolmark/v1/review_pb.js";
import { enumText, isKnownValue } from "./enum-text.js";

/**
 * What a review says, from its own fields alone: all reviews are published with the decision INFO.
 * - `outage`: the inspection did not work. That is no finding.
 * - `unknown`: a field has a value that this version does not know, or none.
 */
export type ReviewFinding = "outage" | "prohibited" | "unresolved" | "acceptable" | "unknown";

/** How much a notice matters. */
export type Severity = "info" | "warning" | "alarm";

export function findingOf({ job, assessment, inspection, disposition }: Review): ReviewFinding {
  const isKnown =
    isKnownValue(ReviewJob, job) &&
    isKnownValue(ReviewAssessment, assessment) &&
    isKnownValue(ReviewInspection, inspection) &&
    isKnownValue(ReviewDisposition, disposition);
  if (!isKnown) return "unknown";
  if (inspection === ReviewInspection.OPERATIONAL_FAILURE) return "outage";
  switch (assessment) {
    case ReviewAssessment.PROHIBITED:
      return "prohibited";
    case ReviewAssessment.ACCEPTABLE:
      return "acceptable";
    default:
      return "unresolved";
  }
}

/** Whether a review says that all is well, and nothing else. */
export function isBenign(review: Review): boolean {
  const { job, inspection, assessment, disposition } = review;
  return (
    review.reviewId !== "" &&
    (job === ReviewJob.ACTION || job === ReviewJob.INBOUND) &&
    inspection === ReviewInspection.COMPLETE &&
    assessment === ReviewAssessment.ACCEPTABLE &&
    (disposition === ReviewDisposition.EXECUTE || disposition === ReviewDisposition.RELEASE_RESULT)
  );
}

const FINDING_TEXT: Readonly<Record<ReviewFinding, string>> = {
  outage: "The check did not work. That is not a finding.",
  prohibited: "Finding: this is against a rule.",
  unresolved: "The check came to no conclusion.",
  acceptable: "The check has no objection.",
  unknown: "The outcome of the check is not known here. Do not assume it passed.",
};

const FINDING_SEVERITY: Readonly<Record<ReviewFinding, Severity>> = {
  outage: "warning",
  prohibited: "alarm",
  unresolved: "warning",
  acceptable: "info",
  unknown: "alarm",
};

export function reviewSeverity(review: Review): Severity {
  const finding = findingOf(review);
  const isStopped =
    review.disposition === ReviewDisposition.DENY ||
    review.disposition === ReviewDisposition.WITHHOLD_RESULT;
  return finding === "acceptable" && isStopped ? "warning" : FINDING_SEVERITY[finding];
}

export function reviewText({ toolName, text }: Hook, review: Review): string {
  const job = enumText(ReviewJob, review.job);
  const said = [FINDING_TEXT[findingOf(review)], dispositionText(review), text];
  return `Review (${job}) of ${toolName}: ${said.filter((part) => part !== "").join(" ")}`;
}

function dispositionText({ job, disposition }: Review): string {
  const isInbound = job === ReviewJob.INBOUND;
  switch (disposition) {
    case ReviewDisposition.EXECUTE:
      return "The call may start.";
    case ReviewDisposition.PASS_ADVISORY:
      return `The ${isInbound ? "result" : "call"} passes with an advice.`;
    case ReviewDisposition.ASK_ACTION:
      return "A person is asked.";
    case ReviewDisposition.RELEASE_RESULT:
      return "The model gets the result.";
    case ReviewDisposition.WITHHOLD_RESULT:
      return "The model does not get the result.";
    case ReviewDisposition.DENY:
      return isInbound ? "The tool has run; its result is refused." : "The call is refused.";
    case ReviewDisposition.ALLOW_ONCE:
      return "Allowed this once.";
    case ReviewDisposition.PRESERVE_PERMISSION_ASK:
      return "A person is still asked.";
    case ReviewDisposition.CONTINUE_WARNING:
      return "The agent goes on after a warning.";
    default:
      return `What follows is unknown (${disposition}).`;
  }
}

export function hookSeverity({ decision }: Hook): Severity {
  switch (decision) {
    case HookDecision.INFO:
    case HookDecision.MODIFIED:
      return "info";
    case HookDecision.BLOCKED:
    case HookDecision.ADVISORY:
      return "warning";
    default:
      return "alarm";
  }
}

export function hookText({ phase, hookName, toolName, decision, text }: Hook): string {
  const name = [phase, hookName, toolName].filter((part) => part !== "").join(" ");
  return `Hook ${name}: ${enumText(HookDecision, decision)}${text === "" ? "" : `. ${text}`}`;
}
