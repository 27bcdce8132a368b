import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import type { Hook } from "../../gen/toolmark/v1/hook_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { ReviewDisposition, type Review } from "../../gen/toolmark/v1/review_pb.js";
import { isAskOfReview } from "../domain/attachment.js";
import { recordId } from "../domain/merge-law.js";
import { asksOf, receiptText, type AskView } from "./ask-standing.js";
import { isKnownValue } from "./enum-text.js";
import { compareValues } from "./record-order.js";
import type { ReviewDetail, ReviewDetails } from "./review-details.js";
import {
  findingOf,
  hookSeverity,
  hookText,
  isBenign,
  reviewSeverity,
  reviewText,
  type ReviewFinding,
  type Severity,
} from "./review-finding.js";
import { kindOf, type Conflict } from "./revised-records.js";
import type { SessionRecords } from "./session-records.js";

/** Something that a person is told. */
export interface Notice {
  /** The same as long as it is about the same. */
  readonly key: string;
  /** The session of what it is about. */
  readonly sessionId: string;
  /** `receipt`: how the ask of a review was settled, in the place of the review's own notice. */
  readonly about: "hook" | "review" | "receipt" | "conflict" | "gap" | "unknown" | "erased";
  readonly severity: Severity;
  readonly text: string;
  /** Says that all is well, and is shown when somebody asks for it. */
  readonly isBenign: boolean;
  /** What a review found. Absent for other notices. */
  readonly finding?: ReviewFinding;
  readonly hookId?: string;
  readonly toolCallId?: string;
  readonly askId?: string;
  /** The review's rationale. Absent for other notices. */
  readonly detail?: ReviewDetail;
}

/** The notices of a session's records, in an order that does not depend on arrival. */
export function noticesOf(records: SessionRecords, details: ReviewDetails): Notice[] {
  const asks = asksByReview(records);
  const hooks = records.revised.all("hook");
  const known = new Set(hooks.map(({ hookId }) => hookId));
  return [
    ...hooks.flatMap((hook) => hookNotices(records, hook, asks.get(hook.hookId) ?? [], details)),
    ...[...asks].flatMap(([reviewId, views]) =>
      known.has(reviewId) ? [] : settledNotices(records.sessionId, reviewId, views, details),
    ),
    ...records.revised.conflicts().map((conflict) => conflictNotice(records, conflict)),
    ...unknownNotices(records),
  ];
}

/** The ask that was opened last and settled, whose receipt speaks for its review. */
export function settledAskOf(records: SessionRecords, reviewId: string): AskView | undefined {
  const views = asksByReview(records).get(reviewId) ?? [];
  return views.some(({ isOpen }) => isOpen) ? undefined : views.findLast(isSettled);
}

/** Asks by the review that they name and come from, in the order of opening. */
function asksByReview(records: SessionRecords): Map<string, AskView[]> {
  const views = new Map<string, AskView[]>();
  for (const view of asksOf(records)) {
    const { reviewId } = view.ask;
    if (reviewId === undefined) continue;
    const review = records.revised.peek("hook", reviewId);
    if (review !== undefined && !isAskOfReview(view.ask, review)) continue;
    views.set(reviewId, [...(views.get(reviewId) ?? []), view]);
  }
  return views;
}

function isSettled({ ask, receipt }: AskView): boolean {
  switch (ask.state) {
    case AskState.ANSWERED:
    case AskState.EXPIRED:
    case AskState.WITHDRAWN:
      return true;
    default:
      return receipt !== undefined;
  }
}

function hookNotices(
  { sessionId }: SessionRecords,
  hook: Hook,
  asks: readonly AskView[],
  details: ReviewDetails,
): Notice[] {
  const { hookId, toolCallId, review } = hook;
  if (review === undefined) {
    const [severity, text] = [hookSeverity(hook), hookText(hook)];
    const about = { sessionId, hookId, ...(toolCallId === undefined ? {} : { toolCallId }) };
    return [
      { ...about, key: keyOf(sessionId, hookId), about: "hook", severity, text, isBenign: false },
    ];
  }
  const settled = asks.findLast(isSettled);
  if (settled === undefined || asks.some(({ isOpen }) => isOpen)) {
    return asks.some(({ isOpen }) => isOpen)
      ? []
      : [reviewNotice(sessionId, hook, review, details)];
  }
  const [receipt] = settledNotices(sessionId, hookId, asks, details);
  if (receipt === undefined || !isNewsAfter(hook, review, settled)) {
    return receipt === undefined ? [] : [receipt];
  }
  const outcome = reviewNotice(sessionId, hook, review, details);
  const { askId } = settled.ask;
  return [{ ...outcome, askId, text: `${outcome.text} ${settlementText(settled)}` }];
}

