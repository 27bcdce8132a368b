import type { Turn } from "../../gen/toolmark/v1/run_pb.js";
import type { OldResult } from "./old-session.js";
import type { DraftCall, Place, TranslationDraft } from "./translation-draft.js";

/**
 * The calls of one model response while what follows it is read. A provider pairs a result with a call of the response
 * that it follows, by its id; so does this, and only where the id names exactly one call there.
 */
export class OldTurn {
  readonly calls: DraftCall[] = [];

  constructor(readonly turn: Turn) {}

  /** The call of the turn that an id names, if it names exactly one. */
  callOf(providerCallId: string): DraftCall | undefined {
    const named = this.calls.filter(({ old }) => old.providerCallId === providerCallId);
    return named.length === 1 ? named[0] : undefined;
  }

  get unanswered(): DraftCall[] {
    return this.calls.filter(isUnanswered);
  }

  /** Whether two calls of the turn have one id: then it is not known what the id means. */
  get isAmbiguous(): boolean {
    const ids = new Set(this.calls.map(({ old }) => old.providerCallId));
    return ids.size < this.calls.length;
  }
}

export function isUnanswered({ call }: DraftCall): boolean {
  return call.result === undefined;
}

/** Pairs a result with the call that it is of, or keeps it on its own. */
export function takeResult(
  draft: TranslationDraft,
  turn: OldTurn | undefined,
  place: Place,
  result: OldResult,
): void {
  const call = turn?.callOf(result.providerCallId);
  if (call !== undefined && isUnanswered(call)) draft.complete(call, place, result);
  else draft.addLooseResult(place, result);
}
