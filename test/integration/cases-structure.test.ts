import { toJsonString } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ShownAskSchema } from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { ReceiptPath, SpendState, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunOutcome } from "../../gen/toolmark/v1/run_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  allReceipts,
  answer,
  answerTo,
  askAbout,
  AskWatcher,
  listedAsks,
  openAsk,
  publishReview,
  reviewOf,
  showAsk,
  startCall,
  withdraw,
} from "../support/asking.js";
import {
  acceptCall,
  allCalls,
  allEvents,
  complete,
  endRun,
  freshRequestId,
  given,
  newCall,
  openRun,
  readSession,
  type OpenRun,
} from "../support/conversation.js";
import { expectNothingWritten } from "../support/nothing-written.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients } from "../support/service.js";
import { spawnServer } from "../support/spawned-server.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { askingChildren, openChild, openLine, stepsOf, stepsTo } from "../support/trees.js";
import { startWatchedService, type WatchedService } from "../support/watched-service.js";
import { Callers, principal, TWO_WIRES } from "./cases-asks-fixture.js";

type Shown = Awaited<ReturnType<typeof showAsk>>;

let service: WatchedService;
let callers: Callers;

beforeAll(async () => {
  const principals = {
    ann: principal("ann", { approver: "tenant" }),
    bob: principal("bob", { approver: "tenant" }),
    harness: principal("harness", { engine: "tenant" }),
  };
  service = await startWatchedService({ principals });
  callers = new Callers(service);
});

afterAll(async () => {
  callers.disconnect();
  await service.stop();
});

/** The open asks of a session and of those below it, as they are shown. */
async function listedBelow(clients: Clients, sessionId: string): Promise<Shown[]> {
  return listedAsks(clients, { sessionId, includeDescendants: true });
}

function watchBelow(clients: Clients, sessionId: string, cursor = ""): AskWatcher {
  return new AskWatcher(clients, { sessionId, includeDescendants: true, cursor });
}

function stateOf({ ask }: Shown): string {
  return `${ask.askId} ${AskState[ask.state]}`;
}

