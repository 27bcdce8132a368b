import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import type { Http2SessionManager } from "@connectrpc/connect-node";
import { serverArguments } from "./server-process.js";
import { clientsOf, transportOf, type Clients } from "./service.js";
import { ROOT } from "./source-tree.js";
import type { StoreFolder } from "./store-folder.js";

const FAILING_COMMIT = pathToFileURL(join(ROOT, "test/mutants/failing-commit.mjs")).href;
const LOOK_AGAIN_MS = 5;

/** A server in a process of its own whose commits fail while `trigger` is a file, with the code in it. */
export interface SpawnedStore {
  readonly trigger: string;
  readonly child: ChildProcess;
  readonly clients: Clients;
  /** Its exit code once it is gone, and what it wrote to standard error. */
  readonly exit: Promise<{ readonly code: number | null; readonly stderr: string }>;
  /** Ends it, if it goes on, and whatever is connected to it. */
  kill(): Promise<void>;
}

export async function spawnStore(folder: StoreFolder, ...flags: string[]): Promise<SpawnedStore> {
  const readyFile = `${folder.path}.ready`;
  const trigger = `${folder.path}.fail`;
  await rm(readyFile, { force: true });
  const args = serverArguments(folder.store, "--ready-file", readyFile, ...flags);
  const child = spawn(process.execPath, ["--import", FAILING_COMMIT, ...args], {
    env: { ...process.env, FAILING_COMMIT: trigger },
    stdio: ["ignore", "ignore", "pipe"],
  });
  const stderr = text(child.stderr);
  const exit = once(child, "exit").then(async ([code]) => ({
    code: code as number | null,
    stderr: await stderr,
  }));
  while (!existsSync(readyFile)) {
    if (child.exitCode !== null) throw new Error(await stderr);
    await delay(LOOK_AGAIN_MS);
  }
  const addresses = JSON.parse(await readFile(readyFile, "utf8")) as Record<
    "grpcAddress" | "httpAddress",
    string
  >;
  const connections: Http2SessionManager[] = [];
  const { grpcAddress, httpAddress } = addresses;
  return {
    ...{ trigger, child, exit },
    clients: clientsOf(transportOf("grpc", grpcAddress, httpAddress, connections)),
    kill: async () => {
      child.kill("SIGKILL");
      await exit;
      for (const connection of connections) connection.abort();
    },
  };
}
