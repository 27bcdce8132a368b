import { describe, expect, it } from "vitest";

import { jsonSpan } from "../support/json-span.js";
import {
  isPublicValue,
  readExchange,
  readRecordedExchanges,
  type RecordedExchange,
} from "../support/recorded-exchanges.js";
import { recordedFolder } from "../support/recorded-files.js";

const fromUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

function results({ steps }: RecordedExchange) {
  return steps.flatMap(({ inputs }) => inputs.filter((input) => input.kind === "result"));
}

/** Calls of earlier responses that no request answers: the recording has no result that could be theirs. */
function lackingResults({ steps, calls, unansweredCalls }: RecordedExchange) {
  const lastCalls = new Set(steps.at(-1)?.calls.map(({ number }) => number));
  return unansweredCalls
    .filter((number) => !lastCalls.has(number))
    .flatMap((number) => calls[number] ?? []);
}

function report(exchanges: readonly RecordedExchange[]): string {
  const count = (of: (exchange: RecordedExchange) => number) => sum(exchanges.map(of));
  return [
    `${exchanges.length} recorded exchanges`,
    `${count(({ calls }) => calls.length)} calls`,
    `${count((exchange) => results(exchange).length)} results`,
    `${count(({ steps }) => steps.at(-1)?.calls.length ?? 0)} calls in last responses`,
    `${count((exchange) => lackingResults(exchange).length)} calls whose result was not recorded`,
    `${count(({ foreignResults }) => foreignResults.length)} results of calls made elsewhere`,
    `${count(({ serverSideCalls }) => serverSideCalls)} calls carried out by providers`,
  ].join(", ");
}

const exchanges = readRecordedExchanges();
process.stdout.write(
  exchanges === undefined
    ? `recorded exchanges: not checked, there is no ${recordedFolder()}\n`
    : `recorded exchanges: ${report(exchanges)}\n`,
);

function describeRecorded(all: readonly RecordedExchange[]): void {
  it("are at least one", () => {
    expect(all).not.toEqual([]);
  });

  it.each(all)("$file has as many calls in each response as it states", (exchange) => {
    const counts = exchange.steps.map(({ calls }) => calls.length);
    expect(counts).toEqual(exchange.callsPerResponse);
  });

  it.each(all)("$file answers every call before the last response, each once", (exchange) => {
    for (const call of lackingResults(exchange)) {
      const candidates = exchange.foreignResults.filter(
        ({ id, toolName }) => id === call.providerCallId || toolName === call.toolName,
      );
      expect(candidates).toEqual([]);
    }
    const answered = results(exchange).map(({ callNumber }) => callNumber);
    expect(new Set(answered).size).toBe(answered.length);
    expect([...answered, ...exchange.unansweredCalls].sort((a, b) => a - b)).toEqual(
      exchange.calls.map(({ number }) => number),
    );
  });

  it.each(all)("$file answers a call only after its response", (exchange) => {
    const seen = new Set<number>();
    for (const { inputs, calls } of exchange.steps) {
      for (const input of inputs) {
        if (input.kind === "result") expect(seen).toContain(input.callNumber);
      }
      for (const { number } of calls) seen.add(number);
    }
  });

  it.each(all)("$file gives each call arguments that are a JSON object", (exchange) => {
    for (const call of exchange.calls) {
      expect(JSON.parse(fromUtf8.decode(call.arguments))).toBeTypeOf("object");
    }
  });

  it.each(all)("$file begins with what the user or the system said", (exchange) => {
    expect(exchange.steps[0]?.inputs[0]?.kind).toBe("message");
  });
}

if (exchanges !== undefined) {
  describe("recorded exchanges", () => {
    describeRecorded(exchanges);
  });
}

