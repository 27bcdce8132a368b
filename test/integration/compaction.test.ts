import { Code } from "@connectrpc/connect";
import BetterSqlite from "better-sqlite3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { ToolCallState, ToolResultKind } from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  answer,
  listedAsks,
  openAsk,
  park,
  settleAuthorization,
  showAsk,
  startCall,
} from "../support/asking.js";
import {
  acceptCall,
  acceptTurn,
  allEvents,
  complete,
  endRun,
  freshRequestId,
  given,
  newCall,
  openRun,
  publishHook,
  readCall,
  readSession,
  recordMessage,
  type OpenRun,
} from "../support/conversation.js";
import { expectNothingWritten, writtenTo } from "../support/nothing-written.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { spawnServer } from "../support/spawned-server.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { toolmark } from "../support/toolmark-command.js";
import { TWO_WIRES } from "./cases-asks-fixture.js";
import {
  archiving,
  compact,
  compactAll,
  expectSound,
  headOf,
  HeldReads,
  isWholeAt,
  projected,
} from "./compaction-fixture.js";
import { until } from "./listeners-fixture.js";

let folder: StoreFolder;
let service: TestService;
let reads: HeldReads;

async function start(): Promise<void> {
  service = await startTestService({
    store: folder.store,
    flags: ["--snapshot-every", "3"],
    wrapStore: (store) => (reads = new HeldReads(store)),
  });
}

beforeAll(async () => {
  folder = await makeStoreFolder();
  await start();
});

afterAll(async () => {
  await service.stop();
  const verified = await toolmark("verify", "--store", folder.store);
  await folder.remove();
  expect(verified).toMatchObject({ code: 0 });
});

/** Ends the service and starts it on the same file, which `change` may alter in between. */
async function restart(change?: (database: BetterSqlite.Database) => void): Promise<void> {
  await service.stop();
  if (change !== undefined) {
    const database = new BetterSqlite(folder.path);
    change(database);
    database.close();
  }
  await start();
}

const WITHOUT_SNAPSHOTS = (database: BetterSqlite.Database): void => {
  database.exec("DELETE FROM snapshots");
};

const WITH_DAMAGED_SNAPSHOTS = (database: BetterSqlite.Database): void => {
  database.exec("UPDATE snapshots SET state = zeroblob(length(state))");
};

/** What a refusal to archive says. */
const nothingAfter = (through: number) => ({
  code: Code.FailedPrecondition,
  reason: "NOTHING_TO_COMPACT",
  metadata: { through_sequence: String(through) },
});

