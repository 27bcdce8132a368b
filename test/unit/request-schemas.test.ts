import { describe, expect, test } from "vitest";

import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import { checkRequest, checkRequests, type RequestOfWire } from "../support/request-schemas.js";

const { OPENAI_RESPONSES, OPENAI_CHAT_COMPLETIONS, ANTHROPIC_MESSAGES, GEMINI, MISTRAL } =
  ProviderWire;

const GOOD: Readonly<Record<string, RequestOfWire>> = {
  responses: {
    wire: OPENAI_RESPONSES,
    itemsJson: `[{"role":"user","content":"a"},
      {"type":"function_call","call_id":"1","name":"t","arguments":"{}"},
      {"type":"function_call_output","call_id":"1","output":"b"}]`,
  },
  chat: {
    wire: OPENAI_CHAT_COMPLETIONS,
    itemsJson: `[{"role":"user","content":"a"},
      {"role":"assistant","content":null,
        "tool_calls":[{"id":"1","type":"function","function":{"name":"t","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"1","content":"b"}]`,
  },
  anthropic: {
    wire: ANTHROPIC_MESSAGES,
    itemsJson: `[{"role":"user","content":"a"},
      {"role":"assistant","content":[{"type":"tool_use","id":"1","name":"t","input":{}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"b"}]}]`,
    systemJson: `[{"type":"text","text":"s"}]`,
  },
  gemini: {
    wire: GEMINI,
    itemsJson: `[{"role":"user","parts":[{"text":"a"}]},
      {"role":"model","parts":[{"functionCall":{"name":"t","args":{}},"thoughtSignature":"s"},
        {"executableCode":{"language":"PYTHON","code":"1"}}]},
      {"role":"user","parts":[{"functionResponse":{"name":"t","response":{"result":"b"}}}]}]`,
    systemJson: `{"parts":[{"text":"s"}]}`,
  },
  mistral: {
    wire: MISTRAL,
    itemsJson: `[{"role":"user","content":"a"},
      {"role":"assistant","content":"",
        "tool_calls":[{"id":"123456789","function":{"name":"t","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"123456789","content":"b"}]`,
  },
};

/** One change of a good request each that its provider would refuse. */
const PLANTED: readonly (readonly [keyof typeof GOOD, string, string, string])[] = [
  ["responses", "an id that is no string", `"call_id":"1","name"`, `"call_id":1,"name"`],
  ["responses", "a result without its call", `"call_id":"1","output"`, `"output"`],
  ["responses", "an unknown member", `"name":"t"`, `"name":"t","index":0`],
  ["responses", "a type that there is not", `"function_call_output"`, `"function_output"`],
  ["chat", "arguments that are no string", `"arguments":"{}"`, `"arguments":{}`],
  ["chat", "a result without its call", `"tool_call_id":"1",`, ""],
  ["chat", "an unknown member", `"id":"1"`, `"id":"1","index":0`],
  ["anthropic", "a call without its id", `"id":"1",`, ""],
  ["anthropic", "a result without its call", `"tool_use_id":"1",`, ""],
  ["anthropic", "an unknown member", `"name":"t"`, `"name":"t","index":0`],
  ["anthropic", "a role that there is not", `"role":"assistant"`, `"role":"model"`],
  ["gemini", "arguments that are no object", `"args":{}`, `"args":"{}"`],
  ["gemini", "a result that is no object", `"response":{"result":"b"}`, `"response":"b"`],
  ["gemini", "an unknown member", `"name":"t"`, `"name":"t","index":0`],
  ["gemini", "a value that an enum has not", `"PYTHON"`, `"COBOL"`],
  ["mistral", "a call without its name", `"name":"t",`, ""],
  ["mistral", "a result without content", `,"content":"b"`, ""],
  ["mistral", "an unknown member", `"name":"t"`, `"name":"t","refusal":null`],
];

describe("the schema of a provider's own package", () => {
  test("takes a request as its documentation shows it", () => {
    const requests = Object.values(GOOD);

    const faults = checkRequests(requests);

    expect(faults).toEqual(requests.map(() => []));
  });

  test("finds every planted fault, and nothing in the same request without it", () => {
    const planted = PLANTED.map(([name, , from, to]) => {
      const good = GOOD[name]!;
      const itemsJson = good.itemsJson.replace(from, to);
      expect(itemsJson).not.toBe(good.itemsJson);
      return { ...good, itemsJson };
    });

    const faults = checkRequests(planted);

    expect(PLANTED.filter((_, index) => faults[index]?.length === 0)).toEqual([]);
  });

  test("takes what providers of Chat Completions add to a turn only where it goes back to them", () => {
    const message = `{"role":"assistant","content":"","reasoning":"r","annotations":[],
      "tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"t","arguments":"{}"}}]}`;
    const request = (json: string, isReplay: boolean): RequestOfWire => {
      return { wire: OPENAI_CHAT_COMPLETIONS, itemsJson: `[${json}]`, isReplay };
    };

    const faults = checkRequests([
      request(message, true),
      request(message, false),
      request(message.replace("annotations", "annotation"), true),
      request(message.replace(`"id":"1",`, ""), true),
    ]);

    expect(faults.map(({ length }) => length)).toEqual([0, 1, 1, 1]);
  });

  test("finds a wrong system value and one where the wire has none", () => {
    const wrong: readonly RequestOfWire[] = [
      { ...GOOD["anthropic"]!, systemJson: `[{"type":"text"}]` },
      { ...GOOD["gemini"]!, systemJson: `{"parts":"s"}` },
      { ...GOOD["responses"]!, systemJson: `"s"` },
    ];

    const faults = checkRequests(wrong);

    expect(faults.map((found) => found.every((fault) => fault.startsWith("system")))).toEqual([
      true,
      true,
      true,
    ]);
    expect(faults.map(({ length }) => length > 0)).toEqual([true, true, true]);
  });

  test("finds what is no JSON and what is no list", () => {
    expect(checkRequest(GEMINI, `[{"parts":[]},]`)).toHaveLength(1);
    expect(checkRequest(MISTRAL, `{}`)).toEqual(["items: no array"]);
  });

  test("tells one request's faults from another's", () => {
    const bad = { wire: GEMINI, itemsJson: `[{"role":"user","parts":[{"text":1}]}]` };

    const faults = checkRequests([GOOD["gemini"]!, bad, GOOD["anthropic"]!, bad]);

    expect(faults.map(({ length }) => length)).toEqual([0, 1, 0, 1]);
  });
});
