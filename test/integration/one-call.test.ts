import { toJson, type JsonValue } from "@bufbuild/protobuf";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { TakeOver } from "../../gen/toolmark/engine/v1/run_service_pb.js";
import {
  GetAskResponseSchema,
  GetReceiptResponseSchema,
  ListAsksResponseSchema,
  ListReceiptsResponseSchema,
} from "../../gen/toolmark/v1/approval_service_pb.js";
import { AskState, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState, type Authorization } from "../../gen/toolmark/v1/authorization_pb.js";
import {
  GetAuthorizationResponseSchema,
  GetHookResponseSchema,
  GetToolCallResponseSchema,
  ListAuthorizationsResponseSchema,
  ListEventsResponseSchema,
  ListHooksResponseSchema,
  ListToolCallsResponseSchema,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { ReviewDisposition, ReviewJob } from "../../gen/toolmark/v1/review_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  answer,
  openAsk,
  park,
  publishReview,
  readAuthorization,
  reviewOf,
  settleAuthorization,
  showAsk,
  startCall,
} from "../support/asking.js";
import {
  acceptCall,
  amendCall,
  beginRun,
  bytes,
  complete,
  endRun,
  freshRequestId,
  given,
  newCall,
  of,
  openRun,
  readCall,
  type OpenRun,
} from "../support/conversation.js";
import { refused } from "../support/refused.js";
import { WIRES, type Clients } from "../support/service.js";
import { spawnServer, type SpawnedServer } from "../support/spawned-server.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

let folder: StoreFolder;
let server: SpawnedServer;

beforeEach(async () => {
  folder = await makeStoreFolder();
  server = await spawnServer(folder.path);
});

afterEach(async () => {
  await server.stop();
  await folder.remove();
});

async function kill(): Promise<void> {
  await server.kill();
  server = await spawnServer(folder.path);
}

/** The ids of everything that one call met. */
interface Life {
  readonly run: OpenRun;
  readonly toolCallId: string;
  readonly askId: string;
  readonly receiptId: string;
  readonly authorizationId: string;
  readonly reviewIds: readonly string[];
}

const AMENDED = '{"command":"ls \u00fc"}';

/** A call from its acceptance to the grant of the consent that it waits for. */
async function liveToTheGrant(clients: Clients): Promise<Life> {
  const run = await openRun(clients, StartGate.REQUIRED);
  const { toolCallId } = await acceptCall(clients, run, newCall("call_0"));
  await amendCall(clients, run, toolCallId, AMENDED);
  const review = reviewOf(toolCallId, { disposition: ReviewDisposition.ASK_ACTION });
  const { hookId: reviewId } = await publishReview(clients, run, review);
  const ask = await openAsk(clients, run, toolCallId, { reviewId, prompt: "May it?" });
  const { receiptId } = await answer(clients, ask);
  const { authorizationId } = await park(clients, run, toolCallId);
  const granted = AuthorizationState.GRANTED;
  await settleAuthorization(clients, run, authorizationId, granted);
  return { run, toolCallId, askId: ask.askId, receiptId, authorizationId, reviewIds: [reviewId] };
}

/** The same call from its start to its end. */
async function liveToTheEnd(clients: Clients, { run, toolCallId }: Life): Promise<string> {
  await startCall(clients, run, toolCallId);
  const provisional = { case: "provisional" as const, value: { chunk: bytes("par") } };
  await clients.calls.recordResult({ ...of(run), command: { toolCallId, result: provisional } });
  const disposition = ReviewDisposition.RELEASE_RESULT;
  const inbound = reviewOf(toolCallId, { job: ReviewJob.INBOUND, disposition });
  const { hookId } = await publishReview(clients, run, { ...inbound, phase: "post_tool_use" });
  await complete(clients, run, toolCallId, "part and parcel");
  return hookId;
}

/** All that can be read of a call, as JSON with every field. */
async function readAll(
  { history, approvals }: Clients,
  { run: { sessionId }, toolCallId, askId, receiptId, authorizationId, reviewIds }: Life,
): Promise<Record<string, JsonValue>> {
  const state = AskState.ANSWERED;
  const hooks = await Promise.all(
    reviewIds.map((hookId) => history.getHook({ sessionId, hookId })),
  );
  return {
    call: toJson(GetToolCallResponseSchema, await history.getToolCall({ sessionId, toolCallId })),
    ask: toJson(GetAskResponseSchema, await approvals.getAsk({ sessionId, askId })),
    receipt: toJson(GetReceiptResponseSchema, await approvals.getReceipt({ sessionId, receiptId })),
    authorization: toJson(
      GetAuthorizationResponseSchema,
      await history.getAuthorization({ sessionId, authorizationId }),
    ),
    hooks: hooks.map((hook) => toJson(GetHookResponseSchema, hook)),
    lists: [
      toJson(ListToolCallsResponseSchema, await history.listToolCalls({ sessionId })),
      toJson(ListAsksResponseSchema, await approvals.listAsks({ sessionId, state })),
      toJson(ListReceiptsResponseSchema, await approvals.listReceipts({ sessionId })),
      toJson(ListAuthorizationsResponseSchema, await history.listAuthorizations({ sessionId })),
      toJson(ListHooksResponseSchema, await history.listHooks({ sessionId, toolCallId })),
    ],
    events: toJson(
      ListEventsResponseSchema,
      await history.listEvents({ sessionId, pageSize: 500 }),
    ),
  };
}

