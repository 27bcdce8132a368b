import { AskKind } from "../../gen/toolmark/v1/ask_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { isAskOfChild, isOffered } from "../domain/offered-verdicts.js";
import { asksOf, type AskView } from "./ask-standing.js";
import { compareOrder, compareValues, orderOf } from "./record-order.js";
import type { SessionRecords } from "./session-records.js";

/** A verdict that a person can be offered. */
export interface Offer {
  readonly verdict: Verdict;
  /** Text for a button. */
  readonly label: string;
}

/**
 * A question that waits for a person. An answer names `sessionId`, and of `ask` the ask, the call and the review; the
 * answer token comes from ApprovalService, never from events.
 */
export interface Prompt {
  readonly sessionId: string;
  readonly ask: AskView["ask"];
  /** Whether the question comes from a session below the conversation's. */
  readonly isChild: boolean;
  /** What may be answered, in the order of the ask. Empty: it can only be shown, as an ask that stands alone. */
  readonly offers: readonly Offer[];
}

/** The open questions of all sessions, the oldest first. */
export function promptsOf(rootId: string, sessions: Iterable<SessionRecords>): Prompt[] {
  const prompts = [...sessions].flatMap((records) =>
    asksOf(records).flatMap((view) => (view.isOpen ? [promptOf(rootId, records, view)] : [])),
  );
  return prompts.sort(
    (left, right) =>
      compareOrder(orderOf(left.ask, 0), orderOf(right.ask, 0)) ||
      compareValues(left.sessionId, right.sessionId),
  );
}

function promptOf(rootId: string, records: SessionRecords, { ask }: AskView): Prompt {
  const { sessionId, bindings } = records;
  const isChild = sessionId !== rootId || isAskOfChild(ask, rootId);
  const isAlone = bindings.attachmentOf("ask", ask.askId) === "STANDALONE";
  const verdicts = isAlone ? [] : [...new Set(ask.allowedVerdicts)];
  const offers = verdicts.flatMap((verdict) => {
    const label = labelOf(ask.kind, verdict);
    return label === undefined || !isOffered(ask, verdict, isChild) ? [] : [{ verdict, label }];
  });
  return { sessionId, ask, isChild, offers };
}

/** Undefined: no answer to an ask of this kind. */
function labelOf(kind: AskKind, verdict: Verdict): string | undefined {
  switch (kind) {
    case AskKind.ACTION:
      return ACTION_LABELS.get(verdict);
    case AskKind.RESULT_RELEASE:
      return RELEASE_LABELS.get(verdict);
    default:
      return verdict === Verdict.DENY ? "Deny" : undefined;
  }
}

const ACTION_LABELS: ReadonlyMap<Verdict, string> = new Map([
  [Verdict.DENY, "Deny"],
  [Verdict.ALLOW_ONCE, "Allow once"],
  [Verdict.ALLOW_ALWAYS, "Allow always"],
]);

const RELEASE_LABELS: ReadonlyMap<Verdict, string> = new Map([
  [Verdict.DENY, "Withhold"],
  [Verdict.ALLOW_ONCE, "Release once"],
]);
