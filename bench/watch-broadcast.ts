import { setTimeout as sleep } from "node:timers/promises";
import type { LoadGenerator } from "./generator.js";
import { atMost, barColumns, type Bar, column, grouped, median, print } from "./report.js";
import { hookFrames } from "./requests.js";
import type { WatchClient, Watchers } from "./watch-client.js";
import {
  type Listener,
  LISTENERS,
  watchOfBare,
  watchOfService,
  type WatchSubjects,
} from "./watch-subjects.js";

const TIME_RATIO_MAX = 3;
const P99_RATIO_MAX = 1.3;
const WRITES_PER_SECOND = 200;
const WRITES_IN_FLIGHT_MAX = 64;
const WRITE_SECONDS = 1;
const WARM_UP_ROUNDS = 3;

/** What a broadcast is measured with. */
export interface Broadcasting {
  readonly subjects: WatchSubjects;
  readonly client: WatchClient;
  readonly generator: LoadGenerator;
  readonly watchers: number;
  readonly rounds: number;
  readonly seconds: number;
}

/** One figure of each round. */
interface Figures {
  readonly bareMs: number[];
  readonly serviceMs: number[];
  readonly idleP99Ms: number[];
  /** Beside a broadcast of the other server: what the machine alone adds, with the client that receives it. */
  readonly bareBesideP99Ms: number[];
  readonly busyP99Ms: number[];
}

/**
 * How long one event takes to the last of many watchers, beside a server that writes equal bytes to as many streams;
 * and what that does to a writer to another session.
 */
export async function measureBroadcast(broadcasting: Broadcasting): Promise<readonly Bar[]> {
  const { watchers, rounds, seconds } = broadcasting;
  print(
    `\none event to ${grouped(watchers)} watchers, until the last has it; a second of ` +
      `${WRITES_PER_SECOND} writes to another session; medians of ${rounds * seconds} rounds`,
  );
  print(`${"".padEnd(28)}${["ms", "ratio", "at most"].map(column).join("")}`);
  const bars: Bar[] = [];
  for (const listener of LISTENERS) {
    bars.push(...report(listener, await measureListener(broadcasting, listener)));
  }
  return bars;
}

function report({ name }: Listener, figures: Figures): readonly Bar[] {
  const { bareMs, serviceMs, idleP99Ms, bareBesideP99Ms, busyP99Ms } = figures;
  const time = atMost(`broadcast, ${name}`, median(serviceMs) / median(bareMs), TIME_RATIO_MAX);
  const p99 = median(busyP99Ms) / median(idleP99Ms);
  const written = atMost(`write p99 beside, ${name}`, p99, P99_RATIO_MAX);
  const machine = median(bareBesideP99Ms) / median(idleP99Ms);
  row(`bare broadcast, ${name}`, bareMs);
  row(time.name, serviceMs, barColumns(time));
  row(`write p99, ${name}`, idleP99Ms);
  row("  beside the bare broadcast", bareBesideP99Ms, column(machine.toFixed(2)));
  row(written.name, busyP99Ms, barColumns(written));
  return [time, written];
}

function row(name: string, valuesMs: readonly number[], columns = ""): void {
  print(`${name.padEnd(28)}${column(median(valuesMs).toFixed(1))}${columns}`);
}

async function measureListener(broadcasting: Broadcasting, listener: Listener): Promise<Figures> {
  const { subjects, client, watchers, rounds, seconds } = broadcasting;
  const bare = await client.open(watchOfBare(subjects, listener), watchers);
  const service = await client.open(await watchOfService(subjects, listener), watchers);
  await Promise.all([bare.received(), service.received()]);
  const figures: Figures = {
    bareMs: [],
    serviceMs: [],
    idleP99Ms: [],
    bareBesideP99Ms: [],
    busyP99Ms: [],
  };
  for (let round = -WARM_UP_ROUNDS; round < rounds * seconds; round += 1) {
    const measured = await measureRound(broadcasting, { bare, service });
    if (round < 0) continue;
    figures.bareMs.push(measured.bareMs);
    figures.serviceMs.push(measured.serviceMs);
    figures.idleP99Ms.push(measured.idleP99Ms);
    figures.bareBesideP99Ms.push(measured.bareBesideP99Ms);
    figures.busyP99Ms.push(measured.busyP99Ms);
  }
  await Promise.all([bare.close(), service.close()]);
  return figures;
}

/** Of one broadcast of each server, and of a second of writes alone and of one beside each broadcast. */
type Round = Readonly<Record<keyof Figures, number>>;

/** Short, so that a disk that stalls now and then, as disks do, is in few of them: the median is of others. */
async function measureRound(
  broadcasting: Broadcasting,
  { bare, service }: { readonly bare: Watchers; readonly service: Watchers },
): Promise<Round> {
  const { subjects } = broadcasting;
  const idleP99Ms = await writeP99Ms(broadcasting);
  const besideBare = await besideWrites(broadcasting, async () => {
    const startMs = Number(await subjects.bare.ask("broadcast"));
    return (await bare.received()).lastMs - startMs;
  });
  const beside = await besideWrites(broadcasting, () => broadcastMs(subjects, service));
  return {
    ...{ bareMs: besideBare.ms, serviceMs: beside.ms },
    ...{ idleP99Ms, bareBesideP99Ms: besideBare.p99Ms, busyP99Ms: beside.p99Ms },
  };
}

async function besideWrites(
  broadcasting: Broadcasting,
  broadcast: () => Promise<number>,
): Promise<{ readonly ms: number; readonly p99Ms: number }> {
  const writing = writeP99Ms(broadcasting);
  // In the middle of its second: not while the writer begins.
  await sleep((WRITE_SECONDS * 1000) / 2);
  const ms = await broadcast();
  return { ms, p99Ms: await writing };
}

/** From the commit of an event until its last watcher has it. */
async function broadcastMs(
  { service, preparation, watched }: WatchSubjects,
  watchers: Watchers,
): Promise<number> {
  const received = watchers.received();
  await preparation.publishHook(watched, watched.toolCallId);
  const { lastMs } = await received;
  const committedMs = (await service.ask("committedMs")) as Readonly<Record<string, number>>;
  return lastMs - (committedMs[watched.sessionId] ?? Number.NaN);
}

async function writeP99Ms({ generator, subjects }: Broadcasting): Promise<number> {
  const { service, other } = subjects;
  const pace = { connections: 1, streams: WRITES_IN_FLIGHT_MAX, perSecond: WRITES_PER_SECOND };
  const frames = hookFrames(other, other.toolCallId);
  return (await generator.load(service.grpcAddress, frames, pace, WRITE_SECONDS)).p99Ms;
}
