import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { ROOT } from "./source-tree.js";

const MAIN = join(ROOT, "dist/src/server/main.js");
const LOOK_AGAIN_MS = 5;

/** Arguments of node for a server of the built program on free ports. */
export function serverArguments(store: string, ...flags: readonly string[]): string[] {
  const ports = ["--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"];
  return [MAIN, ...ports, "--store", store, ...flags];
}

/** The built server in a process of its own. */
export interface ServerProcess {
  readonly grpcAddress: string;
  readonly httpAddress: string;
  /** Time from the spawn to the ready file. */
  readonly readyMs: number;
  /** Sends a signal and waits for the end. The exit code; null if a signal ended the process. */
  stop(signal: "SIGKILL" | "SIGTERM"): Promise<number | null>;
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
  const readyFile = join(folder, "ready.json");
  // A killed server leaves its file behind.
  await rm(readyFile, { force: true });
  const args = serverArguments(store, "--ready-file", readyFile, ...flags);
  const startedMs = performance.now();
  const child = spawn(process.execPath, args, { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
  const exited = once(child, "exit").then(([code]) => code as number | null);
  const output = Promise.all([text(child.stdout), text(child.stderr)]);
  while (!existsSync(readyFile)) {
    if (child.exitCode !== null || child.signalCode !== null) {
      throw new Error((await output).join("\n"));
    }
    await delay(LOOK_AGAIN_MS);
  }
  const addresses = JSON.parse(await readFile(readyFile, "utf8")) as Addresses;
  return {
    ...addresses,
    readyMs: performance.now() - startedMs,
    stop: async (signal) => {
      child.kill(signal);
      return exited;
    },
  };
}
