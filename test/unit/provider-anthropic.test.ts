import { describe, expect, it } from "vitest";

import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import {
  ANTHROPIC_RESPONSE_ONLY,
  anthropicMessages as wire,
} from "../../src/provider/anthropic-messages.js";
import { recordedConversations, type RecordedConversation } from "../support/recorded-bodies.js";
import { recordedFolder } from "../support/recorded-files.js";
import { replayRecording, writtenInResponses } from "../support/replayed-recordings.js";
import { checkRequest, checkRequests } from "../support/request-schemas.js";
import {
  bytesContent,
  jsonOf,
  projectedCall,
  readResponse,
  resultOf,
  textContent,
  replayedOver,
  type SampleCall,
} from "../support/wire-samples.js";

const NATIVE = "application/vnd.toolmark.anthropic-messages+json";

function response(blocks: string): string {
  return `{"id":"msg_1","type":"message","role":"assistant","content":${blocks},"usage":{}}`;
}

function replayed(blocks: string, ...calls: readonly SampleCall[]): readonly string[] {
  return replayedOver(wire, blocks, calls);
}

function assistant(blocks: string): string {
  return `{"role":"assistant","content":${blocks}}`;
}

function user(content: string): string {
  return `{"role":"user","content":${content}}`;
}

describe("A response of Anthropic Messages", () => {
  it("says its texts and calls, each call with the arguments as they are written", () => {
    const read = readResponse(
      wire,
      response(`[{"type":"thinking","thinking":"hm","signature":"s"},
        {"type":"text","text":"Look"},{"type":"text","text":"ing."},
        {"type":"tool_use","id":"toolu_1","name":"t","input":{ "n" : 1.0, "big": 1e400 }},
        {"type":"tool_use","id":"toolu_2","name":"u","input":{}},
        {"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}},
        {"type":"text","text":"More."}]`),
    );

    expect(read).toMatchObject({
      content: {
        text: "Looking.\n\nMore.",
        calls: [
          { callId: "toolu_1", toolName: "t", arguments: `{ "n" : 1.0, "big": 1e400 }` },
          { callId: "toolu_2", toolName: "u", arguments: "{}" },
        ],
      },
    });
  });

  it.each([
    [`{"a":1}`, `{"a":1}`],
    [`[1]`, "[1]"],
    [`"{\\"a\\":"`, `{"a":`],
    [`null`, "null"],
  ])("has the input %s as the arguments %s", (input, args) => {
    const read = readResponse(
      wire,
      response(`[{"type":"tool_use","id":"1","name":"t","input":${input}}]`),
    );

    expect(read).toMatchObject({ content: { calls: [{ arguments: args }] } });
  });

  it.each([
    [`{"type":"error","error":{}}`, "type"],
    [`{"type":"message","role":"user","content":[]}`, "role"],
    [`{"type":"message","role":"assistant"}`, "content"],
    [`{"type":"message","role":"assistant","content":"a"}`, "content"],
    [response(`[1]`), "ITEMS[0]"],
    [response(`[{"text":"a"}]`), "ITEMS[0].type"],
    [response(`[{"type":"text","text":1}]`), "ITEMS[0].text"],
    [response(`[{"type":"text","text":""},{"type":"tool_use"}]`), "ITEMS[1].id"],
    [response(`[{"type":"tool_use","id":null,"name":"t","input":{}}]`), "ITEMS[0].id"],
    [response(`[{"type":"tool_use","id":"1","name":"","input":{}}]`), "ITEMS[0].name"],
    [response(`[{"type":"tool_use","id":"1","name":"t"}]`), "ITEMS[0].input"],
  ])("is refused if it is %s, at %s", (text, path) => {
    expect(readResponse(wire, text)).toMatchObject({ path });
  });
});