describe.each(TWO_WIRES)("over %s", (wire) => {
  describe("B13 a provider id that restarts at call_0 in every session", () => {
    test("hides no ask of a sibling, and no answer overwrites another", async () => {
      const engine = callers.as("harness", wire);
      const root = await openRun(engine);
      const watcher = watchBelow(callers.as("ann", wire), root.sessionId);
      expect(await watcher.openOnes()).toEqual([]);
      const asking = await askingChildren(engine, root, 5);
      const told = new Map<string, Shown>();
      while (told.size < 5) {
        const shown = await watcher.nextAsk();
        told.set(shown.ask.askId, shown);
      }
      watcher.stop();
      const shown = asking.map(({ ask }) => given(told.get(ask.askId), "ask"));
      for (const unique of [
        shown.map(({ answerToken }) => answerToken),
        shown.map(({ ask }) => ask.toolCallId),
        shown.map(({ ask }) => ask.origin?.sessionId),
      ]) {
        expect(new Set(unique).size).toBe(5);
      }
      // Two people answer different ones at once, each over a connection of its own.
      const verdicts = [Verdict.ALLOW_ONCE, Verdict.DENY, Verdict.ALLOW_ONCE, Verdict.DENY];
      const replies = await Promise.all(
        verdicts.map((verdict, index) => {
          const person = callers.as(index % 2 === 0 ? "ann" : "bob", wire);
          return person.approvals.answerAsk(answerTo(given(shown[index], "ask"), verdict));
        }),
      );
      for (const [index, { child, ask }] of asking.entries()) {
        const receipts = await allReceipts(engine, child.session.sessionId);
        const verdict = verdicts[index];
        expect(receipts.map((receipt) => [receipt.askId, receipt.verdict])).toEqual(
          verdict === undefined ? [] : [[ask.askId, verdict]],
        );
        expect(receipts).toEqual(verdict === undefined ? [] : [replies[index]?.receipt]);
      }
      const late = answerTo(given(shown[0], "ask"), Verdict.DENY);
      expect(await refused(callers.as("bob", wire).approvals.answerAsk(late))).toMatchObject({
        reason: "ASK_NOT_OPEN",
        metadata: { receipt_id: replies[0]?.receipt?.receiptId },
      });
      const left = await listedBelow(engine, root.sessionId);
      expect(left.map(({ ask }) => ask.askId)).toEqual([asking[4]?.ask.askId]);
    });

    test("gives every stream of one session a call and an ask of its own", async () => {
      const engine = callers.as("harness", wire);
      const ann = callers.as("ann", wire);
      const run = await openRun(engine);
      const calls: string[] = [];
      const receipts: string[] = [];
      for (let stream = 0; stream < 3; stream += 1) {
        const ask = await askAbout(engine, run, {}, newCall("call_0"));
        calls.push(ask.toolCallId);
        receipts.push((await answer(ann, ask)).receiptId);
        await startCall(engine, run, ask.toolCallId);
        await complete(engine, run, ask.toolCallId);
      }
      expect(new Set(calls).size).toBe(3);
      const all = await allReceipts(engine, run.sessionId);
      expect(all.map(({ receiptId }) => receiptId)).toEqual(receipts);
      expect(all.map(({ toolCallId }) => toolCallId)).toEqual(calls);
      expect(all.map(({ spendState }) => spendState)).toEqual(calls.map(() => SpendState.SPENT));
    });
  });

  describe("B31 an answer to one of several sessions of a turn settles its own ask alone", () => {
    test.each([
      ["ALLOW_ONCE", Verdict.ALLOW_ONCE],
      ["ALLOW_ALWAYS", Verdict.ALLOW_ALWAYS],
      ["DENY", Verdict.DENY],
    ])("%s of the second of three, with equal calls", async (_, verdict) => {
      const engine = callers.as("harness", wire);
      const root = await openRun(engine);
      const own = await askAbout(engine, root);
      const asking = await askingChildren(engine, root, 3);
      const [first, second, third] = asking.map(({ child }) => child.run.sessionId);
      const others = [root.sessionId, given(first, "id"), given(third, "id")];
      const logs = () => Promise.all(others.map((id) => allEvents(engine, id)));
      const before = await logs();
      const receipt = await answer(callers.as("ann", wire), given(asking[1], "child").ask, verdict);
      expect(receipt).toMatchObject({
        ...{ path: ReceiptPath.HUMAN, verdict, origin: { sessionId: second } },
        actor: { subject: "ann" },
      });
      expect(await allReceipts(engine, given(second, "id"))).toEqual([receipt]);
      expect(await logs()).toEqual(before);
      const open = await listedBelow(engine, root.sessionId);
      const left = [own, asking[0]?.ask, asking[2]?.ask].map((ask) => ask?.askId);
      expect(new Set(open.map(({ ask }) => ask.askId))).toEqual(new Set(left));
      const { child, ask } = given(asking[0], "child");
      const early = startCall(engine, child.run, ask.toolCallId);
      expect(await refused(early)).toMatchObject({ reason: "START_NOT_ALLOWED" });
    });

    test("and is taken at its own place only", async () => {
      const engine = callers.as("harness", wire);
      const ann = callers.as("ann", wire);
      const root = await openRun(engine);
      const own = await showAsk(ann, root.sessionId, (await askAbout(engine, root)).askId);
      await askingChildren(engine, root, 2);
      const shown = await listedBelow(ann, root.sessionId);
      const [mine, sibling] = shown.filter(({ ask }) => ask.askId !== own.ask.askId) as [
        Shown,
        Shown,
      ];
      const sessionId = given(mine.ask.origin, "origin").sessionId;
      const siblingId = given(sibling.ask.origin, "origin").sessionId;
      const { askId, toolCallId } = sibling.ask;
      const wrong = [
        ["ASK_NOT_FOUND", { sessionId: root.sessionId }],
        ["ASK_NOT_FOUND", { sessionId: siblingId }],
        ["ANSWER_MISMATCH", { sessionId: siblingId, askId }],
        ["ANSWER_TOKEN_INVALID", { sessionId: siblingId, askId, toolCallId }],
        ["ANSWER_TOKEN_INVALID", { answerToken: sibling.answerToken }],
        ["ANSWER_TOKEN_INVALID", { answerToken: own.answerToken }],
        ["ANSWER_MISMATCH", { toolCallId }],
      ] as const;
      for (const [reason, changed] of wrong) {
        const refusal = await expectNothingWritten(service, sessionId, (requestId) =>
          ann.approvals.answerAsk({ ...answerTo(mine), ...changed, requestId }),
        );
        expect([reason, changed, refusal.reason]).toEqual([reason, changed, reason]);
      }
      expect(await listedBelow(ann, root.sessionId)).toEqual(shown);
      await ann.approvals.answerAsk(answerTo(mine));
      const left = await listedBelow(ann, root.sessionId);
      expect(left).toEqual(shown.filter((one) => one !== mine));
    });
  });

  describe("B45 an ask of a session that the client never opened", () => {
    test("is listed and watched from its root with its own origin, and its answer arrives", async () => {
      const engine = callers.as("harness", wire);
      const ann = callers.as("ann", wire);
      const root = await openRun(engine);
      const watcher = watchBelow(ann, root.sessionId);
      await watcher.openOnes();
      // Nothing of these existed when the watch began.
      const deep = await openChild(engine, (await openChild(engine, root)).run);
      const { sessionId } = deep.session;
      const ask = await askAbout(engine, deep.run);
      const waits = engine.calls.awaitAsk({ sessionId, askId: ask.askId, waitMs: 20_000 });

      const told = await watcher.nextAsk();
      const listed = await listedBelow(ann, root.sessionId);
      expect(listed).toEqual([told]);
      expect(told.ask).toMatchObject({
        ...{ askId: ask.askId, origin: { sessionId }, state: AskState.OPEN },
        delegationPath: deep.session.delegationPath,
      });
      expect(await showAsk(ann, sessionId, ask.askId)).toEqual(told);
      expect(await listedAsks(ann, { sessionId: root.sessionId })).toEqual([]);
      expect((await allCalls(engine, root.sessionId)).length).toBe(1);
      const { receipt } = await ann.approvals.answerAsk(answerTo(told));
      expect((await waits).receipt).toEqual(receipt);
      expect(receipt?.origin?.sessionId).toBe(sessionId);
      expect((await watcher.nextAsk()).ask).toMatchObject({
        ...{ askId: ask.askId, state: AskState.ANSWERED, receiptId: receipt?.receiptId },
      });
      watcher.stop();
      expect(await allReceipts(engine, root.sessionId)).toEqual([]);
    });

    test("is seen from above it only", async () => {
      const engine = callers.as("harness", wire);
      const ann = callers.as("ann", wire);
      const other = await openRun(engine);
      const { root, line } = await openLine(engine, 3);
      const [first, second, third] = line.map(({ run }) => run) as [OpenRun, OpenRun, OpenRun];
      const beside = await openChild(engine, root);
      const from = { root, first, second, third, beside: beside.run, other };
      const watchers = new Map<OpenRun, AskWatcher>();
      for (const run of Object.values(from)) {
        watchers.set(run, watchBelow(ann, run.sessionId));
        await watchers.get(run)?.openOnes();
      }
      const asks: Ask[] = [];
      // The other root's comes last: whoever has been told of it was told of all before it that it may see.
      for (const run of [second, beside.run, third, first, root]) {
        asks.push(await askAbout(engine, run));
      }
      const [ofSecond, ofBeside, ofThird, ofFirst, ofRoot] = asks.map(({ askId }) => askId);
      const seen: Record<keyof typeof from, (string | undefined)[]> = {
        root: [ofSecond, ofBeside, ofThird, ofFirst, ofRoot],
        first: [ofSecond, ofThird, ofFirst],
        second: [ofSecond, ofThird],
        third: [ofThird],
        beside: [ofBeside],
        other: [],
      };
      for (const [name, run] of Object.entries(from)) {
        const expected = seen[name as keyof typeof from];
        const listed = await listedBelow(ann, run.sessionId);
        expect(listed.map(({ ask }) => ask.askId)).toEqual(expected);
        // One more of its own shows that nothing else came before it.
        const last = await askAbout(engine, run);
        const told: string[] = [];
        while (told.at(-1) !== last.askId) {
          told.push((await given(watchers.get(run), "watcher").nextAsk()).ask.askId);
        }
        const own = told.filter((askId) => expected.includes(askId) || askId === last.askId);
        expect(own).toEqual([...expected, last.askId]);
        const alone = await listedAsks(ann, { sessionId: run.sessionId });
        expect(alone.map(({ ask }) => ask.origin?.sessionId)).toEqual(
          alone.map(() => run.sessionId),
        );
        await withdraw(engine, run, last.askId);
      }
      for (const watcher of watchers.values()) watcher.stop();
    });

    test.each([
      [
        "run",
        async (by: Clients, root: OpenRun) => endRun(by, root, { outcome: RunOutcome.COMPLETED }),
      ],
      [
        "session",
        async (by: Clients, { sessionId }: OpenRun) =>
          by.sessions.endSession({ requestId: freshRequestId(), sessionId }),
      ],
    ])("can be answered once the root's %s has ended", async (_, end) => {
      const engine = callers.as("harness", wire);
      const ann = callers.as("ann", wire);
      const { root, last } = await openLine(engine, 2);
      const ask = await askAbout(engine, last);
      const shown = await listedBelow(ann, root.sessionId);
      await end(engine, root);
      expect(await listedBelow(ann, root.sessionId)).toEqual(shown);
      const watcher = watchBelow(ann, root.sessionId);
      expect(await watcher.openOnes()).toEqual(shown);
      const { receipt } = await ann.approvals.answerAsk(answerTo(given(shown[0], "ask")));
      expect(receipt).toMatchObject({ askId: ask.askId, spendState: SpendState.UNSPENT });
      expect((await watcher.nextAsk()).ask.state).toBe(AskState.ANSWERED);
      watcher.stop();
      await startCall(engine, last, ask.toolCallId);
      expect((await complete(engine, last, ask.toolCallId)).state).toBe(ToolCallState.COMPLETED);
    });
  });
});