/** What happened to the call and to what belongs to it, in order. */
const KINDS = [
  ...["SESSION_CREATED", "RUN_BEGUN", "TURN_ACCEPTED", "TOOL_CALL_ACCEPTED", "TOOL_CALL_AMENDED"],
  ...["REVIEW_PUBLISHED", "ASK_OPENED", "TOOL_CALL_WAITING"],
  ...["RECEIPT_WRITTEN", "ASK_ANSWERED", "TOOL_CALL_READY"],
  ...["AUTHORIZATION_REQUESTED", "TOOL_CALL_WAITING"],
  ...["AUTHORIZATION_SETTLED", "TOOL_CALL_READY"],
  ...["RECEIPT_SPENT", "TOOL_CALL_STARTED", "PROVISIONAL", "REVIEW_PUBLISHED", "RESULT_RECORDED"],
];

test("one call keeps its id from its acceptance to its result, and reads alike everywhere", async () => {
  const granted = await liveToTheGrant(server.clients("connect-json"));
  const { toolCallId, run } = granted;
  const before = await readAll(server.clients(), granted);
  await kill();
  expect(await readAll(server.clients("connect-binary"), granted)).toEqual(before);

  const inboundId = await liveToTheEnd(server.clients("grpc-web"), granted);
  const life = { ...granted, reviewIds: [...granted.reviewIds, inboundId] };
  const read = await readAll(server.clients(), life);
  const base64 = (text: string): string => Buffer.from(text).toString("base64");
  const about = { toolCallId, origin: { sessionId: run.sessionId } };
  expect(read).toMatchObject({
    call: {
      toolCall: {
        ...{ ...about, runId: run.runId, state: "TOOL_CALL_STATE_COMPLETED", ran: "RAN_YES" },
        proposed: { data: base64('{"command":"ls"}') },
        effective: { data: base64(AMENDED) },
        result: {
          kind: "TOOL_RESULT_KIND_CANONICAL",
          content: { data: base64("part and parcel") },
        },
      },
    },
    ask: {
      ask: {
        ask: {
          ...{ ...about, state: "ASK_STATE_ANSWERED", receiptId: life.receiptId },
          ...{ reviewId: life.reviewIds[0], prompt: "May it?", toolName: "bash" },
          presented: { data: base64(AMENDED) },
        },
      },
    },
    receipt: {
      receipt: {
        ...{ ...about, askId: life.askId, reviewId: life.reviewIds[0], path: "RECEIPT_PATH_HUMAN" },
        ...{ verdict: "VERDICT_ALLOW_ONCE", spendState: "SPEND_STATE_SPENT", toolName: "bash" },
        actor: { subject: "loopback" },
      },
    },
    authorization: {
      authorization: { ...about, runId: run.runId, state: "AUTHORIZATION_STATE_GRANTED" },
    },
    hooks: [
      { hook: { ...about, review: { job: "REVIEW_JOB_ACTION" } } },
      { hook: { ...about, review: { job: "REVIEW_JOB_INBOUND" } } },
    ],
  });
  await expectOneCallInEvents(server.clients(), life);
  for (const wire of WIRES) expect(await readAll(server.clients(wire), life)).toEqual(read);
});

/** The log has nothing but the one call, and each record in it names that call. */
async function expectOneCallInEvents(
  { history }: Clients,
  { run: { sessionId }, toolCallId }: Life,
): Promise<void> {
  const { events } = await history.listEvents({ sessionId, pageSize: 500 });
  expect(events.map(({ kind }) => kind)).toEqual(KINDS);
  const named = events.flatMap(({ record }) => {
    const carried = record?.record.value;
    return carried !== undefined && "toolCallId" in carried ? [carried.toolCallId] : [];
  });
  expect(new Set(named)).toEqual(new Set([toolCallId]));
  expect(named.length).toBe(KINDS.length - 3);
}

