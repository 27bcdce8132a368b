import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import {
  acceptCall,
  allCalls,
  allEvents,
  bytes,
  complete,
  freshRequestId,
  given,
  newCall,
  of,
  openRun,
  readSession,
} from "../support/conversation.js";
import { fork } from "../support/forking.js";
import { refused } from "../support/refused.js";
import { acceptResponse, project, readReplay, RESPONSE, say, WIRES } from "../support/replaying.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { readWhole, upload } from "../support/uploading.js";

const { ANTHROPIC_MESSAGES, OPENAI_CHAT_COMPLETIONS, OPENAI_RESPONSES } = ProviderWire;

let service: TestService;
let clients: Clients;

beforeAll(async () => {
  service = await startTestService({ flags: ["--snapshot-every", "4"] });
  clients = service.clients();
});

afterAll(() => service.stop());

async function expectSound(sessionId: string): Promise<void> {
  const { head } = await clients.sessions.verifySession({ sessionId });
  expect(head).toEqual((await readSession(clients, sessionId)).checkpoint);
}

describe("a provider's response is accepted as a turn", () => {
  test.each(WIRES)("with its text, its calls and its items as they came, wire %s", async (wire) => {
    const run = await openRun(clients);
    const said = { provider: "prov", model: "mod" };
    const response = RESPONSE[wire]("Let me look.", { id: "abcdef001" }, { id: "abcdef002" });
    const { turn, toolCalls, message } = await acceptResponse(clients, run, wire, response, said);
    const ids = toolCalls.map(({ toolCallId }) => toolCallId);
    expect(turn).toMatchObject({ ...said, runId: run.runId, toolCallIds: ids });
    expect(ids).toHaveLength(2);
    expect(message).toMatchObject({ role: MessageRole.ASSISTANT, turnId: turn?.turnId });
    const ref = given(message?.content, "content").bodyRef;
    const { data } = await readWhole(clients, run.sessionId, ref);
    expect(data.toString()).toBe("Let me look.");
    const [first] = await allCalls(clients, run.sessionId);
    expect(Buffer.from(first?.proposed?.data ?? []).toString()).toBe('{"command":"ls"}');
    const [replayed, ...others] = await readReplay(clients, run.sessionId);
    expect(others).toEqual([]);
    expect(replayed?.turn).toMatchObject({ turnId: turn?.turnId, wire });
    expect(response).toContain(replayed?.items);
    expect(replayed?.calls.map(({ pairing }) => pairing?.providerCallId)).toEqual([
      "abcdef001",
      "abcdef002",
    ]);
    await expectSound(run.sessionId);
  });

  test("without calls as well", async () => {
    const run = await openRun(clients);
    const response = RESPONSE[ANTHROPIC_MESSAGES]("Done.");
    const reply = await acceptResponse(clients, run, ANTHROPIC_MESSAGES, response);
    expect(reply.toolCalls).toEqual([]);
    expect(reply.turn?.toolCallIds).toEqual([]);
    expect((await readReplay(clients, run.sessionId))[0]?.items).toBe(
      '[{"type":"text","text":"Done."}]',
    );
    await expectSound(run.sessionId);
  });

  test("without text there is no message", async () => {
    const run = await openRun(clients);
    const response = RESPONSE[ANTHROPIC_MESSAGES]("", {});
    const reply = await acceptResponse(clients, run, ANTHROPIC_MESSAGES, response);
    expect(reply.message).toBeUndefined();
    expect((await allEvents(clients, run.sessionId)).map(({ kind }) => kind)).not.toContain(
      "MESSAGE_RECORDED",
    );
  });

  test("sent again by its request id, it is the same turn; another response is refused", async () => {
    const run = await openRun(clients);
    const request = (text: string) => ({
      ...of(run, "again"),
      command: {
        wire: ANTHROPIC_MESSAGES,
        payload: { data: bytes(RESPONSE[ANTHROPIC_MESSAGES](text, {})) },
      },
    });
    const first = await clients.replays.acceptProviderTurn(request("one"));
    expect(await clients.replays.acceptProviderTurn(request("one"))).toEqual(first);
    const other = await refused(clients.replays.acceptProviderTurn(request("two")));
    expect(other.reason).toBe("REQUEST_ID_REUSED");
    expect(await allCalls(clients, run.sessionId)).toHaveLength(1);
  });
});

