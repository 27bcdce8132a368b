import { AskKind, AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import {
  ReceiptPath,
  SpendState,
  Verdict,
  type Receipt,
} from "../../gen/toolmark/v1/receipt_pb.js";
import { isReceiptOf } from "../domain/attachment.js";
import { enumText } from "./enum-text.js";
import type { SessionRecords } from "./session-records.js";

/** An ask, and how it was settled. */
export interface AskView {
  readonly ask: Ask;
  /** The receipt that settled it. Absent if none is known. */
  readonly receipt: Receipt | undefined;
  /** Whether it can be answered: it is open, and no receipt of it is known. */
  readonly isOpen: boolean;
  /** In words: open, answered, expired, withdrawn, superseded, or unknown with its number. */
  readonly standing: string;
}

/** The asks of a session in the order of opening. */
export function asksOf({ revised }: SessionRecords): AskView[] {
  const receipts = new Map<string, Receipt[]>();
  for (const receipt of revised.all("receipt")) {
    receipts.set(receipt.askId, [...(receipts.get(receipt.askId) ?? []), receipt]);
  }
  return revised.all("ask").map((ask) => askView(ask, receipts.get(ask.askId) ?? []));
}

/** An ask with that one of the receipts that is its own. */
export function askView(ask: Ask, receipts: readonly Receipt[]): AskView {
  const receipt = receipts.find((one) => isReceiptOf(one, ask));
  const isOpen = ask.state === AskState.OPEN && receipt === undefined;
  const isSettled = ask.state === AskState.OPEN && receipt !== undefined;
  const standing = isSettled ? settledText(receipt.verdict) : enumText(AskState, ask.state);
  return { ask, receipt, isOpen, standing };
}

/** The state that an ask has by now, whose receipt came first. */
function settledText(verdict: Verdict): string {
  switch (verdict) {
    case Verdict.EXPIRED:
    case Verdict.WITHDRAWN:
      return enumText(Verdict, verdict);
    default:
      return "answered";
  }
}

/** How an ask was settled, in a sentence. */
export function receiptText({ kind }: Ask, { verdict, path, reason, spendState }: Receipt): string {
  const by = path === ReceiptPath.HUMAN ? "by a person" : `by ${enumText(ReceiptPath, path)}`;
  const what = verdictText(kind, verdict);
  const isVoid = spendState === SpendState.VOID ? " It can no longer be used." : "";
  return `${what} ${by}${reason === "" ? "." : `: ${reason}.`}${isVoid}`;
}

function verdictText(kind: AskKind, verdict: Verdict): string {
  const isRelease = kind === AskKind.RESULT_RELEASE;
  switch (verdict) {
    case Verdict.DENY:
      return isRelease ? "Result withheld" : "Denied";
    case Verdict.ALLOW_ONCE:
      return isRelease ? "Result released once" : "Allowed once";
    case Verdict.ALLOW_ALWAYS:
      return "Allowed, and no more such questions wanted";
    case Verdict.EXPIRED:
      return "Expired without an answer";
    case Verdict.WITHDRAWN:
      return "Withdrawn without an answer";
    default:
      return `Settled in a way that is not known here (${verdict}); do not assume it was allowed,`;
  }
}
