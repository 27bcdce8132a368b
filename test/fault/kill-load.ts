import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import type { RestartingServer } from "../support/restarting-server.js";
import { RetryingWriter, type WrittenRun, type WrittenSoFar } from "../support/retrying-writer.js";
import { WIRES, type Clients } from "../support/service.js";
import { recomputedChain } from "../support/stored-chain.js";
import { writtenProblems } from "../support/written-log.js";
import { allEvents, given } from "../support/conversation.js";
import { until } from "../integration/listeners-fixture.js";

const COMMANDS_PER_APPLY = 200;

/** A session with an active run. */
export async function beginWrittenRun(
  { sessions, runs }: Clients,
  name: string,
): Promise<WrittenRun> {
  const created = await sessions.createSession({ requestId: name, kind: SessionKind.MAIN });
  const { sessionId } = given(created.session, "session");
  const requestId = `${name}-begin`;
  const { run } = await runs.beginRun({ sessionId, requestId, startGate: StartGate.OFF });
  return { sessionId, runId: given(run, "run").runId };
}

/** Writes so many events, shared among the runs. */
export async function fillLogs(
  clients: Clients,
  runs: readonly WrittenRun[],
  written: WrittenSoFar,
  events: number,
): Promise<void> {
  const fill = async (run: WrittenRun, at: number): Promise<void> => {
    const end = Math.ceil(events / runs.length);
    for (let from = 0; from < end; from += COMMANDS_PER_APPLY) {
      const count = Math.min(COMMANDS_PER_APPLY, end - from);
      await publishHooks(clients, run, written, { prefix: `fill-${at}-${from}`, count });
    }
  };
  await Promise.all(runs.map(fill));
}

async function publishHooks(
  { runs }: Clients,
  run: WrittenRun,
  written: WrittenSoFar,
  { prefix, count }: { readonly prefix: string; readonly count: number },
): Promise<void> {
  const texts = Array.from({ length: count }, (_, at) => `${prefix}-${at}`);
  const commands = texts.map((text) => {
    const value = { phase: "session_start", decision: HookDecision.INFO, text };
    return { command: { case: "publishHook" as const, value } };
  });
  const { results } = await runs.apply({ ...run, requestId: prefix, commands });
  for (const [at, text] of texts.entries()) {
    const result = results[at]?.result;
    const hook = result?.case === "publishHook" ? result.value.hook : undefined;
    written.hookIds.set(text, given(hook, "hook").hookId);
  }
}

/** Writers in every session, on every wire. */
function writersOf({ server, runs, written, writers, asks }: Load): RetryingWriter[] {
  return Array.from({ length: writers }, (_, index) => {
    const wire = WIRES[Math.floor(index / runs.length) % WIRES.length] ?? "grpc";
    const run = given(runs[index % runs.length], "run");
    return new RetryingWriter(`w${index}`, wire, server, run, written, asks);
  });
}

export interface Load {
  readonly server: RestartingServer;
  readonly runs: readonly WrittenRun[];
  readonly written: WrittenSoFar;
  readonly writers: number;
  /** Whether each call is asked about. */
  readonly asks?: boolean;
}

/**
 * Lets writers write while something happens to the server, and waits until each was answered. `more` waits for so many
 * further acknowledgements.
 */
export async function whileWriting(
  load: Load,
  happens: (more: (count: number) => Promise<void>) => Promise<void>,
): Promise<void> {
  let isEnough = false;
  const stop = (): void => {
    isEnough = true;
  };
  const { written } = load;
  const all = writersOf(load);
  const writing = Promise.all(all.map((writer) => writer.writeUntil(() => isEnough))).finally(stop);
  const more = async (count: number): Promise<void> => {
    const goal = written.acknowledged + count;
    await until(() => isEnough || written.acknowledged >= goal);
  };
  await Promise.all([writing, happens(more).finally(stop)]);
}

/** What the logs lack or have too much of, by what was acknowledged. Ends the server. */
export async function lostOrDoubled({ server, runs, written }: Load): Promise<string[]> {
  const clients = (await server.life()).clients("grpc");
  const logs: Event[][] = [];
  for (const { sessionId } of runs) logs.push(await allEvents(clients, sessionId));
  await server.stop("SIGTERM");
  const path = server.store.replace("sqlite:", "");
  return [
    ...written.faults,
    ...writtenProblems(logs, written),
    ...runs.flatMap(({ sessionId }) => chainProblems(path, sessionId, written)),
  ];
}

/** Each checkpoint that somebody was given must be in the chain, computed anew. */
function chainProblems(path: string, sessionId: string, written: WrittenSoFar): string[] {
  const chain = recomputedChain(path, sessionId);
  const taken = written.checkpoints.filter((checkpoint) => checkpoint.sessionId === sessionId);
  if (taken.length === 0) return [`${sessionId}: no checkpoint was taken`];
  return taken
    .filter((point) => chain.get(point.sequence) !== Buffer.from(point.chain).toString("hex"))
    .map(({ sequence }) => `${sessionId}: checkpoint at ${sequence} is not in the chain`);
}