describe.each(TWO_WIRES)("compaction over %s", (wire) => {
  const connect = (): Clients => service.clients(wire);

  /** A turn of one call that has its result. */
  async function settledTurn(clients: Clients, run: OpenRun): Promise<string> {
    const { toolCallId } = await acceptCall(clients, run);
    await complete(clients, run, toolCallId);
    return toolCallId;
  }

  test("B27 a boundary anywhere in a log leaves every call with its result", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const { sessionId } = run;
    await recordMessage(clients, run);
    const [first, second] = await acceptTurn(clients, run, [newCall(), newCall()]);
    await complete(clients, run, given(first, "call").toolCallId);
    await publishHook(clients, run, given(second, "call").toolCallId);
    await complete(clients, run, given(second, "call").toolCallId);
    await recordMessage(clients, run);
    const open = await acceptCall(clients, run);
    const message = await recordMessage(clients, run);
    const kinds = (await allEvents(clients, sessionId)).map(({ kind }) => kind);
    expect(kinds.slice(3)).toEqual([
      ...["TURN_ACCEPTED", "TOOL_CALL_ACCEPTED", "TOOL_CALL_ACCEPTED", "RESULT_RECORDED"],
      ...["HOOK_PUBLISHED", "RESULT_RECORDED", "MESSAGE_RECORDED"],
      ...["TURN_ACCEPTED", "TOOL_CALL_ACCEPTED", "MESSAGE_RECORDED"],
    ]);

    const cuts: number[] = [];
    for (let through = 1; through <= kinds.length; through += 1) {
      const cut = cuts.at(-1) ?? 0;
      const can = [1, 2, 3, 9, 10].includes(through);
      if (can) cuts.push(await compact(clients, sessionId, through));
      else {
        const refusal = await refused(
          clients.sessions.compactSession(archiving(sessionId, through)),
        );
        expect(refusal).toMatchObject(nothingAfter(cut));
      }
      await projected(clients, sessionId);
    }
    expect(cuts).toEqual([1, 2, 3, 9, 10]);
    // A cut anywhere else would be seen.
    const log = await allEvents(clients, sessionId);
    const whole = kinds.map((_kind, index) => index + 1).filter((at) => isWholeAt(log, at));
    expect(whole).toEqual(cuts);

    await complete(clients, run, open.toolCallId);
    expect(await projected(clients, sessionId)).toEqual([
      { kind: "summary", text: "all up to 10" },
      { kind: "call", id: open.toolCallId },
      { kind: "message", id: message },
      { kind: "result", id: open.toolCallId },
    ]);
    await expectSound(clients, sessionId);
  });

  test("B27 a point within a turn is lowered to the event before it", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const { sessionId } = run;
    await settledTurn(clients, run);
    const before = await headOf(clients, sessionId);
    const [first, second] = await acceptTurn(clients, run, [newCall(), newCall()]);
    await complete(clients, run, given(first, "call").toolCallId);
    const within = await headOf(clients, sessionId);
    expect(await compact(clients, sessionId, within)).toBe(before);
    await projected(clients, sessionId);
    await complete(clients, run, given(second, "call").toolCallId);
    const refusal = await refused(clients.sessions.compactSession(archiving(sessionId, within)));
    expect(refusal).toMatchObject(nothingAfter(before));
    const head = await headOf(clients, sessionId);
    expect(await compact(clients, sessionId, head)).toBe(head);
    expect(await projected(clients, sessionId)).toHaveLength(1);
    await expectSound(clients, sessionId);
  });

  test("B27 calls in flight go on as if nothing had been archived", async () => {
    const clients = connect();
    const run = await openRun(clients, StartGate.REQUIRED);
    const { sessionId } = run;
    const before = await headOf(clients, sessionId);
    const [asked, started, other] = (
      await acceptTurn(clients, run, [newCall("p0"), newCall("p1"), newCall("p2")])
    ).map(({ toolCallId }) => toolCallId) as [string, string, string];
    const { askId } = await openAsk(clients, run, asked);
    await startCall(clients, run, started);
    const shown = await showAsk(clients, sessionId, askId);
    expect(await compactAll(clients, sessionId)).toBe(before);
    expect(await showAsk(clients, sessionId, askId)).toEqual(shown);

    await restart();
    const again = service.clients(wire);
    const outstanding = await refused(acceptTurn(again, run, [newCall("p2")]));
    expect(outstanding.metadata["tool_call_ids"]).toBe(other);
    await answer(again, shown.ask);
    await startCall(again, run, asked);
    await startCall(again, run, other);
    for (const id of [asked, started, other]) await complete(again, run, id);
    const items = await projected(again, sessionId);
    expect(items.filter(({ kind }) => kind === "result")).toHaveLength(3);
    const head = await headOf(again, sessionId);
    expect(await compactAll(again, sessionId)).toBe(head);
    await expectSound(again, sessionId);
  });

  test("B27 what was archived still resolves by its id, to the byte", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const { sessionId } = run;
    const { toolCallId } = await acceptCall(clients, run);
    const { hookId } = await publishHook(clients, run, toolCallId);
    const { askId } = await openAsk(clients, run, toolCallId);
    const { receiptId } = await answer(clients, (await showAsk(clients, sessionId, askId)).ask);
    await complete(clients, run, toolCallId, "the result ".repeat(9_000));
    const { result } = await readCall(clients, sessionId, toolCallId);
    const { bodyRef } = given(result?.content, "body");

    const resolve = async () => {
      const chunks: Buffer[] = [];
      for await (const { chunk } of clients.history.readBody({ sessionId, bodyRef })) {
        chunks.push(Buffer.from(chunk));
      }
      return {
        call: await readCall(clients, sessionId, toolCallId),
        calls: await clients.history.listToolCalls({ sessionId }),
        hook: await clients.history.getHook({ sessionId, hookId }),
        hooks: await clients.history.listHooks({ sessionId, toolCallId }),
        ask: await showAsk(clients, sessionId, askId),
        asks: await listedAsks(clients, { sessionId, state: AskState.ANSWERED }),
        receipt: await clients.approvals.getReceipt({ sessionId, receiptId }),
        body: Buffer.concat(chunks).toString(),
        events: (await allEvents(clients, sessionId)).slice(0, 10),
      };
    };
    const before = await resolve();
    expect(before.body).toHaveLength(99_000);
    const head = await headOf(clients, sessionId);
    expect(await compactAll(clients, sessionId)).toBe(head);
    expect(await resolve()).toEqual(before);
    await publishHook(clients, run, toolCallId);
    await projected(clients, sessionId);
    await expectSound(clients, sessionId);
  });

  test("a denied call is archived once it has its text", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const { sessionId } = run;
    const before = await headOf(clients, sessionId);
    const { toolCallId } = await acceptCall(clients, run);
    const { askId } = await openAsk(clients, run, toolCallId);
    await answer(clients, (await showAsk(clients, sessionId, askId)).ask, Verdict.DENY);
    expect(await compactAll(clients, sessionId)).toBe(before);
    await complete(clients, run, toolCallId, "denied");
    const head = await headOf(clients, sessionId);
    expect(await compactAll(clients, sessionId)).toBe(head);
    await projected(clients, sessionId);
  });

  test("neither a parked call nor those that wait behind it are archived", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const { sessionId } = run;
    const before = await headOf(clients, sessionId);
    const turn = await acceptTurn(clients, run, [newCall(), newCall(), newCall()]);
    const [done, parked, behind] = turn.map(({ toolCallId }) => toolCallId) as [
      string,
      string,
      string,
    ];
    await complete(clients, run, done);
    const deferredToolCallIds = [behind];
    const { authorizationId } = await park(clients, run, parked, { deferredToolCallIds });
    await endRun(clients, run, { outcome: RunOutcome.PARKED });
    expect(await compactAll(clients, sessionId)).toBe(before);
    const resumed = { sessionId, requestId: freshRequestId(), startGate: StartGate.OFF };
    const { runId } = given((await clients.runs.beginRun(resumed)).run, "run");
    const next = { sessionId, runId };
    await settleAuthorization(clients, next, authorizationId, AuthorizationState.GRANTED);
    const refusal = await refused(
      clients.sessions.compactSession(archiving(sessionId, await headOf(clients, sessionId))),
    );
    expect(refusal).toMatchObject(nothingAfter(before));
    for (const id of [parked, behind]) {
      expect((await readCall(clients, sessionId, id)).state).toBe(ToolCallState.ACCEPTED);
      await complete(clients, next, id);
    }
    expect((await projected(clients, sessionId)).map(({ kind }) => kind)).toEqual([
      ...["summary", "call", "call", "call", "result", "result", "result"],
    ]);
    const head = await headOf(clients, sessionId);
    expect(await compactAll(clients, sessionId)).toBe(head);
    await expectSound(clients, sessionId);
  });

  test("a result that comes after its turn was archived is kept as late and projected nowhere", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const { sessionId } = run;
    const { toolCallId } = await acceptCall(clients, run);
    await endRun(clients, run, { outcome: RunOutcome.FAILED });
    const archived = await compactAll(clients, sessionId);
    const call = await complete(clients, run, toolCallId, "late");
    expect(call).toMatchObject({
      state: ToolCallState.OUTCOME_UNKNOWN,
      result: { kind: ToolResultKind.SYNTHETIC },
      lateResult: { kind: ToolResultKind.CANONICAL },
    });
    const summary = { kind: "summary", text: `all up to ${archived}` };
    expect(await projected(clients, sessionId)).toEqual([summary]);
    const head = await headOf(clients, sessionId);
    expect(await compactAll(clients, sessionId)).toBe(head);
    expect(await projected(clients, sessionId)).toHaveLength(1);
    await expectSound(clients, sessionId);
  });

  test("what cannot be archived is refused, and writes nothing", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const { sessionId } = run;
    await acceptCall(clients, run);
    expect(await compactAll(clients, sessionId)).toBe(2);
    const attempts: readonly (readonly [bigint, object])[] = [
      [4n, nothingAfter(2)],
      [1_000n, { code: Code.InvalidArgument, metadata: { field: "through_sequence" } }],
    ];
    for (const [through, expected] of attempts) {
      const refusal = await expectNothingWritten(service, sessionId, (requestId) =>
        clients.sessions.compactSession(archiving(sessionId, through, requestId)),
      );
      expect(refusal).toMatchObject(expected);
    }
    const head = BigInt(await headOf(clients, sessionId));
    await clients.sessions.endSession({ sessionId, requestId: freshRequestId() });
    const before = await writtenTo(service, clients, sessionId);
    for (const [id, reason] of [
      [sessionId, "SESSION_ENDED"],
      ["ses_none", "SESSION_NOT_FOUND"],
    ]) {
      const refusal = await refused(clients.sessions.compactSession(archiving(id ?? "", head)));
      expect(refusal.reason).toBe(reason);
    }
    expect(await writtenTo(service, clients, sessionId)).toEqual(before);
    await expectSound(clients, sessionId);
  });

  test("a repeated request is told the same and writes nothing, another one under its id is refused", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const { sessionId } = run;
    await settledTurn(clients, run);
    await acceptCall(clients, run);
    const request = archiving(sessionId, await headOf(clients, sessionId));
    const told = await clients.sessions.compactSession(request);
    expect(Number(told.throughSequence)).toBe((await headOf(clients, sessionId)) - 3);
    await settledTurn(clients, run);
    await compactAll(clients, sessionId).catch(() => undefined);

    for (let lives = 1; lives <= 2; lives += 1) {
      const again = service.clients(wire);
      const before = await writtenTo(service, again, sessionId);
      const replies = await Promise.all(
        [1, 2, 3].map(() => again.sessions.compactSession(request)),
      );
      expect(replies).toEqual([told, told, told]);
      const others = [
        { ...request, throughSequence: 1n },
        { ...request, summary: "another" },
      ];
      for (const other of others) {
        const { code, reason } = await refused(again.sessions.compactSession(other));
        expect({ code, reason }).toEqual({
          code: Code.AlreadyExists,
          reason: "REQUEST_ID_REUSED",
        });
      }
      expect(await writtenTo(service, again, sessionId)).toEqual(before);
      await restart();
    }
  });

  test("of compactions at once each archives more than the one before it, or is told how far it is", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const { sessionId } = run;
    for (let turns = 0; turns < 6; turns += 1) await settledTurn(clients, run);
    const head = await headOf(clients, sessionId);
    const requests = Array.from({ length: head }, (_, index) => archiving(sessionId, index + 1));
    const shuffled = requests.toSorted((left, right) =>
      String(left.throughSequence).localeCompare(String(right.throughSequence)),
    );
    const outcomes = await Promise.all(
      [...shuffled, ...shuffled.slice(0, 4)].map((request) =>
        clients.sessions.compactSession(request).then(
          ({ throughSequence }) => Number(throughSequence),
          async (error: unknown) => refused(Promise.reject(error as Error)),
        ),
      ),
    );
    const log = await allEvents(clients, sessionId);
    const cuts = log.flatMap(({ record }) =>
      record?.record.case === "compaction" ? [Number(record.record.value.throughSequence)] : [],
    );
    expect(cuts).toEqual([...new Set(cuts)].toSorted((left, right) => left - right));
    expect(cuts.at(-1)).toBe(head);
    for (const outcome of outcomes) {
      if (typeof outcome === "number") expect(cuts).toContain(outcome);
      else expect(cuts.map((cut) => nothingAfter(cut).metadata)).toContainEqual(outcome.metadata);
    }
    await projected(clients, sessionId);
    await expectSound(clients, sessionId);
  });

  test("what is written while a compaction is prepared changes nothing about its cut", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const { sessionId } = run;
    await settledTurn(clients, run);
    const safe = await headOf(clients, sessionId);
    const open = await acceptCall(clients, run);
    const head = await headOf(clients, sessionId);
    reads.hold();
    const slow = clients.sessions.compactSession(archiving(sessionId, head));
    await until(() => reads.waiting === 1);
    reads.pass();
    await complete(clients, run, open.toolCallId);
    const settled = await settledTurn(clients, run);
    const later = await acceptCall(clients, run);
    reads.release();
    expect(Number((await slow).throughSequence)).toBe(safe);
    const items = await projected(clients, sessionId);
    expect(items.flatMap((item) => (item.kind === "call" ? [item.id] : []))).toEqual([
      ...[open.toolCallId, settled, later.toolCallId],
    ]);
    await expectSound(clients, sessionId);
  });

  test("a compaction that another one overtakes is told how far it is", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const { sessionId } = run;
    await settledTurn(clients, run);
    const early = await headOf(clients, sessionId);
    reads.hold();
    const slow = refused(clients.sessions.compactSession(archiving(sessionId, early)));
    await until(() => reads.waiting === 1);
    reads.pass();
    await settledTurn(clients, run);
    const through = await compactAll(clients, sessionId);
    expect(through).toBeGreaterThan(early);
    reads.release();
    expect(await slow).toMatchObject(nothingAfter(through));
    await expectSound(clients, sessionId);
  });

  test.each([
    ["with its snapshots", undefined],
    ["without any", WITHOUT_SNAPSHOTS],
    ["with damaged ones", WITH_DAMAGED_SNAPSHOTS],
  ])("a session that is loaded %s goes on where it was cut", async (how, change) => {
    const clients = connect();
    const run = await openRun(clients);
    const { sessionId } = run;
    await settledTurn(clients, run);
    const archived = await compactAll(clients, sessionId);
    await acceptCall(clients, run);
    await settledTurn(clients, run);
    await restart(change);
    const again = service.clients(wire);
    const head = await headOf(again, sessionId);
    expect((await readSession(again, sessionId)).checkpoint?.sequence).toBe(BigInt(head));
    // What tells of the first compaction is all that lies between it and the open call.
    expect(await compact(again, sessionId, head)).toBe(archived + 1);
    const nothing = await refused(again.sessions.compactSession(archiving(sessionId, head)));
    expect(nothing).toMatchObject(nothingAfter(archived + 1));
    await projected(again, sessionId);
    if (how === "with damaged ones") {
      const { reason, metadata } = await refused(again.sessions.verifySession({ sessionId }));
      expect([reason, metadata["table"]]).toEqual(["DATA_DAMAGED", "snapshots"]);
      await restart(WITHOUT_SNAPSHOTS);
    }
    await expectSound(service.clients(wire), sessionId);
  });
});

