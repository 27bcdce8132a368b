import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import { ActorKind } from "../../gen/toolmark/v1/origin_pb.js";
import { ReceiptPath, SpendState, Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { Ran, ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  allReceipts,
  answerTo,
  AskWatcher,
  listedAsks,
  openAsk,
  showAsk,
  startCall,
} from "../support/asking.js";
import {
  acceptCall,
  allEvents,
  complete,
  given,
  openRun,
  readCall,
  readSession,
  recordMessage,
  type OpenRun,
} from "../support/conversation.js";
import { expectNothingWritten } from "../support/nothing-written.js";
import { refused } from "../support/refused.js";
import type { Clients } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { startWatchedService, type WatchedService } from "../support/watched-service.js";
import { MovableClock, TWO_WIRES } from "./cases-asks-fixture.js";
import { until } from "./listeners-fixture.js";

const HOUR_MS = 3_600_000;

let folder: StoreFolder;
let service: WatchedService;
let clock: MovableClock;
const watchers: AskWatcher[] = [];

async function start(expiryCheckMs = 10): Promise<void> {
  service = await startWatchedService({
    store: folder.store,
    nowMs: clock.nowMs,
    expiryCheckMs,
  });
}

beforeEach(async () => {
  folder = await makeStoreFolder();
  clock = new MovableClock();
  await start();
});

afterEach(async () => {
  for (const watcher of watchers.splice(0)) watcher.stop();
  await service.stop();
  await folder.remove();
});

function watch(clients: Clients, sessionId = "", cursor = ""): AskWatcher {
  const watcher = new AskWatcher(clients, { sessionId, cursor });
  watchers.push(watcher);
  return watcher;
}

/** An ask that expires in an hour. */
async function askForAnHour(clients: Clients) {
  const run = await openRun(clients);
  const { toolCallId } = await acceptCall(clients, run);
  const expireTime = timestampFromMs(clock.nowMs() + HOUR_MS);
  const { askId } = await openAsk(clients, run, toolCallId, { expireTime });
  return { run, shown: await showAsk(clients, run.sessionId, askId) };
}

/** Everything that the expiry of an ask must have left, and nothing that looks like a person's word. */
async function expectExpired(clients: Clients, { sessionId }: OpenRun, ask: Ask): Promise<void> {
  const { askId, toolCallId } = ask;
  const { ask: expired, answerToken } = await showAsk(clients, sessionId, askId);
  expect([AskState[expired.state], answerToken]).toEqual(["EXPIRED", ""]);
  expect(expired.expireTime).toEqual(ask.expireTime);
  const receipts = await allReceipts(clients, sessionId);
  expect(receipts).toMatchObject([
    {
      ...{ askId, toolCallId, receiptId: expired.receiptId },
      verdict: Verdict.EXPIRED,
      path: ReceiptPath.TIMEOUT,
      actor: { subject: "", kind: ActorKind.SYSTEM },
      spendState: SpendState.UNSPECIFIED,
    },
  ]);
  expect(receipts[0]).not.toMatchObject({ rule: expect.anything() as unknown });
  const call = await readCall(clients, sessionId, toolCallId);
  expect(call).toMatchObject({ state: ToolCallState.EXPIRED, ran: Ran.NO });
  const { system, kinds } = bySystem(await allEvents(clients, sessionId));
  expect(kinds).toEqual(["RECEIPT_WRITTEN", "ASK_EXPIRED", "TOOL_CALL_ENDED"]);
  expect(new Set(system)).toEqual(new Set([""]));
}

/** The kinds of the events that the service caused itself, and their subjects. */
function bySystem(events: readonly Event[]) {
  const own = events.filter(({ actor }) => actor?.kind === ActorKind.SYSTEM);
  return {
    kinds: own.map(({ kind }) => kind),
    system: own.map(({ actor }) => actor?.subject),
  };
}

/** A late answer is refused, whatever it says, and changes nothing more. */
async function expectTooLate(
  clients: Clients,
  { sessionId }: OpenRun,
  shown: Parameters<typeof answerTo>[0],
): Promise<void> {
  const [receipt] = await allReceipts(clients, sessionId);
  const tooLate = {
    code: Code.FailedPrecondition,
    reason: "ASK_EXPIRED",
    metadata: { ask_id: shown.ask.askId, receipt_id: receipt?.receiptId },
  };
  const allow = answerTo(shown);
  const refusal = await expectNothingWritten(service, sessionId, (requestId) =>
    clients.approvals.answerAsk({ ...allow, requestId }),
  );
  expect(refusal).toMatchObject(tooLate);
  for (const verdict of [Verdict.ALLOW_ALWAYS, Verdict.DENY]) {
    const late = clients.approvals.answerAsk(answerTo(shown, verdict));
    expect(await refused(late)).toMatchObject(tooLate);
  }
  expect(await allReceipts(clients, sessionId)).toEqual([receipt]);
}

describe.each(TWO_WIRES)("B38 over %s", (wire) => {
  const connect = () => service.clients(wire);

  test("an ask that nobody answers expires as the service's own act, and nobody polls for it", async () => {
    const clients = connect();
    const { run, shown } = await askForAnHour(clients);
    const ofSession = watch(clients, run.sessionId);
    const ofInbox = watch(clients);
    expect(await ofSession.openOnes()).toEqual([shown]);
    expect(await ofInbox.openOnes()).toEqual([shown]);
    const waitMs = 60_000;
    const { sessionId } = run;
    const { askId } = shown.ask;
    const awaited = clients.calls.awaitAsk({ sessionId, askId, waitMs });
    await until(() => service.arrived.some(({ method }) => method.name === "AwaitAsk"));
    const asked = service.arrived.length;

    clock.aheadMs = HOUR_MS;
    const seen = [await ofSession.nextAsk(), await ofInbox.nextAsk()];
    const { ask, receipt } = await awaited;
    expect(service.arrived.length).toBe(asked);
    for (const one of seen) {
      expect(one).toMatchObject({ answerToken: "", ask: { askId, state: AskState.EXPIRED } });
    }
    expect([ask?.state, receipt?.verdict]).toEqual([AskState.EXPIRED, Verdict.EXPIRED]);
    await expectExpired(clients, run, shown.ask);
    expect(await listedAsks(clients, {})).toEqual([]);
    expect(await listedAsks(clients, { sessionId })).toEqual([]);
    await expectTooLate(clients, run, shown);
  });

  test("not a moment before its time", async () => {
    const clients = connect();
    const { run, shown } = await askForAnHour(clients);
    const other = await acceptCall(clients, run);
    const expireTime = timestampFromMs(clock.nowMs() + HOUR_MS / 2);
    const sooner = await openAsk(clients, run, other.toolCallId, { expireTime });
    const watcher = watch(clients, run.sessionId);
    await watcher.openOnes();
    clock.aheadMs = HOUR_MS / 2;
    expect((await watcher.nextAsk()).ask.askId).toBe(sooner.askId);
    const open = await listedAsks(clients, { sessionId: run.sessionId });
    expect(open).toEqual([shown]);
    const { receipt } = await clients.approvals.answerAsk(answerTo(shown));
    expect(receipt?.path).toBe(ReceiptPath.HUMAN);
    await startCall(clients, run, shown.ask.toolCallId);
  });

  test("an expired call takes the text that the model is told, and never starts", async () => {
    const clients = connect();
    const { run, shown } = await askForAnHour(clients);
    clock.aheadMs = HOUR_MS;
    const { toolCallId } = shown.ask;
    const startIt = await refused(startCall(clients, run, toolCallId));
    expect(startIt).toMatchObject({
      reason: "TOOL_CALL_ENDED",
      metadata: { tool_call_id: toolCallId, state: "EXPIRED" },
    });
    const told = await complete(clients, run, toolCallId, "nobody was there");
    expect(told).toMatchObject({ state: ToolCallState.EXPIRED, ran: Ran.NO });
  });

  test("a command that comes first finds the time over, though no timer has looked", async () => {
    await service.stop();
    await start(HOUR_MS);
    const clients = connect();
    const { run, shown } = await askForAnHour(clients);
    clock.aheadMs = HOUR_MS;
    const { open } = await sequenceOf(clients, run);
    expect(await refused(clients.approvals.answerAsk(answerTo(shown)))).toMatchObject({
      reason: "ASK_EXPIRED",
    });
    // The answer left nothing; the expiry, which is older than it, is there.
    expect((await sequenceOf(clients, run)).open).toBe(open + 3n);
    await expectExpired(clients, run, shown.ask);
    await expectTooLate(clients, run, shown);
  });

  test("an ask whose time passed while the service was down is expired once it is up", async () => {
    const { run, shown } = await askForAnHour(connect());
    const before = watch(connect(), run.sessionId);
    await before.openOnes();
    before.stop();
    await service.stop();
    clock.aheadMs = HOUR_MS;
    await start();
    const clients = connect();
    const after = watch(clients, run.sessionId, before.cursor);
    const seen = await after.nextAsk();
    expect(seen.ask).toMatchObject({ askId: shown.ask.askId, state: AskState.EXPIRED });
    await expectExpired(clients, run, shown.ask);
    expect(await listedAsks(clients, {})).toEqual([]);
    await expectTooLate(clients, run, shown);
    // Once: what comes next is the next thing that happens.
    const { askId } = await openAsk(clients, run, (await acceptCall(clients, run)).toolCallId);
    expect((await after.nextAsk()).ask.askId).toBe(askId);
  });

  test("nor does anybody have to look after a start", async () => {
    const { run } = await askForAnHour(connect());
    await service.stop();
    clock.aheadMs = HOUR_MS;
    let committed = 0;
    service = await startWatchedService({
      store: folder.store,
      nowMs: clock.nowMs,
      wrapStore: (store) => {
        const commit = store.commit.bind(store);
        store.commit = async (writes) => {
          const result = await commit(writes);
          committed += writes.length;
          return result;
        };
        return store;
      },
    });
    await until(() => committed > 0);
    expect(service.arrived).toEqual([]);
    const { kinds } = bySystem(await allEvents(connect(), run.sessionId));
    expect(kinds).toContain("ASK_EXPIRED");
  });
});

async function sequenceOf(clients: Clients, run: OpenRun): Promise<{ readonly open: bigint }> {
  const { checkpoint } = await readSession(clients, run.sessionId);
  return { open: given(checkpoint, "checkpoint").sequence };
}

test("what looks at the service's own acts sees a person's", async () => {
  const clients = service.clients();
  const { run, shown } = await askForAnHour(clients);
  await clients.approvals.answerAsk(answerTo(shown));
  await recordMessage(clients, run);
  await expect(expectExpired(clients, run, shown.ask)).rejects.toThrow(/to deeply equal/);
});
