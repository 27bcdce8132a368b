import { HeldResult } from "../../gen/toolmark/storage/v1/storage_pb.js";
import { AskKind, AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState, type Authorization } from "../../gen/toolmark/v1/authorization_pb.js";
import { SpendState, type Receipt } from "../../gen/toolmark/v1/receipt_pb.js";
import { invariant } from "./invariant.js";
import { merge } from "./merge-law.js";
import type { OpenRecords } from "./open-records.js";
import type { OpenCall, UnspentAllow } from "./session-state.js";

/** Folds an update of an ask: what is open, and what it means for its call. */
export function evolveAsk({ asks, calls }: OpenRecords, ask: Ask): void {
  invariant(merge(asks.get(ask.askId), ask) === "advanced", "an update advances its ask");
  const open = calls.get(ask.toolCallId);
  if (ask.state === AskState.OPEN) {
    asks.set(ask.askId, ask);
    if (open !== undefined) calls.set(ask.toolCallId, afterOpening(open, ask));
    return;
  }
  asks.delete(ask.askId);
  const isAmended = ask.state === AskState.SUPERSEDED && ask.supersededByAskId === undefined;
  if (isAmended && open !== undefined) {
    calls.set(ask.toolCallId, { ...open, needsAllow: true, supersededAskId: ask.askId });
  }
}

function afterOpening(open: OpenCall, { kind, presented }: Ask): OpenCall {
  if (kind !== AskKind.RESULT_RELEASE) return { ...open, supersededAskId: undefined };
  const heldSha256 = presented?.sha256 ?? new Uint8Array(0);
  return { ...open, heldResult: HeldResult.ASKED, heldSha256 };
}

/** Folds an update of a receipt. Its first event comes before the event that settles its ask. */
export function evolveReceipt({ asks, calls }: OpenRecords, receipt: Receipt): void {
  const open = calls.get(receipt.toolCallId);
  if (open === undefined) return;
  const known = open.unspentAllows.find((allow) => allow.receipt.receiptId === receipt.receiptId);
  invariant(merge(known?.receipt, receipt) === "advanced", "an update advances its receipt");
  const kind = known?.kind ?? asks.get(receipt.askId)?.kind;
  invariant(kind !== undefined, "a receipt settles an open ask or is an unspent allow");
  const isAllow = receipt.spendState === SpendState.UNSPENT;
  const others = open.unspentAllows.filter((allow) => allow !== known);
  const unspentAllows: readonly UnspentAllow[] = isAllow ? [...others, { receipt, kind }] : others;
  const after = { ...open, unspentAllows };
  calls.set(
    receipt.toolCallId,
    kind === AskKind.RESULT_RELEASE
      ? { ...after, heldResult: isAllow ? HeldResult.RELEASED : HeldResult.BARRED }
      : { ...after, needsAllow: needsAllowAfter(open, receipt) },
  );
}

function needsAllowAfter({ needsAllow }: OpenCall, { spendState }: Receipt): boolean {
  if (spendState === SpendState.UNSPENT) return false;
  return needsAllow || spendState === SpendState.VOID;
}

export function evolveAuthorization(
  { authorizations }: OpenRecords,
  authorization: Authorization,
): void {
  const { authorizationId, state } = authorization;
  invariant(
    merge(authorizations.get(authorizationId), authorization) === "advanced",
    "an update advances its authorization",
  );
  if (state === AuthorizationState.PENDING) authorizations.set(authorizationId, authorization);
  else authorizations.delete(authorizationId);
}
