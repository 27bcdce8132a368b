import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Code } from "@connectrpc/connect";
import { RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import {
  acceptCall,
  acceptTurn,
  allCalls,
  allEvents,
  beginRun,
  complete,
  createSession,
  freshRequestId,
  newCall,
  of,
  openRun,
  publishHook,
  readCall,
  readSession,
  recordMessage,
  type CallInit,
  type OpenRun,
} from "../support/conversation.js";
import { expectNothingWritten } from "../support/nothing-written.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
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

async function restart(): Promise<void> {
  await service.stop();
  service = await startTestService({ store: folder.store });
}

function acceptUnder(clients: Clients, run: OpenRun, calls: CallInit[]) {
  return (requestId: string) =>
    clients.calls.acceptTurn({ ...of(run, requestId), command: { calls } });
}

const idsOf = (calls: readonly { toolCallId: string }[]) =>
  calls.map(({ toolCallId }) => toolCallId);

describe.each(["grpc", "connect-json"] as const)("over %s", (wire) => {
  const connect = () => service.clients(wire);

  test("B01 a provider id that completed in one turn comes again in the next as another call", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const first = await acceptCall(clients, run, newCall("dup", "bash", '{"cmd":"a"}'));
    await complete(clients, run, first.toolCallId, "result of a");
    const second = await acceptCall(clients, run, newCall("dup", "bash", '{"cmd":"b"}'));

    expect(second.toolCallId).not.toBe(first.toolCallId);
    expect(second.state).toBe(ToolCallState.ACCEPTED);
    const settled = await readCall(clients, run.sessionId, first.toolCallId);
    expect(settled.state).toBe(ToolCallState.COMPLETED);
    expect(textOf(settled.result?.content?.data)).toBe("result of a");
    expect(textOf(settled.effective?.data)).toBe('{"cmd":"a"}');
    const { activeRunId } = await readSession(clients, run.sessionId);
    expect(activeRunId).toBe(run.runId);
  });

  test("B03 an id is unique inside one response only, and a repeated request is one turn", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const first = await acceptCall(clients, run, newCall("run_shell_0", "run_shell", '{"x":1}'));
    await complete(clients, run, first.toolCallId);
    const turn = { calls: [newCall("run_shell_0", "run_shell", '{"x":2}')] };
    const request = { ...of(run), command: turn };
    const accepted = await clients.calls.acceptTurn(request);
    expect(accepted.toolCalls[0]?.toolCallId).not.toBe(first.toolCallId);

    const events = await allEvents(clients, run.sessionId);
    expect(await clients.calls.acceptTurn(request)).toEqual(accepted);
    expect(await allEvents(clients, run.sessionId)).toEqual(events);
  });

  test("B03 another message under a used request id is REQUEST_ID_REUSED and writes nothing", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const used = freshRequestId();
    await acceptUnder(clients, run, [newCall("run_shell_0", "run_shell", '{"x":1}')])(used);
    const events = await allEvents(clients, run.sessionId);
    const other = acceptUnder(clients, run, [newCall("run_shell_0", "run_shell", '{"x":2}')]);
    const refusal = await expectNothingWritten(
      service,
      run.sessionId,
      () => other(used),
      // The used id stays that of the first request, so nothing else can take it.
      async () => {
        expect((await refused(recordMessage(clients, run, used))).reason).toBe("REQUEST_ID_REUSED");
      },
    );
    expect(refusal).toMatchObject({ code: Code.AlreadyExists, reason: "REQUEST_ID_REUSED" });
    expect(await allEvents(clients, run.sessionId)).toEqual(events);
  });

  test("B04 two calls of a turn with one id reject the whole turn and name both positions", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const turn = [newCall("A", "read"), newCall("B", "read"), newCall("A", "write")];
    const refusal = await expectNothingWritten(
      service,
      run.sessionId,
      acceptUnder(clients, run, turn),
    );
    expect(refusal).toMatchObject({
      code: Code.InvalidArgument,
      reason: "DUPLICATE_PROVIDER_CALL_ID",
      metadata: { positions: "0,2" },
    });
    expect(await allCalls(clients, run.sessionId)).toEqual([]);
  });

  test("B05 the tool's name as the id of several calls of a turn is a duplicate with both indexes", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const turn = ["1", "2"].map((url) => newCall("http_request", "http_request", `{"url":${url}}`));
    const refusal = await expectNothingWritten(
      service,
      run.sessionId,
      acceptUnder(clients, run, turn),
    );
    expect(refusal).toMatchObject({
      code: Code.InvalidArgument,
      reason: "DUPLICATE_PROVIDER_CALL_ID",
      metadata: { positions: "0,1" },
    });
  });

  test("B05 an outstanding id collides with its older call, also after a restart", async () => {
    const run = await openRun(connect());
    const older = await acceptCall(connect(), run, newCall("http_request", "http_request"));
    const expectCollision = async (): Promise<void> => {
      const turn = [newCall("other", "http_request"), newCall("http_request", "http_request")];
      const refusal = await expectNothingWritten(
        service,
        run.sessionId,
        acceptUnder(connect(), run, turn),
      );
      expect(refusal).toMatchObject({
        code: Code.FailedPrecondition,
        reason: "PROVIDER_CALL_ID_OUTSTANDING",
        metadata: { positions: "1", tool_call_ids: older.toolCallId },
      });
    };
    await expectCollision();
    await restart();
    await expectCollision();
    await complete(connect(), run, older.toolCallId);
    const again = await acceptCall(connect(), run, newCall("http_request", "http_request"));
    expect(again.toolCallId).not.toBe(older.toolCallId);
  });

  test("B06 a repeated id in one message is refused, never renamed", async () => {
    const clients = connect();
    const run = await openRun(clients);
    const turn = [newCall("edit:22", "edit", '{"a":1}'), newCall("edit:22", "edit", '{"a":1}')];
    const send = acceptUnder(clients, run, turn);
    for (let attempt = 0; attempt < 2; attempt += 1) {
      const refusal = await expectNothingWritten(service, run.sessionId, send);
      expect(refusal.reason).toBe("DUPLICATE_PROVIDER_CALL_ID");
      expect(JSON.stringify(refusal)).not.toContain("edit:22");
    }
    const events = await allEvents(clients, run.sessionId);
    expect(events.filter(({ kind }) => /TURN|TOOL_CALL/.test(kind))).toEqual([]);
  });

  test.each([
    ["empty", ["", ""]],
    ["absent", [undefined, undefined]],
    ["empty and absent", ["", undefined]],
  ])("B07 calls with %s ids are no duplicates and pair by position", async (_what, ids) => {
    const clients = connect();
    const run = await openRun(clients);
    const turn = ids.map((id, index) => newCall(id, "f", `{"a":${index + 1}}`));
    const calls = await acceptTurn(clients, run, turn);
    expect(new Set(idsOf(calls)).size).toBe(2);
    expect(calls.map(({ index }) => index)).toEqual([0, 1]);

    for (const { toolCallId, index } of [...calls].reverse()) {
      await complete(clients, run, toolCallId, `result ${index}`);
    }
    const settled = await allCalls(clients, run.sessionId);
    expect(settled.map(({ result }) => textOf(result?.content?.data))).toEqual([
      "result 0",
      "result 1",
    ]);
    const events = await allEvents(clients, run.sessionId);
    expect(events.flatMap(emptyCallIds)).toEqual([]);
  });

  test.each(["EndRun", "EndSession"])(
    "B12 %s of one session leaves another's call with the same provider id alone",
    async (ending) => {
      const clients = connect();
      const [one, two] = await Promise.all([openRun(clients), openRun(clients)]);
      const [ours, theirs] = await Promise.all([
        acceptCall(clients, one, newCall("same-id")),
        acceptCall(clients, two, newCall("same-id")),
      ]);
      expect(ours.toolCallId).not.toBe(theirs.toolCallId);
      const before = await readCall(clients, two.sessionId, theirs.toolCallId);

      if (ending === "EndRun") {
        await clients.runs.endRun({ ...of(one), command: { outcome: RunOutcome.CANCELLED } });
      } else {
        const requestId = freshRequestId();
        await clients.sessions.endSession({ requestId, sessionId: one.sessionId });
      }

      const ended = await readCall(clients, one.sessionId, ours.toolCallId);
      expect(ended.state).toBe(ToolCallState.OUTCOME_UNKNOWN);
      expect(await readCall(clients, two.sessionId, theirs.toolCallId)).toEqual(before);
      await complete(clients, two, theirs.toolCallId);
    },
  );

  test("B12 a call looked up or changed through another session is TOOL_CALL_NOT_FOUND", async () => {
    const clients = connect();
    const [one, two] = await Promise.all([openRun(clients), openRun(clients)]);
    const ours = await acceptCall(clients, one, newCall("same-id"));
    const { toolCallId } = ours;
    const lookUp = clients.history.getToolCall({ sessionId: two.sessionId, toolCallId });
    const unknown = { code: Code.NotFound, reason: "TOOL_CALL_NOT_FOUND" };
    expect(await refused(lookUp)).toMatchObject(unknown);
    const refusal = await expectNothingWritten(service, two.sessionId, (requestId) =>
      publishHook(clients, two, toolCallId, requestId),
    );
    expect(refusal).toMatchObject(unknown);
    expect(await readCall(clients, one.sessionId, toolCallId)).toMatchObject({ toolCallId });
  });
});

