import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { SpendState, type Receipt } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { ToolCallState, ToolResultKind } from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  allReceipts,
  answer,
  answerTo,
  AskWatcher,
  listedAsks,
  openAsk,
  showAsk,
  startCall,
} from "../support/asking.js";
import {
  acceptCall,
  beginRun,
  bytes,
  endRun,
  given,
  of,
  openRun,
  readCall,
  type OpenRun,
} from "../support/conversation.js";
import { refused } from "../support/refused.js";
import type { Clients } from "../support/service.js";
import { spawnServer, type SpawnedServer } from "../support/spawned-server.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { TWO_WIRES, type OneOfTwoWires } from "./cases-asks-fixture.js";

const DAY_MS = 86_400_000;

interface Started {
  readonly run: OpenRun;
  readonly toolCallId: string;
}

/** What a server left behind when it was killed. */
interface Scene {
  readonly run: OpenRun;
  readonly shown: Awaited<ReturnType<typeof showAsk>>;
  /** Where watches of the session and of the inbox stood. */
  readonly sessionCursor: string;
  readonly inboxCursor: string;
  /** Calls that had started, in a run that requires starts and in one that does not. */
  readonly unknown: Started;
  readonly cutOff: Started;
}

let folder: StoreFolder;
let server: SpawnedServer;
const scenes = new Map<OneOfTwoWires, Scene>();
/** What was answered after the kill. */
const answers: { readonly request: ReturnType<typeof answerTo>; readonly receipt: Receipt }[] = [];
const watchers: AskWatcher[] = [];

beforeAll(async () => {
  folder = await makeStoreFolder();
  server = await spawnServer(folder.path);
  for (const wire of TWO_WIRES) scenes.set(wire, await sceneOf(server.clients(wire)));
  await killAndStart();
});

afterAll(async () => {
  for (const watcher of watchers) watcher.stop();
  await server.kill();
  await folder.remove();
});

async function killAndStart(): Promise<void> {
  await server.kill();
  server = await spawnServer(folder.path);
}

function watch(clients: Clients, sessionId: string, cursor = ""): AskWatcher {
  const watcher = new AskWatcher(clients, { sessionId, cursor });
  watchers.push(watcher);
  return watcher;
}

async function askForADay(clients: Clients, run: OpenRun) {
  const { toolCallId } = await acceptCall(clients, run);
  const expireTime = timestampFromMs(Date.now() + DAY_MS);
  const { askId } = await openAsk(clients, run, toolCallId, { expireTime });
  return showAsk(clients, run.sessionId, askId);
}

async function started(clients: Clients, gate: StartGate): Promise<Started> {
  const run = await openRun(clients, gate);
  const { toolCallId } = await acceptCall(clients, run);
  await answer(clients, await openAsk(clients, run, toolCallId));
  await startCall(clients, run, toolCallId);
  return { run, toolCallId };
}

async function sceneOf(clients: Clients): Promise<Scene> {
  const run = await openRun(clients);
  await answer(clients, (await askForADay(clients, run)).ask);
  const shown = await askForADay(clients, run);
  const ofSession = watch(clients, run.sessionId);
  const ofInbox = watch(clients, "");
  expect(await ofSession.openOnes()).toEqual([shown]);
  expect(await ofInbox.openOnes()).toContainEqual(shown);
  const { REQUIRED, OFF } = StartGate;
  const unknown = await started(clients, REQUIRED);
  const cutOff = await started(clients, OFF);
  // The started calls were asked about too: let the watch of the inbox come past that.
  while ((await ofInbox.nextAsk()).ask.origin?.sessionId !== cutOff.run.sessionId);
  const [sessionCursor, inboxCursor] = [ofSession.cursor, ofInbox.cursor];
  return { run, shown, sessionCursor, inboxCursor, unknown, cutOff };
}

/** What a watch tells of a session, up to an ask. */
async function toldUntil(watcher: AskWatcher, last: Ask): Promise<Ask[]> {
  const told: Ask[] = [];
  while (told.at(-1)?.askId !== last.askId) {
    const { ask } = await watcher.nextAsk();
    if (ask.origin?.sessionId === last.origin?.sessionId) told.push(ask);
  }
  return told;
}

