import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { HookSchema, type Hook } from "../../gen/toolmark/v1/hook_pb.js";
import { ReviewSchema, type Review } from "../../gen/toolmark/v1/review_pb.js";
import { hookDecision, reviewValues } from "./old-words.js";
import type { OldHook, OldReview } from "./old-session.js";
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
  record.phase = phase;
  record.decision = hookDecision(decision);
  record.text = text;
  if (record.toolCallId === undefined) record.toolName = toolName;
  if (review !== undefined) record.review = reviewRecord(reviewId, review);
}

/** Who checked is left out: it was kept as ids of a provider. */
function reviewRecord(reviewId: string, review: OldReview): Review {
  const { reasonCode, ruleId, ruleOrigin, concerns, sources } = review;
  const init: MessageInitShape<typeof ReviewSchema> = {
    ...{ reviewId, ...reviewValues(review), reasonCode, ruleId, ruleOrigin },
    ...{ concerns: [...concerns], sources: [...sources] },
  };
  return create(ReviewSchema, init);
}
