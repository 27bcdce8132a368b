import { describe, expect, it } from "vitest";

import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import {
  isPayloadFault,
  type PayloadFault,
  type ReadTurn,
} from "../../src/domain/provider-turn.js";
import { readProviderTurn } from "../../src/provider/read-provider-turn.js";
import { recordedConversations } from "../support/recorded-bodies.js";
import { recordedFolder } from "../support/recorded-files.js";

const { OPENAI_RESPONSES, OPENAI_CHAT_COMPLETIONS, MISTRAL } = ProviderWire;

function read(wire: ProviderWire, response: string): ReadTurn | PayloadFault {
  return readProviderTurn(wire, Buffer.from(response));
}

function turnOf(wire: ProviderWire, response: string): ReadTurn {
  const turn = read(wire, response);
  if (isPayloadFault(turn)) throw new Error(`${turn.path} ${turn.rule}`);
  return turn;
}

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString("utf8");

/** What a turn says, with bytes as text. */
function said(wire: ProviderWire, response: string) {
  const turn = turnOf(wire, response);
  return {
    text: turn.text,
    calls: turn.calls.map((call) => [
      call.toolName,
      text(call.arguments),
      call.providerCallId,
      call.providerItemId,
    ]),
  };
}

const output = (items: string) => `{"id":"resp_1","output":${items},"status":"completed"}`;
const chat = (message: string) => `{"id":"c","choices":[{"index":0,"message":${message}}]}`;

describe("A response of any wire", () => {
  const deep = (depth: number) => output(`[${"[".repeat(depth)}${"]".repeat(depth)}]`);

  it.each([
    ["bytes that are not UTF-8", Buffer.from([0x7b, 0xff, 0x7d]), "must be UTF-8"],
    ["nothing", Buffer.alloc(0), "must be one JSON object"],
    ["a list", Buffer.from("[]"), "must be one JSON object"],
    ["two values", Buffer.from("{}{}"), "must be one JSON object"],
    ["what was cut off", Buffer.from(`{"output":[`), "must be one JSON object"],
    ["too much in one another", Buffer.from(deep(499)), "must be nested at most 500 deep"],
  ])("is none if it is %s", (_, payload, rule) => {
    for (const wire of [OPENAI_RESPONSES, OPENAI_CHAT_COMPLETIONS, MISTRAL]) {
      expect(readProviderTurn(wire, payload)).toEqual({ path: "", rule });
    }
  });

  it("is read up to the depth that it may have, and brackets in strings are none", () => {
    const brackets = `{"type":"web_search_call","q":"${'[{\\\\\\"'.repeat(600)}"}`;

    expect(read(OPENAI_RESPONSES, deep(498))).toMatchObject({ path: "output[0]" });
    expect(isPayloadFault(read(OPENAI_RESPONSES, output(`[${brackets}]`)))).toBe(false);
  });
});

describe("A response of OpenAI Responses", () => {
  it("has its items as they are written, its calls and what it says", () => {
    const items = `[ {"type":"reasoning","id":"rs_1","encrypted_content":"x\\u0041", "summary":[]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let "},
        {"type":"output_text","text":"me."}]},
      {"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"{ \\"n\\":1.0}"},
      {"type":"custom_tool_call","id":"ctc_1","call_id":"call_2","name":"g","input":"ls é"},
      {"type":"mcp_call","id":"mcp_1","name":"h","arguments":"{}"},
      {"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"No."}]}]`;

    expect(text(turnOf(OPENAI_RESPONSES, output(items)).items)).toBe(items);
    expect(said(OPENAI_RESPONSES, output(items))).toEqual({
      text: "Let me.\n\nNo.",
      calls: [
        ["f", `{ "n":1.0}`, "call_1", "fc_1"],
        ["g", "ls é", "call_2", "ctc_1"],
      ],
    });
  });

  it("may have calls without ids", () => {
    const call = `"type":"function_call","name":"f","arguments":""`;

    expect(said(OPENAI_RESPONSES, output(`[{${call}},{${call},"call_id":"","id":null}]`))).toEqual({
      text: "",
      calls: [
        ["f", "", undefined, undefined],
        ["f", "", "", undefined],
      ],
    });
  });

  it.each([
    [`{}`, "output", "must be an array"],
    [output("null"), "output", "must be an array"],
    [output("[1]"), "output[0]", "must be an object"],
    [output(`[{}]`), "output[0].type", "must be a string"],
    [
      output(`[{"type":"reasoning"},{"type":"message","content":"x"}]`),
      "output[1].content",
      "must be an array",
    ],
    [
      output(`[{"type":"message","content":[{"type":"output_text","text":1}]}]`),
      "output[0].content[0].text",
      "must be a string",
    ],
    [
      output(`[{"type":"function_call","call_id":1,"name":2}]`),
      "output[0].call_id",
      "must be a string",
    ],
    [
      output(`[{"type":"function_call","call_id":"\\ud800","name":"f","arguments":""}]`),
      "output[0].call_id",
      "must be well-formed Unicode",
    ],
    [
      output(`[{"type":"function_call","id":"${"a".repeat(4097)}","name":"f","arguments":""}]`),
      "output[0].id",
      "must have at most 4096 bytes",
    ],
    [
      output(`[{"type":"function_call","call_id":"c","name":"","arguments":""}]`),
      "output[0].name",
      "must not be empty",
    ],
    [
      output(`[{"type":"function_call","name":"${"é".repeat(257)}","arguments":""}]`),
      "output[0].name",
      "must have at most 512 bytes",
    ],
    [
      output(`[{"type":"function_call","call_id":"c","name":"f","arguments":{}}]`),
      "output[0].arguments",
      "must be a string",
    ],
    [
      output(`[{"type":"custom_tool_call","call_id":"c","name":"f"}]`),
      "output[0].input",
      "must be a string",
    ],
    [
      output(`[{"type":"computer_call","call_id":"c"}]`),
      "output[0].type",
      "must not be computer_call: no result can answer it",
    ],
  ])("is none as %s", (response, path, rule) => {
    expect(read(OPENAI_RESPONSES, response)).toEqual({ path, rule });
  });
});

