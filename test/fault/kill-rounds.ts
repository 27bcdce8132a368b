import { ConnectError } from "@connectrpc/connect";
import { RestartingServer } from "../support/restarting-server.js";
import { nothingWritten, type WrittenSoFar } from "../support/retrying-writer.js";
import { seededRandom } from "../support/seed.js";
import { StartFailedError, type LaunchOptions } from "../support/server-process.js";
import { makeStoreFolder } from "../support/store-folder.js";
import { dirname } from "node:path";
import { beginWrittenRun, fillLogs, lostOrDoubled, whileWriting, type Load } from "./kill-load.js";

const WRITERS = 16;
const SESSIONS = 4;
const ACKNOWLEDGED_PER_ROUND_MAX = 150;

export interface KillRoundsOptions extends LaunchOptions {
  readonly rounds: number;
  /** Events that the log has before the first round. */
  readonly eventsBefore?: number;
  /** Whether another round may begin, although fewer than `rounds` were. */
  readonly goesOn?: (rounds: number) => boolean;
}

/** What came of killing a server again and again. */
export interface KillRounds {
  readonly rounds: number;
  /** What was lost, doubled or changed, one line each. */
  readonly problems: readonly string[];
  readonly written: WrittenSoFar;
  /** Time to readiness after each kill, shortest first. */
  readonly readyMs: readonly number[];
  readonly writers: number;
}

/** Kills a server under clients that send again what was not acknowledged. Ends at the first fault that one sees. */
export async function killRounds(options: KillRoundsOptions): Promise<KillRounds> {
  const folder = await makeStoreFolder();
  const server = new RestartingServer(dirname(folder.path), folder.store, options);
  try {
    const load = await prepare(server, options.eventsBefore ?? 0);
    const problems = await kill(load, options);
    const { written } = load;
    // The first start followed no kill.
    const readyMs = server.readyMs.slice(1).sort((one, other) => one - other);
    return { rounds: readyMs.length, problems, written, readyMs, writers: WRITERS };
  } finally {
    await server.stop("SIGKILL");
    await folder.remove();
  }
}

async function prepare(server: RestartingServer, eventsBefore: number): Promise<Load> {
  const clients = (await server.life()).clients("grpc");
  const names = Array.from({ length: SESSIONS }, (_, index) => `session-${index}`);
  const runs = await Promise.all(names.map((name) => beginWrittenRun(clients, name)));
  const written = nothingWritten();
  await fillLogs(clients, runs, written, eventsBefore);
  return { server, runs, written, writers: WRITERS };
}

/** What is wrong afterwards. */
async function kill(load: Load, options: KillRoundsOptions): Promise<string[]> {
  try {
    await killWhileWriting(load, options);
    return await lostOrDoubled(load);
  } catch (error) {
    // A server says so itself if it misses what it acknowledged.
    if (error instanceof StartFailedError) return [`a start failed: ${error.message}`];
    throw error;
  }
}

async function killWhileWriting(load: Load, options: KillRoundsOptions): Promise<void> {
  const { rounds, goesOn = () => true } = options;
  const { server, written } = load;
  const random = seededRandom("kill");
  await whileWriting(load, async (more) => {
    for (let done = 0; done < rounds && goesOn(done) && written.faults.length === 0; done += 1) {
      await more(Math.ceil(random() * ACKNOWLEDGED_PER_ROUND_MAX));
      const highest = highestSequences(written);
      await server.restart("SIGKILL");
      await expectOnlyExtended(load, highest);
    }
  });
}

/** The last checkpoint of each session that anybody saw. */
function highestSequences({ checkpoints }: WrittenSoFar): Map<string, bigint> {
  const highest = new Map<string, bigint>();
  for (const { sessionId, sequence } of checkpoints) {
    if (sequence > (highest.get(sessionId) ?? 0n)) highest.set(sessionId, sequence);
  }
  return highest;
}

/** The head of each log is where it was or further; that it is the same log is checked at the end. */
async function expectOnlyExtended(
  { server, runs, written }: Load,
  highest: ReadonlyMap<string, bigint>,
): Promise<void> {
  const { sessions } = (await server.life()).clients("grpc");
  for (const { sessionId } of runs) {
    try {
      const head = (await sessions.getSession({ sessionId })).session?.checkpoint;
      if (head === undefined || head.sequence < (highest.get(sessionId) ?? 0n)) {
        written.faults.push(`${sessionId}: its log is shorter than before the kill`);
      } else written.checkpoints.push(head);
    } catch (error) {
      if (!(error instanceof ConnectError)) throw error;
      written.faults.push(`${sessionId}: ${error.message}`);
    }
  }
}
