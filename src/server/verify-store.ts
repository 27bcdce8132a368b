import { StoreFault } from "../ledger/store-port.js";
import type { VerifiedCounts } from "../ledger/verify/verdict.js";
import { openFileReader, type FileReader } from "../store/sqlite/file-reader.js";
import { StoreOpenError } from "../store/sqlite/store-open-error.js";
import { monotonicMs } from "./system.js";
import { findDamagedCreation } from "./verify-creations.js";
import { findingText, type MissedCheckpoint, type StoreFinding } from "./verify-finding.js";
import {
  verifyHere,
  type KeptCheckpoint,
  type SessionVerdict,
  type Verifying,
  type VerifySessions,
} from "./verify-task.js";

const PROGRESS_SESSIONS = 64;

export interface VerifyStoreOptions {
  /** The store's database, or a backup of it. */
  readonly path: string;
  /** Only sessions of this id. Absent: all. */
  readonly sessionId?: string | undefined;
  /** Only sessions of this tenant. Absent: all. */
  readonly tenant?: string | undefined;
  readonly checkpoints?: readonly KeptCheckpoint[];
  /** Look at the logs alone: not at SQLite's own structure, nor at rows that follow from events. Default: false. */
  readonly logOnly?: boolean;
  readonly onProgress?: (done: VerifyTotals) => void;
  /** Default: one session after the other in this thread. */
  readonly verifySessions?: VerifySessions;
}

export interface VerifyTotals extends VerifiedCounts {
  readonly sessions: number;
}

export interface VerifyReport extends VerifyTotals {
  readonly path: string;
  readonly isSound: boolean;
  /** The file's, then the first of each damaged session. */
  readonly findings: readonly StoreFinding[];
  readonly missed: readonly MissedCheckpoint[];
  readonly durationMs: number;
  readonly eventsPerSecond: number;
}

/**
 * Checks everything in the file of a store that nobody serves: SQLite's own structure, then each session as
 * VerifySession does, then remembered creations. Writes nothing. Throws StoreOpenError if the file cannot be opened.
 */
export async function verifyStore(options: VerifyStoreOptions): Promise<VerifyReport> {
  const startedMs = monotonicMs();
  const reader = openFileReader(options.path);
  try {
    const found = new Findings(options);
    await found.verify(reader);
    return found.report(monotonicMs() - startedMs);
  } finally {
    reader.close();
  }
}

/** The first thing in a store's file that is not as it was written, in words. */
export async function findDamage(path: string): Promise<string | undefined> {
  const { findings } = await verifyStore({ path });
  const [first] = findings;
  return first && findingText(first);
}

class Findings {
  readonly #options: VerifyStoreOptions;
  readonly #findings: StoreFinding[] = [];
  readonly #missed: MissedCheckpoint[] = [];
  readonly #absent: Set<KeptCheckpoint>;
  #totals: VerifyTotals = { sessions: 0, events: 0, bodies: 0, bytes: 0 };

  constructor(options: VerifyStoreOptions) {
    this.#options = options;
    this.#absent = new Set(options.checkpoints);
  }

  async verify(reader: FileReader): Promise<void> {
    await this.#attempt("database", async () => {
      this.#add("schema", reader.findSchemaFault());
    });
    if (this.#findings.length === 0) await this.#verifyRows(reader);
    for (const absent of this.#absent) {
      this.#missed.push({ sessionId: absent.sessionId, sequence: absent.sequence });
    }
  }

  async #verifyRows(reader: FileReader): Promise<void> {
    const {
      path,
      sessionId,
      tenant,
      checkpoints = [],
      logOnly = false,
      verifySessions = verifyHere,
    } = this.#options;
    // Threads work on it while this one asks SQLite.
    const verifying = verifySessions(reader, { path, sessionId, tenant, checkpoints, logOnly });
    try {
      await this.#verify(reader, verifying);
    } finally {
      await verifying.stop();
    }
    const isOfAll = sessionId === undefined && tenant === undefined && !logOnly;
    await this.#attempt("creations", async () => {
      const finding = isOfAll ? findDamagedCreation(reader) : undefined;
      if (finding !== undefined) this.#findings.push(finding);
    });
  }

  async #verify(reader: FileReader, { verdicts }: Verifying): Promise<void> {
    if (this.#options.logOnly !== true) await this.#checkDatabase(reader);
    await this.#attempt("sessions", async () => {
      for await (const verdict of verdicts) this.#take(verdict);
    });
  }

  #checkDatabase(reader: FileReader): Promise<void> {
    return this.#attempt("database", async () => {
      this.#add("pages", reader.findUnsoundPage());
      this.#add("events", reader.findMissingEvents());
    });
  }

  report(durationMs: number): VerifyReport {
    const { events } = this.#totals;
    return {
      path: this.#options.path,
      isSound: this.#findings.length === 0 && this.#missed.length === 0,
      ...this.#totals,
      findings: this.#findings,
      missed: this.#missed,
      durationMs: Math.round(durationMs),
      eventsPerSecond: Math.round((events * 1000) / Math.max(durationMs, 1)),
    };
  }

  /** What cannot be read because it is damaged is a finding too. */
  async #attempt(table: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof StoreFault)) throw error;
      const { path } = this.#options;
      if (error.reason !== "damaged") throw asUnavailable(path, error);
      this.#findings.push({ table, key: "pages", fault: error.message });
    }
  }

  #add(key: string, fault: string | undefined): void {
    if (fault !== undefined) this.#findings.push({ table: "database", key, fault });
  }

  #take({ session, verdict }: SessionVerdict): void {
    const { tenant, sessionId } = session;
    for (const kept of this.#absent) if (kept.sessionId === sessionId) this.#absent.delete(kept);
    const counts = verdict?.outcome === "aborted" ? undefined : verdict?.counts;
    this.#count(counts);
    if (verdict === undefined) {
      const fault = "is listed, but cannot be found by its id";
      this.#findings.push({ tenant, sessionId, table: "sessions", key: sessionId, fault });
    } else if (verdict.outcome === "damaged") {
      this.#findings.push({ tenant, sessionId, ...verdict.finding });
    } else if (verdict.outcome === "checkpoint_missed") {
      const { sequence, head } = verdict;
      this.#missed.push({ tenant, sessionId, sequence, headSequence: head.sequence });
    }
  }

  #count(counts: VerifiedCounts = { events: 0, bodies: 0, bytes: 0 }): void {
    const { sessions, events, bodies, bytes } = this.#totals;
    this.#totals = {
      sessions: sessions + 1,
      events: events + counts.events,
      bodies: bodies + counts.bodies,
      bytes: bytes + counts.bytes,
    };
    if (this.#totals.sessions % PROGRESS_SESSIONS === 0) this.#options.onProgress?.(this.#totals);
  }
}

function asUnavailable(path: string, fault: StoreFault): StoreOpenError {
  const message = `${path} cannot be read: ${fault.message}`;
  return new StoreOpenError("unavailable", message, { path }, { cause: fault });
}
