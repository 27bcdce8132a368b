import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const READY_MS = 15_000;
const STOP_MS = 15_000;
/** How exactly the time until ready is known. */
const POLL_MS = 2;

/** A server under load, in a process of its own. */
export interface ServerProcess {
  readonly grpcAddress: string;
  /** Absent if it has no such listener. */
  readonly httpAddress: string | undefined;
  /** Time from its start until its ready file was there. */
  readonly readyMs: number;
  /** One question at a time. Only of servers that were started to be asked. */
  ask(question: string): Promise<unknown>;
  /** By a signal that it drains after. */
  stop(): Promise<void>;
  /** As a crash: nothing of it runs any more. */
  kill(): Promise<void>;
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}

async function readWhenReady(readyFile: string, child: ChildProcess): Promise<string> {
  const end = performance.now() + READY_MS;
  while (performance.now() < end && child.exitCode === null) {
    try {
      const text = await readFile(readyFile, "utf8");
      if (text.trimEnd().endsWith("}")) return text;
    } catch (error) {
      if (!isMissing(error)) throw error;
    }
    await sleep(POLL_MS);
  }
  throw new Error(`not ready after ${READY_MS} ms, exit code ${child.exitCode ?? "none"}`);
}

interface Addresses {
  readonly grpcAddress: string;
  readonly httpAddress?: string;
}

/** Starts a script with `--ready-file` and waits until it listens. Its output goes to a file. */
export async function startServer(
  name: string,
  nodeArgs: readonly string[],
  folder: string,
  { isAsked } = { isAsked: false },
): Promise<ServerProcess> {
  const readyFile = join(folder, `${name}.ready.json`);
  const logFile = join(folder, `${name}.log`);
  // A killed server leaves its own behind.
  await rm(readyFile, { force: true });
  const log = openSync(logFile, "w");
  const startMs = performance.now();
  const child = spawn(process.execPath, [...nodeArgs, "--ready-file", readyFile], {
    stdio: ["ignore", log, log, isAsked ? "ipc" : "ignore"],
  });
  closeSync(log);
  const stop = () => endChild(child, "SIGTERM");
  const kill = () => endChild(child, "SIGKILL");
  try {
    const text = await readWhenReady(readyFile, child);
    const readyMs = performance.now() - startMs;
    const { grpcAddress, httpAddress } = JSON.parse(text) as Addresses;
    const ask = (question: string) => askChild(child, question);
    return { grpcAddress, httpAddress, readyMs, ask, stop, kill };
  } catch (error) {
    await stop();
    const lines = readFileSync(logFile, "utf8").trimEnd().split("\n").slice(-20);
    throw new Error(`${name} did not start:\n${lines.join("\n")}`, { cause: error });
  }
}

async function askChild(child: ChildProcess, question: string): Promise<unknown> {
  const answered = once(child, "message");
  child.send(question);
  const [answer] = (await answered) as [unknown];
  return answer;
}

async function endChild(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, "exit");
  child.kill(signal);
  const killer = setTimeout(() => child.kill("SIGKILL"), STOP_MS);
  await exit;
  clearTimeout(killer);
}
