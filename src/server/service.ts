import { Ledger, type LedgerObserver } from "../ledger/ledger.js";
import { Reader } from "../ledger/reader.js";
import type { Store } from "../ledger/store-port.js";
import type { Authenticate } from "../rpc/authenticate.js";
import { traceOf } from "../rpc/fault-trace.js";
import type { Log } from "../rpc/log.js";
import { createValidator } from "../rpc/validate/validator.js";
import { createMemoryStore } from "../store/memory/memory-store.js";
import { openSqliteStore } from "../store/sqlite/sqlite-store.js";
import { composeServices } from "./compose.js";
import type { Config } from "./config.js";
import type { StoreLocation } from "./setting.js";
import { startServer, type RunningServer } from "./start.js";
import { mintId, nowMs, randomBytes } from "./system.js";

export interface ServiceOptions {
  readonly config: Config;
  readonly log: Log;
  readonly version: string;
  /** An invariant broke: the process must stop. */
  readonly onInvariantBroken: () => void;
  /** Default: whoever reaches the server is the loopback principal. */
  readonly authenticate?: Authenticate;
  /** Default: opens the store that the configuration names. */
  readonly openStore?: (location: StoreLocation) => Promise<Store>;
  /** Default: the system's clock. */
  readonly nowMs?: () => number;
}

/** Opens the store, puts a ledger on it and serves both on the two listeners. Throws what opening them throws. */
export async function startService(options: ServiceOptions): Promise<RunningServer> {
  const { config, log, version } = options;
  const { limits, snapshotEvery } = config;
  const store = await (options.openStore ?? openStore)(config.store);
  try {
    const ledger = new Ledger(
      { store, limits, snapshotEvery, mintId, randomBytes, nowMs: options.nowMs ?? nowMs },
      observerOf(log),
    );
    const reader = new Reader(store, limits);
    const server = await startServer({
      ...options,
      binding: composeServices({ version, limits, ledger, reader }),
      validate: createValidator(limits),
    });
    return { ...server, drain: drainAll(server, ledger, store) };
  } catch (fault) {
    await store.close();
    throw fault;
  }
}

function observerOf(log: Log): LedgerObserver {
  return {
    sessionDamaged: ({ sessionId, warning, cause }) => {
      log.warn("a stored session is damaged", { sessionId, warning, cause });
    },
    commitFailed: ({ outcome, cause }) => {
      log.error("a commit failed", { outcome, fault: traceOf(cause) });
    },
  };
}

/** Opens the store where records are kept. Throws StoreOpenError. */
export async function openStore(location: StoreLocation): Promise<Store> {
  if (location.kind === "memory") return createMemoryStore();
  return openSqliteStore({ path: location.path, storeId: mintId("store") });
}

/** Calls end first, then what they decided is saved, then the store is released. */
function drainAll(server: RunningServer, ledger: Ledger, store: Store): () => Promise<void> {
  let drained: Promise<void> | undefined;
  const drain = async (): Promise<void> => {
    try {
      await server.drain();
      await ledger.close();
    } finally {
      await store.close();
    }
  };
  return () => (drained ??= drain());
}
