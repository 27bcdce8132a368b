import { setTimeout as delay } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { CommandSchema } from "../../gen/toolmark/engine/v1/command_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import {
  allEvents,
  bytes,
  freshRequestId,
  given,
  newCall,
  openRun,
  type OpenRun,
} from "../support/conversation.js";
import { EVENT_WIRES } from "../support/event-wires.js";
import type { LivingServer } from "../support/living-server.js";
import { Marks, RecordingWatcher, type WatcherPlan } from "../support/recording-watcher.js";
import { seededRandom } from "../support/seed.js";
import type { Clients } from "../support/service.js";
import { openChild } from "../support/trees.js";
import { inScope, isInScope, type CommittedLog } from "../support/watch-validators.js";

export interface WatchFramesOptions {
  readonly server: LivingServer;
  readonly watchers: number;
  /** How many messages all watchers get together, at least. */
  readonly frames: number;
  readonly restarts: number;
  /** How long is waited for the last events after everything was written. */
  readonly patienceMs: number;
}

/** What watchers got, and what was committed. */
export interface WatchFrames {
  readonly watchers: readonly RecordingWatcher[];
  readonly log: CommittedLog;
  readonly frames: number;
  readonly streams: number;
}

const KINDS = [[], [], ["HOOK_PUBLISHED"], ["HOOK_PUBLISHED", "TOOL_CALL_ACCEPTED"]] as const;
const PAUSES_MS = [0, 0, 0, 2, 20];
/** Sessions that are written to at every commit hide what a watcher misses of one that is not. */
const WRITER_PAUSES_MS = [0, 10, 40, 80, 0, 20];
const LEAVING_SHARES = [1 / 400, 1 / 100, 1 / 30];
const COMMANDS_MAX = 8;
const LOOK_AGAIN_MS = 5;
/** What sending again does not mend. */
const REFUSED: ReadonlySet<Code> = new Set([Code.InvalidArgument, Code.FailedPrecondition]);

/** Two trees: one of four sessions on three levels, one of two. */
interface Trees {
  readonly runs: readonly OpenRun[];
  readonly parents: ReadonlyMap<string, string>;
}

/** Lets many watch while a tree of sessions is written to and the server ends and begins again. */
export async function watchFrames(options: WatchFramesOptions): Promise<WatchFrames> {
  const { server } = options;
  const trees = await plantTrees(server);
  const marks = new Marks();
  const watchers = plansOf(options, trees).map((plan) => {
    return new RecordingWatcher(plan, server, marks, seededRandom(plan.name));
  });
  const watching = watchers.map((watcher) => watcher.run());
  await writeAll(options, trees, watchers);
  for (const watcher of watchers) watcher.settle();
  // Those who wait, and not those who read, are told of the last events.
  await untilEach(watchers, ({ isLive }) => isLive, options.patienceMs);
  await writeLast(options, trees);
  const log = await logOf(server, trees, marks);
  await untilHeard(watchers, log, options.patienceMs);
  for (const watcher of watchers) watcher.stop();
  await Promise.all(watching);
  const frames = watchers.reduce((sum, watcher) => sum + watcher.frames, 0);
  const streams = watchers.reduce((sum, { recorded }) => sum + recorded.streams.length, 0);
  return { watchers, log, frames, streams };
}

async function plantTrees(server: LivingServer): Promise<Trees> {
  const clients = (await server.life()).clients();
  const parents = new Map<string, string>();
  const below = async (parent: OpenRun): Promise<OpenRun> => {
    const { run } = await openChild(clients, parent);
    parents.set(run.sessionId, parent.sessionId);
    return run;
  };
  const root = await openRun(clients);
  const [first, second] = [await below(root), await below(root)];
  const other = await openRun(clients);
  const runs = [root, first, second, await below(first), other, await below(other)];
  return { runs, parents };
}

function plansOf({ watchers }: WatchFramesOptions, { runs }: Trees): WatcherPlan[] {
  const random = seededRandom("plans");
  const oneOf = <T>(all: readonly T[]): T => given(all[Math.floor(random() * all.length)], "one");
  return Array.from({ length: watchers }, (_, index) => ({
    name: `watcher ${index}`,
    wire: given(EVENT_WIRES[index % EVENT_WIRES.length], "wire"),
    // Most watch what has the most in it.
    sessionId: random() < 0.5 ? given(runs[0], "root").sessionId : oneOf(runs).sessionId,
    includeDescendants: random() < 0.7,
    kinds: oneOf(KINDS),
    pauseMs: oneOf(PAUSES_MS),
    leavingShare: oneOf(LEAVING_SHARES),
  }));
}

