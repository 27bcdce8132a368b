import { projectedCallDigest } from "../domain/identity.js";
import type { IdRule } from "./wire.js";

/** The call ids of one request: each only once, and none of them by what comes later. */
export class ProjectedIds {
  readonly #used = new Set<string>();

  constructor(private readonly rule: IdRule) {}

  /**
   * Asked once for each call of the session, in their order, archived ones too. `isOwn`: whether the call came over the
   * wire that the request is for.
   */
  idOf(toolCallId: string, providerCallId: string | undefined, isOwn = false): string | undefined {
    const { fits, fitsOwn = fits } = this.rule;
    const isFree = this.#isFree(providerCallId, isOwn ? fitsOwn : fits);
    const id = isFree ? providerCallId : this.#derived(toolCallId);
    if (id !== undefined) this.#used.add(id);
    return id;
  }

  #isFree(id: string | undefined, fits: IdRule["fits"]): id is string {
    return id !== undefined && id !== "" && fits(id) && !this.#used.has(id);
  }

  #derived(toolCallId: string): string | undefined {
    const { derive } = this.rule;
    if (derive === undefined) return undefined;
    for (let attempt = 0n; ; attempt += 1n) {
      const id = derive(projectedCallDigest(toolCallId, attempt));
      if (!this.#used.has(id)) return id;
    }
  }
}
