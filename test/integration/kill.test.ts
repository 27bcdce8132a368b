import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { refused } from "../support/refused.js";
import { RestartingServer } from "../support/restarting-server.js";
import {
  nothingWritten,
  RetryingWriter,
  type WrittenRun,
  type WrittenSoFar,
} from "../support/retrying-writer.js";
import { runProcess } from "../support/run-process.js";
import { scaled, testScale } from "../support/scale.js";
import { seededRandom, seededTitle } from "../support/seed.js";
import { serverArguments } from "../support/server-process.js";
import { WIRES, type Clients } from "../support/service.js";
import { recomputedChain } from "../support/stored-chain.js";
import { writtenProblems } from "../support/written-log.js";
import { until } from "./listeners-fixture.js";

const ROUNDS = scaled(200);
/** Slower machines do fewer rounds of the short run, never fewer than these. */
const SHORT_BUDGET_MS = 12_000;
const ROUNDS_MIN = 3;
const ROUND_TIMEOUT_MS = 10_000;
const WRITERS = 16;
const SESSIONS = 4;
const ACKNOWLEDGED_PER_ROUND_MAX = 150;
const utf8 = new TextEncoder();

let folder = "";
let path = "";
let server: RestartingServer;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "kill-"));
  path = join(folder, "toolmark.db");
  server = new RestartingServer(folder, `sqlite:${path}`);
});

afterEach(async () => {
  await server.stop("SIGKILL");
  await rm(folder, { recursive: true });
});

async function beginRun({ sessions, runs }: Clients, name: string): Promise<WrittenRun> {
  const created = await sessions.createSession({ requestId: name, kind: SessionKind.MAIN });
  const sessionId = created.session!.sessionId;
  const requestId = `${name}-begin`;
  const { run } = await runs.beginRun({ sessionId, requestId, startGate: StartGate.OFF });
  return { sessionId, runId: run!.runId };
}

