import type { Limits } from "../domain/limits.js";
import { InvariantError } from "../domain/invariant.js";
import { answerTokens } from "../ledger/answer-token.js";
import { AskReader } from "../ledger/ask-reader.js";
import { CommitFeed } from "../ledger/commit-feed.js";
import { Expiry } from "../ledger/expiry.js";
import { Ledger } from "../ledger/ledger.js";
import { MountedSessions, type LegacyMount, type MountFault } from "../ledger/mounted-sessions.js";
import { MountedStore } from "../ledger/mounted-store.js";
import { readSources } from "../legacy/read-sources.js";
import { Reader } from "../ledger/reader.js";
import { ROW_RULES } from "../ledger/row-rules.js";
import { ReviewDetails } from "../ledger/review-details.js";
import type { Store } from "../ledger/store-port.js";
import type { Authenticate } from "../rpc/authenticate.js";
import { traceOf } from "../rpc/fault-trace.js";
import type { Log } from "../rpc/log.js";
import { readProviderTurn } from "../provider/read-provider-turn.js";
import { createValidator } from "../rpc/validate/validator.js";
import { createMemoryStore } from "../store/memory/memory-store.js";
import { StoreFilesGoneError } from "../store/sqlite/file-guard.js";
import { openSqliteStore } from "../store/sqlite/sqlite-store.js";
import { AskWatch } from "../watch/ask-watch.js";
import { AwaitAsk } from "../watch/await-ask.js";
import { EventWatch } from "../watch/event-watch.js";
import type { EventWatchOptions } from "../watch/watch-options.js";
import { StalledWatchers } from "../watch/stalled-watchers.js";
import { composeServices } from "./compose.js";
import type { Config } from "./config.js";
import { openLegacyMount } from "./legacy-mount.js";
import { observeLedger } from "./ledger-observer.js";
import { serviceMetrics } from "./metrics.js";
import type { StoreLocation } from "./setting.js";
import { startServer, type RunningServer } from "./start.js";
import { loadStoreSecret, storedGeneration } from "./store-secret.js";
import { mintId, monotonicMs, nowMs, randomBytes } from "./system.js";

const SECRET_BYTES = 32;
const EXPIRY_CHECK_MS = 1000;
const ASK_HEARTBEAT_MS = 20_000;
const EVENT_HEARTBEAT_MS = 20_000;
const WATCH_LAG_MS = 20_000;

export interface ServiceOptions {
  readonly config: Config;
  readonly log: Log;
  readonly version: string;
  /** An invariant broke: the process must stop. */
  readonly onInvariantBroken: () => void;
  /**
   * The store failed for good: what was not acknowledged may or may not be stored. The process must drain and end; the
   * store stays open until then. Called once.
   */
  readonly onStoreFailed?: () => void;
  /** Default: whoever reaches the server is the loopback principal. */
  readonly authenticate?: Authenticate;
  /** Default: opens the store that the configuration names. */
  readonly openStore?: (location: StoreLocation) => Promise<Store>;
  /** Default: the system's clock. */
  readonly nowMs?: () => number;
  /** Default: the system's clock that never jumps. */
  readonly monotonicMs?: () => number;
  /** How often the clock is looked at for what expires. Default: every second. */
  readonly expiryCheckMs?: number;
  /** After which silence a watch of asks is told that it goes on. Default: 20 seconds. */
  readonly askHeartbeatMs?: number;
  /** After which silence a watch of events is told that it goes on. Default: 20 seconds. */
  readonly eventHeartbeatMs?: number;
  /** How far a watcher of events may fall behind, and how long it may take nothing. Default: 20 seconds. */
  readonly watchLagMs?: number;
  /** Where commits are told of. Default: a feed that nobody else listens to. */
  readonly commits?: CommitFeed;
}

/** Opens the store, puts a ledger on it and serves both on the two listeners. Throws what opening them throws. */
export async function startService(options: ServiceOptions): Promise<RunningServer> {
  const { store: location } = options.config;
  const mount = await mountOf(options);
  const store = await (options.openStore ?? openStoreOf(options.log))(location);
  try {
    const secret = await secretOf(location, store, options.log);
    return await serveStore(options, { stored: store, mount, secret });
  } catch (fault) {
    await store.close();
    throw fault;
  }
}

/** Opened before the store: a folder that cannot be used leaves the store alone. */
async function mountOf({ config, log }: ServiceOptions): Promise<LegacyMount | undefined> {
  const { legacyDir: path, legacyTenant: tenant, limits } = config;
  if (path === undefined) return undefined;
  return openLegacyMount({ path, tenant, maxBytes: limits.bodyBytes, log });
}

/** What a server is put on. */
interface Ground {
  readonly stored: Store;
  readonly mount: LegacyMount | undefined;
  readonly secret: Uint8Array;
}

