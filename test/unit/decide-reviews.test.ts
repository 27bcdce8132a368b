import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { PublishReviewCommandSchema } from "../../gen/toolmark/engine/v1/command_pb.js";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import {
  ReviewAssessment,
  ReviewDisposition,
  ReviewInspection,
  ReviewJob,
} from "../../gen/toolmark/v1/review_pb.js";
import { OriginSchema } from "../../gen/toolmark/v1/origin_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { Ran, ToolCallSchema, ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { reviewId } from "../../src/domain/identity.js";
import type { CommandInit } from "../support/decider.js";
import {
  amend,
  asked,
  blockedBy,
  deciders,
  digest,
  endRun,
  hook,
  idIn,
  kindsOf,
  openAction,
  openRelease,
  park,
  reasonOf,
  resultOf,
  review,
  startOf,
  stateOf,
} from "../support/rule-commands.js";

const newDecider = deciders();
const { REQUIRED, OFF } = StartGate;
const { ACTION, PERMISSION, INBOUND } = ReviewJob;

/** The review as one that was born in another session. */
function bornIn(sessionId: string, command: CommandInit): CommandInit {
  if (command.case !== "publishReview") throw new Error("not a review");
  const origin = create(OriginSchema, { sessionId });
  return { ...command, value: create(PublishReviewCommandSchema, { ...command.value, origin }) };
}

describe("a review", () => {
  test("is a record about its call, with one derived id as its own and its envelope's", () => {
    const decider = newDecider(REQUIRED);
    const [id = ""] = decider.calls("a");
    const before = decider.call(id);
    const events = decider.given(review(id, ACTION, { reasonCode: "SECRET", ruleId: "r1" }));
    expect(kindsOf(events)).toEqual(["REVIEW_PUBLISHED"]);
    const hookId = idIn(events, "hook");
    expect(hookId).toBe(reviewId(id, "ACTION"));
    expect(hookId).toMatch(/^rv_[0-9a-z]{26}$/);
    expect(decider.record("hook", hookId)).toMatchObject({
      hookId,
      origin: { sessionId: decider.sessionId },
      runId: decider.runId,
      toolCallId: id,
      phase: "review",
      hookName: "guard",
      toolName: "bash",
      decision: HookDecision.INFO,
      text: "looked at",
      review: {
        reviewId: hookId,
        job: ACTION,
        assessment: ReviewAssessment.UNRESOLVED,
        inspection: ReviewInspection.COMPLETE,
        disposition: ReviewDisposition.ASK_ACTION,
        reasonCode: "SECRET",
        ruleId: "r1",
      },
    });
    expect(decider.call(id)).toEqual(before);
  });

  test("is one record for each call and job", () => {
    const decider = newDecider(REQUIRED);
    const jobs = [ACTION, PERMISSION, INBOUND];
    const ids = decider
      .calls("a", "b")
      .flatMap((id) => jobs.map((job) => idIn(decider.given(review(id, job)), "hook")));
    expect(new Set(ids).size).toBe(6);
  });

  test("that is published again keeps id and time of creation and takes a new revision", () => {
    const decider = newDecider(REQUIRED);
    const [id = ""] = decider.calls("a");
    const hookId = idIn(decider.given(review(id, INBOUND)), "hook");
    const first = decider.record("hook", hookId);
    decider.pass(5000);
    const disposition = ReviewDisposition.WITHHOLD_RESULT;
    const again = idIn(
      decider.given(review(id, INBOUND, { disposition, reviewId: hookId })),
      "hook",
    );
    expect(again).toBe(hookId);
    const second = decider.record("hook", hookId);
    expect(second.createTime).toEqual(first.createTime);
    expect(second.revision).toBeGreaterThan(first.revision ?? 0n);
    expect(second.review?.disposition).toBe(disposition);
    const published = decider.history.filter(({ kind }) => kind === "REVIEW_PUBLISHED");
    expect(published).toHaveLength(2);
  });

  test("may come twice in one request", () => {
    const decider = newDecider(REQUIRED);
    const [id = ""] = decider.calls("a");
    const events = decider.given(review(id), review(id));
    const revisions = events.map(({ revision }) => revision ?? 0n);
    expect(revisions).toHaveLength(2);
    expect(revisions[1]).toBeGreaterThan(revisions[0] ?? 0n);
    idIn(events, "hook");
  });

  test("with an id other than the derived one is refused", () => {
    const decider = newDecider(REQUIRED);
    const [id = "", other = ""] = decider.calls("a", "b");
    const wrong = ["rv_none", reviewId(id, "INBOUND"), reviewId(other, "ACTION")];
    for (const wrongId of wrong) {
      expect(decider.when([review(id, ACTION, { reviewId: wrongId })])).toMatchObject({
        reason: ErrorReason.REVIEW_ID_MISMATCH,
        metadata: { field: "command.review.review_id" },
      });
    }
  });

  test("of another origin, or of no call of the session, is refused", () => {
    const decider = newDecider(REQUIRED);
    const [id = ""] = decider.calls("a");
    expect(decider.when([bornIn("ses_parent", review(id))])).toMatchObject({
      reason: ErrorReason.ORIGIN_MISMATCH,
      metadata: { field: "command.origin" },
    });
    expect(reasonOf(decider.when([review("tc_none")]))).toBe(ErrorReason.TOOL_CALL_NOT_FOUND);
    decider.given(bornIn(decider.sessionId, review(id)));
  });

  test("is taken while its call waits, runs and has ended", () => {
    const decider = newDecider(REQUIRED);
    const [asking = "", parkedCall = "", started = "", done = ""] = decider.calls(
      ...["a", "b", "c", "d"],
    );
    decider.given(
      startOf(decider, started),
      startOf(decider, done),
      resultOf(done, ToolCallState.UNSPECIFIED, "x"),
    );
    decider.given(openAction(asking), park(parkedCall));
    for (const id of [asking, parkedCall, started, done]) {
      const state = stateOf(decider, id);
      decider.given(review(id, INBOUND));
      expect(stateOf(decider, id)).toBe(state);
    }
  });
});