test("a compaction survives kill -9 with its request id, and the store verifies", async () => {
  const killed = await makeStoreFolder();
  const flags = ["--snapshot-every", "3"];
  let server = await spawnServer(killed.path, ...flags);
  try {
    const clients = server.clients();
    const run = await openRun(clients);
    const { toolCallId } = await acceptCall(clients, run);
    await complete(clients, run, toolCallId);
    const open = await acceptCall(clients, run);
    const request = archiving(run.sessionId, await headOf(clients, run.sessionId));
    const told = await clients.sessions.compactSession(request);
    const items = await projected(clients, run.sessionId);
    await server.kill();
    server = await spawnServer(killed.path, ...flags);
    for (const wire of TWO_WIRES) {
      const again = server.clients(wire);
      const head = await headOf(again, run.sessionId);
      expect(await again.sessions.compactSession(request)).toEqual(told);
      expect(await headOf(again, run.sessionId)).toBe(head);
      expect(await projected(again, run.sessionId)).toEqual(items);
    }
    await complete(server.clients(), run, open.toolCallId);
    const head = await headOf(server.clients(), run.sessionId);
    expect(await compactAll(server.clients(), run.sessionId)).toBe(head);
    await expectSound(server.clients(), run.sessionId);
    await server.stop();
    expect(await toolmark("verify", "--store", killed.store)).toMatchObject({ code: 0 });
  } finally {
    await server.kill();
    await killed.remove();
  }
});
