import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  launchServer,
  StartFailedError,
  type LaunchOptions,
  type ServerProcess,
} from "../support/server-process.js";

/** What came of starting a server beside another. */
export interface SecondStart {
  /** Absent if it was refused. */
  readonly server: ServerProcess | undefined;
  readonly exitCode: number | null;
  readonly output: string;
  readonly tookMs: number;
}

/** Starts a server on a store that may be taken. It has a working directory of its own unless one is named. */
export async function startSecond(
  path: string,
  options: LaunchOptions & { readonly workingFolder?: string } = {},
): Promise<SecondStart> {
  const folder = await mkdtemp(join(tmpdir(), "second-"));
  const startedMs = performance.now();
  const tookMs = () => performance.now() - startedMs;
  try {
    const where = options.workingFolder ?? folder;
    const server = await launchServer(where, `sqlite:${path}`, options);
    return { server, exitCode: null, output: "", tookMs: tookMs() };
  } catch (error) {
    if (!(error instanceof StartFailedError)) throw error;
    const { exitCode, message: output } = error;
    return { server: undefined, exitCode, output, tookMs: tookMs() };
  } finally {
    await rm(folder, { recursive: true });
  }
}

const EXIT_LOCKED = 75;
const WHY = /the store is open already|another process holds the database/;

/** What is wrong with how a second server was turned away. Ends one that was not. */
export async function refusalProblems(second: SecondStart, maxMs: number): Promise<string[]> {
  const { server, exitCode, output, tookMs } = second;
  if (server !== undefined) {
    await server.stop("SIGKILL");
    return ["two servers have the store open"];
  }
  return [
    ...(exitCode === EXIT_LOCKED ? [] : [`exit code ${exitCode}: ${output}`]),
    ...(WHY.test(output) ? [] : [`it says: ${output}`]),
    ...(tookMs <= maxMs ? [] : [`refused after ${Math.round(tookMs)} ms`]),
  ];
}
