import { describe, expect, it } from "vitest";

import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import { mistral } from "../../src/provider/mistral.js";
import { OPENAI_CHAT_RESPONSE_ONLY, openaiChat } from "../../src/provider/openai-chat.js";
import { openaiResponses } from "../../src/provider/openai-responses.js";
import { recordedConversations } from "../support/recorded-bodies.js";
import { recordedFolder } from "../support/recorded-files.js";
import { replayRecording, writtenInResponses } from "../support/replayed-recordings.js";
import { checkRequest } from "../support/request-schemas.js";
import {
  bytesContent,
  jsonOf,
  projectedCall,
  resultOf,
  spanOf,
  textContent,
  type SampleCall,
} from "../support/wire-samples.js";

const RESPONSES_NATIVE = "application/vnd.toolmark.openai-responses+json";
const CHAT_NATIVE = "application/vnd.toolmark.openai-chat+json";
const MISTRAL_NATIVE = "application/vnd.toolmark.mistral+json";

function responsesReplay(items: string, calls: readonly SampleCall[], itemIds = new Set<string>()) {
  const replayed = openaiResponses.replay(spanOf(items), calls.map(projectedCall), itemIds);
  return jsonOf(replayed);
}

describe("A turn of OpenAI Responses that goes back", () => {
  it("has its items as they came", () => {
    const items = [
      `{"type":"reasoning", "id":"rs_1","summary":[],"encrypted_content":"a\\u0062","n":1e400}`,
      `{"type":"message","id":"msg_1","status":"completed","role":"assistant","phase":"commentary",
        "content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"Hm"}]}`,
      `{"type":"function_call","id":"fc_1","call_id":"call_1","name":"a.b","arguments":"{ }"}`,
      `{"type":"web_search_call","id":"ws_1","status":"completed","action":{"query":"q"}}`,
      `{"type":"custom_tool_call","id":"ctc_1","call_id":"call_2","name":"c","input":"ls"}`,
    ];

    const calls = [{ callId: "call_1" }, { callId: "call_2" }];
    expect(responsesReplay(`[ ${items.join(" ,\n")} ]`, calls)).toEqual(items);
  });

  it("has the call ids of the request", () => {
    const call = (id: string) => `{"type":"function_call",${id}"name":"f","arguments":"{}"}`;
    const custom = `{"type":"custom_tool_call","call_id":"dup","name":"g","input":""}`;

    expect(
      responsesReplay(
        `[${call(`"call_id":"dup",`)},${call("")},${call(`"call_id":"",`)},${custom}]`,
        [...[{ callId: "a" }, { callId: "b" }], ...[{ callId: "c" }, { callId: "d" }]],
      ),
    ).toEqual([
      call(`"call_id":"a",`),
      `{"call_id":"b","type":"function_call","name":"f","arguments":"{}"}`,
      call(`"call_id":"c",`),
      custom.replace("dup", "d"),
    ]);
  });

  it.each([
    [`""`, `"{}"`],
    [`"{\\"a\\":"`, String.raw`"{\"invalid_arguments\":\"{\\\"a\\\":\"}"`],
    [`"[1]"`, String.raw`"{\"invalid_arguments\":\"[1]\"}"`],
    [String.raw`"{\"a\":\"\\ud800\"}"`, String.raw`"{\"a\":\"\\ufffd\"}"`],
    [String.raw`"{\"a\":\"\ud800\"}"`, `"{\\"a\\":\\"\ufffd\\"}"`],
  ])("has the arguments %s as %s", (args, expected) => {
    const call = (text: string) =>
      `{"type":"function_call","call_id":"a","name":"f","arguments":${text}}`;

    expect(responsesReplay(`[${call(args)}]`, [{ callId: "a" }])).toEqual([call(expected)]);
  });

  it("has U+FFFD for surrogates without a mate, wherever they are", () => {
    expect(responsesReplay(String.raw`[{"type":"web_search_call","x":"\ud800"}]`, [])).toEqual([
      String.raw`{"type":"web_search_call","x":"\ufffd"}`,
    ]);
    expect(
      responsesReplay(
        String.raw`[{"type":"custom_tool_call","call_id":"a","name":"f","input":"\udc00{"}]`,
        [{ callId: "a" }],
      ),
    ).toEqual([String.raw`{"type":"custom_tool_call","call_id":"a","name":"f","input":"\ufffd{"}`]);
  });

  it("has no item id that an earlier item of the request has, or that no item can have", () => {
    const itemIds = new Set(["rs_1"]);
    const search = (id: string) => `{"id":"${id}","type":"web_search_call"}`;
    const ids = ["rs_1", "rs_2", "rs_2", "rs:3", "r".repeat(65), "r".repeat(64), ""];

    const bare = `{"type":"web_search_call"}`;
    expect(responsesReplay(`[${ids.map(search).join(",")}]`, [], itemIds)).toEqual([
      ...[bare, search("rs_2"), bare, bare, bare, search("r".repeat(64)), bare],
    ]);
    expect([...itemIds]).toEqual(["rs_1", "rs_2", "r".repeat(64)]);
  });

  it("has results of the kinds of its calls", () => {
    const items = spanOf(
      `[{"type":"message"},{"type":"custom_tool_call"},{"type":"mcp_call"},{"type":"function_call"}]`,
    );
    const calls = [projectedCall({ callId: "a" }), projectedCall({ callId: "b" })];

    expect(jsonOf(openaiResponses.results(calls, items))).toEqual([
      `{"type":"custom_tool_call_output","call_id":"a","output":"r"}`,
      `{"type":"function_call_output","call_id":"b","output":"r"}`,
    ]);
  });
});

