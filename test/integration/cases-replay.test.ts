import { createHash } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import { MessageRole, RunOutcome, StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { ToolCallState, ToolResultKind } from "../../gen/toolmark/v1/tool_call_pb.js";
import { startCall } from "../support/asking.js";
import {
  acceptCall,
  acceptTurn,
  allCalls,
  allEvents,
  beginRun,
  bytes,
  complete,
  endRun,
  given,
  newCall,
  of,
  openRun,
  readCall,
  type CallInit,
  type OpenRun,
} from "../support/conversation.js";
import { fork } from "../support/forking.js";
import { refused } from "../support/refused.js";
import {
  acceptResponse,
  completeAll,
  readReplay,
  RESPONSE,
  say,
  WIRES,
  type SpokenWire,
} from "../support/replaying.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { showRequest, textsOf, type ShownRequest } from "../support/shown-request.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { readWhole } from "../support/uploading.js";
import { compact, expectSound, headOf } from "./compaction-fixture.js";

const { OPENAI_RESPONSES, OPENAI_CHAT_COMPLETIONS, ANTHROPIC_MESSAGES, GEMINI, MISTRAL } =
  ProviderWire;
/** Wires where every call has an id. */
const WITH_IDS = WIRES.filter((wire) => wire !== GEMINI);
const ANTHROPIC_ID = /^[a-zA-Z0-9_-]+$/;
const MISTRAL_ID = /^[A-Za-z0-9]{9}$/;

let folder: StoreFolder;
let service: TestService;

beforeAll(async () => {
  folder = await makeStoreFolder();
  service = await startTestService({ store: folder.store });
});

afterAll(async () => {
  await service.stop();
  await folder.remove();
});

async function restart(): Promise<void> {
  await service.stop();
  service = await startTestService({ store: folder.store });
}

/** A turn whose calls the harness names, each with its result. */
async function settledTurn(clients: Clients, run: OpenRun, calls: CallInit[]): Promise<string[]> {
  const accepted = await acceptTurn(clients, run, calls);
  await completeAll(
    clients,
    run,
    accepted,
    accepted.map((_call, index) => `result ${index}`),
  );
  return accepted.map(({ toolCallId }) => toolCallId);
}

/** The private ids that are kept for the calls of a session. */
async function keptIds(clients: Clients, sessionId: string): Promise<(string | undefined)[]> {
  const turns = await readReplay(clients, sessionId);
  return turns.flatMap(({ calls }) => calls.map(({ pairing }) => pairing?.providerCallId));
}

function expectDistinct({ ids }: ShownRequest, count: number): void {
  expect(new Set(ids).size).toBe(count);
  expect(ids).not.toContain(undefined);
}

describe.each(["grpc", "connect-json"] as const)("over %s", (protocol) => {
  const connect = () => service.clients(protocol);

  describe.each([
    ["absent", undefined],
    ["empty", ""],
  ])("B08 three calls whose ids are %s", (_what, id) => {
    const RESULTS = ["first", "second", "third"];

    test("B08 give three results and three function responses in the order of the calls", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const turn = ["a", "a", "b"].map((name) => newCall(id, name));
      const accepted = await acceptTurn(clients, run, turn);
      for (const index of [2, 0, 1]) {
        const { toolCallId } = given(accepted[index], "call");
        await complete(clients, run, toolCallId, given(RESULTS[index], "text"));
      }
      const { toolCalls } = await clients.history.listToolCalls({ sessionId: run.sessionId });
      const texts = toolCalls.map(({ result }) => Buffer.from(result?.content?.data ?? []));
      expect(texts.map(String)).toEqual(RESULTS);
      const { results, calls } = await showRequest(clients, run.sessionId, GEMINI);
      expect(calls.map(({ id: shown, name }) => [shown, name])).toEqual([
        [undefined, "a"],
        [undefined, "a"],
        [undefined, "b"],
      ]);
      expect(results.map(({ name, content }) => [name, content])).toEqual([
        ["a", '{"result":"first"}'],
        ["a", '{"result":"second"}'],
        ["b", '{"result":"third"}'],
      ]);
    });

    test("B08 that came in a response of Gemini go back as they came, with three responses", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const said = id === undefined ? {} : { id };
      const { toolCalls } = await acceptResponse(
        clients,
        run,
        GEMINI,
        RESPONSE[GEMINI]("", said, said, said),
      );
      await completeAll(clients, run, toolCalls, RESULTS);
      const { results } = await showRequest(clients, run.sessionId, GEMINI);
      expect(results.map(({ content }) => content)).toEqual(
        RESULTS.map((result) => JSON.stringify({ result })),
      );
      for (const wire of WITH_IDS) {
        const shown = await showRequest(clients, run.sessionId, wire);
        expectDistinct(shown, 3);
        expect(textsOf(shown)).toEqual(RESULTS);
      }
    });
  });

  test("B14 ids of 40 to 512 characters are shown in what the wire takes, and kept as they are", async () => {
    const run = await openRun(connect());
    const { sessionId } = run;
    // The last two are the same as far as a provider would read them.
    const lengths = [40, 41, 64, 65, 512].map((length) => `p${length}_`.padEnd(length, "x"));
    const native = [...lengths, `${"y".repeat(64)}1`, `${"y".repeat(64)}2`];
    const turn = native.map((id) => newCall(id));
    await settledTurn(connect(), run, turn);
    const LENGTH_MAX = new Map([
      [OPENAI_RESPONSES, 64],
      [OPENAI_CHAT_COMPLETIONS, 40],
    ]);
    const before = new Map<ProviderWire, string>();
    for (const [wire, lengthMax] of LENGTH_MAX) {
      const shown = await showRequest(connect(), sessionId, wire);
      expectDistinct(shown, native.length);
      for (const [index, id = ""] of shown.ids.entries()) {
        const own = given(native[index], "id");
        expect(id.length).toBeLessThanOrEqual(lengthMax);
        if (own.length <= lengthMax) expect(id).toBe(own);
        else expect(id).not.toBe(own);
      }
      before.set(wire, shown.items);
    }
    expect(await keptIds(connect(), sessionId)).toEqual(native);
    await restart();
    for (const [wire, items] of before) {
      expect((await showRequest(connect(), sessionId, wire)).items).toBe(items);
    }
    expect(await keptIds(connect(), sessionId)).toEqual(native);
  });

  describe("B15 the id of an item", () => {
    const ITEM_ID = `fc_${"0123456789abcdef".repeat(4).slice(0, 50)}`;

    async function expectApart(clients: Clients, { sessionId }: OpenRun): Promise<void> {
      const [turn] = await readReplay(clients, sessionId);
      const [call] = given(turn, "turn").calls;
      expect(call?.pairing).toMatchObject({ providerCallId: "call_x", providerItemId: ITEM_ID });
      const chat = await showRequest(clients, sessionId, OPENAI_CHAT_COMPLETIONS);
      expect(chat.ids).toEqual(["call_x"]);
      expect(chat.items).not.toContain(ITEM_ID);
      const responses = await showRequest(clients, sessionId, OPENAI_RESPONSES);
      expect(JSON.parse(responses.items)).toMatchObject([
        { type: "function_call", id: ITEM_ID, call_id: "call_x" },
        { type: "function_call_output", call_id: "call_x" },
      ]);
      for (const wire of [ANTHROPIC_MESSAGES, GEMINI, MISTRAL]) {
        expect((await showRequest(clients, sessionId, wire)).items).not.toContain(ITEM_ID);
      }
    }

    test("B15 in a response is kept apart from the call's, and only its own wire gets it back", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const response = RESPONSE[OPENAI_RESPONSES]("", { id: "call_x", itemId: ITEM_ID });
      const { toolCalls } = await acceptResponse(clients, run, OPENAI_RESPONSES, response);
      await completeAll(clients, run, toolCalls, ["done"]);
      await expectApart(clients, run);
    });

    test("B15 that the harness names is kept apart and restored as well", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const pairing = { providerCallId: "call_x", providerItemId: ITEM_ID };
      await settledTurn(clients, run, [
        { toolName: "bash", arguments: { data: bytes("{}") }, pairing },
      ]);
      await expectApart(clients, run);
    });
  });

  test("B17 every id for Mistral is nine letters and digits, distinct and the same after a restart", async () => {
    const run = await openRun(connect());
    const { sessionId } = run;
    const native = ["call_PTLP8xhuVJ5u9Pq8Ec1gGQqU", "turn1_0", "2968-LWy3uasib", "", "D681PevKs"];
    for (const id of native) await settledTurn(connect(), run, [newCall(id), newCall("")]);
    const response = RESPONSE[ANTHROPIC_MESSAGES]("", { id: "toolu_01" }, { id: "D681PevKs" });
    const accepted = await acceptResponse(connect(), run, ANTHROPIC_MESSAGES, response);
    await completeAll(connect(), run, accepted.toolCalls, ["one", "two"]);
    const shown = await showRequest(connect(), sessionId, MISTRAL);
    expectDistinct(shown, 12);
    for (const id of shown.ids) expect(id).toMatch(MISTRAL_ID);
    expect(shown.ids.indexOf("D681PevKs")).toBe(8);
    await restart();
    expect(await showRequest(connect(), sessionId, MISTRAL)).toEqual(shown);
  });

  describe("B18 ids that differ only in what Anthropic refuses", () => {
    const NATIVE = ["functions.Bash:0", "functions.Bash_0", "functions/Bash:0", "fünctions_Bash_0"];

    async function expectApart(clients: Clients, { sessionId }: OpenRun): Promise<void> {
      const shown = await showRequest(clients, sessionId, ANTHROPIC_MESSAGES);
      expectDistinct(shown, NATIVE.length);
      for (const id of shown.ids) expect(id).toMatch(ANTHROPIC_ID);
      // As the calls, so their results: all of them in the next message.
      expect(shown.results.map(({ id }) => id)).toEqual(shown.ids);
      expect(textsOf(shown)).toEqual(NATIVE.map((_id, index) => `result ${index}`));
      expect(new Set(NATIVE.map((id) => id.replace(/[^a-zA-Z0-9_-]/gu, "_"))).size).toBe(2);
    }

    test("B18 become four ids that it takes", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const turn = NATIVE.map((id) => newCall(id, "functions.Bash"));
      await settledTurn(clients, run, turn);
      await expectApart(clients, run);
    });

    test("B18 in a response of Chat Completions become four ids, and stay as they are for it", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const said = NATIVE.map((id) => ({ id, name: "functions.Bash" }));
      const response = RESPONSE[OPENAI_CHAT_COMPLETIONS]("", ...said);
      const accepted = await acceptResponse(clients, run, OPENAI_CHAT_COMPLETIONS, response);
      const texts = NATIVE.map((_id, index) => `result ${index}`);
      await completeAll(clients, run, accepted.toolCalls, texts);
      await expectApart(clients, run);
      const own = await showRequest(clients, run.sessionId, OPENAI_CHAT_COMPLETIONS);
      expect(own.ids).toEqual(NATIVE);
    });
  });

  describe("B19 an id that comes again in a later turn", () => {
    type Take = (clients: Clients, run: OpenRun, id: string) => Promise<unknown>;
    const named: Take = (clients, run, id) => settledTurn(clients, run, [newCall(id, "terminal")]);
    const responded =
      (wire: SpokenWire): Take =>
      async (clients, run, id) => {
        const response = RESPONSE[wire]("Once more.", { id, name: "terminal" });
        const { toolCalls } = await acceptResponse(clients, run, wire, response);
        await completeAll(clients, run, toolCalls, ["result 0"]);
      };

    test.each([
      ["named by the harness", named],
      ["in responses of Chat Completions", responded(OPENAI_CHAT_COMPLETIONS)],
      ["in responses of Responses", responded(OPENAI_RESPONSES)],
    ])("B19 %s is the provider's once and another one then", async (_how, take) => {
      const clients = connect();
      const run = await openRun(clients);
      const { sessionId } = run;
      await say(clients, run, "go");
      await take(clients, run, "terminal:0");
      await take(clients, run, "terminal:0");
      const before = new Map<ProviderWire, ShownRequest>();
      for (const wire of WIRES) before.set(wire, await showRequest(clients, sessionId, wire));
      const [first, second] = given(before.get(OPENAI_RESPONSES), "request").ids;
      expect(first).toBe("terminal:0");
      expect(second).toMatch(/^call_[0-9a-z]{26}$/);
      const anthropic = given(before.get(ANTHROPIC_MESSAGES), "request");
      expectDistinct(anthropic, 2);
      for (const id of anthropic.ids) expect(id).toMatch(ANTHROPIC_ID);
      await take(clients, run, "terminal:0");
      for (const [wire, { items }] of before) {
        const grown = await showRequest(clients, sessionId, wire);
        expect(grown.items.startsWith(items.slice(0, -1))).toBe(true);
        if (wire !== GEMINI) expectDistinct(grown, 3);
      }
    });
  });

  describe("B22 arguments that are no JSON object", () => {
    const WRITTEN = ['{"command": "cd /x', "", "[1]"];
    /** The documented substitutes. */
    const SHOWN = [{ invalid_arguments: '{"command": "cd /x' }, {}, { invalid_arguments: "[1]" }];

    async function expectSubstituted(clients: Clients, { sessionId }: OpenRun): Promise<void> {
      for (const call of await allCalls(clients, sessionId)) {
        const read = await readCall(clients, sessionId, call.toolCallId);
        const text = given(WRITTEN[call.index], "text");
        for (const body of [read.proposed, read.effective, call.proposed]) {
          expect(Buffer.from(given(body?.data, "data")).toString()).toBe(text);
          expect(body?.isJsonObject).toBe(false);
        }
      }
      for (const wire of WIRES) {
        const { calls, results } = await showRequest(clients, sessionId, wire);
        expect(calls.map(({ args }) => JSON.parse(args) as unknown)).toEqual(SHOWN);
        expect(results).toHaveLength(3);
      }
    }

    test("B22 are kept, flagged, and shown as an object that tells of them", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const turn = WRITTEN.map((text) => newCall(undefined, "bash", text));
      await settledTurn(clients, run, turn);
      await expectSubstituted(clients, run);
    });

    test.each(WIRES)("B22 in a response of wire %s as well", async (wire) => {
      const clients = connect();
      const run = await openRun(clients);
      // Wires that have arguments as a JSON value have these as strings.
      const isValue = wire === ANTHROPIC_MESSAGES || wire === GEMINI;
      const said = WRITTEN.map((text, index) => ({
        ...{ id: `id0000${index}AB`, args: isValue ? JSON.stringify(text) : text },
      }));
      const { toolCalls } = await acceptResponse(clients, run, wire, RESPONSE[wire]("", ...said));
      await completeAll(clients, run, toolCalls, ["a", "b", "c"]);
      await expectSubstituted(clients, run);
      const [turn] = await readReplay(clients, run.sessionId);
      expect(turn?.items).toContain(JSON.stringify(WRITTEN[0]));
    });
  });

  test("B23 calls that a run's end cut off have results that say so, which a late one does not change", async () => {
    const clients = connect();
    const run = await openRun(clients, StartGate.REQUIRED);
    const { sessionId } = run;
    const response = RESPONSE[ANTHROPIC_MESSAGES]("", { id: "a" }, { id: "b" }, { id: "c" });
    const { toolCalls } = await acceptResponse(clients, run, ANTHROPIC_MESSAGES, response);
    const [first = "", second = "", third = ""] = toolCalls.map(({ toolCallId }) => toolCallId);
    for (const id of [first, second, third]) await startCall(clients, run, id);
    await complete(clients, run, first, "the real one");
    const outcome = RunOutcome.INTERRUPTED;
    await endRun(clients, run, { outcome, interruptedToolCallIds: [second, third] });
    const cutOff = expect.stringContaining("interrupted while it ran") as unknown;
    const before = new Map<ProviderWire, string>();
    for (const wire of WIRES) {
      const shown = await showRequest(clients, sessionId, wire);
      const told = shown.results.map(({ content }) => content);
      expect(told).toEqual([expect.stringContaining("the real one"), cutOff, cutOff]);
      before.set(wire, shown.items);
    }
    const anthropic = await showRequest(clients, sessionId, ANTHROPIC_MESSAGES);
    expect(anthropic.results.map(({ isError }) => isError)).toEqual([false, true, true]);

    await complete(clients, run, second, "late, but real");
    const late = await readCall(clients, sessionId, second);
    expect(late).toMatchObject({
      state: ToolCallState.INTERRUPTED,
      result: { kind: ToolResultKind.SYNTHETIC },
      lateResult: { kind: ToolResultKind.CANONICAL },
    });
    for (const [wire, items] of before) {
      expect((await showRequest(clients, sessionId, wire)).items).toBe(items);
    }
    const next = await beginRun(clients, sessionId);
    await say(clients, next, "go on");
    for (const [wire, items] of before) {
      const grown = await showRequest(clients, sessionId, wire);
      expect(grown.items.startsWith(items.slice(0, -1))).toBe(true);
    }
  });

  describe("B27 a compaction", () => {
    const NAMES = ["one", "two", "three", "four"];

    /** Two turns with their results, a message between, and a turn with an open call. */
    async function record(clients: Clients, run: OpenRun): Promise<string> {
      await say(clients, run, "go");
      const said = NAMES.slice(0, 2).map((name) => ({ id: `toolu_${name}`, name }));
      const response = RESPONSE[ANTHROPIC_MESSAGES]("Two.", ...said);
      const { toolCalls } = await acceptResponse(clients, run, ANTHROPIC_MESSAGES, response);
      await completeAll(clients, run, toolCalls, ["r one", "r two"]);
      await settledTurn(clients, run, [newCall("toolu_three", "three")]);
      await say(clients, run, "go on");
      const open = RESPONSE[OPENAI_RESPONSES]("", { id: "toolu_four", name: "four" });
      const accepted = await acceptResponse(clients, run, OPENAI_RESPONSES, open);
      await say(clients, run, "still there?");
      return given(accepted.toolCalls[0], "call").toolCallId;
    }

    test("B27 anywhere in a log leaves every call with its result, and calls in flight as they are", async () => {
      const clients = connect();
      const whole = await openRun(clients);
      await record(clients, whole);
      const { length } = await allEvents(clients, whole.sessionId);
      const lengths = new Set<number>();
      for (let through = 1; through <= length; through += 1) {
        const run = await openRun(clients);
        const { sessionId } = run;
        const open = await record(clients, run);
        const cut = await compact(clients, sessionId, through);
        expect(cut).toBeLessThanOrEqual(through);
        for (const wire of WIRES) {
          const shown = await showRequest(clients, sessionId, wire);
          const names = shown.calls.map(({ name }) => name);
          expect(names).toEqual(NAMES.slice(NAMES.length - names.length));
          expect(names.at(-1)).toBe("four");
          expect(given(shown.results.at(-1), "result").content).toContain("has no result");
          expect(shown.items).toContain(`all up to ${through}`);
          lengths.add(names.length);
        }
        await complete(clients, run, open, "r four");
        const shown = await showRequest(clients, sessionId, ANTHROPIC_MESSAGES);
        expect(textsOf(shown).at(-1)).toBe("r four");
        const calls = await allCalls(clients, sessionId);
        expect(calls.map(({ toolName }) => toolName)).toEqual(NAMES);
        for (const { toolCallId, toolName } of calls) {
          expect(await readCall(clients, sessionId, toolCallId)).toMatchObject({ toolName });
        }
        await expectSound(clients, sessionId);
      }
      // Each cut that can be was made: before all, between the turns, and behind both.
      expect([...lengths].sort()).toEqual([1, 2, 4]);
    });

    test("B27 leaves the ids of the calls behind it as they were", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const { sessionId } = run;
      await settledTurn(clients, run, [newCall("terminal:0"), newCall("toolu_1")]);
      const through = await headOf(clients, sessionId);
      await settledTurn(clients, run, [newCall("terminal:0"), newCall("toolu_1"), newCall("")]);
      const before = new Map<ProviderWire, ShownRequest>();
      for (const wire of WIRES) before.set(wire, await showRequest(clients, sessionId, wire));
      await compact(clients, sessionId, through);
      for (const [wire, { ids }] of before) {
        expect((await showRequest(clients, sessionId, wire)).ids).toEqual(ids.slice(2));
      }
    });
  });

  describe("B77 numbers that no double holds", () => {
    const NUMBERS = '{"id":2512292042121000001,"neg":-0,"f":1.0,"big":1e400}';
    const SHA256 = createHash("sha256").update(NUMBERS).digest();

    /** Where a wire holds arguments as a JSON text, the text is a string there. */
    function written(wire: ProviderWire): string {
      const isValue = wire === ANTHROPIC_MESSAGES || wire === GEMINI;
      return isValue ? NUMBERS : JSON.stringify(NUMBERS);
    }

    async function expectSameBytes(clients: Clients, sessionId: string): Promise<void> {
      const [call] = await allCalls(clients, sessionId);
      for (const body of [call?.proposed, call?.effective]) {
        expect(Buffer.from(given(body?.data, "data")).toString()).toBe(NUMBERS);
        expect(SHA256.equals(given(body, "body").sha256)).toBe(true);
        const { data } = await readWhole(clients, sessionId, given(body, "body").bodyRef);
        expect(data.toString()).toBe(NUMBERS);
      }
      const stopping = new AbortController();
      const { signal } = stopping;
      for await (const { event } of clients.history.watchEvents({ sessionId }, { signal })) {
        if (event === undefined) break;
        if (event.record?.record.case !== "toolCall") continue;
        expect(SHA256.equals(given(event.record.record.value.proposed, "body").sha256)).toBe(true);
      }
      stopping.abort();
      for (const wire of WIRES) {
        expect((await showRequest(clients, sessionId, wire)).items).toContain(written(wire));
      }
    }

    test("B77 are the same bytes in every read and in every request", async () => {
      const run = await openRun(connect());
      await settledTurn(connect(), run, [newCall("call_1", "bash", NUMBERS)]);
      await expectSameBytes(connect(), run.sessionId);
      await restart();
      await expectSameBytes(connect(), run.sessionId);
    });

    test.each(WIRES)("B77 in a response of wire %s as well, and in a copy of it", async (wire) => {
      const clients = connect();
      const run = await openRun(clients);
      const response = RESPONSE[wire]("", { id: "abcdef001", args: NUMBERS });
      const { toolCalls } = await acceptResponse(clients, run, wire, response);
      const value = { content: { data: bytes(NUMBERS), mediaType: "application/json" } };
      const [{ toolCallId }] = toolCalls as [(typeof toolCalls)[number]];
      const command = { toolCallId, result: { case: "canonical" as const, value } };
      await clients.calls.recordResult({ ...of(run), command });
      await expectSameBytes(clients, run.sessionId);
      const { sessionId } = await fork(clients, run.sessionId);
      await expectSameBytes(clients, sessionId);
      // As an object where the wire wants one, else as a text.
      const gemini = await showRequest(clients, sessionId, GEMINI);
      expect(gemini.items).toContain(`"response":${NUMBERS}`);
      const chat = await showRequest(clients, sessionId, OPENAI_CHAT_COMPLETIONS);
      expect(chat.items).toContain(`"content":${JSON.stringify(NUMBERS)}`);
    });
  });

  describe("B78 surrogates without their mates", () => {
    const ARGUMENTS = String.raw`{"text":"a\ud800b","pair":"\ud83d\ude00"}`;
    const RESULT = String.raw`{"out":"\udc00"}`;

    async function expectKept(clients: Clients, sessionId: string): Promise<void> {
      const [call] = await allCalls(clients, sessionId);
      for (const [body, text] of [
        [call?.proposed, ARGUMENTS],
        [call?.result?.content, RESULT],
      ] as const) {
        expect(Buffer.from(given(body?.data, "data")).toString()).toBe(text);
        const sha256 = createHash("sha256").update(text).digest();
        expect(sha256.equals(given(body, "body").sha256)).toBe(true);
      }
    }

    async function record(clients: Clients, run: OpenRun, toolCallId: string): Promise<void> {
      const value = { content: { data: bytes(RESULT), mediaType: "application/json" } };
      const command = { toolCallId, result: { case: "canonical" as const, value } };
      await clients.calls.recordResult({ ...of(run), command });
    }

    test("B78 in arguments, results and messages are kept, and shown as U+FFFD", async () => {
      const clients = connect();
      const run = await openRun(clients);
      const { sessionId } = run;
      await say(clients, run, String.raw`"a\ud800"`, MessageRole.USER, "application/json");
      const { toolCallId } = await acceptCall(clients, run, newCall("c", "bash", ARGUMENTS));
      await record(clients, run, toolCallId);
      await expectKept(clients, sessionId);
      for (const wire of WIRES) {
        const { calls } = await showRequest(clients, sessionId, wire);
        expect(JSON.parse(given(calls[0], "call").args)).toEqual({
          ...{ text: "a\ufffdb", pair: "\u{1f600}" },
        });
      }
    });

    test.each(WIRES)("B78 in a response of wire %s as well, wherever they stand", async (wire) => {
      const clients = connect();
      const run = await openRun(clients);
      const response = RESPONSE[wire]("a\udfffb", { id: "abcdef001", args: ARGUMENTS });
      expect(response).toContain(String.raw`a\udfffb`);
      const { toolCalls } = await acceptResponse(clients, run, wire, response);
      await record(clients, run, given(toolCalls[0], "call").toolCallId);
      await expectKept(clients, run.sessionId);
      const [turn] = await readReplay(clients, run.sessionId);
      expect(turn?.items).toContain(String.raw`a\udfffb`);
      for (const target of WIRES) await showRequest(clients, run.sessionId, target);
    });

    test.each(WIRES)("B78 in an id or a name of wire %s are refused", async (wire) => {
      const clients = connect();
      const run = await openRun(clients);
      for (const said of [{ id: "a\ud800" }, { id: "abcdef001", name: "a\ud800" }]) {
        const refusal = await refused(acceptResponse(clients, run, wire, RESPONSE[wire]("", said)));
        expect(refusal.reason).toBe("PROVIDER_PAYLOAD_INVALID");
      }
      expect(await allCalls(clients, run.sessionId)).toEqual([]);
    });
  });
});