describe("a call that a fork copied", () => {
  function inherited() {
    const decider = newDecider(OFF);
    const [own = ""] = decider.calls("a");
    decider.happened("TOOL_CALL_ACCEPTED", (revision) => ({
      case: "toolCall",
      value: create(ToolCallSchema, {
        ...decider.call(own),
        toolCallId: "tc_inherited",
        origin: create(OriginSchema, { sessionId: "ses_source" }),
        inheritedFromSessionId: "ses_source",
        revision,
      }),
    }));
    return decider;
  }

  const start = { toolCallId: "tc_inherited", argumentsSha256: digest("{}") };
  test.each<[string, CommandInit]>([
    ["review", review("tc_inherited")],
    ["hook", hook("tc_inherited")],
    ["ask to start", openAction("tc_inherited")],
    ["ask to give a result", openRelease("tc_inherited")],
    ["amendment", amend("tc_inherited", "{ }")],
    ["start", { case: "startToolCall", value: start }],
    ["parking", park("tc_inherited")],
  ])("takes no %s", (_, command) => {
    const decider = inherited();
    expect(decider.when([command])).toMatchObject({
      reason: ErrorReason.CALL_INHERITED,
      metadata: { tool_call_id: "tc_inherited" },
    });
  });
});

describe("a review that denies", () => {
  const DENY = { disposition: ReviewDisposition.DENY };

  test.each([ACTION, PERMISSION])("blocks its call by job %s, and withdraws its ask", (job) => {
    const decider = newDecider(REQUIRED);
    const [id = ""] = decider.calls("a");
    const reviewedBy = idIn(decider.given(review(id, job)), "hook");
    const askId = asked(decider, openAction(id, { reviewId: reviewedBy }));
    const early = decider.when([blockedBy(id, reviewedBy)]);
    expect(reasonOf(early)).toBe(ErrorReason.REFERENCE_MISMATCH);
    decider.given(review(id, job, DENY), blockedBy(id, reviewedBy));
    expect(decider.record("ask", askId).state).toBe(AskState.WITHDRAWN);
    expect(decider.call(id)).toMatchObject({
      state: ToolCallState.BLOCKED,
      ran: Ran.NO,
      blockedByHookId: reviewedBy,
    });
  });

  test("does not block by what it says of a result, nor of another call", () => {
    const decider = newDecider(REQUIRED);
    const [id = "", other = ""] = decider.calls("a", "b");
    const inbound = idIn(decider.given(review(id, INBOUND, DENY)), "hook");
    const foreign = idIn(decider.given(review(other, ACTION, DENY)), "hook");
    for (const hookId of [inbound, foreign]) {
      const refusal = decider.when([blockedBy(id, hookId)]);
      expect(reasonOf(refusal)).toBe(ErrorReason.REFERENCE_MISMATCH);
    }
    expect(stateOf(decider, id)).toBe("ACCEPTED");
  });
});

describe("reconciling", () => {
  test("never says of a call with a recorded start that it did not run", () => {
    const decider = newDecider(OFF);
    const [started = "", unstarted = ""] = decider.calls("a", "b");
    decider.given(startOf(decider, started), endRun());
    const cancel = (toolCallId: string): CommandInit => ({
      case: "reconcileToolCall",
      value: { toolCallId, end: ToolCallState.CANCELLED },
    });
    const { runId } = decider;
    expect(decider.when([cancel(started)], runId)).toMatchObject({
      reason: ErrorReason.TOOL_CALL_STARTED,
      metadata: { tool_call_id: started },
    });
    expect(stateOf(decider, started)).toBe("OUTCOME_UNKNOWN");
    expect(Array.isArray(decider.when([cancel(unstarted)], runId))).toBe(true);
    expect(decider.call(unstarted)).toMatchObject({ state: ToolCallState.CANCELLED, ran: Ran.NO });
  });

  test.each([
    [ToolCallState.COMPLETED, Ran.YES],
    [ToolCallState.FAILED, Ran.YES],
    [ToolCallState.INTERRUPTED, Ran.YES],
    [ToolCallState.TIMED_OUT, Ran.UNKNOWN],
  ])("as %s says whether the call ran: %s", (end, ran) => {
    const decider = newDecider(OFF);
    const [toolCallId = ""] = decider.calls("a");
    decider.given(startOf(decider, toolCallId), endRun());
    decider.when([{ case: "reconcileToolCall", value: { toolCallId, end } }]);
    expect(decider.call(toolCallId)).toMatchObject({ state: end, ran });
  });
});
