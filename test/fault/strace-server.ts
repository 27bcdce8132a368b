import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import type { Http2SessionManager } from "@connectrpc/connect-node";
import { serverArguments } from "../support/server-process.js";
import { clientsOf, transportOf, type Clients } from "../support/service.js";
import { ROOT } from "../support/source-tree.js";

const LOOK_AGAIN_MS = 5;
/** With -D the child of this process is the server itself, not its tracer. */
const STRACE = ["strace", "-D", "-f", "--seccomp-bpf"];

/** How a server is started. */
export interface FaultyStart {
  /** Where its ready file goes, and what it is started in. */
  readonly folder: string;
  readonly path: string;
  /** Arguments of strace. Absent: it is not traced. */
  readonly strace?: readonly string[];
  /** A module of test/mutants that the server loads first. */
  readonly preload?: string;
  readonly flags?: readonly string[];
}

/** How a server ended. */
export interface Ended {
  /** Null if a signal ended it. */
  readonly code: number | null;
  readonly output: string;
}

/** A server in a process of its own, with a tracer or a planted fault. */
export interface FaultyServer {
  readonly pid: number;
  readonly grpcAddress: string;
  /** Resolves when the process and its tracer are gone. */
  readonly ended: Promise<Ended>;
  /** Clients with a connection of their own. */
  clients(): Clients;
  end(signal: "SIGKILL" | "SIGTERM"): Promise<Ended>;
}

/** Starts the built server. What it ended with if it does not come to listen. */
export async function startFaulty(start: FaultyStart): Promise<FaultyServer | Ended> {
  const readyFile = join(start.folder, "ready.json");
  await rm(readyFile, { force: true });
  const [program = "", ...args] = commandOf(start, readyFile);
  const child = spawn(program, args, { cwd: start.folder, stdio: ["ignore", "pipe", "pipe"] });
  // A test that times out must not leave its server behind.
  const killAtExit = (): void => void child.kill("SIGKILL");
  process.once("exit", killAtExit);
  child.once("exit", () => process.off("exit", killAtExit));
  const output = Promise.all([text(child.stdout), text(child.stderr)]);
  // The tracer holds the output open until it has written its file.
  const ended = Promise.all([once(child, "exit"), output]).then(([[code], lines]): Ended => {
    return { code: code as number | null, output: lines.join("\n") };
  });
  while (!existsSync(readyFile)) {
    if (child.exitCode !== null || child.signalCode !== null) return ended;
    await delay(LOOK_AGAIN_MS);
  }
  const addresses = JSON.parse(await readFile(readyFile, "utf8")) as Record<string, string>;
  const { grpcAddress = "", httpAddress = "" } = addresses;
  const connections: Http2SessionManager[] = [];
  return {
    pid: child.pid ?? 0,
    grpcAddress,
    ended,
    clients: () => clientsOf(transportOf("grpc", grpcAddress, httpAddress, connections)),
    end: async (signal) => {
      child.kill(signal);
      const end = await ended;
      for (const connection of connections) connection.abort();
      return end;
    },
  };
}

/** As `startFaulty` for a server that must come to listen. */
export async function startListening(start: FaultyStart): Promise<FaultyServer> {
  const server = await startFaulty(start);
  if ("clients" in server) return server;
  throw new Error(`the server ended with ${server.code ?? "a signal"}: ${server.output}`);
}

function commandOf({ path, strace, preload, flags = [] }: FaultyStart, readyFile: string) {
  const tracer = strace === undefined ? [] : [...STRACE, ...strace];
  const planted = preload === undefined ? [] : ["--import", join(ROOT, "test/mutants", preload)];
  const server = serverArguments(`sqlite:${path}`, "--ready-file", readyFile, ...flags);
  return [...tracer, process.execPath, ...planted, ...server];
}
