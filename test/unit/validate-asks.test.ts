import {
  create,
  type DescMessage,
  type DescMethod,
  type Message,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";

import { CallService } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { CommandSchema } from "../../gen/toolmark/engine/v1/command_pb.js";
import { ApprovalService } from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskKind, AskProvenance } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { HistoryService } from "../../gen/toolmark/v1/history_service_pb.js";
import { ReceiptPath, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import {
  ReviewAssessment,
  ReviewDisposition,
  ReviewInspection,
  ReviewJob,
} from "../../gen/toolmark/v1/review_pb.js";
import { DEFAULT_LIMITS } from "../../src/domain/limits.js";
import { createValidator } from "../../src/rpc/validate/validator.js";
import {
  broken,
  describeMalformed,
  unaryRequest,
  type BrokenCommand,
  type CommandInit,
} from "../support/broken-commands.js";

const LIMITS = { ...DEFAULT_LIMITS, inlineBodyBytes: 10, openCallsPerSession: 2 };
const validate = createValidator(LIMITS);

type InitOf<Case extends string> = Exclude<Extract<CommandInit, { case: Case }>["value"], Message>;

const bytes = (size: number) => new Uint8Array(size);
const text = (size: number) => "t".repeat(size);

function valuesOutside<Value extends number>(
  desc: Readonly<Record<string, string | number>>,
  allowed: readonly Value[],
): Value[] {
  const numbers = Object.values(desc).filter((value) => typeof value === "number");
  return [...numbers, 99].filter((value) => !allowed.includes(value as Value)) as Value[];
}

const YEAR_1 = -62_135_596_800n;
const YEAR_9999_END = 253_402_300_799n;
const BROKEN_TIMES = [
  { seconds: YEAR_1 - 1n, nanos: 0 },
  { seconds: YEAR_9999_END + 1n, nanos: 0 },
  { seconds: 0n, nanos: -1 },
  { seconds: 0n, nanos: 1_000_000_000 },
];

const VERDICTS = [Verdict.DENY, Verdict.ALLOW_ONCE, Verdict.ALLOW_ALWAYS];
const OTHER_VERDICTS = valuesOutside(Verdict, VERDICTS);

const open = (change: InitOf<"openAsk">): CommandInit => ({
  case: "openAsk",
  value: {
    toolCallId: "tc_1",
    kind: AskKind.ACTION,
    provenance: AskProvenance.PERMISSION,
    ...change,
  },
});
const release = (change: InitOf<"openAsk">) =>
  open({ kind: AskKind.RESULT_RELEASE, heldSha256: bytes(32), ...change });

const OPEN_ASK: readonly BrokenCommand[] = [
  broken("no call", open({ toolCallId: "" }), "tool_call_id"),
  broken("no kind", open({ kind: AskKind.UNSPECIFIED }), "kind"),
  broken("no provenance", open({ provenance: AskProvenance.UNSPECIFIED }), "provenance"),
  broken("a review given but empty", open({ reviewId: "" }), "review_id"),
  broken("a display above 16 KiB", open({ display: text(16 * 1024 + 1) }), "display"),
  broken("a prompt above 16 KiB", open({ prompt: text(16 * 1024 + 1) }), "prompt"),
  ...BROKEN_TIMES.map((time) =>
    broken(`time ${time.seconds}.${time.nanos}`, open({ expireTime: time }), "expire_time"),
  ),
  ...OTHER_VERDICTS.map((verdict) =>
    broken(
      `verdict ${verdict}`,
      open({ allowedVerdicts: [Verdict.DENY, verdict] }),
      "allowed_verdicts[1]",
    ),
  ),
  broken(
    "a verdict twice",
    open({ allowedVerdicts: [Verdict.DENY, Verdict.ALLOW_ONCE, Verdict.DENY] }),
    "allowed_verdicts[2]",
  ),
  broken(
    "verdicts without DENY",
    open({ allowedVerdicts: [Verdict.ALLOW_ONCE] }),
    "allowed_verdicts",
  ),
  broken(
    "ALLOW_ALWAYS for a result",
    release({ allowedVerdicts: [Verdict.DENY, Verdict.ALLOW_ALWAYS] }),
    "allowed_verdicts[1]",
  ),
  broken("a digest for an action", open({ heldSha256: bytes(32) }), "held_sha256"),
  broken("a size for an action", open({ heldSizeBytes: 1n }), "held_size_bytes"),
  broken("no digest of a result", release({ heldSha256: bytes(0) }), "held_sha256"),
  broken("a digest of 31 bytes", release({ heldSha256: bytes(31) }), "held_sha256"),
];

const withdraw = (change: InitOf<"withdrawAsk">): CommandInit => ({
  case: "withdrawAsk",
  value: { askId: "ask_1", ...change },
});
const settle = (change: InitOf<"settleAsk">): CommandInit => ({
  case: "settleAsk",
  value: { askId: "ask_1", verdict: Verdict.DENY, ...change },
});
const RULE = ReceiptPath.RULE;
const HOOK = ReceiptPath.HOOK;

const SETTLE_ASK: readonly BrokenCommand[] = [
  broken("no ask", withdraw({ askId: "" }), "ask_id"),
  broken("a reason above 4096 bytes", withdraw({ reason: text(4097) }), "reason"),
  broken("no ask", settle({ askId: "", path: RULE, rule: "r" }), "ask_id"),
  ...valuesOutside(ReceiptPath, [RULE, HOOK]).map((path) =>
    broken(`path ${path}`, settle({ path, rule: "r" }), "path"),
  ),
  broken("RULE without a rule", settle({ path: RULE }), "rule"),
  broken("RULE with an empty rule", settle({ path: RULE, rule: "" }), "rule"),
  broken("a rule above 512 bytes", settle({ path: RULE, rule: text(513) }), "rule"),
  broken("RULE with a hook", settle({ path: RULE, rule: "r", hookId: "hk_1" }), "hook_id"),
  broken("HOOK without a hook", settle({ path: HOOK }), "hook_id"),
  broken("HOOK with an empty id", settle({ path: HOOK, hookId: "" }), "hook_id"),
  broken("HOOK with a rule", settle({ path: HOOK, hookId: "hk_1", rule: "" }), "rule"),
  ...OTHER_VERDICTS.map((verdict) =>
    broken(`verdict ${verdict}`, settle({ path: RULE, rule: "r", verdict }), "verdict"),
  ),
  broken(
    "a reason above 4096 bytes",
    settle({ path: RULE, rule: "r", reason: text(4097) }),
    "reason",
  ),
];

const park = (change: InitOf<"parkToolCall">): CommandInit => ({
  case: "parkToolCall",
  value: { toolCallId: "tc_1", displayName: "calendar", ...change },
});
const OUTCOMES = [
  AuthorizationState.GRANTED,
  AuthorizationState.DENIED,
  AuthorizationState.CANCELLED,
  AuthorizationState.EXPIRED,
  AuthorizationState.INTERRUPTED,
  AuthorizationState.FAILED,
];
const settleAuthorization = (value: InitOf<"settleAuthorization">): CommandInit => ({
  case: "settleAuthorization",
  value,
});

const AUTHORIZATIONS: readonly BrokenCommand[] = [
  broken("no call", park({ toolCallId: "" }), "tool_call_id"),
  broken("no display name", park({ displayName: "" }), "display_name"),
  broken("a display name above 512 bytes", park({ displayName: text(513) }), "display_name"),
  ...BROKEN_TIMES.map((time) =>
    broken(`time ${time.seconds}.${time.nanos}`, park({ expireTime: time }), "expire_time"),
  ),
  broken(
    "an empty id behind",
    park({ deferredToolCallIds: ["a", ""] }),
    "deferred_tool_call_ids[1]",
  ),
  broken("an id twice", park({ deferredToolCallIds: ["a", "a"] }), "deferred_tool_call_ids[1]"),
  broken(
    "more calls behind than can be open",
    park({ deferredToolCallIds: ["a", "b", "c"] }),
    "deferred_tool_call_ids",
    ErrorReason.QUOTA_EXCEEDED,
  ),
  broken("no authorization", settleAuthorization({}), "authorization_id"),
  ...valuesOutside(AuthorizationState, OUTCOMES).map((outcome) =>
    broken(
      `outcome ${outcome}`,
      settleAuthorization({ authorizationId: "aut_1", outcome }),
      "outcome",
    ),
  ),
];

type ReviewInit = Exclude<InitOf<"publishReview">["review"], Message | undefined>;
const goodReview = {
  job: ReviewJob.ACTION,
  assessment: ReviewAssessment.ACCEPTABLE,
  inspection: ReviewInspection.COMPLETE,
  disposition: ReviewDisposition.EXECUTE,
};
const publish = (change: InitOf<"publishReview">): CommandInit => ({
  case: "publishReview",
  value: { toolCallId: "tc_1", phase: "pre_tool_use", review: goodReview, ...change },
});
const review = (change: ReviewInit) => publish({ review: { ...goodReview, ...change } });
const OF_JOB = {
  [ReviewJob.ACTION]: [ReviewDisposition.EXECUTE, ReviewDisposition.ASK_ACTION],
  [ReviewJob.INBOUND]: [ReviewDisposition.RELEASE_RESULT, ReviewDisposition.WITHHOLD_RESULT],
  [ReviewJob.PERMISSION]: [ReviewDisposition.ALLOW_ONCE, ReviewDisposition.PRESERVE_PERMISSION_ASK],
};
const OF_EVERY_JOB = [
  ReviewDisposition.DENY,
  ReviewDisposition.PASS_ADVISORY,
  ReviewDisposition.CONTINUE_WARNING,
];
const JOBS = [ReviewJob.ACTION, ReviewJob.INBOUND, ReviewJob.PERMISSION] as const;
const FAILED = ReviewInspection.OPERATIONAL_FAILURE;
const refs = (count: number) => Array.from({ length: count }, () => ({ ref: "r" }));

const PUBLISH_REVIEW: readonly BrokenCommand[] = [
  broken("an origin without a session", publish({ origin: {} }), "origin.session_id"),
  broken("no call", publish({ toolCallId: "" }), "tool_call_id"),
  broken("no phase", publish({ phase: "" }), "phase"),
  broken("a phase above 128 bytes", publish({ phase: text(129) }), "phase"),
  broken("text above the inline limit", publish({ text: text(11) }), "text"),
  broken("detail above the inline limit", publish({ detail: text(11) }), "detail"),
  broken(
    "no review",
    { case: "publishReview", value: { toolCallId: "tc_1", phase: "p" } },
    "review",
  ),
  broken("a malformed review id", review({ reviewId: "\n" }), "review.review_id"),
  broken("no job", review({ job: ReviewJob.UNSPECIFIED }), "review.job"),
  broken(
    "no assessment",
    review({ assessment: ReviewAssessment.UNSPECIFIED }),
    "review.assessment",
  ),
  broken(
    "no inspection",
    review({ inspection: ReviewInspection.UNSPECIFIED }),
    "review.inspection",
  ),
  broken(
    "no disposition",
    review({ disposition: ReviewDisposition.UNSPECIFIED }),
    "review.disposition",
  ),
  ...[ReviewAssessment.ACCEPTABLE, ReviewAssessment.PROHIBITED].map((assessment) =>
    broken(
      `assessment ${assessment} after a failure`,
      review({ assessment, inspection: FAILED }),
      "review.assessment",
    ),
  ),
  ...JOBS.flatMap((job) =>
    JOBS.filter((other) => other !== job)
      .flatMap((other) => OF_JOB[other])
      .map((disposition) =>
        broken(
          `disposition ${disposition} of job ${job}`,
          review({ job, disposition }),
          "review.disposition",
        ),
      ),
  ),
  broken("a long reason code", review({ reasonCode: text(513) }), "review.reason_code"),
  broken("a mixed reason code", review({ reasonCode: "Too_Risky" }), "review.reason_code"),
  broken("a reason code in words", review({ reasonCode: "too risky" }), "review.reason_code"),
  broken("a long rule id", review({ ruleId: text(513) }), "review.rule_id"),
  broken("a long rule origin", review({ ruleOrigin: text(513) }), "review.rule_origin"),
  broken("a long checker", review({ checker: text(513) }), "review.checker"),
  broken("33 concerns", review({ concerns: refs(33) }), "review.concerns"),
  broken("33 sources", review({ sources: refs(33) }), "review.sources"),
  broken(
    "an empty ref",
    review({ concerns: [{ ref: "r" }, { ref: "" }] }),
    "review.concerns[1].ref",
  ),
  broken("a long ref", review({ sources: [{ ref: text(513) }] }), "review.sources[0].ref"),
  broken(
    "a long category",
    review({ sources: [{ ref: "r", category: text(129) }] }),
    "review.sources[0].category",
  ),
];

describeMalformed([...OPEN_ASK, ...SETTLE_ASK, ...AUTHORIZATIONS, ...PUBLISH_REVIEW], validate);

describe("commands that just meet their limits are accepted", () => {
  const accepted = (init: CommandInit) => {
    const { method, request } = unaryRequest(create(CommandSchema, { command: init }));
    return validate(method, request);
  };

  it.each([
    ["the first second", { seconds: YEAR_1, nanos: 0 }],
    ["the last nanosecond", { seconds: YEAR_9999_END, nanos: 999_999_999 }],
  ])("an ask that expires at %s", (_, expireTime) => {
    expect(accepted(open({ expireTime }))).toBeUndefined();
    expect(accepted(park({ expireTime }))).toBeUndefined();
  });

  it("an ask with every text as long as it may be and every verdict", () => {
    const display = "ä".repeat(8 * 1024);
    const ask = { display, prompt: display, allowedVerdicts: VERDICTS };
    expect(accepted(open(ask))).toBeUndefined();
  });

  it.each([0n, 1n, 2n ** 64n - 1n])("a held result of %d bytes", (heldSizeBytes) => {
    expect(accepted(release({ heldSizeBytes }))).toBeUndefined();
  });

  it.each(VERDICTS)("verdict %d of a rule and of a hook", (verdict) => {
    const reason = text(4096);
    expect(accepted(settle({ path: RULE, rule: text(512), verdict, reason }))).toBeUndefined();
    expect(accepted(settle({ path: HOOK, hookId: text(512), verdict }))).toBeUndefined();
  });

  it.each(OUTCOMES)("outcome %d of an authorization", (outcome) => {
    const settled = settleAuthorization({ authorizationId: "aut_1", outcome });
    expect(accepted(settled)).toBeUndefined();
  });

  it("a call with as many behind it as a turn has", () => {
    expect(
      accepted(park({ displayName: text(512), deferredToolCallIds: ["a", "b"] })),
    ).toBeUndefined();
  });

  it.each(
    JOBS.flatMap((job) =>
      [...OF_JOB[job], ...OF_EVERY_JOB].map((disposition) => ({ job, disposition })),
    ),
  )("disposition $disposition of job $job", (change) => {
    expect(accepted(review(change))).toBeUndefined();
  });

  it("a review with every text as long as it may be", () => {
    const evidence = Array.from({ length: 32 }, () => ({ ref: text(512), category: text(128) }));
    const texts = { reasonCode: text(512), ruleId: text(512), ruleOrigin: text(512) };
    const long = { ...texts, checker: text(512), concerns: evidence, sources: evidence };
    const command = { phase: text(128), text: text(10), detail: text(10) };
    expect(accepted(publish({ ...command, review: { ...goodReview, ...long } }))).toBeUndefined();
  });

  it("a failed inspection that found nothing", () => {
    const assessment = ReviewAssessment.UNRESOLVED;
    expect(accepted(review({ inspection: FAILED, assessment }))).toBeUndefined();
  });
});

const approval = ApprovalService.method;
const history = HistoryService.method;
const { awaitAsk } = CallService.method;

function fieldOf<Input extends DescMessage>(
  method: DescMethod & { readonly input: Input },
  init: MessageInitShape<Input>,
): string | undefined {
  return validate(method, create(method.input, init))?.metadata["field"];
}

describe("requests about asks", () => {
  const sessionId = "ses_1";
  const answer = {
    requestId: "request 1",
    sessionId,
    askId: "ask_1",
    answerToken: "token",
    toolCallId: "tc_1",
    verdict: Verdict.DENY,
  };

  it.each([
    ["no ask", { askId: "" }, "ask_id"],
    ["no token", { answerToken: "" }, "answer_token"],
    ["a token above 512 bytes", { answerToken: text(513) }, "answer_token"],
    ["a token that is not printable", { answerToken: "a\n" }, "answer_token"],
    ["a token that is not ASCII", { answerToken: "ä" }, "answer_token"],
    ["no call", { toolCallId: "" }, "tool_call_id"],
    ["a review given but empty", { reviewId: "" }, "review_id"],
    ["a reason above 4096 bytes", { reason: text(4097) }, "reason"],
    ["a digest of 31 bytes", { presentedSha256: bytes(31) }, "presented_sha256"],
  ])("AnswerAsk refuses %s", (_, change, field) => {
    expect(fieldOf(approval.answerAsk, { ...answer, ...change })).toBe(field);
  });

  it.each(OTHER_VERDICTS)("AnswerAsk refuses verdict %d", (verdict) => {
    expect(fieldOf(approval.answerAsk, { ...answer, verdict })).toBe("verdict");
  });

  it("AnswerAsk quotes no token", () => {
    const request = create(approval.answerAsk.input, { ...answer, answerToken: "s3cret\n" });
    expect(JSON.stringify(validate(approval.answerAsk, request))).not.toContain("s3cret");
  });

  it.each(VERDICTS)(
    "AnswerAsk takes verdict %d with every text as long as it may be",
    (verdict) => {
      const longest = { answerToken: "~".repeat(512), reason: text(4096), verdict };
      expect(fieldOf(approval.answerAsk, { ...answer, ...longest })).toBeUndefined();
    },
  );

  it.each(BROKEN_TIMES)("ListAsks refuses $seconds.$nanos as a time", (time) => {
    expect(fieldOf(approval.listAsks, { createdBefore: time })).toBe("created_before");
    expect(fieldOf(approval.listAsks, { createdAfter: time })).toBe("created_after");
    expect(fieldOf(approval.listAsks, { expiringBefore: time })).toBe("expiring_before");
  });

  it("ListAsks bounds its filters and its token", () => {
    const longest = { pageToken: text(4096), ownerSubject: text(256), toolName: text(512) };
    expect(fieldOf(approval.listAsks, longest)).toBeUndefined();
    expect(fieldOf(approval.listAsks, { pageToken: text(4097) })).toBe("page_token");
    expect(fieldOf(approval.listAsks, { ownerSubject: text(257) })).toBe("owner_subject");
    expect(fieldOf(approval.listAsks, { toolName: text(513) })).toBe("tool_name");
    expect(fieldOf(approval.listAsks, { sessionId: "\n" })).toBe("session_id");
  });

  it("WatchAsks bounds its cursor", () => {
    expect(fieldOf(approval.watchAsks, { cursor: text(4096) })).toBeUndefined();
    expect(fieldOf(approval.watchAsks, { cursor: text(4097) })).toBe("cursor");
    expect(fieldOf(approval.watchAsks, { sessionId: "\n" })).toBe("session_id");
  });

  it("reads of one record must name it", () => {
    expect(fieldOf(approval.getAsk, { sessionId })).toBe("ask_id");
    expect(fieldOf(awaitAsk, { sessionId })).toBe("ask_id");
    expect(fieldOf(approval.getReceipt, { sessionId })).toBe("receipt_id");
    expect(fieldOf(history.getReviewDetail, { sessionId })).toBe("review_id");
    expect(fieldOf(history.getAuthorization, { sessionId })).toBe("authorization_id");
  });

  it("pages of records bound their token", () => {
    const pageToken = text(4097);
    expect(fieldOf(approval.listReceipts, { sessionId, pageToken })).toBe("page_token");
    expect(fieldOf(history.listAuthorizations, { sessionId, pageToken })).toBe("page_token");
  });
});
