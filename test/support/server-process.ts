import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { ROOT } from "./source-tree.js";

const MAIN = join(ROOT, "dist/bin/server.js");
const LOOK_AGAIN_MS = 5;

/** Arguments of node for a server of the built program on free ports. */
export function serverArguments(store: string, ...flags: readonly string[]): string[] {
  const ports = ["--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"];
  return [MAIN, ...ports, "--store", store, ...flags];
}

/** How a server is started, beside its folder and store. */
export interface LaunchOptions {
  readonly flags?: readonly string[];
  /** Path of a module that runs before the program: puts a fault in. */
  readonly preload?: string;
  /** Variables beside those of this process. */
  readonly environment?: Readonly<Record<string, string>>;
}

/** The built server in a process of its own. */
export interface ServerProcess {
  readonly grpcAddress: string;
  readonly httpAddress: string;
  /** Time from the spawn to the ready file. */
  readonly readyMs: number;
  /** The exit code, once it ended; null if a signal ended the process. */
  readonly exited: Promise<number | null>;
  /** Sends a signal. */
  send(signal: NodeJS.Signals): void;
  /** Sends a signal and waits for the end. The exit code; null if a signal ended the process. */
  stop(signal: "SIGKILL" | "SIGTERM"): Promise<number | null>;
}

/** Thrown by a start that ends before the server listens. The message is what the process wrote. */
export class StartFailedError extends Error {
  override readonly name = "StartFailedError";

  constructor(
    readonly exitCode: number | null,
    output: string,
  ) {
    super(output);
  }
}

interface Addresses {
  readonly grpcAddress: string;
  readonly httpAddress: string;
}

/** Starts the built server and waits until both listeners accept. */
export async function startServerProcess(
  folder: string,
  store: string,
  ...flags: readonly string[]
): Promise<ServerProcess> {
  return launchServer(folder, store, { flags });
}

/** As `startServerProcess`. Throws `StartFailedError`. */
export async function launchServer(
  folder: string,
  store: string,
  { flags = [], preload, environment = {} }: LaunchOptions = {},
): Promise<ServerProcess> {
  const readyFile = join(folder, "ready.json");
  // A killed server leaves its file behind.
  await rm(readyFile, { force: true });
  const before = preload === undefined ? [] : ["--import", preload];
  const args = [...before, ...serverArguments(store, "--ready-file", readyFile, ...flags)];
  const startedMs = performance.now();
  const env = { ...process.env, ...environment };
  const options = { cwd: folder, env };
  const child = spawn(process.execPath, args, { ...options, stdio: ["ignore", "pipe", "pipe"] });
  const exited = once(child, "exit").then(([code]) => code as number | null);
  const output = Promise.all([text(child.stdout), text(child.stderr)]);
  while (!existsSync(readyFile)) {
    if (child.exitCode !== null || child.signalCode !== null) {
      throw new StartFailedError(child.exitCode, (await output).join("\n"));
    }
    await delay(LOOK_AGAIN_MS);
  }
  const addresses = JSON.parse(await readFile(readyFile, "utf8")) as Addresses;
  return {
    ...addresses,
    readyMs: performance.now() - startedMs,
    exited,
    send: (signal) => void child.kill(signal),
    stop: async (signal) => {
      child.kill(signal);
      return exited;
    },
  };
}