describe("pairing of results with calls", () => {
  const call = (id: string, name: string, text = "{}") => ({
    id,
    type: "function",
    function: { name, arguments: text },
  });
  const reply = (...toolCalls: unknown[]) => ({
    choices: [{ message: { role: "assistant", content: null, tool_calls: toolCalls } }],
  });
  const asked = { role: "user", content: "go" };
  const made = (...toolCalls: unknown[]) => ({ role: "assistant", tool_calls: toolCalls });
  const told = (id: string, content: string) => ({ role: "tool", tool_call_id: id, content });
  const chat = (...steps: { messages: unknown[]; response: unknown }[]) =>
    readExchange("chat.json", {
      wire: "openai-chat",
      models: [],
      calls_per_response: [],
      steps: steps.map(({ messages, response }) => ({ request: { messages }, response })),
    });
  const pairs = (exchange: RecordedExchange) =>
    results(exchange).map(({ callNumber, content }) => [callNumber, fromUtf8.decode(content)]);

  it("gives a repeated id to the nearest earlier call without a result", () => {
    const first = call("call_0", "a");
    const second = call("call_0", "b");
    const history = [asked, made(first), told("call_0", "one")];
    const exchange = chat(
      { messages: [asked], response: reply(first) },
      { messages: history, response: reply(second) },
      { messages: [...history, made(second), told("call_0", "two")], response: reply() },
    );
    expect(pairs(exchange)).toEqual([
      [0, "one"],
      [1, "two"],
    ]);
  });

  it("follows the id and not the order of results", () => {
    const [a, b] = [call("a", "same"), call("b", "same")];
    const exchange = chat(
      { messages: [asked], response: reply(a, b) },
      { messages: [asked, made(a, b), told("b", "of b"), told("a", "of a")], response: reply() },
    );
    expect(pairs(exchange)).toEqual([
      [1, "of b"],
      [0, "of a"],
    ]);
  });

  it("goes by tool name and order where the client rewrote the ids", () => {
    const [a, b] = [call("x", "same"), call("y", "same")];
    const rewritten = made(call("r1", "same"), call("r2", "same"));
    const exchange = chat(
      { messages: [asked], response: reply(a, b) },
      { messages: [asked, rewritten, told("r1", "1"), told("r2", "2")], response: reply() },
    );
    expect(pairs(exchange)).toEqual([
      [0, "1"],
      [1, "2"],
    ]);
  });

  it("does not give the result of a call that the client made up to another call", () => {
    const real = call("real", "search");
    const madeUp = call("made-up", "search");
    const exchange = chat(
      { messages: [asked], response: reply(real) },
      {
        messages: [asked, made(madeUp, real), told("made-up", "no"), told("real", "yes")],
        response: reply(),
      },
    );
    expect(pairs(exchange)).toEqual([[0, "yes"]]);
    expect(exchange.foreignResults).toEqual([{ step: 1, id: "made-up", toolName: "search" }]);
  });

  it("takes every result as new where the server keeps the history", () => {
    const response = (call_id: string) => ({
      output: [{ type: "function_call", call_id, id: `fc_${call_id}`, name: "t", arguments: "" }],
    });
    const request = (call_id: string) => ({
      previous_response_id: "resp",
      input: [{ type: "function_call_output", call_id, output: "again" }],
    });
    const exchange = readExchange("responses.json", {
      wire: "openai-responses",
      models: [],
      calls_per_response: [],
      steps: [
        { request: { input: "go", instructions: "be brief" }, response: response("a") },
        { request: request("a"), response: response("b") },
        { request: request("b"), response: {} },
      ],
    });
    expect(exchange.steps[0]?.inputs.map((input) => input.kind)).toEqual(["message", "message"]);
    expect(pairs(exchange)).toEqual([
      [0, "again"],
      [1, "again"],
    ]);
    expect(exchange.providerIds).toEqual(new Set(["a", "fc_a", "b", "fc_b"]));
  });

  it("leaves a call open whose result never comes", () => {
    const exchange = chat({ messages: [asked], response: reply(call("a", "t")) });
    expect(exchange.unansweredCalls).toEqual([0]);
  });

  it("keeps arguments and ids apart and knows what is public", () => {
    const exchange = chat({
      messages: [asked],
      response: reply(call("id-private", "t", ' {"said":"id-said"}\n'), call("id-said", "t")),
    });
    expect(fromUtf8.decode(exchange.calls[0]?.arguments)).toBe(' {"said":"id-said"}\n');
    expect(exchange.providerIds).toEqual(new Set(["id-private", "id-said"]));
    expect(isPublicValue(exchange, "id-said")).toBe(true);
    expect(isPublicValue(exchange, "id-private")).toBe(false);
  });

  it("takes embedded arguments and results as they were written, if that was recorded", () => {
    const response_raw =
      '{"content": [{"type":"tool_use","id":"i","name":"t","input": { "n": 1.0 } }]}';
    const request_raw =
      '{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"i","content":[ 1e2 ]}]}]}';
    const first = { request: { messages: [] }, response: JSON.parse(response_raw) as unknown };
    const second = { request: JSON.parse(request_raw) as unknown, response: {} };
    const read = (...steps: { request: unknown; response: unknown }[]) =>
      readExchange("a.json", {
        wire: "anthropic-messages",
        models: [],
        calls_per_response: [],
        steps,
      });
    const raw = read({ ...first, ...{ response_raw } }, { ...second, ...{ request_raw } });
    expect(fromUtf8.decode(raw.calls[0]?.arguments)).toBe('{ "n": 1.0 }');
    expect(pairs(raw)).toEqual([[0, "[ 1e2 ]"]]);
    const parsed = read(first, second);
    expect(fromUtf8.decode(parsed.calls[0]?.arguments)).toBe('{"n":1}');
    expect(pairs(parsed)).toEqual([[0, "[100]"]]);
  });
});

describe("spans of values in a JSON text", () => {
  const text = ' { "a" : [ 1 , {"b\\u0041\\"": "x}]\\\\" } , -0.0e+1 ] ,"a2":{},"a2": null }';
  const at = (...path: (string | number)[]) => {
    const span = jsonSpan(text, path);
    return span === undefined ? undefined : text.slice(span.start, span.end);
  };

  it.each<readonly [readonly (string | number)[], string | undefined]>([
    [[], text.trim()],
    [["a"], '[ 1 , {"b\\u0041\\"": "x}]\\\\" } , -0.0e+1 ]'],
    [["a", 0], "1"],
    [["a", 1, 'bA"'], '"x}]\\\\"'],
    [["a", 2], "-0.0e+1"],
    [["a", 3], undefined],
    [["b", 0], undefined],
    [["a", 0, "x"], undefined],
  ])("finds %j", (path, expected) => {
    expect(at(...path)).toBe(expected);
  });

  it("takes the last of repeated keys, as the parser does", () => {
    expect(at("a2")).toBe("null");
  });

  it.each(['{"a" 1}', '{"a":}', "[1", '"open', "[1;2]", "{1:2}"])("refuses %s", (broken) => {
    expect(() => jsonSpan(broken, ["a"])).toThrow(SyntaxError);
  });
});
