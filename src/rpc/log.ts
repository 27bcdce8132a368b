import type { FaultTrace } from "./fault-trace.js";

/**
 * Everything that may be logged. Never a body, a token, a provider's id or the text of a message.
 */
export interface LogFields {
  readonly method?: string | undefined;
  readonly status?: string | undefined;
  readonly reason?: string | undefined;
  readonly durationMs?: number | undefined;
  readonly replies?: number | undefined;
  readonly tenant?: string | undefined;
  readonly subject?: string | undefined;
  readonly peer?: string | undefined;
  readonly sessionId?: string | undefined;
  readonly askId?: string | undefined;
  readonly correlationId?: string | undefined;
  readonly warning?: string | undefined;
  readonly cause?: string | undefined;
  readonly fault?: FaultTrace | undefined;
  readonly grpcAddress?: string | undefined;
  readonly httpAddress?: string | undefined;
  readonly version?: string | undefined;
  readonly signal?: string | undefined;
  /** A file that an operator named or put there, and where in it: never what is in it. */
  readonly file?: string | undefined;
  readonly path?: string | undefined;
  readonly offset?: string | undefined;
  /** What became of a commit that failed. */
  readonly outcome?: string | undefined;
}

export type WriteLog = (message: string, fields?: LogFields) => void;

/** Writes the log. `message` is a fixed sentence; what varies goes into the fields. */
export interface Log {
  /** False if `debug` writes nothing, so that a hot path need not gather what it would say. */
  readonly debugEnabled: boolean;
  readonly debug: WriteLog;
  readonly info: WriteLog;
  readonly warn: WriteLog;
  readonly error: WriteLog;
}
