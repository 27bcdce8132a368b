import type { Turn } from "../../gen/toolmark/v1/run_pb.js";
import type { OldResult } from "./old-session.js";
import type { DraftCall, Place, TranslationDraft } from "./translation-draft.js";

/**
 * The calls of one model response while what follows it is read. A provider pairs a result with a call of the response
 * that it follows, by its id; so does this, and only where the id names exactly one call there.
 */
export class OldTurn {
  readonly #calls: DraftCall[] = [];
  /** By the provider's id; `undefined` where several have it. */
  readonly #named = new Map<string, DraftCall | undefined>();

  constructor(readonly turn: Turn) {}

  get calls(): readonly DraftCall[] {
    return this.#calls;
  }

  add(call: DraftCall): void {
    const { providerCallId } = call.old;
    this.#named.set(providerCallId, this.#named.has(providerCallId) ? undefined : call);
    this.#calls.push(call);
  }

  /** The call of the turn that an id names, if it names exactly one. */
  callOf(providerCallId: string): DraftCall | undefined {
    return this.#named.get(providerCallId);
  }

  get unanswered(): DraftCall[] {
    return this.#calls.filter(isUnanswered);
  }

  /** Whether two calls of the turn have one id: then it is not known what the id means. */
  get isAmbiguous(): boolean {
    return this.#named.size < this.#calls.length;
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
