import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import {
  acceptCall,
  allEvents,
  beginRun,
  complete,
  newCall,
  of,
  openRun,
  publishHook,
  readCall,
  type OpenRun,
} from "../support/conversation.js";
import { fork } from "../support/forking.js";
import { readBack } from "../support/read-back.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService, type Wire } from "../support/service.js";

let service: TestService;

beforeAll(async () => {
  service = await startTestService();
});

afterAll(() => service.stop());

describe.each<Wire>(["grpc", "connect-json"])("B48 over %s", (wire) => {
  let clients: Clients;
  let run: OpenRun;
  let toolCallId: string;

  beforeAll(async () => {
    clients = service.clients(wire);
    run = await openRun(clients);
    ({ toolCallId } = await acceptCall(clients, run, newCall("call_0")));
    await publishHook(clients, run, toolCallId);
    await complete(clients, run, toolCallId);
  });

  test("a fork keeps the ids and the origin of what it copied, and a new call is its own", async () => {
    const { sessionId } = await fork(clients, run.sessionId);
    const copied = await readCall(clients, sessionId, toolCallId);
    expect(copied).toMatchObject({
      ...{ toolCallId, inheritedFromSessionId: run.sessionId },
      origin: { sessionId: run.sessionId },
    });
    const { hooks } = await clients.history.listHooks({ sessionId, toolCallId });
    expect(hooks).toMatchObject([{ toolCallId, origin: { sessionId: run.sessionId } }]);
    const own = await acceptCall(clients, await beginRun(clients, sessionId), newCall("call_0"));
    expect(own.toolCallId).not.toBe(toolCallId);
    expect(own.origin).toMatchObject({ sessionId });
    expect(own.inheritedFromSessionId).toBeUndefined();
  });

  test("evidence in a fork that names the source is rejected, and nothing there changes the source", async () => {
    const before = await readBack(clients, run.sessionId, 500);
    const forked = await beginRun(clients, (await fork(clients, run.sessionId)).sessionId);
    const own = await acceptCall(clients, forked);
    const written = await allEvents(clients, forked.sessionId);
    const origin = { sessionId: run.sessionId };
    const said = { phase: "pre_tool_use", decision: HookDecision.BLOCKED, text: "no" };
    const reasons: string[] = [];
    const calls = [{ toolCallId: own.toolCallId }, { toolCallId }];
    for (const about of [{ phase: "session_start" }, ...calls]) {
      const command = { origin, ...said, ...about };
      const publishing = clients.evidence.publishHook({ ...of(forked), command });
      reasons.push((await refused(publishing)).reason);
    }
    expect(reasons).toEqual(["ORIGIN_MISMATCH", "ORIGIN_MISMATCH", "ORIGIN_MISMATCH"]);
    const copied = publishHook(clients, forked, toolCallId);
    expect((await refused(copied)).reason).toBe("CALL_INHERITED");
    expect(await allEvents(clients, forked.sessionId)).toEqual(written);
    await publishHook(clients, forked, own.toolCallId);
    await complete(clients, forked, own.toolCallId);
    expect(await readBack(clients, run.sessionId, 500)).toEqual(before);
  });
});
