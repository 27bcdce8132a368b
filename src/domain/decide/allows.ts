import { SpendState } from "../../../gen/toolmark/v1/receipt_pb.js";
import { EventKind } from "../event-kind.js";
import type { UnspentAllow } from "../session-state.js";
import type { Draft } from "./draft.js";

/** Records that allows were used. */
export function spendAllows(draft: Draft, allows: readonly UnspentAllow[]): void {
  settleAllows(draft, allows, EventKind.receiptSpent, SpendState.SPENT);
}

/** Records that allows can no longer be used. */
export function voidAllows(draft: Draft, allows: readonly UnspentAllow[]): void {
  settleAllows(draft, allows, EventKind.receiptVoided, SpendState.VOID);
}

function settleAllows(
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