async function serveStore(
  options: ServiceOptions,
  { stored, mount, secret }: Ground,
): Promise<RunningServer> {
  const { config, log, version, commits = new CommitFeed() } = options;
  const { limits, snapshotEvery } = config;
  const mounts = mount && mountedSessions({ mount, stored, limits, log });
  const store = mounts === undefined ? stored : new MountedStore(stored, mounts);
  const clock = {
    nowMs: options.nowMs ?? nowMs,
    monotonicMs: options.monotonicMs ?? monotonicMs,
  };
  const tokens = answerTokens(secret, store.generation);
  const details = new ReviewDetails();
  const onStoreFailed = once(options.onStoreFailed);
  const metrics = serviceMetrics({ store, location: config.store, log });
  const ledger = new Ledger(
    {
      ...{ store, mounts, limits, snapshotEvery, mintId, randomBytes, tokens, commits, details },
      nowMs: clock.nowMs,
      readProviderTurn,
    },
    observeLedger({ log, countCommit: metrics.countCommit, onStoreFailed }),
  );
  const reader = new Reader(store, limits);
  const asks = new AskReader({ store, limits, tokens });
  const waiting = { asks, commits, monotonicMs: clock.monotonicMs };
  const committing = (): Promise<void> | undefined => ledger.committing;
  const heartbeatMs = options.askHeartbeatMs ?? ASK_HEARTBEAT_MS;
  const watch = new AskWatch({ ...waiting, store, committing, heartbeatMs });
  const awaiting = new AwaitAsk(waiting);
  const events = eventWatchOf(options, { store, commits, committing, ...clock });
  const server = await startServer({
    ...options,
    binding: composeServices({
      ...{ version, limits },
      ...{ store, stored, ledger, reader, asks, watch, awaiting, details, events },
    }),
    validate: createValidator(limits),
    routes: [metrics.route],
  });
  const expiry = new Expiry({
    ...{ store, commits, ...clock },
    expire: (session, recordIds) => ledger.expire(session, recordIds),
    checkMs: options.expiryCheckMs ?? EXPIRY_CHECK_MS,
    onFault: expiryFault(options),
  });
  // Not before it listens: a server that cannot start writes nothing.
  expiry.start();
  return { ...server, drain: drainAll({ server, expiry, ledger, store, log, onStoreFailed }) };
}

type EventWatchParts = Omit<EventWatchOptions, "stalled" | "lagMs" | "heartbeatMs">;

function eventWatchOf(options: ServiceOptions, parts: EventWatchParts): EventWatch {
  const { watchLagMs: lagMs = WATCH_LAG_MS, eventHeartbeatMs = EVENT_HEARTBEAT_MS } = options;
  const stalled = new StalledWatchers({ ...parts, stalledAfterMs: lagMs });
  return new EventWatch({ ...parts, stalled, lagMs, heartbeatMs: eventHeartbeatMs });
}

interface Mounting {
  readonly mount: LegacyMount;
  readonly stored: Store;
  readonly limits: Limits;
  readonly log: Log;
}

function mountedSessions({ mount, stored, limits, log }: Mounting): MountedSessions {
  const { storeId, generation } = stored;
  const openMemory = (): Store => createMemoryStore({ storeId, generation });
  const onChanged = (sessionId: string): void => {
    log.warn("the files of an adopted session have changed and are ignored", { sessionId });
  };
  const onFault = ({ fault: cause, where }: MountFault): void => {
    log.warn("a mounted session cannot be read", { cause, ...where });
  };
  const means = { openMemory, readSources, randomBytes, onChanged, onFault };
  return new MountedSessions({ mount, stored, limits, ...means });
}

/** The secret that the store's answer tokens are made with. One in memory lives as long as its store. */
async function secretOf(location: StoreLocation, store: Store, log: Log): Promise<Uint8Array> {
  if (location.kind === "memory") return randomBytes(SECRET_BYTES);
  const { secret, created } = await loadStoreSecret(location.path, store.generation);
  if (created && (await store.lastPosition()) > 0n) {
    log.warn("a new secret was made for a store in use: answer tokens shown before are void");
  }
  return secret;
}

function expiryFault({ log, onInvariantBroken }: ServiceOptions): (fault: unknown) => void {
  return (fault) => {
    log.error("expiring failed", { fault: traceOf(fault) });
    if (fault instanceof InvariantError) onInvariantBroken();
  };
}

function once(call: () => void = () => undefined): () => void {
  let isCalled = false;
  return () => {
    if (!isCalled) call();
    isCalled = true;
  };
}

function openStoreOf(log: Log): (location: StoreLocation) => Promise<Store> {
  const onWarning = (warning: string): void => {
    log.warn("the store has a warning", { warning });
  };
  return (location) => openStore(location, onWarning);
}

/** Opens the store where records are kept. Throws StoreOpenError. */
export async function openStore(
  location: StoreLocation,
  onWarning: (text: string) => void = () => undefined,
): Promise<Store> {
  const storeId = mintId("store");
  if (location.kind === "memory") return createMemoryStore({ storeId });
  // Taken if the database is new: it may be beside the secret of one that is gone.
  const generation = (await storedGeneration(location.path)) ?? 0n;
  const { path } = location;
  return openSqliteStore({ path, storeId, generation, rules: ROW_RULES, onWarning });
}

interface Drainable {
  readonly server: RunningServer;
  readonly expiry: Expiry;
  readonly ledger: Ledger;
  readonly store: Store;
  readonly log: Log;
  readonly onStoreFailed: () => void;
}

/** Calls end first, then what they decided is saved, then the store is released. */
function drainAll({ server, expiry, ledger, ...released }: Drainable): () => Promise<void> {
  let drained: Promise<void> | undefined;
  const drain = async (): Promise<void> => {
    try {
      await server.drain();
    } finally {
      await expiry.stop();
    }
    await ledger.close();
  };
  const drainAndClose = async (): Promise<void> => {
    try {
      await drain();
    } finally {
      await release(released);
    }
  };
  return () => (drained ??= drainAndClose());
}

async function release({
  store,
  log,
  onStoreFailed,
}: Pick<Drainable, "store" | "log" | "onStoreFailed">): Promise<void> {
  try {
    await store.close();
  } catch (fault) {
    if (!(fault instanceof StoreFilesGoneError)) throw fault;
    log.error("the store is not closed", { cause: fault.message });
    onStoreFailed();
  }
}
