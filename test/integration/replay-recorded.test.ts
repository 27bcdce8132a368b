import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import {
  jsonMember,
  parseJsonText,
  isJsonFault,
  type JsonNode,
} from "../../src/domain/json-text.js";
import { ANTHROPIC_RESPONSE_ONLY } from "../../src/provider/anthropic-messages.js";
import { OPENAI_CHAT_RESPONSE_ONLY } from "../../src/provider/openai-chat.js";
import { given } from "../support/conversation.js";
import { listOf, member, parseLossless, textAt, type Lossless } from "../support/lossless-json.js";
import {
  readRecordedReplays,
  type Atom,
  type AtomWire,
  type RecordedReplayStep,
} from "../support/recorded-replays.js";
import { canonicalText, without, withoutObserved } from "../support/replay-comparison.js";
import {
  callIdsOf,
  ReplayedConversation,
  type Expected,
} from "../support/replayed-conversation.js";
import { project } from "../support/replaying.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";

const RECORDED = readRecordedReplays();
if (RECORDED === undefined) process.stdout.write("no recorded traffic: nothing is replayed\n");

/** Members that a request may not have, by the documentation of the wires. At most three for each. */
const RESPONSE_ONLY: Readonly<
  Partial<Record<ProviderWire, readonly { member: string; isVoid?: true; reason: string }[]>>
> = {
  [ProviderWire.ANTHROPIC_MESSAGES]: ANTHROPIC_RESPONSE_ONLY,
  [ProviderWire.OPENAI_CHAT_COMPLETIONS]: OPENAI_CHAT_RESPONSE_ONLY,
};

let service: TestService;
let clients: Clients;

beforeAll(async () => {
  service = await startTestService();
  clients = service.clients();
});

afterAll(() => service.stop());

/** Where a wire puts the id of a call, and of its result. */
const ID_PATHS = ["call_id", "id", "tool_calls[].id", "functionCall.id"];
const RESULT_ID_PATHS = ["call_id", "tool_call_id", "tool_use_id", "functionResponse.id"];

/** Without what may not be in a request: a member, or one that says nothing. */
function asRequested(wire: AtomWire, value: Lossless): Lossless {
  return (RESPONSE_ONLY[wire.wire] ?? []).reduce((left, { member: path, isVoid = false }) => {
    const said = member(left, path);
    const saysNothing = said === null || (Array.isArray(said) && said.length === 0);
    return isVoid && !saysNothing ? left : without(left, path);
  }, value);
}

function withoutAll(value: Lossless, paths: readonly string[]): Lossless {
  return paths.reduce(without, value);
}

function expectOwn(wire: AtomWire, ours: Atom, expected: Extract<Expected, { kind: "own" }>): void {
  const isRenamed = callIdsOf(wire, ours.value).join() !== callIdsOf(wire, expected.given).join();
  const skipped = isRenamed ? ID_PATHS : [];
  const [shown, was] = [ours.value, expected.given].map((value) =>
    withoutAll(asRequested(wire, value), skipped),
  );
  expect(canonicalText(given(shown, "item"))).toBe(canonicalText(given(was, "item")));
  if (expected.theirs === undefined) return;
  const changes = [...expected.changes, ...(isRenamed ? ID_PATHS.map((path) => `~${path}`) : [])];
  const sides = withoutObserved(
    asRequested(wire, ours.value),
    asRequested(wire, expected.theirs),
    changes,
  );
  expect(sides.ours).toBe(sides.theirs);
}

/** A text is the same in a string and in a block of its own. */
function textOf(value: Lossless): Lossless {
  const [only, ...others] = Array.isArray(value) ? value : [value];
  if (others.length > 0 || only === undefined) return value;
  const text = textAt(only, "text");
  return text !== undefined && textAt(only, "type") !== "image" ? text : only;
}

function expectSaid(ours: Atom, expected: Extract<Expected, { kind: "said" }>): void {
  expect(ours.speaker).toBe(expected.speaker);
  if (expected.speaker !== "tool") {
    expect(canonicalText(textOf(ours.value))).toBe(canonicalText(textOf(expected.theirs)));
    return;
  }
  // A result that is none by mistake says so by saying nothing.
  const theirs =
    member(expected.theirs, "is_error") === true
      ? expected.theirs
      : without(expected.theirs, "is_error");
  const [left, right] = [ours.value, theirs].map((value) => withoutAll(value, RESULT_ID_PATHS));
  expect(canonicalText(given(left, "result"))).toBe(canonicalText(given(right, "result")));
}