describe("A turn of Anthropic Messages goes back", () => {
  it("as it came, to the byte", () => {
    const blocks = `[ {"type":"thinking", "thinking":"", "signature":"a+/="} ,
      {"type":"text","text":" é\\u00e9\\/ "},
      {"type":"tool_use","id":"1","name":"a b.c","input":{"n":-0,"f":1.0},"caller":{"type":"direct"}},
      {"type":"new_block","x":2512292042121000001} ]`;

    expect(replayed(blocks, { callId: "1" })).toEqual([assistant(blocks)]);
  });

  it("with other ids where the request has others, and nothing else changed", () => {
    const [first, second] = [`{"type":"tool_use","id":"x:0",`, `{"type":"tool_use","id":"y",`];
    const rest = `"name":"t","input":{"id":"x:0"}}`;

    const items = replayed(`[${first}${rest}, ${second}${rest}]`, { callId: "a" }, { callId: "y" });

    expect(items).toEqual([assistant(`[{"type":"tool_use","id":"a",${rest}, ${second}${rest}]`)]);
  });

  it.each([
    [`"{\\"a\\":"`, `{"a":`, `{"invalid_arguments":"{\\"a\\":"}`],
    [`[1]`, "[1]", `{"invalid_arguments":"[1]"}`],
    [`""`, "", "{}"],
    [`"{\\"a\\":1}"`, `{"a":1}`, `{"a":1}`],
  ])("with an object in the place of the input %s", (input, args, valid) => {
    const block = (json: string): string =>
      `[{"type":"tool_use","id":"1","name":"t","input":${json}}]`;

    expect(replayed(block(input), { callId: "1", args })).toEqual([assistant(block(valid))]);
  });

  it.each([
    [`[{"type":"text","text":"a"}, {"type":"text","text":""}]`, `[{"type":"text","text":"a"}]`],
    [`[{"type":"text","text":" \\n"}, {"type":"text","text":"a"}]`, `[{"type":"text","text":"a"}]`],
    [
      `[{"type":"text","text":"\\ud83d\\ud83d\\ude00"}]`,
      `[{"type":"text","text":"\\ufffd\\ud83d\\ude00"}]`,
    ],
  ])("without what the interface refuses: %s", (blocks, kept) => {
    expect(replayed(blocks)).toEqual([assistant(kept)]);
  });

  it.each(["[]", `[{"type":"text","text":""}]`])("as nothing if it says nothing: %s", (blocks) => {
    expect(replayed(blocks)).toEqual([]);
  });

  it("without the members that only responses have", () => {
    const at = `"type":"char_location","cited_text":"c","document_index":0,"document_title":null`;
    const citation = `${at},"start_char_index":0,"end_char_index":1`;
    const blocks = (members: string): string =>
      `[{"type":"text","text":"a","citations":[{${members}${citation}}]}]`;

    const items = replayed(blocks(`"file_id":null,`));

    expect(ANTHROPIC_RESPONSE_ONLY).toHaveLength(1);
    expect(items).toEqual([assistant(blocks(""))]);
    expect(checkRequest(ProviderWire.ANTHROPIC_MESSAGES, `[${items.join(",")}]`)).toEqual([]);
  });
});