describe.each(TWO_WIRES)("over %s", (wire) => {
  const connect = () => server.clients(wire);
  const sceneBefore = () => given(scenes.get(wire), "scene");

  test("B34 an open ask survives the kill of the service as it was, and its answer is told once", async () => {
    const { run, shown, sessionCursor, inboxCursor } = sceneBefore();
    const { sessionId } = run;
    const clients = connect();
    // Equal as a whole: id, origin, call, arguments, time of expiry and token.
    expect(await listedAsks(clients, {})).toContainEqual(shown);
    expect(await listedAsks(clients, { sessionId })).toEqual([shown]);
    expect(await showAsk(clients, sessionId, shown.ask.askId)).toEqual(shown);
    expect(shown.answerToken).not.toBe("");
    const goesOn = watch(clients, sessionId, sessionCursor);
    const request = answerTo(shown);
    const receipt = given((await clients.approvals.answerAsk(request)).receipt, "receipt");
    expect(receipt).toMatchObject({ askId: shown.ask.askId, spendState: SpendState.UNSPENT });
    answers.push({ request, receipt });
    const comesLater = watch(clients, "", inboxCursor);
    const { ask: marker } = await askForADay(clients, run);
    for (const watcher of [goesOn, comesLater]) {
      const told = await toldUntil(watcher, marker);
      expect(told.map(({ askId, state }) => [askId, state])).toEqual([
        [shown.ask.askId, AskState.ANSWERED],
        [marker.askId, AskState.OPEN],
      ]);
      expect(told[0]?.receiptId).toBe(receipt.receiptId);
    }
  });

  async function expectNotAgain(run: OpenRun, toolCallId: string, reason: string): Promise<void> {
    for (const act of [startCall, openAsk]) {
      const refusal = await refused(act(connect(), run, toolCallId));
      expect(refusal).toMatchObject({ code: Code.FailedPrecondition, reason });
    }
    const receipts = await allReceipts(connect(), run.sessionId);
    expect(receipts[0]).toMatchObject({ toolCallId, spendState: SpendState.SPENT });
  }

  test("B36 a call that had started when the service was killed is not run again", async () => {
    const { unknown, cutOff } = sceneBefore();
    for (const { run, toolCallId } of [unknown, cutOff]) {
      await expectNotAgain(run, toolCallId, "TOOL_CALL_STARTED");
    }
    await expectReconciledOnly(unknown);
    await expectRetryIsAsked(cutOff);
  });

  /** Nobody said what became of the call: only a reconciliation moves it on. */
  async function expectReconciledOnly({ run, toolCallId }: Started): Promise<void> {
    const { sessionId } = run;
    await endRun(connect(), run, { outcome: RunOutcome.FAILED });
    const ended = await readCall(connect(), sessionId, toolCallId);
    expect(ended.state).toBe(ToolCallState.OUTCOME_UNKNOWN);
    const next = await beginRun(connect(), sessionId, StartGate.REQUIRED);
    await expectNotAgain(next, toolCallId, "TOOL_CALL_ENDED");

    const reconcile = (end: ToolCallState) =>
      connect().calls.reconcileToolCall({
        ...of(next),
        command: { toolCallId, end, content: { data: bytes("found it") } },
      });
    const notRun = await refused(reconcile(ToolCallState.CANCELLED));
    expect(notRun.reason).toBe("TOOL_CALL_STARTED");
    const { toolCall } = await reconcile(ToolCallState.COMPLETED);
    expect(toolCall).toMatchObject({ toolCallId, state: ToolCallState.COMPLETED });
    expect(toolCall?.result?.kind).toBe(ToolResultKind.SYNTHETIC);
    expect((await refused(reconcile(ToolCallState.COMPLETED))).reason).toBe("OUTCOME_KNOWN");
    await expectNotAgain(next, toolCallId, "TOOL_CALL_ENDED");
  }

  /** A retry is another call, which its own ask must allow. */
  async function expectRetryIsAsked({ run, toolCallId }: Started): Promise<void> {
    const { sessionId } = run;
    const { INTERRUPTED: outcome } = RunOutcome;
    await endRun(connect(), run, { outcome, interruptedToolCallIds: [toolCallId] });
    const ended = await readCall(connect(), sessionId, toolCallId);
    expect(ended.state).toBe(ToolCallState.INTERRUPTED);
    const next = await beginRun(connect(), sessionId);
    await expectNotAgain(next, toolCallId, "TOOL_CALL_ENDED");
    const again = await acceptCall(connect(), next);
    const ask = await openAsk(connect(), next, again.toolCallId);
    const refusal = await refused(startCall(connect(), next, again.toolCallId));
    expect(refusal).toMatchObject({
      reason: "START_NOT_ALLOWED",
      metadata: { ask_id: ask.askId },
    });
    const { receiptId } = await answer(connect(), ask);
    await startCall(connect(), next, again.toolCallId);
    const spent = await connect().approvals.getReceipt({ sessionId, receiptId });
    expect(given(spent.receipt, "receipt").spendState).toBe(SpendState.SPENT);
  }
});

test("B34 the receipt of an answer survives the next kill, and so does its request id", async () => {
  expect(answers.length).toBe(TWO_WIRES.length);
  await killAndStart();
  const clients = server.clients();
  for (const { request, receipt } of answers) {
    expect((await clients.approvals.answerAsk(request)).receipt).toEqual(receipt);
    const { sessionId = "" } = request;
    const ofAsk = (await allReceipts(clients, sessionId)).filter(
      ({ askId }) => askId === receipt.askId,
    );
    expect(ofAsk).toEqual([receipt]);
  }
  for (const [wire, { run, shown }] of scenes) {
    await startCall(server.clients(wire), run, shown.ask.toolCallId);
  }
});
