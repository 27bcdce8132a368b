import { mkdtemp } from "node:fs/promises";
import { join, resolve } from "node:path";
import { startServer } from "./child-process.js";
import { type Concurrency, h2loadPerSecond, LoadGenerator, type Measurement } from "./generator.js";
import type { Options } from "./options.js";
import { column, median, print } from "./report.js";
import { type Frames, hookFrames, Preparation, turnFrames } from "./requests.js";
import { startService } from "./service-process.js";

const DIST = resolve(import.meta.dirname, "..");
const ROOT = resolve(DIST, "..");
const TURN_SESSIONS = 64;
const CONCURRENCIES: readonly Concurrency[] = [
  { connections: 8, streams: 8 },
  { connections: 1, streams: 1 },
];

/** Something to load: the method, and frames that are fit for the next round. */
interface Subject {
  readonly name: string;
  readonly address: string;
  frames(): Promise<Frames>;
}

interface Bench {
  readonly options: Options;
  readonly generator: LoadGenerator;
  readonly subjects: readonly Subject[];
}

/** Loads the subjects in turn, round after round, so that a slow minute hits all of them. */
async function measure(
  { options, generator, subjects }: Bench,
  concurrency: Concurrency,
): Promise<Map<string, Measurement[]>> {
  const measured = new Map<string, Measurement[]>(subjects.map(({ name }) => [name, []]));
  for (let round = 0; round <= options.rounds; round += 1) {
    for (const { name, address, frames } of subjects) {
      const result = await generator.load(address, await frames(), concurrency, options.seconds);
      // The first round warms up.
      if (round > 0) measured.get(name)?.push(result);
    }
  }
  return measured;
}

function report(measured: ReadonlyMap<string, readonly Measurement[]>): void {
  const rate = (name: string) =>
    median((measured.get(name) ?? []).map(({ perSecond }) => perSecond));
  print(`${"".padEnd(12)}${["requests/s", "ratio", "p50 ms", "p99 ms"].map(column).join("")}`);
  for (const [name, results] of measured) {
    const columns = [
      rate(name).toFixed(0),
      (rate(name) / rate("echo")).toFixed(2),
      median(results.map(({ p50Ms }) => p50Ms)).toFixed(2),
      median(results.map(({ p99Ms }) => p99Ms)).toFixed(2),
    ];
    const spread = results.map(({ perSecond }) => perSecond.toFixed(0)).join(" ");
    print(`${name.padEnd(12)}${columns.map(column).join("")}   rounds: ${spread}`);
  }
}

/** What is measured of the service, each on a server and a database of its own. */
const SERVICE_SUBJECTS = {
  PublishHook: async (preparation: Preparation): Promise<Subject["frames"]> => {
    const run = await preparation.beginRun();
    const frames = hookFrames(run, await preparation.acceptCall(run));
    return () => Promise.resolve(frames);
  },
  AcceptTurn: (preparation: Preparation): Promise<Subject["frames"]> =>
    Promise.resolve(async () => turnFrames(await preparation.beginRuns(TURN_SESSIONS))),
};

/** Frames of the size that the service's own ids lead to, for a run without the service. */
function stubHookFrames(): Frames {
  const body = "0".repeat(26);
  return hookFrames({ sessionId: `ses_${body}`, runId: `run_${body}` }, `tc_${body}`);
}

function explain(options: Options, frames: Frames): void {
  print(`\nload: rounds of ${options.seconds} s`);
  print(`echo: PublishHook decoded and answered by bare grpc-js, ${frames.frameSize} byte frames`);
  if (options.echoOnly) return;
  print("PublishHook: durable, about one call of one session, SQLite on disk");
  print(
    `AcceptTurn: durable, one call a turn, over ${TURN_SESSIONS} sessions that are new in each ` +
      "round; the calls stay open, so the sessions grow while they are measured",
  );
}

/** Requests a second that the service answers, beside those that a bare server answers. */
export async function measureLoad(options: Options, folder: string): Promise<void> {
  const generator = await LoadGenerator.compile(join(ROOT, "bench/load.c"), folder);
  const echo = await startServer("echo", [join(DIST, "bench/echo-server.js")], folder);
  try {
    await loadSubjects({ options, generator, subjects: [] }, echo.grpcAddress, folder);
  } finally {
    await echo.stop();
  }
}

async function loadSubjects(bench: Bench, echoAddress: string, folder: string): Promise<void> {
  const { options } = bench;
  const hook = stubHookFrames();
  const frames = () => Promise.resolve(hook);
  const subjects: readonly Subject[] = [{ name: "echo", address: echoAddress, frames }];
  explain(options, hook);
  if (options.echoOnly) {
    for (const concurrency of CONCURRENCIES) {
      await measureAndReport({ ...bench, subjects }, concurrency);
    }
  } else {
    for (const name of ["PublishHook", "AcceptTurn"] as const) {
      await runServiceSubject(name, { ...bench, subjects }, folder);
    }
  }
  for (const concurrency of CONCURRENCIES) {
    const rate = await h2loadPerSecond(echoAddress, hook, concurrency, options.seconds, folder);
    print(`echo by h2load, ${inFlight(concurrency)}: ${rate.toFixed(0)} requests/s`);
  }
}

async function runServiceSubject(
  name: keyof typeof SERVICE_SUBJECTS,
  bench: Bench,
  folder: string,
): Promise<void> {
  const own = await mkdtemp(join(folder, "service-"));
  const service = await startService(own, bench.options.profile);
  const preparation = new Preparation(service.grpcAddress);
  try {
    const frames = await SERVICE_SUBJECTS[name](preparation);
    const subject = { name, address: service.grpcAddress, frames };
    for (const concurrency of CONCURRENCIES) {
      await measureAndReport({ ...bench, subjects: [...bench.subjects, subject] }, concurrency);
    }
  } finally {
    preparation.close();
    await service.stop();
  }
}

async function measureAndReport(bench: Bench, concurrency: Concurrency): Promise<void> {
  print(`\n${inFlight(concurrency)}`);
  report(await measure(bench, concurrency));
}

function inFlight({ connections, streams }: Concurrency): string {
  return `${connections * streams} in flight`;
}
