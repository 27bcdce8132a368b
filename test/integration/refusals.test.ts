import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AskKind, AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  answer,
  openAsk,
  park,
  publishReview,
  reviewOf,
  settleAuthorization,
  showAsk,
  withdraw,
} from "../support/asking.js";
import {
  acceptCall,
  acceptTurn,
  amendCall,
  beginRun,
  bytes,
  complete,
  createSession,
  freshRequestId,
  given,
  newCall,
  of,
  openRun,
  publishHook,
  readCall,
  type OpenRun,
} from "../support/conversation.js";
import {
  anythingElse,
  expectNothingWritten,
  writtenTo,
  type Send,
} from "../support/nothing-written.js";
import { refused } from "../support/refused.js";
import { testScale } from "../support/scale.js";
import { startTestService, type Clients, type TestService, type Wire } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { WRONG_ASKS } from "../support/wrong-asks.js";
import { FLAGS, start, WRONG_CALLS, type Scene, type SceneAsks } from "../support/wrong-calls.js";
import { ARCHIVED_THROUGH, WRONG_STRUCTURE } from "../support/wrong-structure.js";

async function makeScene(clients: Clients): Promise<Scene> {
  const sessionId = await createSession(clients);
  const ended = await beginRun(clients, sessionId);
  await clients.runs.endRun({ ...of(ended), command: { outcome: RunOutcome.COMPLETED } });
  const archive = { sessionId, throughSequence: ARCHIVED_THROUGH, summary: "before" };
  await clients.sessions.compactSession({ ...archive, requestId: freshRequestId() });
  const run = await beginRun(clients, sessionId);
  const [accepted, started, completed] = [
    await acceptCall(clients, run),
    await acceptCall(clients, run),
    await acceptCall(clients, run),
  ];
  await start(clients, run, started);
  await complete(clients, run, completed.toolCallId);
  const { hookId } = await publishHook(clients, run, started.toolCallId);

  const { hookId: reviewId } = await publishReview(clients, run, reviewOf(accepted.toolCallId));
  const { pending, granted } = await parkCalls(clients, run);
  const asks = await askInEveryState(clients, run);
  const { other, otherBodyRef } = await makeOtherSession(clients);
  return {
    ...{ clients, run, endedRunId: ended.runId, accepted, started, completed, hookId },
    ...{ reviewId, asks, pending, granted, other, otherBodyRef },
  };
}

async function makeOtherSession(clients: Clients): Promise<Pick<Scene, "other" | "otherBodyRef">> {
  const run = await openRun(clients);
  const call = await acceptCall(clients, run, newCall("", "bash", "of another session"));
  const { hookId } = await publishHook(clients, run, call.toolCallId);
  const ask = await openAsk(clients, run, (await acceptCall(clients, run)).toolCallId);
  const pending = await park(clients, run, (await acceptCall(clients, run)).toolCallId);
  return { other: { run, call, hookId, ask, pending }, otherBodyRef: call.proposed?.bodyRef ?? "" };
}

async function parkCalls(
  clients: Clients,
  run: OpenRun,
): Promise<Pick<Scene, "pending" | "granted">> {
  const granted = await park(clients, run, (await acceptCall(clients, run)).toolCallId);
  const outcome = AuthorizationState.GRANTED;
  await settleAuthorization(clients, run, granted.authorizationId, outcome);
  const [first, second] = await acceptTurn(clients, run, [newCall("a"), newCall("b")]);
  const deferredToolCallIds = [given(second, "call").toolCallId];
  const { toolCallId } = given(first, "call");
  return { granted, pending: await park(clients, run, toolCallId, { deferredToolCallIds }) };
}

/** Asks as they are after whatever settled them, as many of them open as a session may have. */
async function askInEveryState(clients: Clients, run: OpenRun): Promise<SceneAsks> {
  const { sessionId } = run;
  const read = async ({ askId }: Ask) => (await showAsk(clients, sessionId, askId)).ask;
  const ask = async (init: Parameters<typeof openAsk>[3] = {}) =>
    openAsk(clients, run, (await acceptCall(clients, run)).toolCallId, init);
  const heldSha256 = new Uint8Array(32).fill(7);
  const release = { kind: AskKind.RESULT_RELEASE, heldSha256 };

  const released = await ask(release);
  await answer(clients, released);
  const barred = await ask(release);
  await answer(clients, barred, Verdict.DENY);
  const answered = await ask();
  await answer(clients, answered);
  const withdrawn = await ask();
  await withdraw(clients, run, withdrawn.askId);
  const superseded = await ask();
  await amendCall(clients, run, superseded.toolCallId, "{}");
  const expired = await expireAsk(clients, ask);
  const settled = { released, barred, answered, withdrawn, superseded, expired };
  const [open, held] = [
    await ask({ allowedVerdicts: [Verdict.DENY, Verdict.ALLOW_ONCE] }),
    await ask(release),
    await ask(),
  ];
  const entries = Object.entries({ ...settled, open, held });
  const asks = entries.map(async ([name, each]) => [name, await read(each)] as const);
  return Object.fromEntries(await Promise.all(asks)) as unknown as SceneAsks;
}

