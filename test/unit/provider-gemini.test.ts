import { describe, expect, it } from "vitest";

import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import { gemini as wire } from "../../src/provider/gemini.js";
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
  spanOf,
  textContent,
  replayedOver,
  type SampleCall,
} from "../support/wire-samples.js";

const NATIVE = "application/vnd.toolmark.gemini+json";
const SIGNATURE = `"thoughtSignature":"skip_thought_signature_validator"`;

function response(content: string): string {
  return `{"candidates":[{"content":${content},"finishReason":"STOP"}],"modelVersion":"m"}`;
}

function responseOf(parts: string): string {
  return response(model(parts));
}

function replayed(content: string, ...calls: readonly SampleCall[]): readonly string[] {
  return replayedOver(wire, content, calls);
}

function model(parts: string): string {
  return `{"role":"model","parts":${parts}}`;
}

function user(parts: string): string {
  return `{"role":"user","parts":${parts}}`;
}

describe("A response of Gemini", () => {
  it("says its texts and calls, each call with the arguments as they are written", () => {
    const read = readResponse(
      wire,
      responseOf(`[{"text":"hm","thought":true},{"text":"Look"},{"text":"ing.","thought":false},
        {"functionCall":{"name":"t","args":{ "n" : 1.0, "big": 1e400 },"id":"c1"},"thoughtSignature":"s"},
        {"functionCall":{"name":"u"}},{"functionCall":{"name":"v","args":null,"id":null}},
        {"executableCode":{"language":"PYTHON","code":"1"}},{"text":"More."}]`),
    );

    expect(read).toMatchObject({
      content: {
        text: "Looking.\n\nMore.",
        calls: [
          { callId: "c1", toolName: "t", arguments: `{ "n" : 1.0, "big": 1e400 }` },
          { callId: undefined, toolName: "u", arguments: "" },
          { callId: undefined, toolName: "v", arguments: "" },
        ],
      },
    });
  });

  it.each([
    [`"{\\"a\\":"`, `{"a":`],
    ["[1]", "[1]"],
  ])("has the arguments %s as %s", (args, written) => {
    const read = readResponse(wire, responseOf(`[{"functionCall":{"name":"t","args":${args}}}]`));

    expect(read).toMatchObject({ content: { calls: [{ arguments: written }] } });
  });

  it.each([`{"role":"model"}`, `{"role":"model","parts":null}`, model("[]")])(
    "says nothing if it is %s",
    (content) => {
      expect(readResponse(wire, response(content))).toMatchObject({
        content: { text: "", calls: [] },
      });
    },
  );

  it.each([
    [`{"promptFeedback":{"blockReason":"SAFETY"}}`, "candidates"],
    [`{"candidates":[]}`, "candidates"],
    [`{"candidates":[{"content":{"parts":[]}},{"content":{"parts":[]}}]}`, "candidates"],
    [`{"candidates":[{"finishReason":"SAFETY"}]}`, "candidates[0].content"],
    [response(`{"role":"user","parts":[]}`), "candidates[0].content.role"],
    [response(`{"parts":{}}`), "ITEMS.parts"],
    [responseOf(`["a"]`), "ITEMS.parts[0]"],
    [responseOf(`[{"text":"a"},{"text":1}]`), "ITEMS.parts[1].text"],
    [responseOf(`[{"functionCall":"t"}]`), "ITEMS.parts[0].functionCall"],
    [responseOf(`[{"functionCall":{"args":{}}}]`), "ITEMS.parts[0].functionCall.name"],
    [responseOf(`[{"functionCall":{"name":"t","id":1}}]`), "ITEMS.parts[0].functionCall.id"],
  ])("is refused if it is %s, at %s", (text, path) => {
    expect(readResponse(wire, text)).toMatchObject({ path });
  });
});

