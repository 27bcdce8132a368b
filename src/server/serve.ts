import { traceOf } from "../rpc/fault-trace.js";
import type { Log } from "../rpc/log.js";
import { StoreOpenError } from "../store/sqlite/store-open-error.js";
import { AddressUnavailableError } from "./address.js";
import { readConfig, type Config } from "./config.js";
import { EXIT_CODE, type ExitCode } from "./exit-code.js";
import { LegacyDirectoryError } from "./legacy-dir.js";
import { createLog } from "./log.js";
import { removeReadyFile, writeReadyFile } from "./ready-file.js";
import { startService } from "./service.js";
import type { RunningServer } from "./start.js";
import { readVersion } from "./version.js";

/** Runs a server from its settings until a signal has drained it. The composition root. */
export async function serve(args: readonly string[]): Promise<ExitCode> {
  const outcome = readConfig(args);
  if (outcome.kind === "help") return say(outcome.text);
  if (outcome.kind === "problem") return complain(outcome.text, EXIT_CODE.configuration);
  const { config } = outcome;
  const log = createLog(config.logLevel);
  stopOnUncaughtFaults(log);
  const stopping = untilSignal(log);
  try {
    return await run(config, log, stopping);
  } catch (fault) {
    return failedStart(fault, log);
  }
}

async function run(config: Config, log: Log, stopping: Promise<void>): Promise<ExitCode> {
  const version = readVersion();
  const onInvariantBroken = (): void => {
    process.exit(EXIT_CODE.internal);
  };
  const { readyFile } = config;
  if (readyFile !== undefined) await removeReadyFile(readyFile);
  const failing = new StoreFailure(config.drainTimeoutMs);
  const { onStoreFailed } = failing;
  const server = await startService({ config, log, version, onInvariantBroken, onStoreFailed });
  await announce(server, config, log, version);
  await Promise.race([stopping, failing.happened]);
  try {
    if (readyFile !== undefined) await removeReadyFile(readyFile);
    await server.drain();
  } catch (fault) {
    if (!failing.hasHappened) throw fault;
    log.error("draining failed", { fault: traceOf(fault) });
  }
  log.info("drained");
  return failing.hasHappened ? EXIT_CODE.storeFailed : EXIT_CODE.ok;
}

/** Time for what comes after draining. */
const LAST_STEPS_MS = 1000;

/** Whether the store failed. From then on the process ends in time, whatever else fails. */
class StoreFailure {
  readonly happened: Promise<void>;
  #hasHappened = false;
  #tell: () => void = () => undefined;

  constructor(private readonly drainTimeoutMs: number) {
    this.happened = new Promise((resolve) => {
      this.#tell = resolve;
    });
  }

  get hasHappened(): boolean {
    return this.#hasHappened;
  }

  readonly onStoreFailed = (): void => {
    this.#hasHappened = true;
    setTimeout(() => process.exit(EXIT_CODE.storeFailed), this.drainTimeoutMs + LAST_STEPS_MS);
    this.#tell();
  };
}

async function announce(
  { grpcAddress, httpAddress }: RunningServer,
  { readyFile }: Config,
  log: Log,
  version: string,
): Promise<void> {
  log.info("listening", { version, grpcAddress, httpAddress });
  say(`toolmark ${version}: gRPC on ${grpcAddress}, HTTP on ${httpAddress}`);
  if (readyFile !== undefined) await writeReadyFile(readyFile, { grpcAddress, httpAddress });
}

/** Resolves at the first signal. A second one ends the process at once. */
function untilSignal(log: Log): Promise<void> {
  return new Promise((resolve) => {
    let signals = 0;
    const onSignal = (signal: NodeJS.Signals): void => {
      signals += 1;
      log.info("signal received", { signal });
      if (signals > 1) process.exit(EXIT_CODE.interrupted);
      resolve();
    };
    process.on("SIGTERM", onSignal);
    process.on("SIGINT", onSignal);
  });
}

/** Also for rejections that nobody handles, which arrive here as well. */
function stopOnUncaughtFaults(log: Log): void {
  process.on("uncaughtException", (fault: unknown) => {
    log.error("uncaught fault", { fault: traceOf(fault) });
    process.exit(EXIT_CODE.internal);
  });
}

function failedStart(fault: unknown, log: Log): ExitCode {
  if (fault instanceof AddressUnavailableError) {
    return complain(fault.message, EXIT_CODE.addressUnavailable);
  }
  if (fault instanceof LegacyDirectoryError) {
    return complain(`--legacy-dir: ${fault.message}`, EXIT_CODE.configuration);
  }
  if (fault instanceof StoreOpenError) {
    return complain(
      fault.message,
      fault.reason === "locked" ? EXIT_CODE.storeLocked : EXIT_CODE.storeUnusable,
    );
  }
  log.error("the server failed", { fault: traceOf(fault) });
  return EXIT_CODE.internal;
}

function say(text: string): ExitCode {
  process.stdout.write(`${text}\n`);
  return EXIT_CODE.ok;
}

function complain(text: string, exitCode: ExitCode): ExitCode {
  process.stderr.write(`${text}\n`);
  return exitCode;
}