/** Opens an ask and puts the service's clock forward to its end. */
async function expireAsk(
  { approvals }: Clients,
  ask: (init: Parameters<typeof openAsk>[3]) => Promise<Ask>,
): Promise<Ask> {
  const lifeMs = 3_600_000;
  const opened = await ask({ expireTime: timestampFromMs(Date.now() + aheadMs + lifeMs) });
  aheadMs += lifeMs;
  const { sessionId } = given(opened.origin, "origin");
  for (;;) {
    const { ask: shown } = await approvals.getAsk({ sessionId, askId: opened.askId });
    if (shown?.ask?.state === AskState.EXPIRED) return shown.ask;
  }
}

/** By how much the service's clock is ahead. */
let aheadMs = 0;
let folder: StoreFolder;
let service: TestService;

beforeAll(async () => {
  folder = await makeStoreFolder();
  const nowMs = () => Date.now() + aheadMs;
  service = await startTestService({ store: folder.store, flags: FLAGS, nowMs });
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

/** The two encodings of Connect differ in nothing but how fields are spelt. */
const WIRES = ["grpc", "connect-json", ...(testScale() === "short" ? [] : ["connect-binary"])];

describe.each(WIRES as Wire[])("over %s", (wire) => {
  let scene: Scene;
  /** What was written before the first refusal, and so must be after each. */
  let before: Awaited<ReturnType<typeof written>>;
  /** The id of each refused request, and another request that it must still be free for. */
  const free: { readonly what: string; readonly requestId: string; readonly reuse: Send }[] = [];

  const written = () => writtenTo(service, service.clients(), scene.run.sessionId);

  beforeAll(async () => {
    scene = await makeScene(service.clients(wire));
    before = await written();
  });

  // The two encodings of Connect differ in nothing that asks add.
  const wrongs =
    wire === "connect-binary" ? WRONG_CALLS : [...WRONG_CALLS, ...WRONG_ASKS, ...WRONG_STRUCTURE];

  test.each(wrongs)("$what is refused as $reason with nothing written", async (wrong) => {
    const { what, send, reuse, code, reason } = wrong;
    const requestId = freshRequestId();
    const refusal = await refused(send(scene, requestId));
    expect(await written()).toEqual(before);
    const metadata =
      typeof wrong.metadata === "function" ? wrong.metadata(scene) : { ...wrong.metadata };
    expect(refusal).toEqual({ code, reason, metadata, message: refusal.message });
    const other = anythingElse(service.clients(), scene.run.sessionId);
    free.push({ what, requestId, reuse: reuse ? (id) => reuse(scene, id) : other });
  });

  test("the request id of each of them is free for another request", async () => {
    expect(free.map(({ what }) => what)).toEqual(wrongs.map(({ what }) => what));
    for (const { requestId, reuse } of free) await reuse(requestId);
  });

  test("a result before its start is refused as TOOL_CALL_NOT_STARTED if starts are required", async () => {
    const run = await openRun(scene.clients, StartGate.REQUIRED);
    const { toolCallId } = await acceptCall(scene.clients, run);
    const refusal = await expectNothingWritten(service, run.sessionId, (requestId) =>
      scene.clients.calls.recordResult({
        ...of(run, requestId),
        command: {
          toolCallId,
          result: { case: "canonical", value: { content: { data: bytes("x") } } },
        },
      }),
    );
    expect(refusal).toMatchObject({
      code: Code.FailedPrecondition,
      reason: "TOOL_CALL_NOT_STARTED",
      metadata: { tool_call_id: toolCallId },
    });
  });

  test("every command of an ended session is refused as SESSION_ENDED with nothing written", async () => {
    const { clients } = scene;
    const run = await openRun(clients);
    const call = await acceptCall(clients, run);
    const { sessionId } = run;
    await clients.sessions.endSession({ requestId: freshRequestId(), sessionId });
    const ended = await readCall(clients, sessionId, call.toolCallId);
    expect(ended.state).toBe(ToolCallState.OUTCOME_UNKNOWN);
    const commands: Send[] = [
      (requestId) => publishHook(clients, run, undefined, requestId),
      (requestId) => start(clients, run, call, requestId),
      (requestId) => clients.runs.beginRun({ sessionId, requestId, startGate: StartGate.OFF }),
      (requestId) => clients.sessions.endSession({ sessionId, requestId }),
    ];
    for (const send of commands) {
      // A session that has ended takes no other request either; its table of requests is compared.
      const refusal = await expectNothingWritten(service, sessionId, send, async (requestId) => {
        expect((await refused(send(requestId))).reason).toBe("SESSION_ENDED");
      });
      expect(refusal).toMatchObject({
        code: Code.FailedPrecondition,
        reason: "SESSION_ENDED",
        metadata: {},
      });
    }
  });
});