const CALL: SampleCall = { callId: "a", toolName: "a.b", args: `{"n":1.0}` };

describe("A turn from elsewhere", () => {
  it("is a message and function calls for OpenAI Responses", () => {
    const own = { ...projectedCall({ ...CALL, callId: "b", args: "" }), itemId: "fc_1" };
    const items = jsonOf(openaiResponses.compose(`a "b"`, [projectedCall(CALL), own]));

    expect(items).toEqual([
      String.raw`{"role":"assistant","content":"a \"b\""}`,
      String.raw`{"type":"function_call","call_id":"a","name":"a_b","arguments":"{\"n\":1.0}"}`,
      `{"type":"function_call","id":"fc_1","call_id":"b","name":"a_b","arguments":"{}"}`,
    ]);
    const outputs = jsonOf(openaiResponses.results([projectedCall(CALL), own], undefined));
    expect(
      checkRequest(ProviderWire.OPENAI_RESPONSES, `[${[...items, ...outputs].join(",")}]`),
    ).toEqual([]);
  });

  it.each([
    [ProviderWire.OPENAI_CHAT_COMPLETIONS, openaiChat],
    [ProviderWire.MISTRAL, mistral],
  ])(
    "is one message for Chat Completions and for Mistral (wire %i)",
    (wire, { compose, results }) => {
      const call =
        `{"id":"a","type":"function","function":` +
        String.raw`{"name":"a_b","arguments":"{\"n\":1.0}"}}`;
      const calls = [projectedCall(CALL)];

      const items = [...jsonOf(compose("said", calls)), ...jsonOf(results(calls, undefined))];
      expect(items).toEqual([
        `{"role":"assistant","content":"said","tool_calls":[${call}]}`,
        `{"role":"tool","tool_call_id":"a","content":"r"}`,
      ]);
      expect(checkRequest(wire, `[${items.join(",")}]`)).toEqual([]);
      expect(jsonOf(compose("", calls))).toEqual([
        `{"role":"assistant","content":null,"tool_calls":[${call}]}`,
      ]);
      expect(jsonOf(compose("said", []))).toEqual([`{"role":"assistant","content":"said"}`]);
    },
  );

  it.each([openaiResponses, openaiChat, mistral])("that said nothing is none: %#", (wire) => {
    expect(wire.compose("", [])).toEqual([]);
  });
});

describe("What is told of a call and what is said", () => {
  const list = `[{"type":"text","text":"1.0"}]`;

  it("is native content as it is written, and text of anything else", () => {
    const results = [
      resultOf(textContent(list, RESPONSES_NATIVE)),
      resultOf(textContent(list, CHAT_NATIVE)),
      resultOf(textContent(list, MISTRAL_NATIVE)),
      resultOf(bytesContent([0xff], "image/png"), true),
    ];
    const calls = results.map((result) => projectedCall({ callId: "a", result }));
    const values = (wire: typeof mistral) =>
      wire.results(calls, undefined).map(({ json }) => {
        const item = JSON.parse(json) as { output?: unknown; content?: unknown };
        return item.output ?? item.content;
      });

    const note = "[image/png, 1 bytes, not shown as text]";
    const parts: unknown = JSON.parse(list);
    expect(values(openaiResponses)).toEqual([parts, list, list, note]);
    expect(values(openaiChat)).toEqual([list, parts, list, note]);
    expect(values(mistral)).toEqual([list, list, parts, note]);
  });

  it.each([
    [openaiResponses, RESPONSES_NATIVE],
    [openaiChat, CHAT_NATIVE],
    [mistral, MISTRAL_NATIVE],
  ])("is a message of whoever said it: %#", (wire, native) => {
    for (const speaker of ["system", "user", "assistant"] as const) {
      const messages = [
        wire.message(speaker, textContent(`a\n`), undefined),
        wire.message(speaker, textContent(list, native), undefined),
        wire.message(speaker, textContent(""), undefined),
        wire.message(speaker, textContent("[]", native), undefined),
      ];

      expect(messages).toEqual([
        [{ speaker, json: String.raw`{"role":"${speaker}","content":"a\n"}` }],
        [{ speaker, json: `{"role":"${speaker}","content":${list}}` }],
        [],
        [],
      ]);
    }
  });
});

