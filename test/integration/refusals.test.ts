import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  acceptCall,
  beginRun,
  bytes,
  complete,
  createSession,
  freshRequestId,
  newCall,
  of,
  openRun,
  publishHook,
  readCall,
} from "../support/conversation.js";
import { expectNothingWritten, type Send } from "../support/nothing-written.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { FLAGS, start, WRONG_CALLS, type Scene } from "../support/wrong-calls.js";

async function makeScene(clients: Clients): Promise<Scene> {
  const sessionId = await createSession(clients);
  const ended = await beginRun(clients, sessionId);
  await clients.runs.endRun({ ...of(ended), command: { outcome: RunOutcome.COMPLETED } });
  const run = await beginRun(clients, sessionId);
  const [accepted, started, completed] = [
    await acceptCall(clients, run),
    await acceptCall(clients, run),
    await acceptCall(clients, run),
  ];
  await start(clients, run, started);
  await complete(clients, run, completed.toolCallId);
  const { hookId } = await publishHook(clients, run, started.toolCallId);

  const otherRun = await openRun(clients);
  const call = await acceptCall(clients, otherRun, newCall("", "bash", "of another session"));
  const otherHook = await publishHook(clients, otherRun, call.toolCallId);
  const other = { run: otherRun, call, hookId: otherHook.hookId };
  const otherBodyRef = call.proposed?.bodyRef ?? "";
  return {
    ...{ clients, run, endedRunId: ended.runId, accepted, started, completed, hookId },
    ...{ other, otherBodyRef },
  };
}

let folder: StoreFolder;
let service: TestService;

beforeAll(async () => {
  folder = await makeStoreFolder();
  service = await startTestService({ store: folder.store, flags: FLAGS });
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

describe.each(["grpc", "connect-json", "connect-binary"] as const)("over %s", (wire) => {
  let scene: Scene;

  beforeAll(async () => {
    scene = await makeScene(service.clients(wire));
  });

  test.each(WRONG_CALLS)("$what is refused as $reason with nothing written", async (wrong) => {
    const { send, reuse, code, reason } = wrong;
    const again: Send | undefined = reuse && ((requestId) => reuse(scene, requestId));
    const refusal = await expectNothingWritten(
      service,
      scene.run.sessionId,
      (requestId) => send(scene, requestId),
      again,
    );
    const metadata =
      typeof wrong.metadata === "function" ? wrong.metadata(scene) : { ...wrong.metadata };
    expect(refusal).toEqual({ code, reason, metadata, message: refusal.message });
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