/** A call that waits for an answer, one that waits for a consent, and one that has started. */
interface Waiting {
  readonly run: OpenRun;
  readonly ask: Ask;
  readonly authorization: Authorization;
  readonly startedId: string;
}

async function leaveWaiting(clients: Clients): Promise<Waiting> {
  const run = await openRun(clients, StartGate.REQUIRED);
  const [asked, parked, started] = [
    await acceptCall(clients, run, newCall("call_0")),
    await acceptCall(clients, run, newCall("call_1")),
    await acceptCall(clients, run, newCall("call_2")),
  ];
  await startCall(clients, run, started.toolCallId);
  const ask = await openAsk(clients, run, asked.toolCallId);
  const authorization = await park(clients, run, parked.toolCallId);
  return { run, ask, authorization, startedId: started.toolCallId };
}

const REPLACED: readonly (readonly [
  string,
  (clients: Clients, run: OpenRun) => Promise<OpenRun>,
])[] = [
  [
    "was parked",
    async (clients, run) => {
      expect(await endRun(clients, run, { outcome: RunOutcome.PARKED })).toEqual([]);
      await kill();
      return beginRun(server.clients(), run.sessionId, StartGate.REQUIRED);
    },
  ],
  [
    "was taken over",
    async ({ runs }, { sessionId }) => {
      const takeOver = TakeOver.RESUME;
      const startGate = StartGate.REQUIRED;
      const requestId = freshRequestId();
      const { run } = await runs.beginRun({ sessionId, requestId, startGate, takeOver });
      await kill();
      return { sessionId, runId: given(run, "run").runId };
    },
  ],
];

describe.each(REPLACED)("what waits in a run that %s", (_how, replace) => {
  test("goes on under the next run with its ids and its own run_id", async () => {
    const waiting = await leaveWaiting(server.clients());
    const { run: old, ask, authorization, startedId } = waiting;
    const { sessionId } = old;
    const ids = [ask.toolCallId, authorization.toolCallId, startedId];
    const callsBefore = await Promise.all(
      ids.map((id) => readCall(server.clients(), sessionId, id)),
    );
    const run = await replace(server.clients(), old);
    expect(run.runId).not.toBe(old.runId);

    const clients = server.clients();
    const calls = await Promise.all(ids.map((id) => readCall(clients, sessionId, id)));
    expect(calls).toEqual(callsBefore);
    expect((await showAsk(clients, sessionId, ask.askId)).ask).toEqual(
      (await showAsk(server.clients("grpc"), sessionId, ask.askId)).ask,
    );
    await expectOldRunToBeOver(clients, waiting);
    await goOn(clients, run, waiting);
    for (const id of ids) {
      expect(await readCall(clients, sessionId, id)).toMatchObject({
        ...{ toolCallId: id, runId: old.runId, state: ToolCallState.COMPLETED },
      });
    }
    const after = await showAsk(clients, sessionId, ask.askId);
    expect(after.ask).toMatchObject({ runId: old.runId, state: AskState.ANSWERED });
    const settled = await readAuthorization(clients, sessionId, authorization.authorizationId);
    expect(settled).toMatchObject({ runId: old.runId, state: AuthorizationState.GRANTED });
  });
});

async function expectOldRunToBeOver(clients: Clients, { run, authorization, startedId }: Waiting) {
  const { authorizationId } = authorization;
  const granted = AuthorizationState.GRANTED;
  const late = [
    settleAuthorization(clients, run, authorizationId, granted),
    complete(clients, run, startedId),
  ];
  for (const call of late) expect((await refused(call)).reason).toBe("RUN_NOT_ACTIVE");
}

/** Answers, settles, starts and completes whatever waited, under the run that goes on. */
async function goOn(clients: Clients, run: OpenRun, waiting: Waiting): Promise<void> {
  const { ask, authorization, startedId } = waiting;
  const { verdict } = await answer(clients, ask);
  expect(verdict).toBe(Verdict.ALLOW_ONCE);
  const { authorizationId } = authorization;
  await settleAuthorization(clients, run, authorizationId, AuthorizationState.GRANTED);
  for (const id of [ask.toolCallId, authorization.toolCallId]) {
    await startCall(clients, run, id);
    await complete(clients, run, id);
  }
  await complete(clients, run, startedId);
}

test("an ask of a parked run is answered while no run is active", async () => {
  const clients = server.clients();
  const { run, ask } = await leaveWaiting(clients);
  await endRun(clients, run, { outcome: RunOutcome.PARKED });
  const receipt = await answer(clients, ask, Verdict.DENY);
  expect(receipt.askId).toBe(ask.askId);
  const call = await readCall(clients, run.sessionId, ask.toolCallId);
  expect(call.state).toBe(ToolCallState.DENIED);
});
