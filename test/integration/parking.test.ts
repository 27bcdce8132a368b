import { toJson } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  AuthorizationSchema,
  AuthorizationState,
  type Authorization,
} from "../../gen/toolmark/v1/authorization_pb.js";
import { EventSchema } from "../../gen/toolmark/v1/event_pb.js";
import { SpendState } from "../../gen/toolmark/v1/receipt_pb.js";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import {
  Ran,
  ToolCallSchema,
  ToolCallState,
  ToolResultKind,
  type ToolCall,
} from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  answer,
  openAsk,
  park,
  publishReview,
  readAuthorization,
  reviewOf,
  settleAuthorization,
  startCall,
} from "../support/asking.js";
import {
  acceptCall,
  acceptTurn,
  allCalls,
  allEvents,
  complete,
  endRun,
  given,
  newCall,
  of,
  openRun,
  readCall,
  readSession,
  type OpenRun,
} from "../support/conversation.js";
import { expectNothingWritten } from "../support/nothing-written.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { spawnServer, type SpawnedServer } from "../support/spawned-server.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

/** A turn of three calls, the first of which waits for an authorization and the others behind it. */
interface Parked {
  readonly run: OpenRun;
  readonly ids: readonly [string, string, string];
  readonly authorization: Authorization;
}

/** Accepts a turn of three calls and parks the first with the others, after something happened to it. */
async function parkTurn(
  clients: Clients,
  run: OpenRun,
  expireMs?: number,
  happens: (toolCallId: string) => Promise<unknown> = () => Promise.resolve(),
): Promise<Parked> {
  const calls = ["call_0", "call_1", "call_2"].map((id) => newCall(id));
  const turn = await acceptTurn(clients, run, calls);
  const [first = "", second = "", third = ""] = turn.map(({ toolCallId }) => toolCallId);
  await happens(first);
  const authorization = await park(clients, run, first, {
    deferredToolCallIds: [second, third],
    ...(expireMs === undefined ? {} : { expireTime: timestampFromMs(expireMs) }),
  });
  return { run, ids: [first, second, third], authorization };
}

async function callsOf(clients: Clients, { run, ids }: Parked): Promise<ToolCall[]> {
  return Promise.all(ids.map((id) => readCall(clients, run.sessionId, id)));
}

describe("a parked turn whose server is killed", () => {
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

  /** What the next process must show of the session as the last one did. */
  async function shownOf(clients: Clients, { sessionId }: OpenRun) {
    const { authorizations } = await clients.history.listAuthorizations({ sessionId });
    const calls = await allCalls(clients, sessionId);
    const events = await allEvents(clients, sessionId);
    return {
      authorizations: authorizations.map((each) => toJson(AuthorizationSchema, each)),
      calls: calls.map((each) => toJson(ToolCallSchema, each)),
      events: events.map((each) => toJson(EventSchema, each)),
    };
  }

  test("waits on with the same ids and, once it is granted, goes on with the same calls", async () => {
    const before = server.clients();
    const run = await openRun(before, StartGate.REQUIRED);
    const { sessionId } = run;
    const earlier = await acceptCall(before, run, newCall("call_1"));
    await startCall(before, run, earlier.toolCallId);
    await complete(before, run, earlier.toolCallId);
    const parked = await parkTurn(before, run);
    const { ids, authorization } = parked;
    const review = await publishReview(before, run, reviewOf(ids[0]));
    expect(new Set([earlier.toolCallId, ...ids]).size).toBe(4);
    const shown = await shownOf(before, run);
    await kill();

    const clients = server.clients("connect-binary");
    expect(await shownOf(clients, run)).toEqual(shown);
    expect(shown.authorizations).toEqual([toJson(AuthorizationSchema, authorization)]);
    expect(authorization).toMatchObject({
      ...{ runId: run.runId, origin: { sessionId }, state: AuthorizationState.PENDING },
      ...{ toolCallId: ids[0], deferredToolCallIds: ids.slice(1), displayName: "calendar" },
    });
    expect((await readSession(clients, sessionId)).activeRunId).toBe(run.runId);
    for (const call of await callsOf(clients, parked)) {
      expect(call).toMatchObject({ state: ToolCallState.AWAITING_AUTHORIZATION, ran: Ran.NO });
    }
    await expectToWait(clients, parked);
    const { toolCalls } = await settleAuthorization(
      ...([clients, run, authorization.authorizationId] as const),
      AuthorizationState.GRANTED,
    );
    expect(toolCalls.map(({ toolCallId, state }) => [toolCallId, state])).toEqual(
      ids.map((id) => [id, ToolCallState.ACCEPTED]),
    );
    await expectReviewedAgain(clients, run, review);
    await kill();
    await expectToComplete(server.clients("grpc-web"), parked, earlier);
  });

  /** Nothing but its authorization lets any of the calls go on; their provider ids are outstanding. */
  async function expectToWait(clients: Clients, { run, ids, authorization }: Parked) {
    for (const toolCallId of ids) {
      expect(await refused(startCall(clients, run, toolCallId))).toMatchObject({
        reason: "START_NOT_ALLOWED",
        metadata: {
          tool_call_id: toolCallId,
          authorization_id: authorization.authorizationId,
        },
      });
    }
    expect(await refused(acceptTurn(clients, run, [newCall("call_1")]))).toMatchObject({
      reason: "PROVIDER_CALL_ID_OUTSTANDING",
      metadata: { positions: "0", tool_call_ids: ids[1] },
    });
  }

  async function expectReviewedAgain(
    clients: Clients,
    run: OpenRun,
    first: Awaited<ReturnType<typeof publishReview>>,
  ): Promise<void> {
    const { highWater } = await readSession(clients, run.sessionId);
    const again = await publishReview(clients, run, reviewOf(given(first.toolCallId, "call")));
    expect(again.hookId).toBe(first.hookId);
    expect(again.createTime).toEqual(first.createTime);
    expect(again.revision).toBe(given(highWater, "high water") + 1n);
    expect(again.revision).toBeGreaterThan(given(first.revision, "revision"));
  }

  async function expectToComplete(clients: Clients, parked: Parked, earlier: ToolCall) {
    const { run, ids } = parked;
    for (const toolCallId of ids) {
      await startCall(clients, run, toolCallId);
      await complete(clients, run, toolCallId, `result of ${toolCallId}`);
    }
    const calls = await allCalls(clients, run.sessionId);
    expect(calls.map(({ toolCallId }) => toolCallId)).toEqual([earlier.toolCallId, ...ids]);
    for (const call of calls) {
      expect(call).toMatchObject({ state: ToolCallState.COMPLETED, ran: Ran.YES });
    }
    expect(await endRun(clients, run, { outcome: RunOutcome.COMPLETED })).toEqual([]);
  }
});