function chatReplay(message: string, ...calls: readonly SampleCall[]): readonly string[] {
  return jsonOf(openaiChat.replay(spanOf(message), calls.map(projectedCall), new Set()));
}

function mistralReplay(message: string, ...calls: readonly SampleCall[]): readonly string[] {
  return jsonOf(mistral.replay(spanOf(message), calls.map(projectedCall), new Set()));
}

describe("A turn of Chat Completions that goes back", () => {
  const message = (calls: string, more = "") =>
    `{ "role":"assistant","content":null${more},"tool_calls":[ ${calls} ]}`;
  const call = (id: string, args = `"{}"`) =>
    `{${id}"type":"function","function":{"name":"a.b","arguments":${args}}}`;

  it("is as it came", () => {
    const own = message(
      `${call(`"id":"a",`, `"{ \\"n\\" : 1.0}"`)},{"id":"b","type":"custom","custom":{"name":"c","input":"ls"}}`,
      `,"refusal":null,"annotations":[],"reasoning_content":"a\\u0062"`,
    );

    expect(chatReplay(own, { callId: "a" }, { callId: "b" })).toEqual([own]);
  });

  it("has the call ids of the request", () => {
    const calls = [call(`"id":"dup",`), call(""), call(`"id":"",`)];

    expect(
      chatReplay(message(calls.join(",")), { callId: "a" }, { callId: "b" }, { callId: "c" }),
    ).toEqual([message([call(`"id":"a",`), call(`"id":"b",`), call(`"id":"c",`)].join(","))]);
  });

  it("has arguments that any provider takes, and the type of each call", () => {
    expect(chatReplay(message(call(`"id":"a",`, `"{\\"a\\":"`)), { callId: "a" })).toEqual([
      message(call(`"id":"a",`, String.raw`"{\"invalid_arguments\":\"{\\\"a\\\":\"}"`)),
    ]);
    expect(chatReplay(message(call(`"id":"a",`, `""`)), { callId: "a" })).toEqual([
      message(call(`"id":"a",`)),
    ]);
    expect(chatReplay(message(call(`"id":"a",`, `{ "n" : 1.0}`)), { callId: "a" })).toEqual([
      message(call(`"id":"a",`, `"{ \\"n\\" : 1.0}"`)),
    ]);
    const untyped = `{"id":"a","function":{"name":"f","arguments":"{}"}}`;
    expect(chatReplay(message(untyped), { callId: "a" })).toEqual([
      message(`{"type":"function",${untyped.slice(1)}`),
    ]);
  });

  it.each([
    [`{"id":"au_1","data":"AAAA","expires_at":1,"transcript":"t"}`, `,"audio":{"id":"au_1"}`],
    [`{"id":"","data":"","expires_at":0,"transcript":""}`, ""],
    ["null", ""],
  ])("has of the audio %s what a request may have", (audio, expected) => {
    const own = (more: string) => `{"role":"assistant","content":""${more}}`;

    expect(chatReplay(own(`,"audio":${audio}`))).toEqual([own(expected)]);
  });

  it("has content if it has no calls", () => {
    expect(chatReplay(`{"role":"assistant","content":null,"refusal":"No."}`)).toEqual([
      `{"role":"assistant","content":"","refusal":"No."}`,
    ]);
    expect(chatReplay(`{"role":"assistant"}`)).toEqual([`{"content":"","role":"assistant"}`]);
  });

  it("breaks an invariant if its calls are not those of its items", () => {
    expect(() => chatReplay(message(call("")))).toThrow("a kept message has other calls");
    expect(() => responsesReplay(`[{"type":"function_call"}]`, [])).toThrow("has no call");
  });
});

