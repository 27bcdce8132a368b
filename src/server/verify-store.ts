import { StoreFault, type SessionRef } from "../ledger/store-port.js";
import type { LogPoint, VerifiedCounts } from "../ledger/verify/verdict.js";
import { openFileReader, type FileReader } from "../store/sqlite/file-reader.js";
import { StoreOpenError } from "../store/sqlite/store-open-error.js";
import { monotonicMs } from "./system.js";
import { findDamagedCreation } from "./verify-creations.js";
import { findingText, type MissedCheckpoint, type StoreFinding } from "./verify-finding.js";
import { verifyHere, type SessionTask, type SessionVerdict } from "./verify-task.js";

const LIST_ROWS = 1000;
const PROGRESS_SESSIONS = 64;

/** A point of a session's log that somebody kept. */
export interface KeptCheckpoint extends LogPoint {
  readonly sessionId: string;
}

export interface VerifyStoreOptions {
  /** The store's database, or a backup of it. */
  readonly path: string;
  /** Only sessions of this id. Absent: all. */
  readonly sessionId?: string | undefined;
  /** Only sessions of this tenant. Absent: all. */
  readonly tenant?: string | undefined;
  readonly checkpoints?: readonly KeptCheckpoint[];
  readonly onProgress?: (done: VerifyTotals) => void;
  /** Default: one session after the other in this thread. */
  readonly verifyAll?: VerifyAll;
}

/** Gives a verdict for each task, in any order. */
export type VerifyAll = (
  reader: FileReader,
  tasks: Iterable<SessionTask>,
) => AsyncIterable<SessionVerdict>;

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
    const { verifyAll = verifyHere } = this.#options;
    await this.#attempt("database", async () => {
      const fault = reader.findUnsoundPage();
      if (fault !== undefined) this.#findings.push({ table: "database", key: "pages", fault });
      const missing = reader.findMissingEvents();
      if (missing !== undefined) {
        this.#findings.push({ table: "database", key: "events", fault: missing });
      }
    });
    await this.#attempt("sessions", async () => {
      for await (const verdict of verifyAll(reader, this.#tasks(reader))) this.#take(verdict);
    });
    const isOfAll = this.#options.sessionId === undefined && this.#options.tenant === undefined;
    await this.#attempt("creations", async () => {
      const finding = isOfAll ? findDamagedCreation(reader) : undefined;
      if (finding !== undefined) this.#findings.push(finding);
    });
    for (const { sessionId, sequence } of this.#absent) this.#missed.push({ sessionId, sequence });
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

  *#tasks(reader: FileReader): Generator<SessionTask> {
    let after = 0;
    for (;;) {
      const page = reader.listAllSessions(after, LIST_ROWS);
      if (page.length === 0) return;
      for (const session of page) {
        if (session.key <= after) throw outOfOrder();
        after = session.key;
        if (this.#isWanted(session)) yield this.#task(session);
      }
    }
  }

  #isWanted(session: SessionRef): boolean {
    const { sessionId = session.sessionId, tenant = session.tenant } = this.#options;
    return session.sessionId === sessionId && session.tenant === tenant;
  }

  #task({ tenant, sessionId }: SessionRef): SessionTask {
    const kept = this.#options.checkpoints ?? [];
    const checkpoints = kept.filter((checkpoint) => checkpoint.sessionId === sessionId);
    for (const checkpoint of checkpoints) this.#absent.delete(checkpoint);
    return { session: { tenant, sessionId }, checkpoints };
  }

  #take({ session, verdict }: SessionVerdict): void {
    const { tenant, sessionId } = session;
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

function outOfOrder(): StoreFault {
  return new StoreFault("damaged", new Error("sessions are listed out of order"));
}

function asUnavailable(path: string, fault: StoreFault): StoreOpenError {
  const message = `${path} cannot be read: ${fault.message}`;
  return new StoreOpenError("unavailable", message, { path }, { cause: fault });
}