describe("a response is refused as a whole", () => {
  const FAULTS: readonly (readonly [string, ProviderWire, string, string])[] = [
    ["that is no JSON", OPENAI_RESPONSES, "no", ""],
    ["of another wire", OPENAI_RESPONSES, RESPONSE[ANTHROPIC_MESSAGES]("x"), "output"],
    [
      "whose call has no name",
      OPENAI_RESPONSES,
      '{"output":[{"type":"reasoning"},{"type":"function_call","call_id":"c","arguments":"{}"}]}',
      "output[1].name",
    ],
    [
      "with several choices",
      OPENAI_CHAT_COMPLETIONS,
      '{"choices":[{"message":{"role":"assistant","content":"a"}},{"message":{"role":"assistant","content":"b"}}]}',
      "choices",
    ],
    [
      "whose call id is a number",
      ANTHROPIC_MESSAGES,
      '{"type":"message","role":"assistant","content":[{"type":"tool_use","id":7,"name":"n","input":{}}]}',
      "content[0].id",
    ],
  ];

  test.each(FAULTS)("%s, with the path of what is wrong", async (_name, wire, response, path) => {
    const run = await openRun(clients);
    const before = await allEvents(clients, run.sessionId);
    const refusal = await refused(acceptResponse(clients, run, wire, response));
    expect(refusal.reason).toBe("PROVIDER_PAYLOAD_INVALID");
    expect(refusal.metadata).toMatchObject({ field: "command.payload", path });
    expect(await allEvents(clients, run.sessionId)).toEqual(before);
  });

  test("with two calls of one id, or one that is outstanding", async () => {
    const run = await openRun(clients);
    const twice = RESPONSE[ANTHROPIC_MESSAGES]("", { id: "a" }, { id: "b" }, { id: "a" });
    const double = await refused(acceptResponse(clients, run, ANTHROPIC_MESSAGES, twice));
    expect(double).toMatchObject({
      reason: "DUPLICATE_PROVIDER_CALL_ID",
      metadata: { positions: "0,2" },
    });
    const { toolCallId } = await acceptCall(clients, run, newCall("a"));
    const once = RESPONSE[ANTHROPIC_MESSAGES]("", { id: "a" });
    const open = await refused(acceptResponse(clients, run, ANTHROPIC_MESSAGES, once));
    expect(open).toMatchObject({
      reason: "PROVIDER_CALL_ID_OUTSTANDING",
      metadata: { tool_call_ids: toolCallId },
    });
    await complete(clients, run, toolCallId);
    await acceptResponse(clients, run, ANTHROPIC_MESSAGES, once);
    expect(await allCalls(clients, run.sessionId)).toHaveLength(2);
  });

  test("with more calls than a turn may have", async () => {
    const run = await openRun(clients);
    const calls = Array.from({ length: 257 }, (_, index) => ({ id: `c${index}` }));
    const response = RESPONSE[ANTHROPIC_MESSAGES]("", ...calls);
    const refusal = await refused(acceptResponse(clients, run, ANTHROPIC_MESSAGES, response));
    expect(refusal).toMatchObject({
      reason: "QUOTA_EXCEEDED",
      metadata: { field: "command.payload", limit: "256" },
    });
  });

  test("in an Apply, by its path there", async () => {
    const run = await openRun(clients);
    const value = { wire: ANTHROPIC_MESSAGES, payload: { data: bytes("[]") } };
    const commands = [{ command: { case: "acceptProviderTurn" as const, value } }];
    const refusal = await refused(clients.runs.apply({ ...of(run), commands }));
    expect(refusal).toMatchObject({
      reason: "PROVIDER_PAYLOAD_INVALID",
      metadata: { field: "commands[0].accept_provider_turn.payload", command: "0" },
    });
  });
});