/** Every call has one result, with its id, before anything else follows. */
function expectPaired(wire: AtomWire, atoms: readonly Atom[]): void {
  let open: (string | undefined)[] = [];
  const seen = new Set<string>();
  for (const { speaker, value } of atoms) {
    if (speaker === "tool") {
      expect(wire.resultId(value)).toBe(open.shift());
      continue;
    }
    if (speaker !== "assistant") expect(open).toEqual([]);
    for (const id of callIdsOf(wire, value)) {
      if (id !== undefined) expect(seen.has(id)).toBe(false);
      if (id !== undefined) seen.add(id);
      open = [...open, id];
    }
  }
  expect(open).toEqual([]);
}

/** The only item that a wire wants between two others. */
const ACKNOWLEDGEMENT = '{"content":"OK","role":"assistant"}';

function ourAtoms(wire: AtomWire, items: string): Atom[] {
  return wire
    .atoms(parseLossless(items))
    .filter(
      ({ value }) => wire.wire !== ProviderWire.MISTRAL || canonicalText(value) !== ACKNOWLEDGEMENT,
    );
}

async function expectProjection(
  played: ReplayedConversation,
  step: RecordedReplayStep,
): Promise<string> {
  const { wire, expected, sessionId } = played;
  const { items, system } = await project(clients, sessionId, wire.wire);
  const atoms = ourAtoms(wire, items);
  expect(atoms).toHaveLength(expected.length);
  for (const [index, ours] of atoms.entries()) {
    const wanted = given(expected[index], "expected item");
    if (wanted.kind === "own") expectOwn(wire, ours, wanted);
    else expectSaid(ours, wanted);
  }
  expectPaired(wire, atoms);
  const said = system === "" ? [] : systemTexts(parseLossless(system));
  const first = given(played.recorded.steps[0], "step");
  expect(said).toEqual(first.system.map((block) => textAt(block, "text")));
  expect(step.atoms.length).toBeGreaterThan(0);
  return items;
}

function systemTexts(system: Lossless): (string | undefined)[] {
  const blocks = Array.isArray(system) ? system : listOf(member(system, "parts"));
  return blocks.map((block) => textAt(block, "text"));
}

/** The items of a response as the provider wrote them. */
function rawItems(wire: AtomWire, response: string): string[] {
  const root = parseJsonText(response);
  if (isJsonFault(root)) throw new Error("a recorded response is no JSON");
  const at = (node: JsonNode | undefined, key: string): JsonNode | undefined =>
    node && jsonMember(node, key);
  const firstOf = (node: JsonNode | undefined): JsonNode | undefined => node?.children?.[0];
  const nodes: Readonly<Partial<Record<ProviderWire, readonly (JsonNode | undefined)[]>>> = {
    [ProviderWire.OPENAI_RESPONSES]: at(root, "output")?.children ?? [],
    [ProviderWire.OPENAI_CHAT_COMPLETIONS]: [at(firstOf(at(root, "choices")), "message")],
    [ProviderWire.MISTRAL]: [at(firstOf(at(root, "choices")), "message")],
    [ProviderWire.ANTHROPIC_MESSAGES]: at(root, "content")?.children ?? [],
    [ProviderWire.GEMINI]:
      at(at(firstOf(at(root, "candidates")), "content"), "parts")?.children ?? [],
  };
  return (nodes[wire.wire] ?? []).flatMap((node) =>
    node === undefined ? [] : [response.slice(node.offset, node.offset + node.length)],
  );
}

describe("a recorded conversation", () => {
  test.each(RECORDED ?? [])("$file is projected as its provider took it back", async (recorded) => {
    const played = new ReplayedConversation(clients, recorded);
    let before = "[]";
    const raw: string[] = [];
    for (const step of recorded.steps) {
      await played.request(step);
      const items = await expectProjection(played, step);
      expect(items.startsWith(before.slice(0, -1))).toBe(true);
      for (const item of raw) expect(items).toContain(item);
      before = items;
      await played.response(step);
      if (step.isRaw) raw.push(...rawItems(played.wire, step.response));
    }
    expect(recorded.steps.length).toBeGreaterThan(1);
  });

  test("no wire leaves out more than three members", () => {
    for (const left of Object.values(RESPONSE_ONLY)) expect(left.length).toBeLessThanOrEqual(3);
  });
});
