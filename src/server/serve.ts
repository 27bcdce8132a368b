import { traceOf } from "../rpc/fault-trace.js";
import type { Log } from "../rpc/log.js";
import { StoreOpenError } from "../store/sqlite/store-open-error.js";
import { AddressUnavailableError } from "./address.js";
import { readConfig, type Config } from "./config.js";
import { EXIT_CODE, type ExitCode } from "./exit-code.js";
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
    await run(config, log, stopping);
  } catch (fault) {
    return failedStart(fault, log);
  }
  return EXIT_CODE.ok;
}

async function run(config: Config, log: Log, stopping: Promise<void>): Promise<void> {
  const version = readVersion();
  const onInvariantBroken = (): void => {
    process.exit(EXIT_CODE.internal);
  };
  if (config.readyFile !== undefined) await removeReadyFile(config.readyFile);
  const server = await startService({ config, log, version, onInvariantBroken });
  await announce(server, config, log, version);
  await stopping;
  if (config.readyFile !== undefined) await removeReadyFile(config.readyFile);
  await server.drain();
  log.info("drained");
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