describe("a response that is uploaded", () => {
  const response = RESPONSE[ANTHROPIC_MESSAGES]("x".repeat(5_000_000), { id: "toolu_big" });

  test("as private is accepted, becomes no body, and is streamed back in parts", async () => {
    const run = await openRun(clients);
    const { sessionId } = run;
    const { bodyRef } = await upload(clients, sessionId, bytes(response), { private: true });
    const unread = await refused(readWhole(clients, sessionId, bodyRef));
    expect(unread.reason).toBe("BODY_NOT_FOUND");
    const command = { wire: ANTHROPIC_MESSAGES, payload: { bodyRef } };
    await clients.replays.acceptProviderTurn({ ...of(run), command });
    expect((await refused(readWhole(clients, sessionId, bodyRef))).reason).toBe("BODY_NOT_FOUND");
    const { items, partSizes } = await project(clients, sessionId, ANTHROPIC_MESSAGES);
    expect(items.length).toBeGreaterThan(5_000_000);
    expect(Math.max(...partSizes)).toBeLessThanOrEqual(256 * 1024);
    const used = await refused(clients.replays.acceptProviderTurn({ ...of(run), command }));
    expect(used.reason).toBe("BODY_NOT_FOUND");
    await expectSound(sessionId);
  });

  test("as private is taken by no other command", async () => {
    const run = await openRun(clients);
    const { sessionId } = run;
    const { bodyRef } = await upload(clients, sessionId, bytes(response), { private: true });
    const command = { role: MessageRole.USER, content: { bodyRef } };
    const refusal = await refused(clients.evidence.recordMessage({ ...of(run), command }));
    expect(refusal.reason).toBe("BODY_NOT_FOUND");
  });

  test("not as private is not accepted", async () => {
    const run = await openRun(clients);
    const { bodyRef } = await upload(clients, run.sessionId, bytes(response));
    const command = { wire: ANTHROPIC_MESSAGES, payload: { bodyRef } };
    const refusal = await refused(clients.replays.acceptProviderTurn({ ...of(run), command }));
    expect(refusal).toMatchObject({
      reason: "BODY_NOT_FOUND",
      metadata: { field: "command.payload" },
    });
  });
});

describe("what a provider gave", () => {
  test("goes with a fork and is proven there", async () => {
    const run = await openRun(clients);
    await say(clients, run, "hello");
    const response = RESPONSE[ANTHROPIC_MESSAGES]("Looking.", { id: "toolu_f" });
    const { toolCalls } = await acceptResponse(clients, run, ANTHROPIC_MESSAGES, response);
    await complete(clients, run, given(toolCalls[0], "call").toolCallId);
    await acceptResponse(clients, run, ANTHROPIC_MESSAGES, RESPONSE[ANTHROPIC_MESSAGES]("Done."));
    const forked = await fork(clients, run.sessionId);
    const projected = await project(clients, run.sessionId, ANTHROPIC_MESSAGES);
    expect(await project(clients, forked.sessionId, ANTHROPIC_MESSAGES)).toEqual(projected);
    expect(projected.items).toContain("toolu_f");
    await expectSound(forked.sessionId);
  });

  test("up to a compaction is replaced by its summary, for a turn without calls too", async () => {
    const run = await openRun(clients);
    const { sessionId } = run;
    await say(clients, run, "hello");
    await acceptResponse(clients, run, ANTHROPIC_MESSAGES, RESPONSE[ANTHROPIC_MESSAGES]("Hi."));
    const { length } = await allEvents(clients, sessionId);
    const request = { sessionId, requestId: freshRequestId(), summary: "They met." };
    // Between the turn and what its response said: neither is archived without the other.
    await clients.sessions.compactSession({ ...request, throughSequence: BigInt(length - 1) });
    const { items } = await project(clients, sessionId, ANTHROPIC_MESSAGES);
    expect(items).toContain("They met.");
    expect(items).toContain("Hi.");
    expect(items).not.toContain("hello");
    expect(await readReplay(clients, sessionId)).toHaveLength(1);
  });
});

describe("a history is projected for those who may see it", () => {
  test("of a session that is not there: SESSION_NOT_FOUND", async () => {
    const sessionId = "ses_none";
    const reading = project(clients, sessionId, ANTHROPIC_MESSAGES);
    expect((await refused(reading)).reason).toBe("SESSION_NOT_FOUND");
    expect((await refused(readReplay(clients, sessionId))).reason).toBe("SESSION_NOT_FOUND");
  });

  test("of a session without anything: an empty list", async () => {
    const { sessionId } = await openRun(clients);
    for (const wire of WIRES) {
      expect(await project(clients, sessionId, wire)).toMatchObject({ system: "", items: "[]" });
    }
  });
});