/** A store that is served in this process or another one, again and again. */
interface Lives {
  readonly clients: Clients;
  /** Ends this life and begins the next. */
  restart(): Promise<void>;
  end(): Promise<void>;
}

async function livesHere({ store }: StoreFolder): Promise<Lives> {
  let here = await startTestService({ store });
  let clients = here.clients();
  return {
    get clients() {
      return clients;
    },
    restart: async () => {
      await here.stop();
      here = await startTestService({ store });
      clients = here.clients();
    },
    end: () => here.stop(),
  };
}

async function killedLives({ path }: StoreFolder): Promise<Lives> {
  let server = await spawnServer(path);
  let clients = server.clients();
  return {
    get clients() {
      return clients;
    },
    restart: async () => {
      await server.kill();
      server = await spawnServer(path);
      clients = server.clients();
    },
    end: () => server.kill(),
  };
}

/** Everything that is told of an ask, from its root, from the middle and at its own place. */
async function toldOf(clients: Clients, line: readonly string[], askId: string): Promise<string[]> {
  const [rootId, , middleId, ownId] = line.map((id) => given(id, "id")) as [
    string,
    string,
    string,
    string,
  ];
  const all = [await showAsk(clients, ownId, askId)];
  for (const sessionId of [rootId, middleId, ownId]) {
    all.push(...(await listedBelow(clients, sessionId)));
    const watcher = watchBelow(clients, sessionId);
    all.push(...(await watcher.openOnes()));
    watcher.stop();
  }
  const told = all.filter(({ ask }) => ask.askId === askId);
  expect(told.length).toBe(7);
  return told.map((shown) => toJsonString(ShownAskSchema, shown));
}