async function allEvents({ history }: Clients, sessionId: string): Promise<Event[]> {
  const events: Event[] = [];
  let pageToken = "";
  do {
    const page = await history.listEvents({ sessionId, pageSize: 500, pageToken });
    events.push(...page.events);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return events;
}

/** Writers in every session, on every wire. */
function writersOf(runs: readonly WrittenRun[], written: WrittenSoFar): RetryingWriter[] {
  return Array.from({ length: WRITERS }, (_, index) => {
    const wire = WIRES[Math.floor(index / runs.length) % WIRES.length]!;
    return new RetryingWriter(`w${index}`, wire, server, runs[index % runs.length]!, written);
  });
}

/** Lets writers write while something happens to the server, and waits until each was answered. */
async function whileWriting(
  runs: readonly WrittenRun[],
  written: WrittenSoFar,
  happens: (more: (count: number) => Promise<void>) => Promise<void>,
): Promise<void> {
  let isEnough = false;
  const writing = Promise.all(
    writersOf(runs, written).map((writer) => writer.writeUntil(() => isEnough)),
  ).finally(() => {
    isEnough = true;
  });
  /** Waits for further acknowledgements. */
  const more = async (count: number): Promise<void> => {
    const goal = written.acknowledged + count;
    await until(() => isEnough || written.acknowledged >= goal);
  };
  await Promise.all([
    writing,
    happens(more).finally(() => {
      isEnough = true;
    }),
  ]);
}

/** Everything acknowledged is in the logs, once; nothing else is; order and chain hold. */
async function expectNothingLostOrDoubled(
  runs: readonly WrittenRun[],
  written: WrittenSoFar,
): Promise<void> {
  const clients = (await server.life()).clients("grpc");
  const logs = await Promise.all(runs.map(({ sessionId }) => allEvents(clients, sessionId)));
  expect(writtenProblems(logs, written)).toEqual([]);
  await server.stop("SIGTERM");
  for (const { sessionId } of runs) {
    const chain = recomputedChain(path, sessionId);
    const taken = written.checkpoints.filter((checkpoint) => checkpoint.sessionId === sessionId);
    const lost = taken.filter(
      (point) => chain.get(point.sequence) !== Buffer.from(point.chain).toString("hex"),
    );
    expect({ taken: taken.length > 0, lost }).toEqual({ taken: true, lost: [] });
  }
}

function report(rounds: number, written: WrittenSoFar, elapsedMs: number): string {
  const sorted = [...server.readyMs].sort((left, right) => left - right).map(Math.round);
  const median = sorted[Math.floor(sorted.length / 2)];
  return [
    `kill: ${rounds} rounds in ${Math.round(elapsedMs / 1000)} s`,
    `${written.acknowledged} commands of ${WRITERS} clients acknowledged`,
    `${written.retried} sent again, ${written.repeated} repeated after their acknowledgement`,
    `${written.checkpoints.length} checkpoints`,
    `ready after ${median} ms (median), ${sorted.at(-1)} ms (longest)`,
  ].join(", ");
}

describe("a server that is killed", () => {
  test(
    seededTitle("loses nothing that it acknowledged and doubles nothing that is sent again"),
    { timeout: ROUND_TIMEOUT_MS * (ROUNDS + 1) },
    async () => {
      const random = seededRandom("kill");
      const first = (await server.life()).clients("grpc");
      const names = Array.from({ length: SESSIONS }, (_, index) => `session-${index}`);
      const runs = await Promise.all(names.map((name) => beginRun(first, name)));
      const written = nothingWritten();
      const startedMs = performance.now();
      const elapsedMs = () => performance.now() - startedMs;
      let rounds = 0;
      const isTimeLeft = () => testScale() !== "short" || elapsedMs() < SHORT_BUDGET_MS;
      await whileWriting(runs, written, async (more) => {
        while (rounds < ROUNDS && (rounds < ROUNDS_MIN || isTimeLeft())) {
          await more(Math.ceil(random() * ACKNOWLEDGED_PER_ROUND_MAX));
          const highest = highestSequences(written);
          await server.restart("SIGKILL");
          await expectOnlyExtended(runs, highest, written);
          rounds += 1;
        }
      });
      process.stdout.write(`${report(rounds, written, elapsedMs())}\n`);
      expect(written.repeated).toBeGreaterThanOrEqual(rounds);
      await expectNothingLostOrDoubled(runs, written);
    },
  );

  test("goes on with the run that was active, and with its calls, under the same ids", async () => {
    const before = (await server.life()).clients("grpc");
    const run = await beginRun(before, "session");
    const accept = (clients: Clients, requestId: string, providerCallIds: readonly string[]) =>
      clients.calls.acceptTurn({
        ...run,
        requestId,
        command: {
          calls: providerCallIds.map((providerCallId) => ({
            toolName: "read_file",
            arguments: { data: utf8.encode(`{"path":"${providerCallId}"}`) },
            pairing: { providerCallId },
          })),
        },
      });
    const { toolCalls } = await accept(before, "turn", ["call_0", "call_1"]);
    const ids = toolCalls.map(({ toolCallId }) => toolCallId);
    const after = (await server.restart("SIGKILL")).clients("grpc");

    const { session } = await after.sessions.getSession(run);
    expect(session?.activeRunId).toBe(run.runId);
    expect(await refused(accept(after, "again", ["call_1"]))).toMatchObject({
      reason: "PROVIDER_CALL_ID_OUTSTANDING",
      metadata: { positions: "0", tool_call_ids: ids[1] },
    });
    for (const [index, toolCallId] of ids.entries()) {
      const value = { content: { data: utf8.encode(`text ${index}`) } };
      const command = { toolCallId, result: { case: "canonical" as const, value } };
      await after.calls.recordResult({ ...run, requestId: `result-${index}`, command });
    }
    const requestId = "end";
    await after.runs.endRun({ ...run, requestId, command: { outcome: RunOutcome.COMPLETED } });
    const listed = await after.history.listToolCalls(run);
    expect(listed.toolCalls.map(({ toolCallId, state }) => [toolCallId, state])).toEqual(
      ids.map((id) => [id, ToolCallState.COMPLETED]),
    );
  });

  test("frees the database for the next one, and only then", async () => {
    const life = await server.life();
    const args = serverArguments(`sqlite:${path}`);
    const second = await runProcess(process.execPath, args);
    expect(second).toMatchObject({ code: 75, stdout: "" });
    expect(second.stderr).toContain("the store is open already");
    const { sessions } = await life.clients("grpc").sessions.listSessions({});
    expect(sessions).toEqual([]);
    expect((await server.restart("SIGKILL")).number).toBe(2);
  });
});

describe("a server that is asked to end", () => {
  test("drains with exit code 0, and loses nothing that it acknowledged", async () => {
    const run = await beginRun((await server.life()).clients("grpc"), "session");
    const written = nothingWritten();
    await whileWriting([run], written, async (more) => {
      await more(100);
      await server.restart("SIGTERM");
      await more(50);
    });
    await expectNothingLostOrDoubled([run], written);
    expect(server.exitCodes).toEqual([0, 0]);
  });
});

describe("the checks of a log", () => {
  test("find what is lost, doubled, reordered or acknowledged to nobody", async () => {
    const clients = (await server.life()).clients("grpc");
    const run = await beginRun(clients, "session");
    const written = nothingWritten();
    const writer = new RetryingWriter("w", "grpc", server, run, written);
    await writer.writeUntil(() => written.acknowledged >= 6);
    const events = await allEvents(clients, run.sessionId);
    expect(writtenProblems([events], written)).toEqual([]);
    const last = events.at(-1)!;
    const hook = events.find(({ kind }) => kind === "HOOK_PUBLISHED")!;
    const [[requestId]] = [...written.hookIds] as [[string, string]];
    const problemsOf = (...log: Event[]) => String(writtenProblems([log], written));
    expect(problemsOf(...events.slice(0, -1))).toMatch(/^result tc_\w+: lost$/);
    expect(problemsOf(...events, last)).toMatch(/hole.*do not rise.*result tc_\w+: 2 times$/);
    expect(problemsOf(...events.toReversed())).toMatch(/hole.*positions.*revisions/);
    written.hookIds.delete(requestId);
    expect(problemsOf(...events)).toBe(
      `hook ${requestId},${hookIdOf(hook)}: acknowledged to nobody`,
    );
  });
});

function hookIdOf({ record }: Event): string {
  return record?.record.case === "hook" ? record.record.value.hookId : "";
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
  runs: readonly WrittenRun[],
  highest: ReadonlyMap<string, bigint>,
  { checkpoints }: WrittenSoFar,
): Promise<void> {
  const { sessions } = (await server.life()).clients("grpc");
  for (const { sessionId } of runs) {
    const { session } = await sessions.getSession({ sessionId });
    const head = session!.checkpoint!;
    expect(head.sequence).toBeGreaterThanOrEqual(highest.get(sessionId) ?? 0n);
    checkpoints.push(head);
  }
}