/** A way of not granting an authorization, and what it makes of the call that needs it. */
interface NotGranted {
  readonly way: string;
  readonly state: AuthorizationState;
  readonly call: ToolCallState;
  readonly end: (clients: Clients, parked: Parked) => Promise<unknown>;
}

let folder: StoreFolder;
let service: TestService;
/** By how much the service's clock is ahead. */
let aheadMs = 0;

beforeAll(async () => {
  folder = await makeStoreFolder();
  const nowMs = () => Date.now() + aheadMs;
  service = await startTestService({ store: folder.store, nowMs });
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

function settledAs(outcome: AuthorizationState, call: ToolCallState): NotGranted {
  return {
    ...{ way: AuthorizationState[outcome], state: outcome, call },
    end: (clients, { run, authorization: { authorizationId } }) =>
      settleAuthorization(clients, run, authorizationId, outcome),
  };
}

/** Long enough that only a clock that is put forward gets there. */
const LIFE_MS = 3_600_000;

/** Waits until the service has settled an authorization by itself. */
async function untilSettled(clients: Clients, { run, authorization }: Parked): Promise<void> {
  const { authorizationId } = authorization;
  let { state } = authorization;
  while (state === AuthorizationState.PENDING) {
    ({ state } = await readAuthorization(clients, run.sessionId, authorizationId));
  }
}

const NOT_GRANTED: readonly NotGranted[] = [
  settledAs(AuthorizationState.DENIED, ToolCallState.DENIED),
  settledAs(AuthorizationState.CANCELLED, ToolCallState.CANCELLED),
  settledAs(AuthorizationState.EXPIRED, ToolCallState.EXPIRED),
  settledAs(AuthorizationState.INTERRUPTED, ToolCallState.CANCELLED),
  settledAs(AuthorizationState.FAILED, ToolCallState.FAILED),
  {
    way: "EXPIRED by its time",
    ...{ state: AuthorizationState.EXPIRED, call: ToolCallState.EXPIRED },
    end: (clients, parked) => {
      aheadMs += LIFE_MS;
      return untilSettled(clients, parked);
    },
  },
  {
    way: "CLOSED with its run",
    ...{ state: AuthorizationState.CLOSED, call: ToolCallState.CANCELLED },
    end: (clients, { run }) => endRun(clients, run, { outcome: RunOutcome.CANCELLED }),
  },
  {
    way: "CLOSED with its session",
    ...{ state: AuthorizationState.CLOSED, call: ToolCallState.CANCELLED },
    end: (clients, { run: { sessionId } }) =>
      clients.sessions.endSession({ sessionId, requestId: "end" }),
  },
];

async function textOf(clients: Clients, { sessionId }: OpenRun, call: ToolCall): Promise<string> {
  const { bodyRef } = given(given(call.result, "result").content, "content");
  const chunks: Uint8Array[] = [];
  const parts = clients.history.readBody({ sessionId, bodyRef });
  for await (const { chunk } of parts) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

/** Parks a turn whose first call has an unspent allow. */
async function parkAllowedTurn(clients: Clients): Promise<Parked & { receiptId: string }> {
  const run = await openRun(clients, StartGate.REQUIRED);
  let receiptId = "";
  const parked = await parkTurn(clients, run, Date.now() + aheadMs + LIFE_MS, async (first) => {
    ({ receiptId } = await answer(clients, await openAsk(clients, run, first)));
  });
  return { ...parked, receiptId };
}

describe("an authorization that is not granted", () => {
  const textsOfWays = new Map<string, string>();

  test.each(NOT_GRANTED)(
    "but $way ends the call and those behind it, and none of them has run",
    async ({ way, state, call, end }) => {
      const clients = service.clients();
      const parked = await parkAllowedTurn(clients);
      const { run, ids, authorization } = parked;
      const { sessionId } = run;
      await end(clients, parked);

      const settled = await readAuthorization(clients, sessionId, authorization.authorizationId);
      expect(settled).toEqual({ ...authorization, state, revision: settled.revision });
      const calls = await callsOf(clients, parked);
      const expected = [call, ToolCallState.CANCELLED, ToolCallState.CANCELLED];
      expect(calls.map((each) => each.state)).toEqual(expected);
      for (const each of calls) {
        expect(each).toMatchObject({ ran: Ran.NO, runId: run.runId, origin: { sessionId } });
        expect(each.result).toMatchObject({ kind: ToolResultKind.SYNTHETIC, isError: true });
        expect(each.startTime).toBeUndefined();
        expect(each.endTime).toBeDefined();
      }
      const texts = await Promise.all(calls.map((each) => textOf(clients, run, each)));
      for (const text of texts) expect(text).toContain("It did not run.");
      textsOfWays.set(way, given(texts[0], "text"));
      const { receiptId } = parked;
      const { receipt } = await clients.approvals.getReceipt({ sessionId, receiptId });
      expect(receipt?.spendState).toBe(SpendState.VOID);
      await expectOneEndEach(clients, run, ids);
    },
  );

  /** Each call ended by one event of its own, with a result of its own. */
  async function expectOneEndEach(clients: Clients, run: OpenRun, ids: readonly string[]) {
    const ends = (await allEvents(clients, run.sessionId)).flatMap(({ kind, record }) =>
      kind === "TOOL_CALL_ENDED" && record?.record.case === "toolCall"
        ? [record.record.value.toolCallId]
        : [],
    );
    expect(ends).toEqual(ids);
  }

  test("tells the model why, in words that differ for each reason", () => {
    const settled = NOT_GRANTED.slice(0, 5).map(({ way }) => given(textsOfWays.get(way), way));
    const closed = given(textsOfWays.get("CLOSED with its run"), "text");
    expect(new Set([...settled, closed]).size).toBe(6);
    expect(textsOfWays.get("EXPIRED by its time")).toBe(textsOfWays.get("EXPIRED"));
  });

  test("tells those behind it of the earlier call, and what was denied of itself", async () => {
    const clients = service.clients();
    const parked = await parkAllowedTurn(clients);
    const { run, authorization } = parked;
    await settleAuthorization(
      ...([clients, run, authorization.authorizationId] as const),
      AuthorizationState.DENIED,
    );
    const [first, second] = await callsOf(clients, parked);
    const told = await textOf(clients, run, given(first, "call"));
    expect(await textOf(clients, run, given(second, "call"))).not.toBe(told);
  });

  test("is settled once, and its calls take nothing but late results", async () => {
    const clients = service.clients();
    const parked = await parkAllowedTurn(clients);
    const { run, ids, authorization } = parked;
    const { authorizationId } = authorization;
    await settleAuthorization(clients, run, authorizationId, AuthorizationState.FAILED);
    const again = await expectNothingWritten(service, run.sessionId, (requestId) => {
      const command = { authorizationId, outcome: AuthorizationState.GRANTED };
      return clients.calls.settleAuthorization({ ...of(run, requestId), command });
    });
    expect(again).toMatchObject({
      ...{ code: Code.FailedPrecondition, reason: "AUTHORIZATION_NOT_PENDING" },
      metadata: { authorization_id: authorizationId, state: "FAILED" },
    });
    for (const toolCallId of ids) {
      const ended = await readCall(clients, run.sessionId, toolCallId);
      expect((await refused(startCall(clients, run, toolCallId))).reason).toBe("TOOL_CALL_ENDED");
      const late = await complete(clients, run, toolCallId);
      expect(late).toMatchObject({ state: ended.state, ran: Ran.NO });
      expect(late.lateResult?.kind).toBe(ToolResultKind.CANONICAL);
    }
  });
});

test("an authorization whose time passes while the server is down expires once it is back", async () => {
  const clients = service.clients();
  const expireMs = Date.now() + aheadMs + LIFE_MS;
  const parked = await parkTurn(clients, await openRun(clients, StartGate.REQUIRED), expireMs);
  await service.stop();
  aheadMs += LIFE_MS;
  const nowMs = () => Date.now() + aheadMs;
  service = await startTestService({ store: folder.store, nowMs });
  const after = service.clients();
  await untilSettled(after, parked);
  const { run, authorization } = parked;
  const settled = await readAuthorization(after, run.sessionId, authorization.authorizationId);
  expect(settled.state).toBe(AuthorizationState.EXPIRED);
  expect((await callsOf(after, parked)).map((call) => call.state)).toEqual([
    ToolCallState.EXPIRED,
    ToolCallState.CANCELLED,
    ToolCallState.CANCELLED,
  ]);
});
