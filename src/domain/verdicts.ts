import { AskKind } from "../../gen/toolmark/v1/ask_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";

/** The verdicts that an answer to an ask of a kind may give, if its asker does not narrow them. */
export const VERDICTS_OF: Readonly<Record<AskKind, readonly Verdict[]>> = {
  [AskKind.UNSPECIFIED]: [],
  [AskKind.ACTION]: [Verdict.DENY, Verdict.ALLOW_ONCE, Verdict.ALLOW_ALWAYS],
  [AskKind.RESULT_RELEASE]: [Verdict.DENY, Verdict.ALLOW_ONCE],
};
