import { toBinary, type DescMethod, type Message } from "@bufbuild/protobuf";
import { DEFAULT_LIMITS } from "../../src/domain/limits.js";
import type { Principal } from "../../src/domain/principal.js";
import { isRefusal } from "../../src/domain/refusal.js";
import { answerTokens } from "../../src/ledger/answer-token.js";
import { AskReader } from "../../src/ledger/ask-reader.js";
import { CommitFeed } from "../../src/ledger/commit-feed.js";
import { Ledger } from "../../src/ledger/ledger.js";
import { Reader } from "../../src/ledger/reader.js";
import { ReviewDetails } from "../../src/ledger/review-details.js";
import type { Store } from "../../src/ledger/store-port.js";
import { methodName, type BoundMethod, type CallContext, type Item } from "../../src/rpc/call.js";
import { composeServices } from "../../src/server/compose.js";
import { mintId, monotonicMs, nowMs, randomBytes } from "../../src/server/system.js";
import { AskWatch } from "../../src/watch/ask-watch.js";
import { AwaitAsk } from "../../src/watch/await-ask.js";

/** A call of a method with the message that it is sent. */
export interface OfflineCall {
  readonly caller: Principal;
  readonly method: DescMethod;
  readonly request: Message;
}
import { readProviderTurn } from "../../src/provider/read-provider-turn.js";
import { eventWatch } from "./event-watching.js";

/** What a call is answered: its messages in hex, or that it is refused or fails. */
export type OfflineAnswer =
  | { readonly kind: "answered"; readonly messages: string; readonly items: readonly Message[] }
  | { readonly kind: "refused"; readonly why: string }
  | { readonly kind: "failed"; readonly fault: Error };

/** Every method of the service on a store, without listeners. */
export class OfflineService {
  readonly #methods = new Map<string, BoundMethod>();
  readonly #ledger: Ledger;
  readonly #store: Store;

  constructor(store: Store, secret: Uint8Array) {
    const limits = DEFAULT_LIMITS;
    const commits = new CommitFeed();
    const details = new ReviewDetails();
    const tokens = answerTokens(secret, store.generation);
    const outside = { mintId, nowMs, randomBytes };
    this.#store = store;
    this.#ledger = new Ledger(
      { store, limits, tokens, commits, details, snapshotEvery: 4, ...outside, readProviderTurn },
      { sessionDamaged: () => undefined, commitFailed: () => undefined },
    );
    const asks = new AskReader({ store, limits, tokens });
    const waiting = { asks, commits, monotonicMs };
    const committing = (): Promise<void> | undefined => this.#ledger.committing;
    const binding = composeServices({
      ...{ version: "0.0.0-test", limits, store, asks, details },
      ...{ ledger: this.#ledger, reader: new Reader(store, limits) },
      ...{ watch: new AskWatch({ ...waiting, committing, store, heartbeatMs: 1000 }) },
      awaiting: new AwaitAsk(waiting),
      events: eventWatch({ store, commits }),
    });
    for (const method of binding.flatMap(({ methods }) => methods)) {
      this.#methods.set(method.name, method);
    }
  }

  async call({ caller, method, request }: OfflineCall): Promise<OfflineAnswer> {
    const bound = this.#methods.get(methodName(method));
    if (bound === undefined) throw new Error(`${method.name} is not served`);
    try {
      const reply = bound.handle(contextOf(caller, method), request);
      const items = reply instanceof Promise ? [await reply] : await allOf(reply);
      return answerOf(method, items);
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      return { kind: "failed", fault: error };
    }
  }

  async close(): Promise<void> {
    await this.#store.close();
  }
}

function answerOf(method: DescMethod, items: readonly Item[]): OfflineAnswer {
  const refusal = items.find(isRefusal);
  if (refusal !== undefined) return { kind: "refused", why: refusal.message };
  const messages = items.filter((item): item is Message => !isRefusal(item));
  const hex = messages.map((item) => Buffer.from(toBinary(method.output, item)).toString("hex"));
  return { kind: "answered", messages: hex.join(), items: messages };
}

async function allOf(items: AsyncIterable<Item>): Promise<Item[]> {
  const all: Item[] = [];
  for await (const item of items) all.push(item);
  return all;
}

const NEVER = new AbortController().signal;

function contextOf(principal: Principal, method: DescMethod): CallContext {
  const quiet = {
    signal: NEVER,
    aborted: undefined,
    draining: NEVER,
    cutOff: () => undefined,
    whenAborted: () => () => undefined,
  };
  return { principal, method, correlationId: "cor_test", ...quiet };
}
