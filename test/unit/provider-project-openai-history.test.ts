import { create } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";

import { ProviderPairingSchema, ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import type { HistoryCall, HistoryEntry } from "../../src/domain/history.js";
import { isPayloadFault } from "../../src/domain/provider-turn.js";
import { HistoryProjection } from "../../src/provider/project-history.js";
import { readProviderTurn } from "../../src/provider/read-provider-turn.js";
import { wireOf } from "../../src/provider/wires.js";
import { recordedConversations } from "../support/recorded-bodies.js";
import { recordedFolder } from "../support/recorded-files.js";
import { propertyOptions, seededTitle } from "../support/seed.js";
import { resultOf, textContent } from "../support/wire-samples.js";

const { OPENAI_RESPONSES, OPENAI_CHAT_COMPLETIONS, ANTHROPIC_MESSAGES, GEMINI, MISTRAL } =
  ProviderWire;
const WIRES = [
  ...[OPENAI_RESPONSES, OPENAI_CHAT_COMPLETIONS, ANTHROPIC_MESSAGES, GEMINI, MISTRAL],
] as const;

const utf8 = new TextEncoder();

interface Sample {
  readonly providerCallId?: string | undefined;
  readonly providerItemId?: string | undefined;
  readonly args?: string;
  readonly result?: string;
}

/** Number of the calls of a history so far, so that each has an id of its own. */
class CallNumbers {
  #next = 0;

  call({ providerCallId, providerItemId, args = "{}", result = "r" }: Sample): HistoryCall {
    this.#next += 1;
    const ids = {
      ...(providerCallId === undefined ? {} : { providerCallId }),
      ...(providerItemId === undefined ? {} : { providerItemId }),
    };
    return {
      toolCallId: `tc_public${this.#next}`,
      toolName: "f",
      arguments: utf8.encode(args),
      pairing: create(ProviderPairingSchema, ids),
      result: resultOf(textContent(result)),
    };
  }

  /** A turn whose calls the harness gave alone. */
  bare(provider: string | undefined, ...samples: readonly Sample[]): HistoryEntry {
    const calls = samples.map((sample) => this.call(sample));
    return { kind: "turn", turn: { wire: undefined, provider, items: undefined, calls } };
  }

  /** A turn as its provider gave it. */
  given(wire: ProviderWire, response: string, provider?: string): HistoryEntry {
    const read = readProviderTurn(wire, utf8.encode(response));
    if (isPayloadFault(read)) throw new Error(`${read.path} ${read.rule}`);
    const calls = read.calls.map((call) => ({
      ...this.call(call),
      toolName: call.toolName,
      arguments: call.arguments,
    }));
    return { kind: "turn", turn: { wire, provider, items: read.items, calls } };
  }

  archived(sample: Sample, wire?: ProviderWire): HistoryEntry {
    const { toolCallId, pairing } = this.call(sample);
    const turn = { wire, provider: undefined };
    return { kind: "archivedCall", call: { toolCallId, turn, pairing } };
  }
}

function message(role: MessageRole, text: string): HistoryEntry {
  return { kind: "message", role, content: textContent(text) };
}

const user = (text: string) => message(MessageRole.USER, text);
const system = (text: string) => message(MessageRole.SYSTEM, text);
const summary = (text: string): HistoryEntry => ({ kind: "summary", content: textContent(text) });

function project(wire: ProviderWire, history: readonly HistoryEntry[], provider?: string) {
  const projection = new HistoryProjection({ wire, provider });
  const items = history.map((entry) => projection.add(entry)).join("");
  return { items, system: projection.system, isSystemClosed: projection.isSystemClosed };
}

interface Shown {
  readonly calls: readonly (string | undefined)[];
  readonly results: readonly (string | undefined)[];
}

/** The ids of the calls and of the results of a request, in their order. */
function idsIn(wire: ProviderWire, items: string): Shown {
  const calls: (string | undefined)[] = [];
  const results: (string | undefined)[] = [];
  const look = (value: unknown): void => {
    if (typeof value !== "object" || value === null) return;
    const of = value as Record<string, unknown>;
    const id = (key: string) => (typeof of[key] === "string" ? of[key] : undefined);
    if (of["type"] === "function_call") calls.push(id("call_id"));
    else if (of["type"] === "function_call_output") results.push(id("call_id"));
    else if ("function" in of) calls.push(id("id"));
    else if (of["role"] === "tool") results.push(id("tool_call_id"));
    else if (of["type"] === "tool_use") calls.push(id("id"));
    else if (of["type"] === "tool_result") results.push(id("tool_use_id"));
    else if (wire === GEMINI && "functionCall" in of) {
      calls.push((of["functionCall"] as { id?: string }).id);
    } else if (wire === GEMINI && "functionResponse" in of) {
      results.push((of["functionResponse"] as { id?: string }).id);
    } else for (const member of Object.values(of)) look(member);
  };
  look(JSON.parse(`[${items}]`));
  return { calls, results };
}

const responses = (id: string, callId: string) =>
  `{"output":[{"type":"reasoning","id":"rs_${id}","encrypted_content":"enc","summary":[]},` +
  `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hm."}]},` +
  `{"type":"function_call","id":"fc_${id}","call_id":"${callId}","name":"f","arguments":"{}"}]}`;
const chat = (...ids: readonly string[]) => {
  const calls = ids.map(
    (id) => `{"id":"${id}","type":"function","function":{"name":"f","arguments":"{}"}}`,
  );
  return (
    `{"choices":[{"message":{"role":"assistant","content":"Hm.","reasoning_content":"enc",` +
    `"tool_calls":[${calls.join(",")}]}}]}`
  );
};

describe("A projected history", () => {
  it("has each entry in its place, and the results of a turn right after it", () => {
    const numbers = new CallNumbers();
    const history = [
      ...[system("S"), summary("Before."), user("Do.")],
      numbers.given(OPENAI_RESPONSES, responses("1", "call_1")),
      user("More."),
      message(MessageRole.ASSISTANT, "Done."),
    ];

    expect(project(OPENAI_RESPONSES, history)).toEqual({
      system: undefined,
      isSystemClosed: true,
      items: [
        `{"role":"system","content":"S"}`,
        `{"role":"user","content":"Before."}`,
        `{"role":"user","content":"Do."}`,
        responses("1", "call_1").slice(`{"output":[`.length, -2),
        `{"type":"function_call_output","call_id":"call_1","output":"r"}`,
        `{"role":"user","content":"More."}`,
        `{"role":"assistant","content":"Done."}`,
      ].join(","),
    });
  });

  it("has of a turn of another wire what was said and called, but none of its reasoning", () => {
    const numbers = new CallNumbers();
    const history = [numbers.given(OPENAI_RESPONSES, responses("1", "call_1"))];

    const call = `{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}`;
    expect(project(OPENAI_CHAT_COMPLETIONS, history).items).toBe(
      `{"role":"assistant","content":"Hm.","tool_calls":[${call}]},` +
        `{"role":"tool","tool_call_id":"call_1","content":"r"}`,
    );
    for (const wire of WIRES.slice(1)) expect(project(wire, history).items).not.toContain("enc");
  });

  it("has a turn of another provider of the wire as one of another wire, if both are named", () => {
    const numbers = new CallNumbers();
    const history = [numbers.given(OPENAI_CHAT_COMPLETIONS, chat("a"), "one")];

    const items = (provider?: string) => project(OPENAI_CHAT_COMPLETIONS, history, provider).items;
    expect(items("one")).toContain("enc");
    expect(items()).toContain("enc");
    expect(items("two")).not.toContain("enc");
  });

  it("takes Chat Completions and Mistral for one wire, with the ids of whom it is for", () => {
    const numbers = new CallNumbers();
    const history = [numbers.given(OPENAI_CHAT_COMPLETIONS, chat("call_1", "Ah0BFgzqX"))];

    const { items } = project(MISTRAL, history);
    const { calls, results } = idsIn(MISTRAL, items);
    expect(calls).toEqual([expect.stringMatching(/^[0-9A-Za-z]{9}$/), "Ah0BFgzqX"]);
    expect(results).toEqual(calls);
    expect(items).not.toContain("reasoning_content");
    expect(project(OPENAI_CHAT_COMPLETIONS, history).items).toContain("reasoning_content");
  });

  it("has for a later call with the id of an earlier one an id of its own, and for its result", () => {
    const numbers = new CallNumbers();
    const history = ["1", "2"].map((id) => numbers.given(OPENAI_RESPONSES, responses(id, "dup")));

    const { calls, results } = idsIn(OPENAI_RESPONSES, project(OPENAI_RESPONSES, history).items);
    expect(calls).toEqual(["dup", expect.stringMatching(/^call_[0-9a-z]{26}$/)]);
    expect(results).toEqual(calls);
  });

  it("has the id of an archived call for no other call", () => {
    const numbers = new CallNumbers();
    const history = [
      numbers.archived({ providerCallId: "a" }),
      summary("S"),
      numbers.bare(undefined, { providerCallId: "a" }),
    ];

    for (const wire of [OPENAI_RESPONSES, OPENAI_CHAT_COMPLETIONS, ANTHROPIC_MESSAGES]) {
      const { calls } = idsIn(wire, project(wire, history).items);
      expect(calls).toEqual([expect.stringMatching(/^call_[0-9a-z]{26}$/)]);
    }
  });

  it("takes the id of an archived call as its turn could have had it", () => {
    const long = "tool_insert_level_with_spaces_3ZiChYzj8xER8HixJe7W";
    const callsAfter = (wire: ProviderWire | undefined) => {
      const numbers = new CallNumbers();
      const history = [
        numbers.archived({ providerCallId: long }, wire),
        numbers.given(OPENAI_CHAT_COMPLETIONS, chat(long)),
      ];
      return idsIn(OPENAI_CHAT_COMPLETIONS, project(OPENAI_CHAT_COMPLETIONS, history).items).calls;
    };

    expect(callsAfter(OPENAI_CHAT_COMPLETIONS)).toEqual([expect.stringMatching(/^call_/)]);
    expect(callsAfter(undefined)).toEqual([long]);
  });

  it("has the item ids of calls that came alone, where they are ids of the wire and come first", () => {
    const items = (provider?: string) => {
      const numbers = new CallNumbers();
      const history = [
        numbers.bare("one", { providerCallId: "a", providerItemId: "fc_1" }),
        numbers.bare("one", { providerCallId: "b", providerItemId: "fc_1" }),
        numbers.bare("one", { providerCallId: "c", providerItemId: "msg_1" }),
        numbers.bare("one", { providerCallId: "d" }),
        numbers.given(OPENAI_RESPONSES, responses("1", "e"), "one"),
      ];
      const projected = project(OPENAI_RESPONSES, history, provider).items;
      return (JSON.parse(`[${projected}]`) as { type?: string; id?: string }[])
        .filter(({ type }) => type === "function_call")
        .map(({ id }) => id);
    };

    expect(items()).toEqual(["fc_1", ...[undefined, undefined, undefined, undefined]]);
    expect(items("two")).toEqual([undefined, undefined, undefined, undefined, undefined]);
  });

  it("keeps what the system said first outside the items, where the wire has it there", () => {
    const numbers = new CallNumbers();
    const first = [numbers.archived({ providerCallId: "a" }), system("A"), system("B")];
    const open = project(ANTHROPIC_MESSAGES, first);
    const closed = project(ANTHROPIC_MESSAGES, [...first, user("Do."), system("C")]);

    expect(open).toMatchObject({ items: "", isSystemClosed: false });
    expect(closed).toEqual({
      isSystemClosed: true,
      system: open.system,
      items: `{"role":"user","content":"Do."},{"role":"user","content":"<system>C</system>"}`,
    });
    expect(JSON.parse(open.system!)).toMatchObject([{ text: "A" }, { text: "B" }]);
    expect(project(GEMINI, [user("Do.")])).toMatchObject({ system: undefined });
  });

  it("keeps apart for Mistral what is the user's and what a tool gave", () => {
    const numbers = new CallNumbers();
    const history = [
      numbers.given(MISTRAL, chat("aaaaaaaaa")),
      ...[system("Be brief."), user("More.")],
      numbers.bare(undefined, { providerCallId: "bbbbbbbbb" }),
      numbers.bare(undefined, { providerCallId: "ccccccccc" }),
    ];

    const { items } = project(MISTRAL, history);
    const shown = JSON.parse(`[${items}]`) as { role: string; content: string | null }[];
    expect(shown.map(({ role, content }) => [role, content])).toEqual([
      ...[
        ["assistant", "Hm."],
        ["tool", "r"],
        ["assistant", "OK"],
      ],
      ...[
        ["user", "<system>Be brief.</system>"],
        ["user", "More."],
      ],
      ...[
        ["assistant", null],
        ["tool", "r"],
        ["assistant", null],
        ["tool", "r"],
      ],
    ]);
  });
});

const hostileId = fc.oneof(
  fc.constantFrom(undefined, "", "functions.Bash:0", "functions.Bash_0", "fc_1", "Ah0BFgzqX"),
  fc.string({ unit: "grapheme", maxLength: 100 }),
  fc.string({ unit: "grapheme-ascii", minLength: 30, maxLength: 512 }),
);
const sample = fc.record({
  providerCallId: hostileId,
  providerItemId: hostileId,
  args: fc.constantFrom("", "{}", `{"a":`, `{"n":2512292042121000001}`),
  result: fc.constantFrom("", "ok", "\ud800"),
});
const entry = fc.oneof(
  fc.constantFrom("user", "system", "assistant", "summary"),
  fc.array(sample, { minLength: 1, maxLength: 4 }),
  fc.tuple(fc.constantFrom("responses", "chat"), hostileId),
);

function historyOf(shape: readonly (typeof entry extends fc.Arbitrary<infer T> ? T : never)[]) {
  const numbers = new CallNumbers();
  const json = (text: string) => JSON.stringify(text).slice(1, -1);
  return shape.map((part): HistoryEntry => {
    if (part === "user") return user("U");
    if (part === "system") return system("S");
    if (part === "assistant") return message(MessageRole.ASSISTANT, "A");
    if (part === "summary") return summary("Earlier.");
    if (typeof part === "string") throw new Error(part);
    if (typeof part[0] !== "string") return numbers.bare("one", ...(part as Sample[]));
    const id = json((part[1] as string | undefined) ?? "");
    return part[0] === "chat"
      ? numbers.given(OPENAI_CHAT_COMPLETIONS, chat(id, `${id}2`))
      : numbers.given(OPENAI_RESPONSES, responses("1", id));
  });
}

describe("Any history for any wire", () => {
  it.each(WIRES)(
    seededTitle("has one result for each call, ids that fit and no public id (wire %i)"),
    (wire) => {
      const { fits, fitsOwn = fits, derive } = wireOf(wire).ids;
      fc.assert(
        fc.property(fc.array(entry, { maxLength: 12 }), (shape) => {
          const history = historyOf(shape);
          const { items } = project(wire, history);

          const { calls, results } = idsIn(wire, items);
          const made = history.flatMap((of) => (of.kind === "turn" ? of.turn.calls : []));
          expect(calls.length).toBe(made.length);
          expect(results).toEqual(calls);
          const given = calls.filter((id) => id !== undefined);
          expect(new Set(given).size).toBe(given.length);
          expect(derive === undefined || given.length === calls.length).toBe(true);
          expect(given.every(fitsOwn)).toBe(true);
          expect(items).not.toContain("tc_public");
          expect(items.isWellFormed()).toBe(true);
        }),
        propertyOptions(1_000),
      );
    },
  );

  it.each(WIRES)(
    seededTitle("begins as that of fewer entries, and is the same each time (wire %i)"),
    (wire) => {
      fc.assert(
        fc.property(fc.array(entry, { maxLength: 12 }), fc.nat(12), (shape, count) => {
          const all = project(wire, historyOf(shape));

          const some = project(wire, historyOf(shape.slice(0, count)));
          expect(all.items.startsWith(some.items)).toBe(true);
          if (some.isSystemClosed) expect(all.system).toBe(some.system);
          expect(project(wire, historyOf(shape))).toEqual(all);
        }),
        propertyOptions(1_000),
      );
    },
  );
});

describe("The recorded responses of a conversation", () => {
  it.each([
    ["openai-responses", OPENAI_RESPONSES],
    ["openai-chat", OPENAI_CHAT_COMPLETIONS],
    ["mistral", MISTRAL],
  ])("of %s have their own ids again, but for one that came twice", (folder, wire) => {
    const conversations = recordedConversations(folder);
    if (conversations === undefined) {
      process.stdout.write(`no recordings of ${folder} in ${recordedFolder()}\n`);
      return;
    }
    for (const { file, steps } of conversations) {
      const numbers = new CallNumbers();
      const history = steps.map(({ response }) => numbers.given(wire, response));
      const native = history.flatMap((of) =>
        of.kind === "turn" ? of.turn.calls.map(({ pairing }) => pairing?.providerCallId) : [],
      );

      const { calls, results } = idsIn(wire, project(wire, history).items);
      const derived: unknown = expect.stringMatching(/^call_/);
      const expected = native.map((id, index) => (native.indexOf(id) === index ? id : derived));
      expect([file, calls]).toEqual([file, expected]);
      expect([file, results]).toEqual([file, calls]);
    }
  });
});
