import type { Ask, AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { isRefusal } from "../../src/domain/refusal.js";
import type { AskReader, Viewer } from "../../src/ledger/ask-reader.js";
import type { CommitFeed } from "../../src/ledger/commit-feed.js";

const PAGE_ASKS = 3;

/** What a watch is read through. It is another one after a restart. */
export interface WatchedLedger {
  readonly asks: AskReader;
  readonly commits: CommitFeed;
}

/** Follows the asks of a tree as a watch does: looks only when it is woken, and goes on from where it was. */
export class TreeWatcher {
  /** As last heard, by id. */
  readonly heard = new Map<string, Ask>();
  #position = 0n;
  #hasRung = false;
  #stop: () => void = () => undefined;

  constructor(
    readonly viewer: Viewer,
    readonly sessionId: string,
  ) {}

  /** Begins to listen, or goes on in the next life of the ledger. */
  async listen(to: WatchedLedger): Promise<void> {
    this.#stop();
    this.#stop = to.commits.onAsksChanged(await this.#scope(to), () => {
      this.#hasRung = true;
    });
    await this.#take(to);
  }

  /** Takes up what changed. Throws if something did and nobody said so. */
  async look(to: WatchedLedger): Promise<void> {
    const hasRung = this.#hasRung;
    this.#hasRung = false;
    const taken = await this.#take(to);
    if (taken > 0 && !hasRung) throw new Error(`a watch of ${this.sessionId} was not woken`);
  }

  stateOf(askId: string): AskState | undefined {
    return this.heard.get(askId)?.state;
  }

  async #take(to: WatchedLedger): Promise<number> {
    const scope = await this.#scope(to);
    for (let taken = 0; ;) {
      const range = { scope, afterPosition: this.#position, limit: PAGE_ASKS };
      const rows = await to.asks.askChanges(range);
      for (const row of rows) {
        const shown = await to.asks.show(this.viewer, scope, row);
        if (isRefusal(shown)) throw new Error(shown.message);
        if (shown.ask !== undefined) this.heard.set(row.askId, shown.ask);
        this.#position = row.lastPosition;
      }
      taken += rows.length;
      if (rows.length < PAGE_ASKS) return taken;
    }
  }

  async #scope({ asks }: WatchedLedger) {
    const which = { sessionId: this.sessionId, includeDescendants: true };
    const scope = await asks.scopeOf(this.viewer.caller, which);
    if (isRefusal(scope)) throw new Error(scope.message);
    return scope;
  }
}
