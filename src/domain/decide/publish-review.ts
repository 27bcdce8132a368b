import { create } from "@bufbuild/protobuf";
import type { PublishReviewCommand } from "../../../gen/toolmark/engine/v1/command_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { HookDecision, HookSchema, type Hook } from "../../../gen/toolmark/v1/hook_pb.js";
import { ReviewJob } from "../../../gen/toolmark/v1/review_pb.js";
import type { Run } from "../../../gen/toolmark/v1/run_pb.js";
import { EventKind } from "../event-kind.js";
import { reviewId } from "../identity.js";
import { invariant } from "../invariant.js";
import { isRefusal, refuse } from "../refusal.js";
import type { SessionState } from "../session-state.js";
import type { Decided, Draft } from "./draft.js";
import { findOwnCall } from "./find-call.js";
import { refuseForeignOrigin } from "./foreign-origin.js";

/** The id of the record that a review of this call and job makes or updates. */
export function reviewIdOf({ toolCallId, review }: PublishReviewCommand): string {
  return reviewId(toolCallId, ReviewJob[review?.job ?? ReviewJob.UNSPECIFIED]);
}

/** One record for each call and job: a later review revises it. */
export function publishReview(
  draft: Draft,
  state: SessionState,
  run: Run,
  command: PublishReviewCommand,
): Decided {
  const foreign = refuseForeignOrigin(draft.sessionId, command.origin);
  if (foreign !== undefined) return foreign;
  const found = findOwnCall(state, draft.facts, command.toolCallId);
  if (isRefusal(found)) return found;
  const { review } = command;
  invariant(review !== undefined, "command.review was checked to be there");
  const hookId = reviewIdOf(command);
  if (review.reviewId !== "" && review.reviewId !== hookId) {
    const message = "command.review.review_id is not that of this call and job";
    return refuse(ErrorReason.REVIEW_ID_MISMATCH, message, { field: "command.review.review_id" });
  }
  const hook = create(HookSchema, {
    hookId,
    origin: { sessionId: draft.sessionId },
    runId: run.runId,
    toolCallId: command.toolCallId,
    phase: command.phase,
    hookName: review.checker,
    toolName: found.call.toolName,
    decision: HookDecision.INFO,
    text: command.text,
    review: { ...review, reviewId: hookId },
    createTime: earlierReview(draft, hookId)?.createTime ?? draft.facts.now,
  });
  const published = draft.revise(EventKind.reviewPublished, (revision) => {
    hook.revision = revision;
    return { case: "hook", value: hook };
  });
  return draft.decision([published]);
}

function earlierReview(draft: Draft, hookId: string): Hook | undefined {
  const record = draft.facts.settledRecord(hookId);
  return record?.case === "hook" ? record.value : undefined;
}
