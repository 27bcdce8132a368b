import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AskKind, AskProvenance } from "../../gen/toolmark/v1/ask_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { MessageRole, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { reviewOf } from "../support/asking.js";
import { acceptCall, type CommandInit } from "../support/conversation.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";

const data = (text: string) => ({ data: new TextEncoder().encode(text) });

let service: TestService;
let clients: Clients;
let ofRun: { sessionId: string; runId: string };
let toolCallId = "";

beforeAll(async () => {
  service = await startTestService();
  clients = service.clients();
  const { session } = await clients.sessions.createSession({
    requestId: "session",
    kind: SessionKind.MAIN,
  });
  const sessionId = session?.sessionId ?? "";
  const { run } = await clients.runs.beginRun({
    sessionId,
    requestId: "run",
    startGate: StartGate.OFF,
  });
  ofRun = { sessionId, runId: run?.runId ?? "" };
  ({ toolCallId } = await acceptCall(clients, ofRun));
});

afterAll(async () => {
  await service.stop();
});

const greeting = {
  command: {
    case: "recordMessage" as const,
    value: { role: MessageRole.USER, content: data("hello") },
  },
};

/** The same command about the call, if it is about one. */
function aboutCall(command: CommandInit): CommandInit {
  switch (command.case) {
    case "publishReview":
    case "openAsk":
    case "parkToolCall":
      return { ...command, value: { ...command.value, toolCallId } } as CommandInit;
    default:
      return command;
  }
}

describe("Apply names a refused field by its path in the request", () => {
  const wrongDigest = { ...data("x"), sha256: new Uint8Array(32) };
  const wrongs: readonly (readonly [string, CommandInit, string])[] = [
    [
      "a digest of other bytes",
      { case: "recordMessage" as const, value: { role: MessageRole.USER, content: wrongDigest } },
      "commands[1].record_message.content.sha256",
    ],
    [
      "an unknown body",
      {
        case: "recordMessage" as const,
        value: { role: MessageRole.USER, content: { bodyRef: "body_none" } },
      },
      "commands[1].record_message.content",
    ],
    [
      "another origin",
      {
        case: "publishHook" as const,
        value: {
          origin: { sessionId: "ses_other" },
          phase: "session_start",
          decision: HookDecision.INFO,
        },
      },
      "commands[1].publish_hook.origin",
    ],
    [
      "a review of another id",
      { case: "publishReview" as const, value: reviewOf("", { reviewId: "rv_1" }) },
      "commands[1].publish_review.review.review_id",
    ],
    [
      "an ask that is over",
      {
        case: "openAsk" as const,
        value: {
          ...{ kind: AskKind.ACTION, provenance: AskProvenance.PERMISSION },
          expireTime: { seconds: 1n },
        },
      },
      "commands[1].open_ask.expire_time",
    ],
    [
      "calls that cannot be deferred",
      {
        case: "parkToolCall" as const,
        value: { displayName: "calendar", deferredToolCallIds: ["tc_1"] },
      },
      "commands[1].park_tool_call.deferred_tool_call_ids",
    ],
  ];

  test.each(wrongs)("%s", async (_what, command, field) => {
    const before = await clients.sessions.getSession({ sessionId: ofRun.sessionId });
    const commands = [greeting, { command: aboutCall(command) }];
    const refusal = await refused(clients.runs.apply({ ...ofRun, requestId: "wrong", commands }));
    expect(refusal.metadata).toMatchObject({ field, command: "1" });
    expect(refusal.message).toContain(field);
    const after = await clients.sessions.getSession({ sessionId: ofRun.sessionId });
    expect(after).toEqual(before);
  });

  test("and a unary command by its own", async () => {
    const command = { role: MessageRole.USER, content: wrongDigest };
    const call = clients.evidence.recordMessage({ ...ofRun, requestId: "wrong", command });
    const { metadata } = await refused(call);
    expect(metadata["field"]).toBe("command.content.sha256");
    expect(metadata).not.toHaveProperty("command");
  });
});

test("an Apply whose reply could not be sent is refused before anything is written", async () => {
  const text = "x".repeat(60_000);
  const hook = { phase: "session_start", decision: HookDecision.INFO, text };
  const publish = { command: { case: "publishHook" as const, value: hook } };
  const before = await clients.sessions.getSession({ sessionId: ofRun.sessionId });
  const commands = Array.from({ length: 20 }, () => publish);
  const refusal = await refused(clients.runs.apply({ ...ofRun, requestId: "large", commands }));
  expect(refusal).toMatchObject({ reason: "QUOTA_EXCEEDED", metadata: { field: "commands" } });
  expect(await clients.sessions.getSession({ sessionId: ofRun.sessionId })).toEqual(before);
  const fewer = { ...ofRun, requestId: "large", commands: commands.slice(0, 10) };
  expect((await clients.runs.apply(fewer)).results).toHaveLength(10);
});

test("a sequence that no store can count to is malformed", async () => {
  const { sessionId } = ofRun;
  const refusal = await refused(
    clients.history.listEvents({ sessionId, afterSequence: 2n ** 63n }),
  );
  expect(refusal).toMatchObject({ reason: "FIELD_INVALID", metadata: { field: "after_sequence" } });
});

test("a stored body can be referred to instead of being sent again", async () => {
  const { results } = await clients.runs.apply({
    ...ofRun,
    requestId: "first",
    commands: [greeting],
  });
  const result = results[0]?.result;
  const bodyRef =
    result?.case === "recordMessage" ? (result.value.message?.content?.bodyRef ?? "") : "";
  const again = { role: MessageRole.ASSISTANT, content: { bodyRef } };
  const reply = await clients.evidence.recordMessage({
    ...ofRun,
    requestId: "again",
    command: again,
  });
  expect(reply.message?.content).toMatchObject({ bodyRef, sizeBytes: 5n });
  const read: number[] = [];
  const parts = clients.history.readBody({ sessionId: ofRun.sessionId, bodyRef });
  for await (const { chunk } of parts) read.push(...chunk);
  expect(new TextDecoder().decode(new Uint8Array(read))).toBe("hello");
});
