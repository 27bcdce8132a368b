import { AskKind, AskProvenance, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";

const KNOWN_PROVENANCES: ReadonlySet<AskProvenance> = new Set([
  AskProvenance.PERMISSION,
  AskProvenance.HOOK_GUARDRAIL,
  AskProvenance.PLAN,
]);

/**
 * Whether a person is offered a verdict of an ask: what is not understood is denied only, and neither a held result nor
 * a child's ask settles those that follow.
 */
export function isOffered(
  { kind, provenance, allowedVerdicts }: Ask,
  verdict: Verdict,
  isChild: boolean,
): boolean {
  if (!allowedVerdicts.includes(verdict)) return false;
  if (verdict === Verdict.DENY) return true;
  if (!KNOWN_PROVENANCES.has(provenance)) return false;
  switch (verdict) {
    case Verdict.ALLOW_ONCE:
      return kind === AskKind.ACTION || kind === AskKind.RESULT_RELEASE;
    case Verdict.ALLOW_ALWAYS:
      return kind === AskKind.ACTION && !isChild;
    default:
      return false;
  }
}

/** Whether an ask comes from a session below the one that a person looks at. */
export function isAskOfChild({ origin, delegationPath }: Ask, rootId: string): boolean {
  return origin?.sessionId !== rootId || delegationPath.length > 0;
}