describe("What Anthropic Messages is told of", () => {
  it("another provider's turn is its text and its calls", () => {
    const calls = [{ callId: "1", toolName: "fs.read/ä", args: '{"a":' }, { callId: "2" }];

    expect(jsonOf(wire.compose("Hi", calls.map(projectedCall)))).toEqual([
      assistant(
        `[{"type":"text","text":"Hi"},` +
          `{"type":"tool_use","id":"1","name":"fs_read__","input":{"invalid_arguments":"{\\"a\\":"}},` +
          `{"type":"tool_use","id":"2","name":"t","input":{}}]`,
      ),
    ]);
    expect(wire.compose(" \n", [])).toEqual([]);
  });

  it("the results of a turn are one message of the user, in the order of the calls", () => {
    const results = [
      resultOf(textContent("ok")),
      resultOf(textContent(""), true),
      resultOf(textContent(`[{"type":"text","text":"\\ud800"}]`, NATIVE)),
      resultOf(textContent(`{"type":"text"}`, NATIVE)),
      resultOf(bytesContent([0xff, 0xfe], "image/png")),
      resultOf(bytesContent([0x61, 0xff], "text/plain")),
    ];
    const calls = results.map((result, index) => projectedCall({ callId: `${index}`, result }));

    const items = wire.results(calls, undefined);

    const block = (id: number, content: string): string =>
      `{"type":"tool_result","tool_use_id":"${id}","content":${content}}`;
    expect(jsonOf(items)).toEqual([
      user(
        `[${block(0, `"ok"`)},${block(1, `"The call failed and gave no text.","is_error":true`)},` +
          `${block(2, `[{"type":"text","text":"\\ufffd"}]`)},${block(3, `"{\\"type\\":\\"text\\"}"`)},` +
          `${block(4, `"[image/png, 2 bytes, not shown as text]"`)},${block(5, `"a\ufffd"`)}]`,
      ),
    ]);
    expect(items.map(({ speaker }) => speaker)).toEqual(["tool"]);
    expect(wire.results([], undefined)).toEqual([]);
  });

  it.each([
    ["user", textContent("a\n"), [user(`"a\\n"`)]],
    ["assistant", textContent("a"), [assistant(`"a"`)]],
    ["system", textContent("a"), [user(`"<system>a</system>"`)]],
    [
      "user",
      textContent(` [ {"type":"text","text":"a"} ]\n`, NATIVE),
      [user(`[ {"type":"text","text":"a"} ]`)],
    ],
    ["user", textContent(" "), []],
    ["user", textContent("[ ]", NATIVE), []],
    ["system", textContent(""), []],
  ] as const)("a message of the %s is %j", (speaker, content, items) => {
    expect(jsonOf(wire.message(speaker, content, "user"))).toEqual(items);
  });

  it("system texts are the blocks of the system value", () => {
    const contents = [
      textContent("a"),
      textContent(" "),
      textContent(`[{"type":"text","text":"b"}]`, NATIVE),
      textContent(`"c"`, NATIVE),
    ];

    const system = wire.system?.(contents) ?? "";

    const blocks = ["a", "b", "c"].map((text) => `{"type":"text","text":"${text}"}`);
    expect(system).toBe(`[${blocks.join(",")}]`);
    expect(checkRequest(ProviderWire.ANTHROPIC_MESSAGES, "[]", system)).toEqual([]);
  });

  it("a history that begins with the assistant has a message of the user before it", () => {
    const [said] = wire.compose("a", []);
    const [asked] = wire.message("user", textContent("a"), undefined);

    expect(jsonOf(wire.between(undefined, said!))).toEqual([user(`"Continue."`)]);
    expect(wire.between("user", said!)).toEqual([]);
    expect(wire.between("assistant", said!)).toEqual([]);
    expect(wire.between(undefined, asked!)).toEqual([]);
  });
});

describe("A call id of Anthropic Messages", () => {
  it.each([
    ["toolu_01-A", true],
    ["x".repeat(512), true],
    ["functions.Bash:0", false],
    ["é", false],
    ["a\n", false],
    ["", false],
  ])("%j fits: %s", (id, fits) => {
    expect(wire.ids.fits(id)).toBe(fits);
  });

  it("is derived as one that fits", () => {
    const id = wire.ids.derive?.(new Uint8Array(32).fill(255)) ?? "";

    expect(id).toMatch(/^call_[0-9a-z]{26}$/);
    expect(wire.ids.fits(id)).toBe(true);
  });
});

const conversations = recordedConversations("anthropic-messages");
if (conversations === undefined) {
  process.stdout.write(`recorded Anthropic turns: not checked, no ${recordedFolder()}\n`);
}

function describeRecorded(all: readonly RecordedConversation[]): void {
  it.each(all)("$file: makes the calls that it states", (conversation) => {
    const { callsPerResponse } = replayRecording(wire, conversation);

    expect(callsPerResponse).toEqual(conversation.callsPerResponse);
  });

  it.each(all)("$file: goes back as it came, to the byte", (conversation) => {
    const { replayed: items } = replayRecording(wire, conversation);

    const written = writtenInResponses(conversation, ["content"]);
    expect(items).toEqual(written.map((blocks) => [assistant(blocks)]));
  });

  it("all go back in a request that the provider's own types take", () => {
    const requests = all.map((conversation) => {
      const items = replayRecording(wire, conversation).replayed.flat();
      return { wire: ProviderWire.ANTHROPIC_MESSAGES, itemsJson: `[${items.join(",")}]` };
    });

    expect(checkRequests(requests)).toEqual(all.map(() => []));
  });
}

if (conversations !== undefined) {
  describe("A recorded Anthropic turn", () => {
    describeRecorded(conversations);
  });
}