/** Writes until as much is due to the watchers as is wanted; the server is restarted on the way. */
async function writeAll(
  { server, frames, restarts }: WatchFramesOptions,
  { runs, parents }: Trees,
  watchers: readonly RecordingWatcher[],
): Promise<void> {
  let due = 0;
  const isUseless = (): boolean => watchers.every(({ fault }) => fault !== undefined);
  const isEnough = (): boolean => due >= frames || isUseless();
  const writing = runs.map((run, index) => {
    const { sessionId } = run;
    const about = watchers.filter(({ recorded }) => isInScope(recorded, parents, sessionId));
    const count = (commands: readonly CommandInit[]): void => {
      for (const { plan } of about) due += commands.filter(isDueTo(plan)).length;
    };
    const pauseMs = WRITER_PAUSES_MS[index % WRITER_PAUSES_MS.length] ?? 0;
    return write(new PatientWriter(server, run, count), pauseMs, isEnough);
  });
  const framesSoFar = (): number => watchers.reduce((sum, watcher) => sum + watcher.frames, 0);
  for (let done = 1; done <= restarts; done += 1) {
    const enough = (frames * done) / (restarts + 1);
    while (framesSoFar() < enough && !isUseless()) await delay(LOOK_AGAIN_MS);
    await server.restart();
  }
  await Promise.all(writing);
}

/** The last event of each session is one that everybody wants. */
async function writeLast({ server }: WatchFramesOptions, { runs }: Trees): Promise<void> {
  for (const run of runs) await new PatientWriter(server, run).send([hook("the last one")]);
}

function isDueTo({ kinds }: WatcherPlan): (command: CommandInit) => boolean {
  return ({ command }) => kinds.length === 0 || command?.case === "publishHook";
}

async function write(
  writer: PatientWriter,
  pauseMs: number,
  isEnough: () => boolean,
): Promise<void> {
  const random = seededRandom(`writer ${pauseMs}`);
  for (let count = 0; !isEnough(); count += 1) {
    const size = 1 + Math.floor(random() * COMMANDS_MAX);
    await writer.send(Array.from({ length: size }, () => anyCommand(random, count)));
    if (pauseMs > 0) await delay(random() * pauseMs);
  }
}

type CommandInit = MessageInitShape<typeof CommandSchema>;

function hook(text: string): CommandInit {
  const value = { phase: "session_start", decision: HookDecision.BLOCKED, text };
  return { command: { case: "publishHook", value } };
}

function anyCommand(random: () => number, count: number): CommandInit {
  const choice = random();
  if (choice < 0.5) return hook(`hook ${count}`);
  if (choice < 0.98) {
    const value = { role: MessageRole.USER, content: { data: bytes(`message ${count}`) } };
    return { command: { case: "recordMessage", value } };
  }
  return { command: { case: "acceptTurn", value: { calls: [newCall()] } } };
}

/** Sends each request until it is acknowledged, whatever becomes of the server. */
class PatientWriter {
  #connected: { readonly life: number; readonly clients: Clients } | undefined;

  constructor(
    readonly server: LivingServer,
    readonly run: OpenRun,
    /** Told of what was acknowledged. */
    readonly written: (commands: readonly CommandInit[]) => void = () => undefined,
  ) {}

  async send(commands: CommandInit[]): Promise<void> {
    const { sessionId, runId } = this.run;
    const request = { sessionId, runId, requestId: freshRequestId(), commands };
    for (;;) {
      const life = await this.server.life();
      if (this.#connected?.life !== life.number) {
        this.#connected = { life: life.number, clients: life.clients() };
      }
      try {
        await this.#connected.clients.runs.apply(request);
        this.written(commands);
        return;
      } catch (error) {
        if (!(error instanceof ConnectError) || REFUSED.has(error.code)) throw error;
        await delay(LOOK_AGAIN_MS);
      }
    }
  }
}

/** What was committed, as the service lists it at the end. */
async function logOf(
  server: LivingServer,
  { runs, parents }: Trees,
  marks: Marks,
): Promise<CommittedLog> {
  const clients = (await server.life()).clients();
  const logs = await Promise.all(runs.map(({ sessionId }) => allEvents(clients, sessionId)));
  const events = logs.flat().map((event) => marks.of(event));
  events.sort((one, other) => (one.position < other.position ? -1 : 1));
  return { events, parents };
}

/** Waits until each watcher got the last event that it is about, and was told so, but not for ever. */
function untilHeard(
  watchers: readonly RecordingWatcher[],
  log: CommittedLog,
  patienceMs: number,
): Promise<void> {
  const lastOf = new Map(
    watchers.map((watcher) => [watcher, inScope(watcher.recorded, log).at(-1)?.position ?? 0n]),
  );
  const hasHeard = (watcher: RecordingWatcher): boolean =>
    watcher.isLive && watcher.last >= (lastOf.get(watcher) ?? 0n);
  return untilEach(watchers, hasHeard, patienceMs);
}

/** One that is refused for good is not waited for. */
async function untilEach(
  watchers: readonly RecordingWatcher[],
  isSo: (watcher: RecordingWatcher) => boolean,
  patienceMs: number,
): Promise<void> {
  const deadlineMs = performance.now() + patienceMs;
  while (watchers.some((watcher) => watcher.fault === undefined && !isSo(watcher))) {
    if (performance.now() > deadlineMs) return;
    await delay(LOOK_AGAIN_MS);
  }
}
