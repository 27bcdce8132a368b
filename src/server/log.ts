import { destination, pino, type DestinationStream, type Level } from "pino";
import type { Log, LogFields, WriteLog } from "../rpc/log.js";

export const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

const STANDARD_ERROR = 2;

/** Every field of LogFields. What is not listed is not written, whatever the caller hands over. */
const ALLOWED = {
  method: true,
  status: true,
  reason: true,
  durationMs: true,
  replies: true,
  tenant: true,
  subject: true,
  peer: true,
  sessionId: true,
  askId: true,
  correlationId: true,
  warning: true,
  cause: true,
  fault: true,
  file: true,
  path: true,
  offset: true,
  grpcAddress: true,
  httpAddress: true,
  version: true,
  signal: true,
  outcome: true,
} as const satisfies Record<keyof LogFields, true>;
const FIELD_NAMES = Object.keys(ALLOWED) as readonly (keyof LogFields)[];

/**
 * One JSON object a line on standard error; standard output is for what the command itself says.
 */
export function createLog(level: LogLevel, stream: DestinationStream = standardError()): Log {
  const logger = pino(
    { level, base: null, formatters: { level: (label) => ({ level: label }) } },
    stream,
  );
  const writer =
    (writeLevel: Level): WriteLog =>
    (message, fields = {}) => {
      if (logger.isLevelEnabled(writeLevel)) logger[writeLevel](allowedOf(fields), message);
    };
  return {
    debugEnabled: logger.isLevelEnabled("debug"),
    debug: writer("debug"),
    info: writer("info"),
    warn: writer("warn"),
    error: writer("error"),
  };
}

/** Lines that cannot be written wait up to here; later ones are dropped. */
const WAITING_BYTES_MAX = 1024 * 1024;

function standardError(): DestinationStream {
  // Written at once: the last lines before an exit are the ones that are needed.
  const stream = destination({
    fd: STANDARD_ERROR,
    sync: true,
    maxLength: WAITING_BYTES_MAX,
  });
  // A full disk under the log is no reason to refuse a call, or to end.
  stream.on("error", (error: unknown) => {
    if (!(error instanceof Error)) throw error;
  });
  return stream;
}

function allowedOf(fields: LogFields): Record<string, unknown> {
  const allowed: Record<string, unknown> = {};
  for (const name of FIELD_NAMES) if (fields[name] !== undefined) allowed[name] = fields[name];
  return allowed;
}