/** Whether a review says after its ask was settled what the receipt does not. */
function isNewsAfter({ revision }: Hook, review: Review, { ask }: AskView): boolean {
  const isLater = (revision ?? 0n) > (ask.revision ?? 0n);
  const isRoutine = review.disposition === ReviewDisposition.ASK_ACTION || isBenign(review);
  return isLater && !isRoutine;
}

function reviewNotice(
  sessionId: string,
  hook: Hook,
  review: Review,
  details: ReviewDetails,
): Notice {
  const { hookId, toolCallId } = hook;
  const detail = details.detailOf(sessionId, hookId);
  const isMismatched = detail.state === "mismatched";
  const severity = reviewSeverity(review);
  return {
    key: keyOf(sessionId, hookId),
    sessionId,
    about: "review",
    severity: isMismatched && severity === "info" ? "warning" : severity,
    text: reviewText(hook, review) + mismatchText(detail),
    isBenign: isBenign(review) && !isMismatched,
    finding: findingOf(review),
    hookId,
    ...(toolCallId === undefined ? {} : { toolCallId }),
    detail,
  };
}

/** What the receipt of a review's ask says. None while one is open. */
function settledNotices(
  sessionId: string,
  reviewId: string,
  asks: readonly AskView[],
  details: ReviewDetails,
): Notice[] {
  const settled = asks.findLast(isSettled);
  if (settled === undefined || asks.some(({ isOpen }) => isOpen)) return [];
  const { ask, receipt } = settled;
  const isUnknown = receipt !== undefined && !isKnownValue(Verdict, receipt.verdict);
  const detail = details.detailOf(sessionId, reviewId);
  const severity = detail.state === "mismatched" ? "warning" : "info";
  return [
    {
      key: keyOf(sessionId, reviewId),
      sessionId,
      about: "receipt",
      severity: isUnknown ? "alarm" : severity,
      text: `${ask.toolName}: ${settlementText(settled)}${mismatchText(detail)}`,
      isBenign: false,
      hookId: reviewId,
      toolCallId: ask.toolCallId,
      askId: ask.askId,
      detail,
    },
  ];
}

function settlementText({ ask, receipt, standing }: AskView): string {
  if (receipt !== undefined) return receiptText(ask, receipt);
  return `The question is ${standing}; its receipt is not known.`;
}

function mismatchText({ state }: ReviewDetail): string {
  return state === "mismatched" ? " A rationale of another review came; it is not shown." : "";
}

function conflictNotice({ sessionId }: SessionRecords, { key, reason, record }: Conflict): Notice {
  const what = `${kindOf(record)} ${recordId(record)}`;
  const isContradiction = reason === "contradiction";
  return {
    key: keyOf(sessionId, key),
    sessionId,
    about: "conflict",
    severity: "warning",
    text: isContradiction
      ? `Conflict: another account of ${what} contradicts the one that is kept.`
      : `Conflict: ${what} does not name itself as its own record.`,
    isBenign: false,
  };
}

function unknownNotices({ sessionId, unknownEvents }: SessionRecords): Notice[] {
  const counts = new Map<string, number>();
  for (const { kind } of unknownEvents.all()) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const kinds = [...counts].sort(([left], [right]) => compareValues(left, right));
  return kinds.map(([kind, count]) => ({
    key: keyOf(sessionId, `unknown/${kind}`),
    sessionId,
    about: "unknown",
    severity: "warning",
    text: `Events that are not understood here: ${count} of kind ${kind === "" ? "(none)" : kind}.`,
    isBenign: false,
  }));
}

const keyOf = (sessionId: string, name: string): string => `${sessionId}/${name}`;