describe("A turn for Mistral", () => {
  it("is as it came, but for members that the interface does not know", () => {
    const own =
      `{"role":"assistant","tool_calls":[{"id":"aaaaaaaaa","function":` +
      `{"name":"f","arguments":{ "n":1.0}},"index":0}],"content":""}`;
    const other = own
      .replace(`"content"`, `"annotations":[],"refusal":null,"content"`)
      .replace(`"index"`, `"custom":{},"index"`);

    expect(mistralReplay(own, { callId: "aaaaaaaaa" })).toEqual([own]);
    expect(mistralReplay(other, { callId: "aaaaaaaaa" })).toEqual([own]);
  });

  it("has functions in the place of calls that are none", () => {
    const call = `{"id":"x","type":"custom","custom":{"name":"c","input":"ls"}}`;
    const own = `{"role":"assistant","content":"a","tool_calls":[${call}]}`;

    expect(mistralReplay(own, { callId: "aaaaaaaaa", toolName: "c", args: "ls" })).toEqual([
      `{"role":"assistant","content":"a","tool_calls":[{"id":"aaaaaaaaa","type":"function",` +
        String.raw`"function":{"name":"c","arguments":"{\"invalid_arguments\":\"ls\"}"}}]}`,
    ]);
  });

  it.each([
    `{"role":"assistant","content":"","tool_calls":null}`,
    `{"role":"assistant","content":null}`,
    `{"role":"assistant","content":[]}`,
    `{"role":"assistant"}`,
  ])("is none if it says and calls nothing: %s", (message) => {
    expect(mistralReplay(message)).toEqual([]);
  });

  it("has a word of the assistant between a result and the user's", () => {
    const [user] = mistral.message("user", textContent("x"), "tool");
    const [assistant] = mistral.message("assistant", textContent("x"), "tool");

    expect(jsonOf(mistral.between("tool", user!))).toEqual([`{"role":"assistant","content":"OK"}`]);
    expect(mistral.between("tool", assistant!)).toEqual([]);
    for (const before of [undefined, "system", "user", "assistant"] as const) {
      expect(mistral.between(before, user!)).toEqual([]);
    }
  });

  it("has a system message where it may stand, and else a text of the user", () => {
    const after = (before: Parameters<typeof mistral.message>[2]) =>
      jsonOf(mistral.message("system", textContent("Be brief."), before));

    for (const before of [undefined, "system", "user"] as const) {
      expect(after(before)).toEqual([`{"role":"system","content":"Be brief."}`]);
    }
    for (const before of ["assistant", "tool"] as const) {
      expect(after(before)).toEqual([`{"role":"user","content":"<system>Be brief.</system>"}`]);
    }
  });
});

describe("Each recorded response", () => {
  const WIRES = [
    ["openai-responses", openaiResponses, ["output"]],
    ["openai-chat", openaiChat, ["choices", 0, "message"]],
    ["mistral", mistral, ["choices", 0, "message"]],
  ] as const;
  /** Members of a recorded response that a request may not have; the client of the recording left them out as well. */
  const LEFT_OUT =
    /\s*"audio": \{[^}]*\},|\s*"function_call": null,|,\s*"tool_calls": null(?=\s*\})/g;

  it.each(WIRES)("of %s goes back as it came", (folder, wire, path) => {
    const conversations = recordedConversations(folder);
    if (conversations === undefined) {
      process.stdout.write(`no recordings of ${folder} in ${recordedFolder()}\n`);
      return;
    }
    for (const conversation of conversations) {
      const { callsPerResponse, replayed } = replayRecording(wire, conversation);
      const written = writtenInResponses(conversation, [...path]);
      const expected = written.map((items) => {
        const { text, node } = spanOf(
          folder === "openai-chat" ? items.replace(LEFT_OUT, "") : items,
        );
        const values = node.type === "array" ? (node.children ?? []) : [node];
        return values.map(({ offset, length }) => text.slice(offset, offset + length));
      });

      expect([conversation.file, callsPerResponse]).toEqual([
        conversation.file,
        conversation.callsPerResponse,
      ]);
      expect([conversation.file, replayed]).toEqual([conversation.file, expected]);
    }
  });

  it("needs no more than the members that are listed to be left out", () => {
    expect(OPENAI_CHAT_RESPONSE_ONLY.map(({ member }) => member)).toEqual([
      "audio",
      "tool_calls",
      "function_call",
    ]);
  });
});
