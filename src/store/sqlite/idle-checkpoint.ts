import { statSync } from "node:fs";
import { sqliteCode, toError, type SqliteDatabase } from "./sqlite-database.js";

const QUIET_MS = 1000;
const QUIET_MS_MAX = 60_000;
const LOG_BYTES_MIN = 1024 * 1024;

export interface IdleCheckpointOptions {
  readonly database: SqliteDatabase;
  readonly logPath: string;
  /** How long a statement of the connection waits for a lock otherwise. */
  readonly busyTimeoutMs: number;
  /** How long after the last commit. Default: a second. */
  readonly quietMs?: number;
  /** A log no larger than this is left alone. Default: 1 MiB. */
  readonly logBytesMin?: number;
  /** The checkpoint failed for another reason than readers, writers or lack of room. */
  readonly onFault: (error: Error) => void;
}

/**
 * Empties the write-ahead log when nothing has been committed for a while: the checkpoints that commits bring copy it
 * and never shorten it. A reader that holds it is not waited for: the next attempt comes later, and each after that
 * later than the one before.
 */
export class IdleCheckpoint {
  readonly #options: IdleCheckpointOptions;
  readonly #quietMs: number;
  #timer: NodeJS.Timeout | undefined;
  #waitsMs = 0;
  #isStopped = false;

  constructor(options: IdleCheckpointOptions) {
    this.#options = options;
    this.#quietMs = options.quietMs ?? QUIET_MS;
  }

  /** Something was committed: the waiting begins anew. */
  committed(): void {
    if (this.#waitsMs === this.#quietMs) this.#timer?.refresh();
    else this.#wait(this.#quietMs);
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  #wait(forMs: number): void {
    if (this.#isStopped) return;
    clearTimeout(this.#timer);
    this.#waitsMs = forMs;
    this.#timer = setTimeout(() => {
      this.#waitsMs = 0;
      if (!this.#tryToEmpty()) this.#wait(Math.min(forMs * 2, QUIET_MS_MAX));
    }, forMs).unref();
  }

  /** False if it has to be tried again. */
  #tryToEmpty(): boolean {
    const {
      database,
      logPath,
      logBytesMin = LOG_BYTES_MIN,
      busyTimeoutMs,
      onFault,
    } = this.#options;
    try {
      const sizeBytes = statSync(logPath, { throwIfNoEntry: false })?.size ?? 0;
      if (sizeBytes <= logBytesMin) return true;
      database.pragma("busy_timeout = 0");
      return database.pragma("wal_checkpoint(TRUNCATE)") === 0;
    } catch (error) {
      const cause = toError(error);
      // The log stays whole until all of it is in the database.
      if (/^SQLITE_(FULL|BUSY|LOCKED|IOERR_WRITE)(_|$)/.test(sqliteCode(cause) ?? "")) return false;
      onFault(cause);
      return true;
    } finally {
      database.pragma(`busy_timeout = ${busyTimeoutMs}`);
    }
  }
}