describe.each([
  ["a restart in this process", livesHere],
  ["kill -9", killedLives],
] as const)("after %s", (_, begin) => {
  let own: StoreFolder;
  let lives: Lives;

  beforeAll(async () => {
    own = await makeStoreFolder();
    lives = await begin(own);
  });

  afterAll(async () => {
    await lives.end();
    await own.remove();
  });

  test("B45 a nested ask at depth 3 is the same, field by field, and its button still answers", async () => {
    const { root, line, last } = await openLine(lives.clients, 3);
    const [beside] = await askingChildren(lives.clients, root, 1);
    const expireTime = timestampFromMs(Date.now() + 3_600_000);
    const { toolCallId } = await acceptCall(lives.clients, last, newCall("call_0"));
    const hook = await publishReview(lives.clients, last, reviewOf(toolCallId));
    const { askId } = await openAsk(lives.clients, last, toolCallId, {
      ...{ expireTime, display: "run ls", reviewId: hook.hookId },
    });
    const ids = [root.sessionId, ...line.map(({ session }) => session.sessionId)];
    const shown = await showAsk(lives.clients, last.sessionId, askId);
    expect(shown.ask).toMatchObject({
      origin: { sessionId: last.sessionId },
      runId: last.runId,
      display: "run ls",
      reviewId: hook.hookId,
      expireTime,
    });
    expect(stepsOf(shown.ask.delegationPath)).toEqual(stepsTo(line));
    const before = await toldOf(lives.clients, ids, askId);
    const sessions = await Promise.all(ids.map((id) => readSession(lives.clients, id)));
    await lives.restart();
    expect(await toldOf(lives.clients, ids, askId)).toEqual(before);
    expect(await Promise.all(ids.map((id) => readSession(lives.clients, id)))).toEqual(sessions);
    const { receipt } = await lives.clients.approvals.answerAsk(answerTo(shown));
    expect(receipt).toMatchObject({ askId, toolCallId, origin: { sessionId: last.sessionId } });
    const left = await listedBelow(lives.clients, root.sessionId);
    expect(left.map(({ ask }) => ask.askId)).toEqual([beside?.ask.askId]);
    await openChild(lives.clients, last, toolCallId);
    for (const sessionId of ids) await lives.clients.sessions.verifySession({ sessionId });
  });

  test("B45 a watch from the root goes on where it stood, without a hole and without a double", async () => {
    const { root, last } = await openLine(lives.clients, 2);
    const asking = await askingChildren(lives.clients, root, 4);
    const deep = await askAbout(lives.clients, last);
    const listed = await listedBelow(lives.clients, root.sessionId);
    const other = await openRun(lives.clients);
    const watcher = watchBelow(lives.clients, root.sessionId);
    expect(await watcher.nextAsk()).toEqual(listed[0]);
    expect(await watcher.nextAsk()).toEqual(listed[1]);
    // In the middle of what was open at its start.
    const early = watcher.cursor;
    expect(await watcher.openOnes()).toEqual(listed.slice(2));
    const caughtUp = watcher.cursor;
    watcher.stop();

    const settled = listed.slice(0, 3).map(({ ask }) => ask);
    const told: string[] = [];
    for (const ask of settled) {
      await answer(lives.clients, ask);
      told.push(`${ask.askId} ANSWERED`);
    }
    await askAbout(lives.clients, other);
    await lives.restart();
    const late = await openChild(lives.clients, last);
    const newest = await askAbout(lives.clients, late.run);
    told.push(`${newest.askId} OPEN`);
    const { child } = given(asking[0], "child");
    told.push(`${(await askAbout(lives.clients, child.run)).askId} OPEN`);
    const isLeft = ({ ask }: Shown) => !settled.some(({ askId }) => askId === ask.askId);
    const rest = listed.slice(2).filter(isLeft).map(stateOf);
    expect(await toldUpToNow(lives.clients, root.sessionId, caughtUp)).toEqual(told);
    expect(await toldUpToNow(lives.clients, root.sessionId, early)).toEqual([...rest, ...told]);
    expect(rest.length).toBe(2);
    for (const [sessionId, includeDescendants] of [
      [root.sessionId, false],
      [last.sessionId, true],
      [other.sessionId, true],
      ["", true],
    ] as const) {
      const request = { sessionId, includeDescendants, cursor: caughtUp };
      expect(await refused(new AskWatcher(lives.clients, request).next())).toMatchObject({
        code: Code.InvalidArgument,
        reason: "CURSOR_MALFORMED",
      });
    }
    expect(deep.delegationPath.length).toBe(2);
  });
});

/** What a watch that goes on is told until it has caught up. */
async function toldUpToNow(clients: Clients, sessionId: string, cursor: string): Promise<string[]> {
  const first = watchBelow(clients, sessionId, cursor);
  const told = await first.openOnes();
  first.stop();
  // One message without an ask ends what was open at the start, and another one what has changed since.
  const second = watchBelow(clients, sessionId, first.cursor);
  told.push(...(await second.openOnes()));
  second.stop();
  return told.map(stateOf);
}
