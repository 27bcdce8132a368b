import { fromBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind, SessionState } from "../../gen/toolmark/v1/session_pb.js";
import { CreateSessionResponseSchema } from "../../gen/toolmark/v1/session_service_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  allCalls,
  beginRun,
  bytes,
  complete,
  freshRequestId,
  given,
  of,
  publishHook,
  readSession,
  recordMessage,
  type OpenRun,
} from "../support/conversation.js";
import { writtenTo } from "../support/nothing-written.js";
import { refused } from "../support/refused.js";
import { RETRIED, type Way } from "../support/retried-requests.js";
import { startTestService, WIRES, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

let folder: StoreFolder;
let service: TestService;

beforeAll(async () => {
  folder = await makeStoreFolder();
  service = await startTestService({ store: folder.store });
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

test.each(RETRIED)("a retry of $name gives the first reply and writes nothing", async (retried) => {
  const prepared = await retried.prepare(service.clients());
  const { ways } = prepared;
  const requestId = freshRequestId();
  const first = await given(ways[0], "way")(service.clients("connect-json"), requestId);
  const sessionId = prepared.sessionId ?? createdBy(first);

  await expectRetriesToGive(first, ways, sessionId, requestId);
  await changeEverything(service.clients(), sessionId);
  await expectRetriesToGive(first, ways, sessionId, requestId);
  await restart();
  await expectRetriesToGive(first, ways, sessionId, requestId);
  await expectOthersToBeRefused(prepared.sessionId, requestId);
});

async function restart(): Promise<void> {
  await service.stop();
  service = await startTestService({ store: folder.store });
}

/** Sends the request again in every way over every wire. */
async function expectRetriesToGive(
  first: Uint8Array,
  ways: readonly Way[],
  sessionId: string,
  requestId: string,
): Promise<void> {
  const clients = service.clients();
  const before = await writtenTo(service, clients, sessionId);
  for (const wire of WIRES) {
    for (const way of ways) {
      expect(hexOf(await way(service.clients(wire), requestId))).toBe(hexOf(first));
    }
  }
  expect(await writtenTo(service, clients, sessionId)).toEqual(before);
}

/** Changes every record of a session that can still change, and ends it. */
async function changeEverything(clients: Clients, sessionId: string): Promise<void> {
  const { state, activeRunId } = await readSession(clients, sessionId);
  if (state === SessionState.ENDED) return;
  const run: OpenRun =
    activeRunId === undefined
      ? await beginRun(clients, sessionId, StartGate.OFF)
      : { sessionId, runId: activeRunId };
  for (const call of await allCalls(clients, sessionId)) {
    const { toolCallId } = call;
    if (call.state === ToolCallState.ACCEPTED) {
      const command = { toolCallId, effective: { data: bytes(`amended ${toolCallId}`) } };
      await clients.calls.amendToolCall({ ...of(run), command });
      await publishHook(clients, run, toolCallId);
    }
    if (call.result === undefined && call.state !== ToolCallState.ACCEPTED) {
      await complete(clients, run, toolCallId);
    }
  }
  await recordMessage(clients, run);
  await clients.sessions.endSession({ sessionId, requestId: freshRequestId() });
}

/** Another message under the id, by the same method or by another. */
async function expectOthersToBeRefused(
  sessionId: string | undefined,
  requestId: string,
): Promise<void> {
  const clients = service.clients();
  const others: (() => Promise<unknown>)[] =
    sessionId === undefined
      ? [() => clients.sessions.createSession({ requestId, kind: SessionKind.DEBUG })]
      : [
          () => recordMessage(clients, { sessionId, runId: "run_1" }, requestId),
          () => clients.sessions.endSession({ sessionId, requestId, cancelDescendants: true }),
          () => clients.runs.beginRun({ sessionId, requestId, startGate: StartGate.REQUIRED }),
        ];
  for (const other of others) {
    expect(await refused(other())).toMatchObject({
      code: Code.AlreadyExists,
      reason: "REQUEST_ID_REUSED",
      metadata: {},
    });
  }
}

function createdBy(reply: Uint8Array): string {
  return given(fromBinary(CreateSessionResponseSchema, reply).session, "session").sessionId;
}

function hexOf(data: Uint8Array): string {
  return Buffer.from(data).toString("hex");
}
