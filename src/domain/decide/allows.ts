import { AskKind } from "../../../gen/toolmark/v1/ask_pb.js";
import { SpendState } from "../../../gen/toolmark/v1/receipt_pb.js";
import { Ran } from "../../../gen/toolmark/v1/tool_call_pb.js";
import { EventKind } from "../event-kind.js";
import type { UnspentAllow } from "../session-state.js";
import type { Draft } from "./draft.js";

/** Records that allows were used. */
export function spendAllows(draft: Draft, allows: readonly UnspentAllow[]): void {
  reviseAllows(draft, allows, EventKind.receiptSpent, SpendState.SPENT);
}

/** Records that allows can no longer be used. */
export function voidAllows(draft: Draft, allows: readonly UnspentAllow[]): void {
  reviseAllows(draft, allows, EventKind.receiptVoided, SpendState.VOID);
}

/** How a call ended, as far as its allows are concerned. */
export interface UseOfAllows {
  readonly ran: Ran;
  /** Whether the model was given what a release was asked for. */
  readonly isReleased: boolean;
}

/** At the end of its call an allow is spent if what it allowed is known to have happened, and void otherwise. */
export function settleAllows(
  draft: Draft,
  allows: readonly UnspentAllow[],
  { ran, isReleased }: UseOfAllows,
): void {
  const isSpent = ({ kind }: UnspentAllow): boolean =>
    kind === AskKind.RESULT_RELEASE ? isReleased : ran === Ran.YES;
  spendAllows(draft, allows.filter(isSpent));
  voidAllows(
    draft,
    allows.filter((allow) => !isSpent(allow)),
  );
}

function reviseAllows(
  draft: Draft,
  allows: readonly UnspentAllow[],
  kind: EventKind,
  spendState: SpendState,
): void {
  for (const { receipt } of allows) {
    draft.revise(kind, (revision) => ({
      case: "receipt",
      value: { ...receipt, revision, spendState },
    }));
  }
}
