import { create } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { EventSchema, type Event } from "../../gen/toolmark/v1/event_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  acceptTurn,
  allCalls,
  allEvents,
  complete,
  given,
  newCall,
  openRun,
  publishHook,
  type OpenRun,
} from "../support/conversation.js";
import { acknowledgementFaults, orderFaults, type Acknowledged } from "../support/log-checks.js";
import { refused, type Refused } from "../support/refused.js";
import { scaled } from "../support/scale.js";
import { seededRandom, seededTitle } from "../support/seed.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

const WRITERS = 64;
const CONNECTIONS = 6;

let folder: StoreFolder;
let service: TestService;
let connections: readonly Clients[] = [];

beforeAll(async () => {
  folder = await makeStoreFolder();
  service = await startTestService({ store: folder.store });
  const wires = ["grpc", "connect-json", "connect-binary"] as const;
  connections = Array.from({ length: CONNECTIONS }, (_, at) =>
    service.clients(given(wires[at % wires.length], "wire")),
  );
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

const connection = (at: number): Clients => given(connections[at % CONNECTIONS], "connection");
const timesOf = (count: number) => Array.from({ length: count }, (_, at) => at);

describe(`${WRITERS} writers at once`, () => {
  const APPENDS = scaled(200);

  /** Writers that each append in turn to a session of their choice; what they were told, by session. */
  async function write(
    runs: readonly OpenRun[],
    random: () => number,
  ): Promise<Map<string, Acknowledged[]>> {
    const told = new Map(runs.map(({ sessionId }) => [sessionId, [] as Acknowledged[]]));
    const writer = async (at: number): Promise<void> => {
      for (let index = 0; index < APPENDS; index += 1) {
        const run = given(runs[Math.floor(random() * runs.length)], "run");
        const { hookId: id, revision } = await publishHook(connection(at), run);
        told.get(run.sessionId)?.push({ id, revision });
      }
    };
    await Promise.all(timesOf(WRITERS).map(writer));
    return told;
  }

  test.each([1, 16, WRITERS])(
    seededTitle(
      "to %i sessions: revisions rise without reuse, and nothing told is lost or doubled",
    ),
    async (sessions) => {
      const runs = await Promise.all(timesOf(sessions).map((at) => openRun(connection(at))));
      const told = await write(runs, seededRandom(`${sessions} sessions`));
      const positions: bigint[] = [];
      let events = 0;
      for (const [sessionId, acknowledged] of told) {
        const log = await allEvents(connection(0), sessionId);
        expect(orderFaults(log)).toEqual([]);
        expect(acknowledgementFaults(acknowledged, log)).toEqual([]);
        const revisions = log.flatMap(({ revision }) => revision ?? []);
        expect(revisions).toEqual(timesOf(acknowledged.length).map((at) => BigInt(at + 1)));
        positions.push(...log.map(({ position }) => position));
        events += log.length;
      }
      expect(events).toBe(WRITERS * APPENDS + 2 * sessions);
      expect(new Set(positions).size).toBe(positions.length);
    },
  );

  test("and the checks report a lost, a doubled, a reused and a misplaced update", async () => {
    const run = await openRun(connection(0));
    const hooks = [await publishHook(connection(0), run), await publishHook(connection(0), run)];
    const told = hooks.map(({ hookId: id, revision }) => ({ id, revision }));
    const log = await allEvents(connection(0), run.sessionId);
    const faultsOf = (planted: readonly Event[]) =>
      [...orderFaults(planted), ...acknowledgementFaults(told, planted)].length;
    const [session, begun, first, second] = log.map((event) => create(EventSchema, event));
    if (session === undefined || begun === undefined) throw new Error("no events");
    if (first === undefined || second === undefined) throw new Error("no hooks");
    expect(faultsOf(log)).toBe(0);
    expect(faultsOf([session, begun, second])).toBeGreaterThan(0);
    expect(
      faultsOf([...log, { ...second, sequence: 5n, position: second.position + 1n, revision: 3n }]),
    ).toBe(1);
    expect(faultsOf([session, begun, first, { ...second, revision: 1n }])).toBeGreaterThan(0);
    expect(faultsOf([session, begun, second, first])).toBeGreaterThan(0);
    expect(acknowledgementFaults([...told, ...told.slice(0, 1)], log)).toEqual([
      "an id was told twice",
    ]);
  });
});

describe("turns that are accepted at once with one provider id", () => {
  const ROUNDS = scaled(100);

  /** Sixty-four turns with the same provider id: the call of each that won, the refusal of each that lost. */
  async function race(run: OpenRun, providerCallId: string) {
    const turns = timesOf(WRITERS).map((at) =>
      acceptTurn(connection(at), run, [newCall(), newCall(providerCallId)]),
    );
    const outcomes = await Promise.allSettled(turns);
    const lost: Refused[] = [];
    const won: ToolCall[][] = [];
    for (const [at, outcome] of outcomes.entries()) {
      if (outcome.status === "fulfilled") won.push(outcome.value);
      else lost.push(await refused(given(turns[at], "turn")));
    }
    return { won, lost };
  }

  test("have exactly one winner, and the others name its call", async () => {
    const run = await openRun(connection(0));
    for (let round = 0; round < ROUNDS; round += 1) {
      const before = await allEvents(connection(0), run.sessionId);
      const { won, lost } = await race(run, "call_0");
      expect(won.length).toBe(1);
      const [, winner] = given(won[0], "winner");
      const { toolCallId } = given(winner, "call");
      const refusal = {
        code: Code.FailedPrecondition,
        reason: "PROVIDER_CALL_ID_OUTSTANDING",
        metadata: { positions: "1", tool_call_ids: toolCallId },
      };
      expect(lost.length).toBe(WRITERS - 1);
      for (const loser of lost) expect(loser).toMatchObject(refusal satisfies Partial<Refused>);
      const after = await allEvents(connection(0), run.sessionId);
      expect(after.length).toBe(before.length + 3);
      await complete(connection(round), run, toolCallId);
    }
    expect(orderFaults(await allEvents(connection(0), run.sessionId))).toEqual([]);
  });

  test("all win in sessions of their own", async () => {
    const runs = await Promise.all(timesOf(WRITERS).map((at) => openRun(connection(at))));
    const turns = runs.map((run, at) => acceptTurn(connection(at), run, [newCall("call_0")]));
    const ids = (await Promise.all(turns)).flat().map(({ toolCallId }) => toolCallId);
    expect(new Set(ids).size).toBe(WRITERS);
  });
});

test("ids of calls are unique over every session and connection", async () => {
  const CALLS = scaled(100_000);
  const CALLS_PER_TURN = 250;
  const turns = Math.ceil(CALLS / CALLS_PER_TURN);
  const sessions = Math.min(turns, 8);
  const runs = await Promise.all(timesOf(sessions).map((at) => openRun(connection(at))));
  const minted: string[] = [];
  const mint = async (run: OpenRun, at: number): Promise<void> => {
    for (let turn = at; turn < turns; turn += sessions) {
      const calls = timesOf(CALLS_PER_TURN).map(() => newCall("", "same", "{}"));
      const accepted = await acceptTurn(connection(turn), run, calls);
      minted.push(...accepted.map(({ toolCallId }) => toolCallId));
    }
  };
  await Promise.all(runs.map(mint));
  expect(minted.length).toBe(turns * CALLS_PER_TURN);
  expect(new Set(minted).size).toBe(minted.length);
  const { sessionId } = given(runs[0], "run");
  const listed = (await allCalls(connection(0), sessionId)).map(({ toolCallId }) => toolCallId);
  const known = new Set(minted);
  expect(listed.every((id) => known.has(id))).toBe(true);
});