describe("A turn of Gemini goes back", () => {
  it("as it came, to the byte", () => {
    const content = ` { "parts" : [ {"text":"hm", "thought":true},
      {"functionCall":{"name":"a b.c","args":{"n":-0,"f":1.0},"id":"x"},"thoughtSignature":"a+/="},
      {"functionCall":{"name":"t","args":{}}}, {"text":"","thoughtSignature":"b"},
      {"newPart":2512292042121000001} ], "role":"model"}`;

    expect(replayed(content, { callId: "x" }, {})).toEqual([content.trim()]);
  });

  it("without an id that the request has already", () => {
    const call = `"name":"t","args":{"id":"x"}}}]`;

    expect(replayed(model(`[{"functionCall":{"id":"x",${call}`), {})).toEqual([
      model(`[{"functionCall":{${call}`),
    ]);
    expect(replayed(model(`[{"functionCall":{"name":"t","id":""}}]`), {})).toEqual([
      model(`[{"functionCall":{"name":"t"}}]`),
    ]);
  });

  it.each([
    [`"{\\"a\\":"`, `{"a":`, `{"invalid_arguments":"{\\"a\\":"}`],
    [`[1]`, "[1]", `{"invalid_arguments":"[1]"}`],
    ["null", "", "{}"],
    [`{"a":"\\udc00"}`, `{"a":"\\udc00"}`, `{"a":"\\ufffd"}`],
  ])("with a valid object in the place of the arguments %s", (written, args, valid) => {
    const parts = (json: string): string => `[{"functionCall":{"name":"t","args":${json}}}]`;

    expect(replayed(model(parts(written)), { args })).toEqual([model(parts(valid))]);
  });

  it("as one of the model if it does not say whose it is", () => {
    expect(replayed(`{"parts":[{"text":"a"}]}`)).toEqual([
      `{"role":"model","parts":[{"text":"a"}]}`,
    ]);
  });

  it("without parts that hold nothing", () => {
    expect(replayed(model(`[{}, {"text":"a"}]`))).toEqual([model(`[{"text":"a"}]`)]);
  });

  it.each([`{"role":"model"}`, model("[]"), model("[{}]")])(
    "as nothing if it says nothing: %s",
    (content) => {
      expect(replayed(content)).toEqual([]);
    },
  );
});

describe("What Gemini is told of", () => {
  it("another provider's turn is its text and its calls, the first with the signature of such", () => {
    const calls = [
      { callId: "1", toolName: "fs.read/ä", args: `{"a":` },
      { callId: undefined, args: `{"n":1.0}` },
    ];

    const items = jsonOf(wire.compose("Hi", calls.map(projectedCall)));

    expect(items).toEqual([
      model(
        `[{"text":"Hi"},{"functionCall":{"id":"1","name":"fs_read__",` +
          `"args":{"invalid_arguments":"{\\"a\\":"}},${SIGNATURE}},` +
          `{"functionCall":{"name":"t","args":{"n":1.0}}}]`,
      ),
    ]);
    expect(checkRequest(ProviderWire.GEMINI, `[${items.join(",")}]`)).toEqual([]);
    expect(wire.compose("", [])).toEqual([]);
  });

  it("three results of calls without ids are three, in the order of the calls", () => {
    const calls = ["a", "b", "c"].map((text) =>
      projectedCall({ callId: undefined, result: resultOf(textContent(text)) }),
    );

    const items = wire.results(calls, undefined);

    const part = (text: string): string =>
      `{"functionResponse":{"name":"t","response":{"result":"${text}"}}}`;
    expect(jsonOf(items)).toEqual([user(`[${part("a")},${part("b")},${part("c")}]`)]);
    expect(items.map(({ speaker }) => speaker)).toEqual(["tool"]);
    expect(wire.results([], undefined)).toEqual([]);
  });

  it.each([
    [resultOf(textContent("ok")), `{"result":"ok"}`],
    [resultOf(textContent("no"), true), `{"error":"no"}`],
    [resultOf(textContent("")), `{"result":""}`],
    [resultOf(textContent(`{"n": 1.0 }`, "application/json")), `{"n": 1.0 }`],
    [resultOf(textContent(`{"a":"\\ud800"}`, NATIVE), true), `{"a":"\\ufffd"}`],
    [resultOf(textContent("[1]", "application/json")), `{"result":"[1]"}`],
    [
      resultOf(bytesContent([0xff], "image/png")),
      `{"result":"[image/png, 1 bytes, not shown as text]"}`,
    ],
  ])("the result %j is the response %s", (result, expected) => {
    const items = jsonOf(wire.results([projectedCall({ callId: "1", result })], undefined));

    const head = `{"functionResponse":{"id":"1","name":"t","response":`;
    expect(items).toEqual([user(`[${head}${expected}}}]`)]);
  });

  it("a result has the name of its call as the request shows it", () => {
    const content = spanOf(model(`[{"functionCall":{"name":"a.b"}}]`));
    const calls = [projectedCall({ toolName: "a.b" })];

    const own = jsonOf(wire.results(calls, content));
    const foreign = jsonOf(wire.results(calls, undefined));

    expect(own[0]).toContain(`"name":"a.b"`);
    expect(foreign[0]).toContain(`"name":"a_b"`);
    expect(jsonOf(wire.compose("", calls))[0]).toContain(`"name":"a_b"`);
  });

  it.each([
    ["user", textContent("a\n"), [user(`[{"text":"a\\n"}]`)]],
    ["user", textContent(""), []],
    ["assistant", textContent("a"), [model(`[{"text":"a"}]`)]],
    ["system", textContent("a"), [user(`[{"text":"<system>a</system>"}]`)]],
    [
      "user",
      textContent(` [{"text":"a"}, {"text":"b"}]\n`, NATIVE),
      [user(`[{"text":"a"}, {"text":"b"}]`)],
    ],
    ["user", textContent("[ ]", NATIVE), []],
  ] as const)("a message of the %s is %j", (speaker, content, items) => {
    expect(jsonOf(wire.message(speaker, content, "user"))).toEqual(items);
  });

  it("system texts are the parts of the system value", () => {
    const contents = [textContent("a"), textContent(`[{"text":"b"}]`, NATIVE), textContent("")];

    const system = wire.system?.(contents) ?? "";

    expect(system).toBe(`{"parts":[{"text":"a"},{"text":"b"}]}`);
    expect(checkRequest(ProviderWire.GEMINI, "[]", system)).toEqual([]);
  });

  it("a call has a user's content or results before it", () => {
    const [call] = wire.compose("", [projectedCall({})]);
    const [said] = wire.compose(`"functionCall"`, []);
    const prompt = [user(`[{"text":"Continue."}]`)];

    expect(jsonOf(wire.between(undefined, call!))).toEqual(prompt);
    expect(jsonOf(wire.between("assistant", call!))).toEqual(prompt);
    expect(wire.between("user", call!)).toEqual([]);
    expect(wire.between("tool", call!)).toEqual([]);
    expect(wire.between("assistant", said!)).toEqual([]);
  });
});