describe("expectNothingWritten reports", () => {
  const refuse = (run: OpenRun) => (requestId: string) =>
    acceptUnder(service.clients(), run, [newCall("A"), newCall("A")])(requestId);

  test("an event written before the refusal", async () => {
    const run = await openRun(service.clients());
    const leaky = async (requestId: string): Promise<unknown> => {
      await recordMessage(service.clients(), run);
      return refuse(run)(requestId);
    };
    await expect(expectNothingWritten(service, run.sessionId, leaky)).rejects.toThrow(/to deeply/);
  });

  test("a trace in another session", async () => {
    const run = await openRun(service.clients());
    const leaky = async (requestId: string): Promise<unknown> => {
      await createSession(service.clients());
      return refuse(run)(requestId);
    };
    await expect(expectNothingWritten(service, run.sessionId, leaky)).rejects.toThrow(/to deeply/);
  });

  test("a request id that was taken all the same", async () => {
    const clients = service.clients();
    const sessionId = await createSession(clients);
    const run = await beginRun(clients, sessionId, StartGate.OFF);
    const reuse = async (requestId: string): Promise<void> => {
      await publishHook(clients, run, undefined, requestId);
      await recordMessage(clients, run, requestId);
    };
    const checked = expectNothingWritten(service, sessionId, refuse(run), reuse);
    await expect(checked).rejects.toThrow(/request id/);
  });

  test("a request that was accepted", async () => {
    const run = await openRun(service.clients());
    const accepted = (requestId: string) => recordMessage(service.clients(), run, requestId);
    await expect(expectNothingWritten(service, run.sessionId, accepted)).rejects.toThrow(
      /not refused/,
    );
  });
});

function textOf(data: Uint8Array | undefined): string {
  return new TextDecoder().decode(data);
}

/** The places of a public record where an id of a call is empty. */
function emptyCallIds({ record }: Awaited<ReturnType<typeof allEvents>>[number]): string[] {
  if (record?.record.case === "turn") {
    return record.record.value.toolCallIds.filter((id) => id === "");
  }
  if (record?.record.case !== "toolCall") return [];
  return record.record.value.toolCallId === "" ? [record.record.value.toolCallId] : [];
}
