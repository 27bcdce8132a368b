import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import {
  GetReviewDetailResponseSchema,
  WatchEventsResponseSchema,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { ReceiptPath, SpendState, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import {
  ReviewAssessment,
  ReviewDisposition,
  ReviewInspection,
  ReviewJob,
} from "../../gen/toolmark/v1/review_pb.js";
import { Conversation, type ConversationOptions, type Notice } from "../../src/client/index.js";
import type { RevisedRecord } from "../../src/domain/merge-law.js";
import {
  OTHER,
  REVIEW,
  SESSION,
  askOf,
  callOf,
  eventOf,
  hookOf,
  receiptOf,
  reviewOf,
  UNKNOWN,
} from "../support/conversation-records.js";

const { ACTION, INBOUND, PERMISSION } = ReviewJob;
const { ACCEPTABLE, PROHIBITED, UNRESOLVED } = ReviewAssessment;
const { OPERATIONAL_FAILURE } = ReviewInspection;
const D = ReviewDisposition;
const BENIGN = { assessment: ACCEPTABLE, disposition: D.EXECUTE };

function conversationOf(
  records: readonly RevisedRecord[],
  options: ConversationOptions = {},
): Conversation {
  const conversation = new Conversation(SESSION, options);
  for (const record of records) conversation.apply(eventOf(record));
  return conversation;
}

const noticesOf = (...records: readonly RevisedRecord[]): Notice[] =>
  conversationOf([callOf(1n), ...records]).notices();

describe("7.2 every new hook record yields a notice", () => {
  test("one for each, none for a duplicate", () => {
    const notices = noticesOf(hookOf(2n), hookOf(3n, { hookId: "hk_2" }), hookOf(2n));
    expect(notices.map(({ hookId }) => hookId)).toEqual(["hk_1", "hk_2"]);
  });

  test("an update of a review changes its notice and adds none", () => {
    const first = noticesOf(reviewOf(2n));
    const second = noticesOf(reviewOf(2n), reviewOf(3n, { assessment: PROHIBITED }));
    expect(second.map(({ key }) => key)).toEqual(first.map(({ key }) => key));
    expect(second[0]?.text).not.toBe(first[0]?.text);
  });

  test("a conflict yields a visible warning that names it", () => {
    const [, conflict] = noticesOf(hookOf(2n), hookOf(2n, { text: "other" }));
    expect(conflict).toMatchObject({ about: "conflict", severity: "warning" });
    expect(conflict?.text).toContain("hook hk_1");
  });

  test.each([
    ["info", HookDecision.INFO, "info"],
    ["blocked", HookDecision.BLOCKED, "warning"],
    ["modified", HookDecision.MODIFIED, "info"],
    ["advisory", HookDecision.ADVISORY, "warning"],
    ["unknown (0)", HookDecision.UNSPECIFIED, "alarm"],
    ["unknown (99)", UNKNOWN, "alarm"],
  ])("an ordinary one says its decision: %s", (name, decision, severity) => {
    const [notice] = noticesOf(hookOf(2n, { decision, text: "no network" }));
    expect(notice).toMatchObject({ severity, text: `Hook pre_tool_use exec: ${name}. no network` });
  });
});

describe("7.2 severity comes from the review's payload, not from the decision", () => {
  const rows: readonly [string, Parameters<typeof reviewOf>[1], string, string][] = [
    ["an outage", { inspection: OPERATIONAL_FAILURE }, "outage", "warning"],
    [
      "an outage, whatever is assessed",
      { inspection: OPERATIONAL_FAILURE, assessment: PROHIBITED },
      "outage",
      "warning",
    ],
    ["a finding", { assessment: PROHIBITED }, "prohibited", "alarm"],
    ["no conclusion", { assessment: UNRESOLVED }, "unresolved", "warning"],
    [
      "no objection and an advice",
      { assessment: ACCEPTABLE, disposition: D.PASS_ADVISORY },
      "acceptable",
      "info",
    ],
    [
      "no objection and a denial",
      { assessment: ACCEPTABLE, disposition: D.DENY },
      "acceptable",
      "warning",
    ],
    ["the permission job", { ...BENIGN, job: PERMISSION }, "acceptable", "info"],
    ["an unknown job", { ...BENIGN, job: UNKNOWN }, "unknown", "alarm"],
    ["a missing job", { ...BENIGN, job: ReviewJob.UNSPECIFIED }, "unknown", "alarm"],
    ["an unknown assessment", { ...BENIGN, assessment: UNKNOWN }, "unknown", "alarm"],
    [
      "a missing assessment",
      { ...BENIGN, assessment: ReviewAssessment.UNSPECIFIED },
      "unknown",
      "alarm",
    ],
    ["an unknown inspection", { ...BENIGN, inspection: UNKNOWN }, "unknown", "alarm"],
    [
      "a missing inspection",
      { ...BENIGN, inspection: ReviewInspection.UNSPECIFIED },
      "unknown",
      "alarm",
    ],
    ["an unknown disposition", { ...BENIGN, disposition: UNKNOWN }, "unknown", "alarm"],
    [
      "a missing disposition",
      { ...BENIGN, disposition: ReviewDisposition.UNSPECIFIED },
      "unknown",
      "alarm",
    ],
  ];
  test.each(rows)("%s is visible as what it is", (_what, said, finding, severity) => {
    const decision = HookDecision.INFO;
    expect(noticesOf(reviewOf(2n, said, { decision }))).toMatchObject([{ finding, severity }]);
  });

  test("each finding has a text of its own", () => {
    const texts = rows.map(([, said, finding]) => [
      finding,
      noticesOf(reviewOf(2n, said))[0]?.text,
    ]);
    const textOf = (wanted: string) => texts.find(([finding]) => finding === wanted)?.[1];
    expect(textOf("outage")).toContain("not a finding");
    expect(textOf("prohibited")).toContain("against a rule");
    expect(textOf("unresolved")).toContain("no conclusion");
    expect(textOf("acceptable")).toContain("no objection");
    expect(textOf("unknown")).toContain("Do not assume it passed");
    for (const [finding, text] of texts) {
      if (finding === "outage" || finding === "unknown") {
        expect(text).not.toContain("against a rule");
      }
    }
  });

  test("a denial reads differently for what has run already", () => {
    const textFor = (job: ReviewJob) =>
      noticesOf(reviewOf(2n, { job, disposition: D.DENY }))[0]?.text;
    expect(textFor(INBOUND)).toContain("The tool has run; its result is refused.");
    expect(textFor(ACTION)).toContain("The call is refused.");
    expect(textFor(PERMISSION)).toContain("The call is refused.");
  });

  test.each([
    D.EXECUTE,
    D.PASS_ADVISORY,
    D.ASK_ACTION,
    D.RELEASE_RESULT,
    D.WITHHOLD_RESULT,
    D.DENY,
    D.ALLOW_ONCE,
    D.PRESERVE_PERMISSION_ASK,
    D.CONTINUE_WARNING,
  ])("disposition %s has a text", (disposition) => {
    const review = reviewOf(2n, { ...BENIGN, disposition });
    const [notice] = conversationOf([review], { debug: true }).notices();
    expect(notice?.text).not.toContain("unknown");
  });
});

describe("7.2 what says that all is well is kept and hidden", () => {
  const benign = [
    reviewOf(2n, BENIGN),
    reviewOf(2n, { ...BENIGN, job: INBOUND, disposition: D.RELEASE_RESULT }),
  ];
  test.each(benign)(
    "until its notice is expanded, the setting asks for it, or debug is on: %#",
    (review) => {
      const conversation = conversationOf([review]);
      expect(conversation.notices()).toEqual([]);
      const [hidden] = conversation.view().notices;
      expect(hidden).toMatchObject({ isBenign: true, hookId: REVIEW });
      conversation.expandNotice(hidden?.key ?? "");
      expect(conversation.notices()).toEqual([hidden]);
      conversation.collapseNotice(hidden?.key ?? "");
      expect(conversation.notices()).toEqual([]);
      expect(conversationOf([review], { showBenign: true }).notices()).toHaveLength(1);
      expect(conversationOf([review], { debug: true }).notices()).toHaveLength(1);
    },
  );

  test("is visible if its rationale is that of another review", () => {
    const conversation = conversationOf([reviewOf(2n, BENIGN)]);
    const request = conversation.requestReviewDetail(REVIEW);
    if (request === undefined) throw new Error("no request");
    const detail = create(GetReviewDetailResponseSchema, { reviewId: "rv_2", detail: "secret" });
    expect(conversation.applyReviewDetail(request, detail)).toBe(true);
    const [notice] = conversation.notices();
    expect(notice).toMatchObject({
      severity: "warning",
      detail: { state: "mismatched", text: "" },
    });
    expect(JSON.stringify(notice?.text)).not.toContain("secret");
  });
});

describe("7.2 approval hand-over", () => {
  const review = reviewOf(2n);
  const open = askOf(3n, { reviewId: REVIEW });
  const answered = askOf(4n, { reviewId: REVIEW, state: AskState.ANSWERED, receiptId: "rcp_1" });
  const receipt = receiptOf(5n, { reviewId: REVIEW, reason: "it is fine" });

  test("when the ask opens, the prompt owns the review and its notice is gone", () => {
    const conversation = conversationOf([callOf(1n), review, open]);
    expect(conversation.notices()).toEqual([]);
    expect(conversation.prompts().map(({ ask }) => ask.reviewId)).toEqual([REVIEW]);
  });

  test("an ask that names a review of another call leaves that notice alone", () => {
    const other = askOf(3n, { reviewId: REVIEW, toolCallId: "tc_2" });
    expect(noticesOf(review, other)).toMatchObject([{ about: "review" }]);
  });

  test("a child's ask leaves the root's notice alone", () => {
    const conversation = conversationOf([callOf(1n), review]);
    const ask = askOf(3n, { reviewId: REVIEW, origin: { sessionId: OTHER } });
    conversation.apply(eventOf(ask, { sessionId: OTHER }));
    expect(conversation.notices()).toMatchObject([{ about: "review", sessionId: SESSION }]);
  });

  test.each([
    ["both", [answered, receipt]],
    ["the receipt first", [receipt]],
    ["the ask first", [answered]],
  ])("on the answer the receipt takes the notice's place: %s", (_which, settled) => {
    const [notice, ...more] = noticesOf(review, open, ...settled);
    expect(more).toEqual([]);
    expect(notice).toMatchObject({ about: "receipt", askId: "ask_1", hookId: REVIEW });
  });

  test.each([
    [Verdict.DENY, ReceiptPath.HUMAN, "Denied by a person"],
    [Verdict.ALLOW_ONCE, ReceiptPath.RULE, "Allowed once by rule"],
    [Verdict.ALLOW_ALWAYS, ReceiptPath.HOOK, "no more such questions"],
    [Verdict.EXPIRED, ReceiptPath.TIMEOUT, "Expired without an answer by timeout"],
    [Verdict.WITHDRAWN, ReceiptPath.SYSTEM, "Withdrawn without an answer by system"],
    [UNKNOWN, UNKNOWN, "do not assume it was allowed"],
  ])("a receipt says verdict %s by path %s", (verdict, path, text) => {
    const given = receiptOf(5n, { reviewId: REVIEW, verdict, path });
    expect(noticesOf(review, open, answered, given)[0]?.text).toContain(text);
  });

  test.each([
    ["a replayed question", reviewOf(2n)],
    ["the same question in a later revision", reviewOf(9n)],
    ["a routine outcome", reviewOf(9n, BENIGN)],
  ])("afterwards %s neither overwrites nor hides the receipt", (_what, later) => {
    const before = noticesOf(review, open, answered, receipt);
    expect(noticesOf(review, open, answered, receipt, later)).toEqual(before);
  });

  test("afterwards another outcome updates the notice and keeps the receipt's text", () => {
    const denied = reviewOf(9n, { assessment: PROHIBITED, disposition: D.DENY });
    const [notice] = noticesOf(review, open, answered, receipt, denied);
    expect(notice).toMatchObject({ about: "review", finding: "prohibited", severity: "alarm" });
    expect(notice?.text).toContain("it is fine");
  });

  test("the notice is the same whatever order all of it comes in", () => {
    const all = [callOf(1n), review, open, answered, receipt];
    const expected = conversationOf(all).view();
    expect(conversationOf([...all].reverse()).view()).toEqual(expected);
  });

  test("an answered ask whose review nobody published has its receipt's notice", () => {
    expect(noticesOf(open)).toEqual([]);
    expect(noticesOf(open, answered, receipt)).toMatchObject([{ about: "receipt" }]);
  });

  test("a superseded ask gives the review its notice back", () => {
    const superseded = askOf(4n, { reviewId: REVIEW, state: AskState.SUPERSEDED });
    expect(noticesOf(review, open, superseded)).toMatchObject([{ about: "review" }]);
  });

  test("a receipt that can no longer be used says so", () => {
    const spent = receiptOf(6n, { reviewId: REVIEW, spendState: SpendState.VOID });
    expect(noticesOf(review, open, answered, receipt, spent)[0]?.text).toContain(
      "no longer be used",
    );
  });
});

describe("7.2 the live rationale of a review", () => {
  const reply = (changed = {}) =>
    create(GetReviewDetailResponseSchema, { reviewId: REVIEW, detail: "touches /etc", ...changed });

  function asking(...more: readonly RevisedRecord[]) {
    const conversation = conversationOf([callOf(1n), reviewOf(2n), ...more]);
    const request = conversation.requestReviewDetail(REVIEW);
    if (request === undefined) throw new Error("no request");
    const detail = () => conversation.notices()[0]?.detail;
    return { conversation, request, detail };
  }

  test("is shown when session, review and the one outstanding request match", () => {
    const { conversation, request, detail } = asking();
    expect(detail()).toEqual({ state: "requested", text: "" });
    expect(conversation.applyReviewDetail(request, reply())).toBe(true);
    expect(detail()).toEqual({ state: "shown", text: "touches /etc" });
  });

  test.each([
    ["session", { sessionId: OTHER }],
    ["review", { reviewId: "rv_2" }],
    ["request", { requestId: 99 }],
  ])("is refused if the %s is another one", (_which, wrong) => {
    const { conversation, request, detail } = asking();
    expect(conversation.applyReviewDetail({ ...request, ...wrong }, reply())).toBe(false);
    expect(detail()).toEqual({ state: "requested", text: "" });
  });

  test("is taken once", () => {
    const { conversation, request, detail } = asking();
    conversation.applyReviewDetail(request, reply());
    expect(conversation.applyReviewDetail(request, reply({ detail: "other" }))).toBe(false);
    expect(detail()?.text).toBe("touches /etc");
  });

  test.each([
    ["unavailable if the request failed", undefined, "unavailable"],
    [
      "mismatched, and not shown, if it is of another review",
      reply({ reviewId: "x" }),
      "mismatched",
    ],
    ["empty if there is none", reply({ detail: "" }), "empty"],
  ])("is %s", (_what, given, state) => {
    const { conversation, request, detail } = asking();
    conversation.applyReviewDetail(request, given);
    expect(detail()).toEqual({ state, text: "" });
  });

  test("stays when the record is updated, and beside a receipt", () => {
    const { conversation, request, detail } = asking();
    conversation.applyReviewDetail(request, reply());
    conversation.apply(eventOf(reviewOf(3n, { assessment: PROHIBITED })));
    expect(detail()?.state).toBe("shown");
    const answered = askOf(4n, { reviewId: REVIEW, state: AskState.ANSWERED });
    conversation.apply(eventOf(answered));
    conversation.apply(eventOf(receiptOf(5n, { reviewId: REVIEW, reason: "fine" })));
    expect(conversation.notices()).toMatchObject([
      { about: "receipt", detail: { state: "shown" } },
    ]);
  });

  test("leaves the receipt's text when it comes later", () => {
    const answered = askOf(4n, { reviewId: REVIEW, state: AskState.ANSWERED });
    const receipt = receiptOf(5n, { reviewId: REVIEW, reason: "fine" });
    const { conversation, request } = asking(answered, receipt);
    const before = conversation.notices()[0]?.text;
    conversation.applyReviewDetail(request, reply());
    expect(conversation.notices()[0]?.text).toBe(before);
  });

  test("may be asked for once, and once more after the ask was settled if it is empty", () => {
    const { conversation, request } = asking();
    expect(conversation.requestReviewDetail(REVIEW)).toBeUndefined();
    conversation.applyReviewDetail(request, reply({ detail: "" }));
    expect(conversation.requestReviewDetail(REVIEW)).toBeUndefined();
    conversation.apply(eventOf(askOf(4n, { reviewId: REVIEW, state: AskState.ANSWERED })));
    const again = conversation.requestReviewDetail(REVIEW);
    expect(again?.requestId).not.toBe(request.requestId);
    expect(conversation.requestReviewDetail(REVIEW)).toBeUndefined();
    expect(conversation.requestReviewDetail("rv_unknown")).toBeUndefined();
  });
});

describe("what a watch says of itself", () => {
  const frame = (phase: string, cursor: string, event?: ReturnType<typeof eventOf>) =>
    create(WatchEventsResponseSchema, { phase, cursor, ...(event && { event }) });

  test("a gap is a visible notice, once for each place", () => {
    const conversation = new Conversation(SESSION);
    for (const cursor of ["a", "b", "a"]) conversation.applyFrame(frame("gap", cursor));
    expect(conversation.notices().map(({ about }) => about)).toEqual(["gap", "gap"]);
  });

  test("an unknown phase is a visible notice, and its event is taken", () => {
    const conversation = new Conversation(SESSION);
    conversation.applyFrame(frame("rewind", "a", eventOf(callOf(1n))));
    expect(conversation.cards()).toHaveLength(1);
    expect(conversation.notices()).toMatchObject([{ about: "unknown" }]);
  });

  test("the live frame without an event says that all was given; a heartbeat says nothing", () => {
    const conversation = new Conversation(SESSION);
    conversation.applyFrame(frame("heartbeat", "a"));
    conversation.applyFrame(frame("live", "b", eventOf(callOf(1n))));
    expect(conversation.isCaughtUp).toBe(false);
    conversation.applyFrame(frame("live", "c"));
    expect(conversation.isCaughtUp).toBe(true);
  });

  test("an erased session is empty for good, and says so", () => {
    const conversation = conversationOf([callOf(1n), hookOf(2n)]);
    const { revision } = conversation;
    conversation.applyFrame(frame("erased", "a"));
    conversation.apply(eventOf(callOf(1n)));
    conversation.applySnapshot({ toolCalls: [callOf(1n)] });
    expect(conversation.revision).toBeGreaterThan(revision);
    expect(conversation.cards()).toEqual([]);
    expect(conversation.sessions()[0]?.isErased).toBe(true);
    expect(conversation.notices()).toMatchObject([{ about: "erased" }]);
  });
});