describe.each([
  ["OpenAI Chat Completions", OPENAI_CHAT_COMPLETIONS],
  ["Mistral", MISTRAL],
])("A response of %s", (_, wire) => {
  it("has its message as it is written, its calls and what it says", () => {
    const message = `{ "role":"assistant", "content":"Let me.","reasoning_content":"hm","tool_calls":[
      {"id":"call_1","function":{"name":"f","arguments":"{ \\"n\\":1.0}"},"type":"function"},
      {"id":"","index":1,"function":{"name":"f","arguments":""}},
      {"type":null,"function":{"name":"f","arguments":"{}"}},
      {"id":"call_2","type":"custom","custom":{"name":"g","input":"ls"}}]}`;

    expect(text(turnOf(wire, chat(message)).items)).toBe(message);
    expect(said(wire, chat(message))).toEqual({
      text: "Let me.",
      calls: [
        ["f", `{ "n":1.0}`, "call_1", undefined],
        ["f", "", "", undefined],
        ["f", "{}", undefined, undefined],
        ["g", "ls", "call_2", undefined],
      ],
    });
  });

  it.each([
    [`{"role":"assistant","content":null,"tool_calls":null}`, ""],
    [`{"role":"assistant"}`, ""],
    [`{"role":"assistant","content":null,"refusal":"No.","function_call":{"name":""}}`, "No."],
    [`{"role":"assistant","content":"a\\ud800"}`, "a\ufffd"],
    [
      `{"role":"assistant","content":[{"type":"thinking","thinking":[]},
        {"type":"text","text":"a"},{"type":"text","text":"b"}]}`,
      "ab",
    ],
  ])("with the message %s says %j", (message, expected) => {
    expect(said(wire, chat(message))).toEqual({ text: expected, calls: [] });
  });

  it.each([
    [`{}`, "choices", "must be an array of one choice"],
    [`{"choices":[]}`, "choices", "must be an array of one choice"],
    [`{"choices":[{},{}]}`, "choices", "must be an array of one choice"],
    [`{"choices":[1]}`, "choices[0]", "must be an object"],
    [`{"choices":[{}]}`, "choices[0].message", "must be an object"],
    [chat(`{"content":""}`), "choices[0].message.role", "must be a string"],
    [chat(`{"role":"user"}`), "choices[0].message.role", `must be "assistant"`],
    [
      chat(`{"role":"assistant","content":1}`),
      "choices[0].message.content",
      "must be a string or an array",
    ],
    [
      chat(`{"role":"assistant","content":["a"]}`),
      "choices[0].message.content[0]",
      "must be an object",
    ],
    [
      chat(`{"role":"assistant","function_call":{"name":"f","arguments":"{}"}}`),
      "choices[0].message.function_call",
      "must be absent: calls are read from tool_calls",
    ],
    [
      chat(`{"role":"assistant","tool_calls":{}}`),
      "choices[0].message.tool_calls",
      "must be an array",
    ],
    [
      chat(`{"role":"assistant","tool_calls":[{"type":"other"}]}`),
      "choices[0].message.tool_calls[0].type",
      `must be "function" or "custom"`,
    ],
    [
      chat(`{"role":"assistant","tool_calls":[{"id":"a"}]}`),
      "choices[0].message.tool_calls[0].function",
      "must be an object",
    ],
    [
      chat(`{"role":"assistant","tool_calls":[{"id":7,"function":{"name":"f","arguments":""}}]}`),
      "choices[0].message.tool_calls[0].id",
      "must be a string",
    ],
    [
      chat(`{"role":"assistant","tool_calls":[{"function":{"arguments":""}}]}`),
      "choices[0].message.tool_calls[0].function.name",
      "must be a string",
    ],
  ])("is none as %s", (response, path, rule) => {
    expect(read(wire, response)).toEqual({ path, rule });
  });
});

describe("The arguments of a call as an object", () => {
  const message = (args: string) =>
    chat(`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":${args}}}]}`);

  it("are those of a response of Mistral", () => {
    expect(said(MISTRAL, message(`{ "n" : 1.0 }`)).calls[0]?.[1]).toBe(`{ "n" : 1.0 }`);
    expect(read(MISTRAL, message("[]"))).toMatchObject({
      path: "choices[0].message.tool_calls[0].function.arguments",
      rule: "must be a string or an object",
    });
  });

  it("are none of OpenAI Chat Completions", () => {
    for (const args of ["{}", "null"]) {
      expect(read(OPENAI_CHAT_COMPLETIONS, message(args))).toEqual({
        path: "choices[0].message.tool_calls[0].function.arguments",
        rule: "must be a string",
      });
    }
  });
});

describe("Each recorded response", () => {
  it.each([
    ["openai-responses", OPENAI_RESPONSES],
    ["openai-chat", OPENAI_CHAT_COMPLETIONS],
    ["mistral", MISTRAL],
  ])("of %s has as many calls as the recording says", (folder, wire) => {
    const conversations = recordedConversations(folder);
    if (conversations === undefined) {
      process.stdout.write(`no recordings of ${folder} in ${recordedFolder()}\n`);
      return;
    }
    for (const { file, steps, callsPerResponse } of conversations) {
      const counts = steps.map(({ response }) => turnOf(wire, response).calls.length);
      expect([file, counts]).toEqual([file, callsPerResponse]);
    }
  });
});
