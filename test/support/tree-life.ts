import type { Ask } from "../../gen/toolmark/v1/ask_pb.js";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import type {
  CompactSessionRequest,
  ForkSessionRequest,
} from "../../gen/toolmark/v1/session_service_pb.js";
import type { Refusal } from "../../src/domain/refusal.js";
import { AskReader } from "../../src/ledger/ask-reader.js";
import type { Replies } from "../../src/ledger/batch-context.js";
import type { CommitFeed } from "../../src/ledger/commit-feed.js";
import { SessionEnding } from "../../src/ledger/session-ending.js";
import { Ledger, type LedgerOptions } from "../../src/ledger/ledger.js";
import { Reader } from "../../src/ledger/reader.js";
import { SessionCompaction } from "../../src/ledger/session-compaction.js";
import { SessionFork } from "../../src/ledger/session-fork.js";
import type { Store } from "../../src/ledger/store-port.js";
import { APPROVER } from "./asking-ledger.js";
import { accepted } from "./forking-store.js";
import type { Disk } from "./ledger-machine.js";
import { OutsideWorld, TENANT_CALLER, WAITING } from "./outside-world.js";
import { TreeWatcher } from "./tree-watcher.js";

const SNAPSHOT_EVERY = 7;

/** Planted faults. */
export interface TreeMistakes {
  readonly wrapStore?: (store: Store) => Store;
  readonly wrapCommits?: (commits: CommitFeed) => CommitFeed;
  /** Archives through the event that was asked for, whatever turn goes on there. */
  readonly cutsAsAsked?: boolean;
}

/** What reads and writes a store in one life. */
interface TreeParts {
  readonly store: Store;
  readonly options: LedgerOptions;
  readonly ledger: Ledger;
  readonly reader: Reader;
  readonly asks: AskReader;
  readonly ending: SessionEnding;
}

/** A ledger, and what reads and ends trees of sessions beside it, over one life after another. */
export class TreeLife {
  readonly watchers = new Map<string, TreeWatcher>();
  #parts: TreeParts;
  readonly #disk: Disk;
  readonly #world: OutsideWorld;
  readonly #mistakes: TreeMistakes;

  private constructor(disk: Disk, world: OutsideWorld, mistakes: TreeMistakes, parts: TreeParts) {
    this.#disk = disk;
    this.#world = world;
    this.#mistakes = mistakes;
    this.#parts = parts;
  }

  static async begin(disk: Disk, name: string, mistakes: TreeMistakes): Promise<TreeLife> {
    const world = new OutsideWorld(name);
    return new TreeLife(disk, world, mistakes, await openParts(disk, world, mistakes));
  }

  get store(): Store {
    return this.#parts.store;
  }

  get ledger(): Ledger {
    return this.#parts.ledger;
  }

  get reader(): Reader {
    return this.#parts.reader;
  }

  get asks(): AskReader {
    return this.#parts.asks;
  }

  get ending(): SessionEnding {
    return this.#parts.ending;
  }

  /** Ends this life in good order or without a word, and begins the next, with the newest snapshots damaged or not. */
  async next(how: "restart" | "crash" | "loseSnapshot"): Promise<void> {
    if (how === "restart") await this.ledger.close();
    await this.store.close();
    if (how === "loseSnapshot") await this.#disk.damageNewestSnapshot();
    this.#parts = await openParts(this.#disk, this.#world, this.#mistakes);
    for (const watcher of this.watchers.values()) await watcher.listen(this.#watched());
  }

  async stop(): Promise<void> {
    await this.ledger.close();
    await this.store.close();
    await this.#disk.remove();
  }

  compact(request: CompactSessionRequest): Promise<Replies | Refusal> {
    if (this.#mistakes.cutsAsAsked === true) {
      const { throughSequence } = request;
      const mutation = { kind: "compactSession", request, throughSequence } as const;
      return this.ledger.submit(TENANT_CALLER, mutation, WAITING);
    }
    const compaction = new SessionCompaction(this.ledger, this.store, () => Promise.resolve());
    return compaction.compact(TENANT_CALLER, request, WAITING);
  }

  fork(request: ForkSessionRequest): Promise<Replies | Refusal> {
    const { store, ledger, options } = this.#parts;
    const { limits, mintId } = options;
    const pause = () => Promise.resolve();
    const fork = new SessionFork({ store, ledger, limits, mintId, pause });
    return fork.fork(TENANT_CALLER, request, WAITING);
  }

  tokenOf(sessionId: string, ask: Ask): string {
    return this.#parts.options.tokens.tokenOf({ tenant: TENANT_CALLER.tenant, sessionId }, ask);
  }

  /** The last event of a session's log, and the chain up to it, as text. */
  async headOf(sessionId: string): Promise<string> {
    const row = await this.store.findSession({ tenant: TENANT_CALLER.tenant, sessionId });
    return row === undefined ? "" : `${row.head.sequence} ${hexOf(row.head.chain)}`;
  }

  async body(sessionId: string, bodyRef: string): Promise<Buffer> {
    const range = { offsetBytes: 0n, limitBytes: 0n };
    const chunks = await this.reader.readBody(TENANT_CALLER, sessionId, bodyRef, range);
    return Buffer.concat([...accepted(chunks)].map(({ chunk }) => chunk));
  }

  /** A session's whole log. */
  async events(sessionId: string): Promise<Event[]> {
    const all: Event[] = [];
    let pageToken = "";
    do {
      const page = { pageSize: 500, pageToken };
      const got = accepted(await this.reader.listEvents(TENANT_CALLER, sessionId, 0n, page));
      all.push(...got.items);
      pageToken = got.nextPageToken;
    } while (pageToken !== "");
    return all;
  }

  /** Watches the asks of a session and of those below it from now on. */
  async watch(sessionId: string): Promise<void> {
    const watcher = new TreeWatcher(APPROVER, sessionId);
    this.watchers.set(sessionId, watcher);
    await watcher.listen(this.#watched());
  }

  async watchersLook(): Promise<void> {
    for (const watcher of this.watchers.values()) await watcher.look(this.#watched());
  }

  #watched() {
    return { asks: this.asks, commits: this.#parts.options.commits };
  }
}

async function openParts(
  disk: Disk,
  world: OutsideWorld,
  { wrapStore = (store) => store, wrapCommits = (feed) => feed }: TreeMistakes,
): Promise<TreeParts> {
  const store = wrapStore(await disk.open());
  const options = world.ledgerOptions(store, SNAPSHOT_EVERY);
  const heard = { ...options, commits: wrapCommits(options.commits) };
  const ledger = new Ledger(heard, {
    sessionDamaged: () => undefined,
    commitFailed: () => undefined,
  });
  return {
    ...{ store, options: heard, ledger },
    reader: new Reader(store, options.limits),
    asks: new AskReader(heard),
    ending: new SessionEnding(ledger, store, options.limits),
  };
}

function hexOf(data: Uint8Array): string {
  return Buffer.from(data).toString("hex");
}
