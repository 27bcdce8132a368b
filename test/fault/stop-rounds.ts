import { Code } from "@connectrpc/connect";
import { dirname } from "node:path";
import { allEvents } from "../support/conversation.js";
import { RestartingServer } from "../support/restarting-server.js";
import { nothingWritten, type WrittenSoFar } from "../support/retrying-writer.js";
import { seededRandom } from "../support/seed.js";
import type { LaunchOptions } from "../support/server-process.js";
import { makeStoreFolder } from "../support/store-folder.js";
import { until } from "../integration/listeners-fixture.js";
import { beginWrittenRun, lostOrDoubled, whileWriting, type Load } from "./kill-load.js";
import { StopLine, TOLD } from "./stop-line.js";
import { StopWatcher, watchProblems } from "./stop-watcher.js";

const WRITERS = 8;
const SESSIONS = 2;
const ACKNOWLEDGED_PER_ROUND_MAX = 100;
const EXIT_MAX_MS = 10_000;

export interface StopRoundsOptions extends LaunchOptions {
  readonly rounds: number;
  /** What the server is told, one right after the other. Default: SIGTERM. */
  readonly signals?: readonly NodeJS.Signals[];
  /** What it exits with then. Default: 0, and after words to all who listen. */
  readonly exitCode?: number;
}

/** What came of asking a server to end again and again. */
export interface StopRounds {
  readonly rounds: number;
  /** What was lost, doubled, or not told as promised, one line each. */
  readonly problems: readonly string[];
  readonly written: WrittenSoFar;
  /** Time from the signal to the exit, shortest first. */
  readonly exitMs: readonly number[];
  /** Changes of asks that a watch was told of. */
  readonly told: number;
  readonly watchEnds: number;
}

/** Asks a server to end under load, with watches open, and goes on with the next one. */
export async function stopRounds(options: StopRoundsOptions): Promise<StopRounds> {
  const folder = await makeStoreFolder();
  const server = new RestartingServer(dirname(folder.path), folder.store, options);
  try {
    const clients = (await server.life()).clients("grpc");
    const names = Array.from({ length: SESSIONS }, (_, index) => `session-${index}`);
    const runs = await Promise.all(names.map((name) => beginWrittenRun(clients, name)));
    const load = { server, runs, written: nothingWritten(), writers: WRITERS, asks: true };
    return await rounds(load, options);
  } finally {
    await server.stop("SIGKILL");
    await folder.remove();
  }
}

async function rounds(load: Load, options: StopRoundsOptions): Promise<StopRounds> {
  const { server, written } = load;
  const watcher = new StopWatcher(server);
  const problems: string[] = [];
  let done = 0;
  await whileWriting(load, async (more) => {
    const random = seededRandom("stop");
    while (done < options.rounds && problems.length + written.faults.length === 0) {
      const wanted = Math.ceil(random() * ACKNOWLEDGED_PER_ROUND_MAX);
      problems.push(...(await stop(server, () => more(wanted), options)));
      done += 1;
    }
  });
  await watcher.stopAfter(written.receiptIds.keys());
  problems.push(...(await toldProblems(load, watcher, options)));
  const exitMs = server.exitMs.slice(0, done).sort((one, other) => one - other);
  problems.push(...(await lostOrDoubled(load)));
  const { told, ends } = watcher;
  return { rounds: done, problems, written, exitMs, told: told.length, watchEnds: ends.length };
}

/** Ends the server while something goes on. What was not as promised. */
async function stop(
  server: RestartingServer,
  meanwhile: () => Promise<void>,
  { signals = ["SIGTERM"], exitCode = 0 }: StopRoundsOptions,
): Promise<string[]> {
  const line = new StopLine((await server.life()).server.grpcAddress);
  await until(() => line.isServing);
  await meanwhile();
  await server.restart(...signals);
  await line.ended();
  const [code, exitMs = 0] = [server.exitCodes.at(-1), server.exitMs.at(-1)];
  return [
    ...(code === exitCode ? [] : [`exit code ${code}`]),
    ...(exitMs <= EXIT_MAX_MS ? [] : [`exit after ${exitMs} ms`]),
    ...(exitCode === 0 ? lineProblems(line.told) : []),
  ];
}

/** The first thing that a server says of its end is that it does not serve. */
function lineProblems([first, ...rest]: readonly string[]): string[] {
  const known: readonly string[] = Object.values(TOLD);
  return [
    ...(first === TOLD.notServing ? [] : [`the first thing told is: ${first ?? "nothing"}`]),
    ...rest.filter((what) => !known.includes(what)),
  ];
}

async function toldProblems(
  { server, runs }: Load,
  { told, ends }: StopWatcher,
  { exitCode = 0 }: StopRoundsOptions,
): Promise<string[]> {
  const clients = (await server.life()).clients("grpc");
  const logs = [];
  for (const { sessionId } of runs) logs.push(...(await allEvents(clients, sessionId)));
  // Ended by a second signal, the server says nothing.
  const unexpected = ends.filter(
    ({ code, reason }) => code !== Code.Unavailable || reason !== "DRAINING",
  );
  return [
    ...watchProblems(told, logs),
    ...(exitCode === 0 ? unexpected : []).map(({ message }) => `a watch ended with: ${message}`),
  ];
}