describe("A call id of Gemini", () => {
  it.each([
    ["call_883098", true],
    ["x".repeat(64), true],
    ["x".repeat(65), false],
    ["functions.Bash:0", false],
    ["", false],
  ])("of another provider, %j, fits: %s", (id, fits) => {
    expect(wire.ids.fits(id)).toBe(fits);
  });

  it.each([
    ["functions.Bash:0", true],
    ["", false],
  ])("of its own, %j, fits: %s", (id, fits) => {
    expect(wire.ids.fitsOwn?.(id)).toBe(fits);
  });

  it("is never made up", () => {
    expect(wire.ids.derive).toBeUndefined();
  });
});

const conversations = recordedConversations("gemini");
if (conversations === undefined) {
  process.stdout.write(`recorded Gemini turns: not checked, no ${recordedFolder()}\n`);
}

function describeRecorded(all: readonly RecordedConversation[]): void {
  it.each(all)("$file: makes the calls that it states", (conversation) => {
    const { callsPerResponse } = replayRecording(wire, conversation);

    expect(callsPerResponse).toEqual(conversation.callsPerResponse);
  });

  it.each(all)("$file: goes back as it came, to the byte", (conversation) => {
    const { replayed: items } = replayRecording(wire, conversation);

    const written = writtenInResponses(conversation, ["candidates", 0, "content"]);
    expect(items).toEqual(written.map((content) => [content]));
  });

  it("all go back in a request that the provider's own types take", () => {
    const requests = all.map((conversation) => {
      const items = replayRecording(wire, conversation).replayed.flat();
      return { wire: ProviderWire.GEMINI, itemsJson: `[${items.join(",")}]` };
    });

    expect(checkRequests(requests)).toEqual(all.map(() => []));
  });
}

if (conversations !== undefined) {
  describe("A recorded Gemini turn", () => {
    describeRecorded(conversations);
  });
}
