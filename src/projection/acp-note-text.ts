import { AskKind, AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState, type Authorization } from "../../gen/toolmark/v1/authorization_pb.js";
import { HookDecision, type Hook } from "../../gen/toolmark/v1/hook_pb.js";
import { LegacyEvidenceKind, type LegacyEvidence } from "../../gen/toolmark/v1/legacy_pb.js";
import { ReceiptPath, Verdict, type Receipt } from "../../gen/toolmark/v1/receipt_pb.js";
import {
  ReviewAssessment,
  ReviewDisposition,
  ReviewInspection,
  ReviewJob,
  type Review,
} from "../../gen/toolmark/v1/review_pb.js";
import type { Evidence } from "../domain/attachment.js";

/** What a piece of evidence says, in words. */
export function noteText(evidence: Evidence): string {
  switch (evidence.$typeName) {
    case "toolmark.v1.Hook":
      return evidence.review === undefined
        ? hookText(evidence)
        : reviewText(evidence, evidence.review);
    case "toolmark.v1.Ask":
      return askText(evidence);
    case "toolmark.v1.Receipt":
      return receiptText(evidence);
    case "toolmark.v1.Authorization":
      return authorizationText(evidence);
  }
}

/** The question of an ask, as the harness put it or as its kind says it. */
export function questionOf({ kind, prompt, display, toolName }: Ask): string {
  const plain =
    kind === AskKind.RESULT_RELEASE
      ? `May the model get the result of ${toolName}?`
      : `May ${toolName} run with these arguments?`;
  const question = prompt === "" ? plain : prompt;
  return display === "" ? question : `${question}\n${display}`;
}

const DECISIONS: Readonly<Record<HookDecision, string>> = {
  [HookDecision.UNSPECIFIED]: "",
  [HookDecision.INFO]: "informs",
  [HookDecision.BLOCKED]: "blocks",
  [HookDecision.MODIFIED]: "made a change",
  [HookDecision.ADVISORY]: "advises against it",
};

function hookText({ hookName, phase, decision, text }: Hook): string {
  const name = hookName === "" ? "Hook" : `Hook ${hookName}`;
  const done = worded(DECISIONS, decision);
  return joined(`${name} (${phase})${done === "" ? "" : ` ${done}`}`, text);
}

const JOBS: Readonly<Record<ReviewJob, string>> = {
  [ReviewJob.UNSPECIFIED]: "Review",
  [ReviewJob.ACTION]: "Review of the call",
  [ReviewJob.PERMISSION]: "Review of the permission",
  [ReviewJob.INBOUND]: "Review of the result",
};

const ASSESSMENTS: Readonly<Record<ReviewAssessment, string>> = {
  [ReviewAssessment.UNSPECIFIED]: "no finding",
  [ReviewAssessment.ACCEPTABLE]: "acceptable",
  [ReviewAssessment.PROHIBITED]: "prohibited",
  [ReviewAssessment.UNRESOLVED]: "unresolved",
};

const DISPOSITIONS: Readonly<Record<ReviewDisposition, string>> = {
  [ReviewDisposition.UNSPECIFIED]: "nothing follows",
  [ReviewDisposition.EXECUTE]: "it may start",
  [ReviewDisposition.PASS_ADVISORY]: "it passes with an advice",
  [ReviewDisposition.ASK_ACTION]: "a person is asked",
  [ReviewDisposition.RELEASE_RESULT]: "the result is released",
  [ReviewDisposition.WITHHOLD_RESULT]: "the result is withheld",
  [ReviewDisposition.DENY]: "it is refused",
  [ReviewDisposition.ALLOW_ONCE]: "it is allowed once",
  [ReviewDisposition.PRESERVE_PERMISSION_ASK]: "a person is still asked",
  [ReviewDisposition.CONTINUE_WARNING]: "it goes on after a warning",
};

function reviewText({ text }: Hook, review: Review): string {
  const { job, assessment, inspection, disposition, reasonCode } = review;
  // A failure of the checker is no finding.
  const found =
    inspection === ReviewInspection.OPERATIONAL_FAILURE
      ? "it could not be carried out"
      : worded(ASSESSMENTS, assessment);
  const reason = reasonCode === "" ? "" : ` (${reasonCode})`;
  return joined(
    `${worded(JOBS, job)}: ${found}${reason}; ${worded(DISPOSITIONS, disposition)}`,
    text,
  );
}

