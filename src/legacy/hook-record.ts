import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { HookSchema, type Hook } from "../../gen/toolmark/v1/hook_pb.js";
import { ReviewSchema, type Review } from "../../gen/toolmark/v1/review_pb.js";
import { hookDecision, reviewValues } from "./old-words.js";
import type { OldHook, OldReference, OldReview } from "./old-session.js";
import { cutText, NAME_BYTES, REFERENCES, TEXT_BYTES } from "./shown-text.js";
import type { Place } from "./translation-draft.js";

/** A hook outcome as an event told it. */
export interface ToldHook {
  readonly place: Place;
  readonly seq: number;
  readonly hook: OldHook;
  readonly text: string;
}

/** What a hook record and its review are called. */
export interface HookIds {
  readonly hookId: string;
  readonly reviewId: string;
}

/** A record of its own for an outcome, about no call. */
export function hookRecord(sessionId: string, { hookId, reviewId }: HookIds, told: ToldHook): Hook {
  const record = create(HookSchema, { hookId, origin: { sessionId } });
  retell(record, reviewId, told);
  return record;
}

/** Makes a record say what a newer outcome says. Which call it is about stays, and so does the tool of that. */
export function retell(record: Hook, reviewId: string, { place, hook, text }: ToldHook): void {
  const { phase, toolName, decision, review } = hook;
  record.runId = place.runId;
  record.phase = cutText(phase, NAME_BYTES);
  record.decision = hookDecision(decision);
  record.text = cutText(text, TEXT_BYTES);
  if (record.toolCallId === undefined) record.toolName = cutText(toolName, NAME_BYTES);
  if (review !== undefined) record.review = reviewRecord(reviewId, review);
}

/** Who checked is left out: it was kept as ids of a provider. */
function reviewRecord(reviewId: string, review: OldReview): Review {
  const init: MessageInitShape<typeof ReviewSchema> = {
    ...{ reviewId, ...reviewValues(review) },
    reasonCode: cutText(review.reasonCode, NAME_BYTES),
    ruleId: cutText(review.ruleId, NAME_BYTES),
    ruleOrigin: cutText(review.ruleOrigin, NAME_BYTES),
    concerns: references(review.concerns),
    sources: references(review.sources),
  };
  return create(ReviewSchema, init);
}

function references(given: readonly OldReference[]): { ref: string; category: string }[] {
  return given.slice(0, REFERENCES).map(({ ref, category }) => ({
    ...{ ref: cutText(ref, NAME_BYTES), category: cutText(category, NAME_BYTES) },
  }));
}
