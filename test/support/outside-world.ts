import { createHash } from "node:crypto";
import { formatId, type MintId } from "../../src/domain/identity.js";
import { DEFAULT_LIMITS } from "../../src/domain/limits.js";
import type { Caller } from "../../src/domain/principal.js";
import { answerTokens } from "../../src/ledger/answer-token.js";
import { CommitFeed } from "../../src/ledger/commit-feed.js";
import type { LedgerOptions } from "../../src/ledger/ledger.js";
import { ReviewDetails } from "../../src/ledger/review-details.js";
import { readProviderTurn } from "../../src/provider/read-provider-turn.js";
import type { Store } from "../../src/ledger/store-port.js";

/** Clock, ids and randomness of a test: the same for the same name, across restarts of what uses them. */
export class OutsideWorld {
  timeMs = 1_700_000_000_000;
  #count = 0;
  readonly #name: string;
  readonly #secret: Uint8Array;

  constructor(name: string) {
    this.#name = name;
    this.#secret = createHash("sha256").update(`secret of ${name}`).digest();
  }

  #digest(): Uint8Array {
    this.#count += 1;
    return createHash("sha256").update(`${this.#name}/${this.#count}`).digest();
  }

  readonly mintId: MintId = (kind) => formatId(kind, this.#digest());

  readonly randomBytes = (size: number): Uint8Array => this.#digest().subarray(0, size);

  readonly nowMs = (): number => {
    this.timeMs += 1;
    return this.timeMs;
  };

  ledgerOptions(store: Store, snapshotEvery = 256): LedgerOptions {
    const { mintId, randomBytes, nowMs } = this;
    const outside = { mintId, randomBytes, nowMs };
    const tokens = answerTokens(this.#secret, store.generation);
    const heard = { commits: new CommitFeed(), details: new ReviewDetails() };
    return {
      ...{ store, limits: DEFAULT_LIMITS, ...outside, snapshotEvery, tokens, ...heard },
      readProviderTurn,
    };
  }
}

export const TENANT_CALLER: Caller = { tenant: "default", subject: "tester", scope: "tenant" };

/** A caller that waits for ever. */
export const WAITING = { aborted: undefined };
