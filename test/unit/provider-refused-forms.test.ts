import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { ProviderPairingSchema, ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import { Ran, ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import type { Content, HistoryEntry } from "../../src/domain/history.js";
import { isPayloadFault } from "../../src/domain/provider-turn.js";
import { toldResult } from "../../src/domain/synthetic-text.js";
import { HistoryProjection } from "../../src/provider/project-history.js";
import { readProviderTurn } from "../../src/provider/read-provider-turn.js";
import { bytes } from "../support/conversation.js";

const { ANTHROPIC_MESSAGES, GEMINI, MISTRAL, OPENAI_CHAT_COMPLETIONS, OPENAI_RESPONSES } =
  ProviderWire;

function textOf(text: string): Content {
  return { data: bytes(text), mediaType: "text/plain" };
}

function user(text: string): HistoryEntry {
  return { kind: "message", role: MessageRole.USER, content: textOf(text) };
}

function turn(wire: ProviderWire, response: unknown, result = "ok", isError = false): HistoryEntry {
  const read = readProviderTurn(wire, bytes(JSON.stringify(response)));
  if (isPayloadFault(read)) throw new Error(`${read.path} ${read.rule}`);
  const calls = read.calls.map(({ providerCallId = "", ...call }, index) => ({
    ...call,
    toolCallId: `tc_${index}`,
    pairing: create(ProviderPairingSchema, { providerCallId }),
    result: { ...textOf(result), isError },
  }));
  return { kind: "turn", turn: { wire, provider: undefined, items: read.items, calls } };
}

function chat(message: object): object {
  return { choices: [{ message: { role: "assistant", ...message } }] };
}

function projected(wire: ProviderWire, ...entries: readonly HistoryEntry[]): unknown[] {
  const projection = new HistoryProjection({ wire, provider: undefined });
  const json = entries.map((entry) => projection.add(entry)).join("");
  return JSON.parse(`[${json}]`) as unknown[];
}

describe("what a provider refuses is not projected", () => {
  test("Anthropic: an error without a text", () => {
    const content = [{ type: "tool_use", id: "toolu_1", name: "bash", input: {} }];
    const response = { type: "message", role: "assistant", content };
    const items = projected(
      ANTHROPIC_MESSAGES,
      user("x"),
      turn(ANTHROPIC_MESSAGES, response, "", true),
    );
    const [result] = (items[2] as { content: object[] }).content;
    expect(result).toMatchObject({ content: "The call failed and gave no text.", is_error: true });
  });

  test("Chat Completions: members of Mistral's messages, and its thinking", () => {
    const content = [
      { type: "thinking", thinking: [{ type: "text", text: "hm" }] },
      { type: "text", text: "y" },
    ];
    const message = { content, tool_calls: null, prefix: false };
    expect(projected(OPENAI_CHAT_COMPLETIONS, turn(MISTRAL, chat(message)))).toEqual([
      { role: "assistant", content: "y" },
    ]);
  });

  test("Chat Completions: members that say nothing", () => {
    const message = { content: "y", tool_calls: [], function_call: null, audio: null };
    const items = projected(OPENAI_CHAT_COMPLETIONS, turn(OPENAI_CHAT_COMPLETIONS, chat(message)));
    expect(items).toEqual([{ role: "assistant", content: "y" }]);
  });

  test("Responses: reasoning that nothing follows", () => {
    const output = [{ type: "reasoning", id: "rs_1", summary: [], encrypted_content: "e" }];
    const cutOff = turn(OPENAI_RESPONSES, { status: "incomplete", output });
    expect(projected(OPENAI_RESPONSES, user("x"), cutOff, user("y"))).toHaveLength(2);
  });

  test("Gemini: an empty text", () => {
    expect(projected(GEMINI, user(""))).toEqual([]);
  });
});

describe("a response is refused", () => {
  test("if a call of it can have no result: a shell of the client", () => {
    const item = { type: "shell_call", call_id: "c", action: { commands: [] }, environment: null };
    const fault = readProviderTurn(OPENAI_RESPONSES, bytes(JSON.stringify({ output: [item] })));
    expect(fault).toMatchObject({ path: "output[0].type" });
    const served = { ...item, environment: { type: "container_reference", container_id: "c" } };
    const read = readProviderTurn(OPENAI_RESPONSES, bytes(JSON.stringify({ output: [served] })));
    expect(isPayloadFault(read)).toBe(false);
  });

  test("if it has more values than can be read while others wait", () => {
    const values = `${"0,".repeat(250_000)}0`;
    const block = `{"type":"redacted_thinking","data":[${values}]}`;
    const response = `{"type":"message","role":"assistant","content":[${block}]}`;
    const fault = readProviderTurn(ANTHROPIC_MESSAGES, bytes(response));
    expect(fault).toEqual({ path: "", rule: "must have at most 250000 values" });
  });
});

test("a call whose start nobody had to record is not said to be unstarted", () => {
  const { ACCEPTED } = ToolCallState;
  expect(toldResult({ state: ACCEPTED, ran: Ran.UNKNOWN })).toEqual({
    text: "It is not known whether the call has started. It has no result yet.",
    isError: false,
  });
  expect(toldResult({ state: ACCEPTED, ran: Ran.NO })).toEqual({
    text: "The call has not started yet. It has no result.",
    isError: false,
  });
});
