import { AskProvenance } from "../../gen/toolmark/v1/ask_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import {
  ReviewAssessment,
  ReviewDisposition,
  ReviewInspection,
  ReviewJob,
} from "../../gen/toolmark/v1/review_pb.js";
import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import type { OldProvenance } from "./old-session.js";

// Words of the old system. One that is not known is unspecified, and so shown as unknown: it is never taken for a
// known one.

const KINDS: ReadonlyMap<string, SessionKind> = new Map([
  ["main", SessionKind.MAIN],
  ["scheduled", SessionKind.SCHEDULED],
  ["subagent", SessionKind.SUBAGENT],
  ["parallel_branch", SessionKind.PARALLEL_BRANCH],
  ["team_member", SessionKind.TEAM_MEMBER],
  ["debug", SessionKind.DEBUG],
]);

export function sessionKind(word: string): SessionKind {
  return KINDS.get(word) ?? SessionKind.UNSPECIFIED;
}

const ROLES: ReadonlyMap<string, MessageRole> = new Map([
  ["system", MessageRole.SYSTEM],
  ["user", MessageRole.USER],
  ["assistant", MessageRole.ASSISTANT],
]);

/** Absent for tool results and for roles that are not known. */
export function messageRole(word: string): MessageRole | undefined {
  return ROLES.get(word);
}

const PROVENANCES: Readonly<Record<OldProvenance, AskProvenance>> = {
  unknown: AskProvenance.UNSPECIFIED,
  permission: AskProvenance.PERMISSION,
  hook_guardrail: AskProvenance.HOOK_GUARDRAIL,
  plan: AskProvenance.PLAN,
};

export function askProvenance(provenance: OldProvenance): AskProvenance {
  return PROVENANCES[provenance];
}

const DECISIONS: ReadonlyMap<string, HookDecision> = new Map([
  ["info", HookDecision.INFO],
  ["blocked", HookDecision.BLOCKED],
  ["modified", HookDecision.MODIFIED],
  ["advisory", HookDecision.ADVISORY],
]);

export function hookDecision(word: string): HookDecision {
  return DECISIONS.get(word) ?? HookDecision.UNSPECIFIED;
}

const JOBS: ReadonlyMap<string, ReviewJob> = new Map([
  ["action", ReviewJob.ACTION],
  ["inbound", ReviewJob.INBOUND],
  ["permission", ReviewJob.PERMISSION],
]);

const ASSESSMENTS: ReadonlyMap<string, ReviewAssessment> = new Map([
  ["acceptable", ReviewAssessment.ACCEPTABLE],
  ["prohibited", ReviewAssessment.PROHIBITED],
  ["unresolved", ReviewAssessment.UNRESOLVED],
]);

const INSPECTIONS: ReadonlyMap<string, ReviewInspection> = new Map([
  ["complete", ReviewInspection.COMPLETE],
  ["operational_failure", ReviewInspection.OPERATIONAL_FAILURE],
]);

const DISPOSITIONS: ReadonlyMap<string, ReviewDisposition> = new Map([
  ["execute", ReviewDisposition.EXECUTE],
  ["pass_advisory", ReviewDisposition.PASS_ADVISORY],
  ["ask_action", ReviewDisposition.ASK_ACTION],
  ["release_result", ReviewDisposition.RELEASE_RESULT],
  ["withhold_result", ReviewDisposition.WITHHOLD_RESULT],
  ["deny", ReviewDisposition.DENY],
  ["allow_once", ReviewDisposition.ALLOW_ONCE],
  ["preserve_permission_ask", ReviewDisposition.PRESERVE_PERMISSION_ASK],
  ["continue_warning", ReviewDisposition.CONTINUE_WARNING],
]);

export interface ReviewWords {
  readonly job: string;
  readonly assessment: string;
  readonly inspection: string;
  readonly disposition: string;
}

export function reviewValues({ job, assessment, inspection, disposition }: ReviewWords) {
  return {
    job: JOBS.get(job) ?? ReviewJob.UNSPECIFIED,
    assessment: ASSESSMENTS.get(assessment) ?? ReviewAssessment.UNSPECIFIED,
    inspection: INSPECTIONS.get(inspection) ?? ReviewInspection.UNSPECIFIED,
    disposition: DISPOSITIONS.get(disposition) ?? ReviewDisposition.UNSPECIFIED,
  };
}
