import { fromBinary, type DescMethod } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { CallService } from "../../gen/toolmark/engine/v1/call_service_pb.js";
import { EvidenceService } from "../../gen/toolmark/engine/v1/evidence_service_pb.js";
import { ReplayService } from "../../gen/toolmark/engine/v1/replay_service_pb.js";
import { RunService } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import { ApprovalService } from "../../gen/toolmark/v1/approval_service_pb.js";
import { AuthorizationState } from "../../gen/toolmark/v1/authorization_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind, SessionState } from "../../gen/toolmark/v1/session_pb.js";
import {
  CreateSessionResponseSchema,
  SessionService,
} from "../../gen/toolmark/v1/session_service_pb.js";
import { ToolCallState, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  listedAsks,
  publishReview,
  reviewOf,
  settleAuthorization,
  withdraw,
} from "../support/asking.js";
import {
  allCalls,
  amendCall,
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
import { RETRIED, type Prepared, type Way } from "../support/retried-requests.js";
import { endSession } from "../support/retried-structure.js";
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
  await expectOthersToBeRefused(prepared, requestId);
});

test("every method with a request id is among them", async () => {
  const { methods } = await service.clients().info.getServerInfo({});
  const offered = new Set(methods);
  const retried = RETRIED.map(({ name }) => name.split(" ")[0]);
  const mutating = [SessionService, RunService, CallService, EvidenceService, ApprovalService]
    .flatMap((each): readonly DescMethod[] => each.methods)
    .concat(ReplayService.methods)
    .filter(({ input }) => input.fields.some(({ name }) => name === "request_id"))
    .filter(({ parent, name }) => offered.has(`${parent.typeName}.${name}`));
  const names = mutating.map(({ name }) => name);
  expect(new Set(retried)).toEqual(new Set(names));
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
  await settleWhatWaits(clients, run);
  for (const call of await allCalls(clients, sessionId)) await changeCall(clients, run, call);
  await recordMessage(clients, run);
  await clients.sessions.endSession({ sessionId, requestId: freshRequestId() });
}

async function settleWhatWaits(clients: Clients, run: OpenRun): Promise<void> {
  const { sessionId } = run;
  for (const { ask } of await listedAsks(clients, { sessionId })) {
    await withdraw(clients, run, ask.askId);
  }
  const { authorizations } = await clients.history.listAuthorizations({ sessionId });
  for (const { authorizationId, state } of authorizations) {
    if (state !== AuthorizationState.PENDING) continue;
    await settleAuthorization(clients, run, authorizationId, AuthorizationState.GRANTED);
  }
}

async function changeCall(clients: Clients, run: OpenRun, call: ToolCall): Promise<void> {
  const { toolCallId } = call;
  await publishReview(clients, run, reviewOf(toolCallId, { checker: "last" }));
  if (call.state === ToolCallState.ACCEPTED) {
    await amendCall(clients, run, toolCallId, `amended ${toolCallId}`);
    await publishHook(clients, run, toolCallId);
  } else if (call.state === ToolCallState.STARTED) await withhold(clients, run, toolCallId);
  else if (call.result === undefined) await complete(clients, run, toolCallId);
}

/** Ends a started call in the one way that is left even if its result is held. */
async function withhold(clients: Clients, run: OpenRun, toolCallId: string): Promise<void> {
  const value = { content: { data: bytes("withheld") }, end: ToolCallState.WITHHELD };
  const result = { case: "canonical" as const, value };
  await clients.calls.recordResult({ ...of(run), command: { toolCallId, result } });
}

/** Another message under the id, by the same method or by another. */
async function expectOthersToBeRefused(
  { sessionId, others }: Prepared,
  requestId: string,
): Promise<void> {
  const clients = service.clients();
  const always: (() => Promise<unknown>)[] =
    sessionId === undefined
      ? [() => clients.sessions.createSession({ requestId, kind: SessionKind.DEBUG })]
      : [
          () => recordMessage(clients, { sessionId, runId: "run_1" }, requestId),
          () => clients.runs.beginRun({ sessionId, requestId, startGate: StartGate.REQUIRED }),
        ];
  const anyEnd = sessionId === undefined ? [] : [endSession(sessionId, true)];
  const further = (others ?? anyEnd).map((way) => () => way(clients, requestId));
  for (const other of [...always, ...further]) {
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