const ASK_STATES: Readonly<Record<AskState, string>> = {
  [AskState.UNSPECIFIED]: "Asked",
  [AskState.OPEN]: "Asks",
  [AskState.ANSWERED]: "Asked and answered",
  [AskState.EXPIRED]: "Asked, and nobody answered in time",
  [AskState.WITHDRAWN]: "Asked and taken back",
  [AskState.SUPERSEDED]: "Asked, and replaced",
};

function askText(ask: Ask): string {
  return joined(worded(ASK_STATES, ask.state), questionOf(ask));
}

const VERDICTS: Readonly<Record<Verdict, string>> = {
  [Verdict.UNSPECIFIED]: "Settled",
  [Verdict.DENY]: "Denied",
  [Verdict.ALLOW_ONCE]: "Allowed once",
  [Verdict.ALLOW_ALWAYS]: "Allowed always",
  [Verdict.EXPIRED]: "Expired",
  [Verdict.WITHDRAWN]: "Withdrawn",
};

function receiptText({ verdict, path, rule, actor, reason }: Receipt): string {
  return joined(`${worded(VERDICTS, verdict)}${pathText(path, rule, actor?.subject)}`, reason);
}

function pathText(path: ReceiptPath, rule = "", subject = ""): string {
  switch (path) {
    case ReceiptPath.HUMAN:
      return subject === "" ? " by a person" : ` by ${subject}`;
    case ReceiptPath.RULE:
      return rule === "" ? " by a rule" : ` by rule ${rule}`;
    case ReceiptPath.HOOK:
      return " by a hook";
    default:
      return "";
  }
}

const AUTHORIZATION_STATES: Readonly<Record<AuthorizationState, string>> = {
  [AuthorizationState.UNSPECIFIED]: "unknown",
  [AuthorizationState.PENDING]: "pending",
  [AuthorizationState.GRANTED]: "granted",
  [AuthorizationState.DENIED]: "denied",
  [AuthorizationState.CANCELLED]: "cancelled",
  [AuthorizationState.EXPIRED]: "expired",
  [AuthorizationState.INTERRUPTED]: "interrupted",
  [AuthorizationState.FAILED]: "failed",
  [AuthorizationState.CLOSED]: "closed with its run",
};

function authorizationText({ displayName, state }: Authorization): string {
  const name = displayName === "" ? "Authorization" : `Authorization for ${displayName}`;
  return `${name}: ${worded(AUTHORIZATION_STATES, state)}`;
}

const LEGACY_KINDS: Readonly<Record<LegacyEvidenceKind, string>> = {
  [LegacyEvidenceKind.UNSPECIFIED]: "Something",
  [LegacyEvidenceKind.RESULT]: "A result",
  [LegacyEvidenceKind.CALL]: "A call",
  [LegacyEvidenceKind.ASK]: "A question",
  [LegacyEvidenceKind.RETRACTION]: "A question that was taken back",
  [LegacyEvidenceKind.APPROVAL]: "A verdict",
  [LegacyEvidenceKind.AUTHORIZATION]: "An authorization",
  [LegacyEvidenceKind.ARCHIVE]: "An archived history",
  [LegacyEvidenceKind.GAP]: "A place where events are missing",
  [LegacyEvidenceKind.MESSAGE]: "A message",
  [LegacyEvidenceKind.EVENT]: "An event",
};

/** What an older system kept. `content` is the text of its content. */
export function legacyText(evidence: LegacyEvidence, content: string): string {
  const { kind, toolName, label, text } = evidence;
  const about = [toolName, label].filter((part) => part !== "").join(", ");
  const what = `${worded(LEGACY_KINDS, kind)} of an older system${about === "" ? "" : ` (${about})`}`;
  return joined(what, [text, content].filter((part) => part !== "").join("\n"));
}

/** The word for a value; a newer service may send one that has none here. */
function worded<Value extends number>(
  words: Readonly<Partial<Record<Value, string>>>,
  value: Value,
): string {
  return words[value] ?? `unknown (${value})`;
}

function joined(head: string, text: string): string {
  return text === "" ? `${head}.` : `${head}: ${text}`;
}
