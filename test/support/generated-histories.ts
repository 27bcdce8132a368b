import * as fc from "fast-check";
import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import { projectedCallDigest } from "../../src/domain/identity.js";
import { wireOf } from "../../src/provider/wires.js";
import { bytes } from "./conversation.js";
import { WIRES, type SpokenWire } from "./replaying.js";

/** An id as a provider might give it: absent, some text, or the one that the service would derive for a call. */
export type HostileId =
  string | undefined | { readonly derivedFor: number; readonly wire: SpokenWire };

export interface GeneratedContent {
  readonly data: Uint8Array<ArrayBuffer>;
  readonly mediaType: string;
}

export interface GeneratedCall {
  readonly id: HostileId;
  readonly itemId: string | undefined;
  readonly toolName: string;
  /** What the model wrote, whether it is JSON or not. */
  readonly args: string;
  readonly isCustom: boolean;
  /** Absent: the call ends without a result of its own. */
  readonly result: (GeneratedContent & { readonly isError: boolean }) | undefined;
}

export interface GeneratedTurn {
  readonly kind: "turn";
  /** Absent: the harness names the calls alone. */
  readonly wire: SpokenWire | undefined;
  readonly provider: string | undefined;
  readonly text: string;
  readonly isTextLast: boolean;
  readonly hasReasoning: boolean;
  readonly calls: readonly GeneratedCall[];
}

export interface GeneratedMessage extends GeneratedContent {
  readonly kind: "message";
  readonly role: MessageRole;
}

export type GeneratedStep = GeneratedTurn | GeneratedMessage;

export interface GeneratedHistory {
  readonly steps: readonly GeneratedStep[];
  /** How many of the first steps are archived; nothing if there was no compaction. */
  readonly archived: number | undefined;
  /** A point where the history is looked at before it goes on. */
  readonly cut: number;
}

/** A call as its provider names it in the response. */
export interface NamedCall extends Omit<GeneratedCall, "id"> {
  readonly id: string | undefined;
}

const LENGTHS = [1, 8, 9, 10, 39, 40, 41, 63, 64, 65, 66, 128, 511, 512];
const ID_CHARACTERS = ["a", "Z", "0", "9", "_", "-", ".", ":", "/", " ", "é", "工"];

const sizedId = fc
  .constantFrom(...LENGTHS)
  .chain((length) =>
    fc.array(fc.constantFrom(...ID_CHARACTERS), { minLength: length, maxLength: length }),
  )
  .map((characters) => characters.join(""));

const hostileIds: fc.Arbitrary<HostileId> = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(undefined, "") },
  {
    weight: 6,
    arbitrary: fc.constantFrom(
      ...["functions.Bash:0", "functions.Bash_0", "functions/Bash:0", "functions_Bash_0"],
      ...[
        "terminal:0",
        "call_0",
        "AbCdEf012",
        "000000000",
        "naïve_ïd",
        "工具:0",
        "toolu_01",
        "\u0000",
      ],
    ),
  },
  // These differ only behind what a provider would take.
  { weight: 1, arbitrary: fc.constantFrom("x", "y").map((end) => "a".repeat(64) + end) },
  { weight: 2, arbitrary: sizedId },
  { weight: 1, arbitrary: fc.string({ unit: "binary", minLength: 1, maxLength: 512 }) },
  {
    weight: 2,
    arbitrary: fc.record({ derivedFor: fc.nat(20), wire: fc.constantFrom(...WIRES) }),
  },
);

const texts = fc.constantFrom(
  ...["hello", "", "  ", "naïve 工具 😀", 'quotes " and \\ and \n', "a\ud800b", "\u2028 \u0007"],
);

const args = fc.constantFrom(
  ...["{}", "", " ", '{"a":1}', '{"command": "cd /x', "[1]", "null", '"text"', "no json", "{} {}"],
  ...[String.raw`{"text":"a\ud800b","工具":"\ud83d\ude00"}`, '{"raw":"\udc00"}', '{"k":1,"k":2}'],
  '{"id":2512292042121000001,"neg":-0,"f":1.0,"big":1e400}',
);

const NATIVE: Readonly<Record<SpokenWire, string>> = {
  [ProviderWire.OPENAI_RESPONSES]: "application/vnd.toolmark.openai-responses+json",
  [ProviderWire.OPENAI_CHAT_COMPLETIONS]: "application/vnd.toolmark.openai-chat+json",
  [ProviderWire.MISTRAL]: "application/vnd.toolmark.mistral+json",
  [ProviderWire.ANTHROPIC_MESSAGES]: "application/vnd.toolmark.anthropic-messages+json",
  [ProviderWire.GEMINI]: "application/vnd.toolmark.gemini+json",
};

const contents: fc.Arbitrary<GeneratedContent> = fc.oneof(
  texts.map((text) => ({ data: bytes(text), mediaType: "text/plain" })),
  fc.constantFrom(
    { data: bytes('{"ok":true,"n":1e400}'), mediaType: "application/json" },
    { data: bytes(String.raw`{"text":"a\ud800b"}`), mediaType: "application/json" },
    { data: Uint8Array.of(0x89, 0x50, 0xff, 0xed, 0xa0, 0x80), mediaType: "image/png" },
    { data: Uint8Array.of(0x61, 0xff), mediaType: "" },
  ),
  fc
    .constantFrom(...WIRES)
    .chain((wire) =>
      fc
        .constantFrom(
          ...[String.raw`[{"type":"text","text":"n\ud800"}]`, '"n"', '{"n":1}', "[", "[]", "null"],
        )
        .map((json) => ({ data: bytes(json), mediaType: NATIVE[wire] })),
    ),
);

const calls: fc.Arbitrary<GeneratedCall> = fc.record({
  id: hostileIds,
  itemId: fc.constantFrom(undefined, "", "fc_1", "fc_2", "no item id", `fc_${"a".repeat(80)}`),
  toolName: fc.constantFrom("bash", "functions.Bash", "工具", "n".repeat(70), "get_weather"),
  args,
  isCustom: fc.nat(9).map((dice) => dice === 0),
  result: fc.option(
    fc.tuple(contents, fc.boolean()).map(([content, isError]) => ({ ...content, isError })),
    { nil: undefined, freq: 6 },
  ),
});

const turns: fc.Arbitrary<GeneratedTurn> = fc.record({
  kind: fc.constant("turn" as const),
  wire: fc.constantFrom(undefined, ...WIRES),
  provider: fc.constantFrom(undefined, undefined, "one", "other"),
  text: texts,
  isTextLast: fc.boolean(),
  hasReasoning: fc.boolean(),
  calls: fc.array(calls, { maxLength: 4 }),
});

const messages: fc.Arbitrary<GeneratedMessage> = fc
  .tuple(contents, fc.constantFrom(MessageRole.USER, MessageRole.ASSISTANT, MessageRole.SYSTEM))
  .map(([content, role]) => ({ kind: "message", role, ...content }));

const steps: fc.Arbitrary<GeneratedStep> = fc.oneof(
  { weight: 3, arbitrary: turns.filter(({ wire, calls: made }) => isTurn(wire, made)) },
  { weight: 1, arbitrary: messages },
);

/** The harness names no turn without calls. */
function isTurn(wire: SpokenWire | undefined, made: readonly GeneratedCall[]): boolean {
  return wire !== undefined || made.length > 0;
}

/** Histories with whatever ids, arguments, contents and orders there may be. */
export const generatedHistories: fc.Arbitrary<GeneratedHistory> = fc
  .tuple(
    fc.array(steps, { minLength: 1, maxLength: 8 }),
    fc.option(fc.nat(8), { nil: undefined }),
    fc.nat(8),
  )
  .map(([taken, archived, cut]) => ({
    steps: taken,
    archived: archived === undefined ? undefined : archived % taken.length,
    cut: cut % (taken.length + 1),
  }));

/**
 * The calls of a turn with their ids as texts: an id that comes again within the turn, which is refused, is left out.
 * `toolCallIdOf` gives the call of the service by its number, if there is one.
 */
export function namedCalls(
  { calls: made }: GeneratedTurn,
  toolCallIdOf: (number: number) => string | undefined,
): NamedCall[] {
  const seen = new Set<string>();
  return made.map((call) => {
    const id = namedId(call.id, toolCallIdOf);
    const isRepeated = id !== undefined && seen.has(id);
    if (id !== undefined && id !== "") seen.add(id);
    return { ...call, id: isRepeated ? undefined : id };
  });
}

function namedId(
  id: HostileId,
  toolCallIdOf: (number: number) => string | undefined,
): string | undefined {
  if (typeof id !== "object") return id;
  const toolCallId = toolCallIdOf(id.derivedFor);
  const derive = wireOf(id.wire).ids.derive;
  return toolCallId && derive?.(projectedCallDigest(toolCallId, 0n));
}

/** The response of a provider that makes a turn. */
export function responseOf(
  wire: SpokenWire,
  turn: GeneratedTurn,
  made: readonly NamedCall[],
): string {
  switch (wire) {
    case ProviderWire.OPENAI_RESPONSES:
      return JSON.stringify({ output: responsesOutput(turn, made) });
    case ProviderWire.ANTHROPIC_MESSAGES:
      return anthropicResponse(turn, made);
    case ProviderWire.GEMINI:
      return geminiResponse(turn, made);
    default:
      return chatResponse(turn, made);
  }
}

function inOrder<T>({ isTextLast }: GeneratedTurn, said: readonly T[], called: readonly T[]): T[] {
  return isTextLast ? [...called, ...said] : [...said, ...called];
}

function responsesOutput(turn: GeneratedTurn, made: readonly NamedCall[]): unknown[] {
  const reasoning = { type: "reasoning", id: "rs_1", summary: [], encrypted_content: "sealed" };
  const content = [{ type: "output_text", text: turn.text, annotations: [] }];
  const said = { type: "message", id: "msg_1", role: "assistant", content };
  const called = made.map(({ id, itemId, toolName: name, args: text, isCustom }) => ({
    ...{ type: isCustom ? "custom_tool_call" : "function_call", id: itemId, call_id: id, name },
    ...(isCustom ? { input: text } : { arguments: text }),
  }));
  return [
    ...(turn.hasReasoning ? [reasoning] : []),
    ...inOrder<unknown>(turn, turn.text === "" ? [] : [said], called),
  ];
}

function chatResponse(turn: GeneratedTurn, made: readonly NamedCall[]): string {
  const called = made.map(({ id, toolName: name, args: text, isCustom }) =>
    isCustom
      ? { id, type: "custom", custom: { name, input: text } }
      : { id, type: "function", function: { name, arguments: text } },
  );
  const message = {
    ...{ role: "assistant", content: turn.text === "" ? null : turn.text },
    ...(turn.hasReasoning ? { reasoning_content: "hm" } : {}),
    ...(made.length === 0 ? {} : { tool_calls: called }),
  };
  return JSON.stringify({ choices: [{ index: 0, message }] });
}

/** The arguments as a JSON value: as they are if they are JSON, else as a string. */
function argsJson({ args: text }: NamedCall): string {
  try {
    JSON.parse(text);
    return text.isWellFormed() ? text : JSON.stringify(text);
  } catch (error) {
    if (error instanceof SyntaxError) return JSON.stringify(text);
    throw error;
  }
}

function anthropicResponse(turn: GeneratedTurn, made: readonly NamedCall[]): string {
  const thinking = '{"type":"thinking","thinking":"hm","signature":"sealed"}';
  const said = turn.text === "" ? [] : [JSON.stringify({ type: "text", text: turn.text })];
  const called = made.map((call) => {
    const head = JSON.stringify({ type: "tool_use", id: call.id ?? "", name: call.toolName });
    return `${head.slice(0, -1)},"input":${argsJson(call)}}`;
  });
  const content = [...(turn.hasReasoning ? [thinking] : []), ...inOrder(turn, said, called)];
  return `{"type":"message","role":"assistant","content":[${content.join()}]}`;
}

function geminiResponse(turn: GeneratedTurn, made: readonly NamedCall[]): string {
  const thought = '{"text":"hm","thought":true}';
  const said = turn.text === "" ? [] : [JSON.stringify({ text: turn.text })];
  const called = made.map((call, index) => {
    const head = JSON.stringify({ id: call.id, name: call.toolName });
    const signature = index === 0 ? ',"thoughtSignature":"c2VhbGVk"' : "";
    return `{"functionCall":${head.slice(0, -1)},"args":${argsJson(call)}}${signature}}`;
  });
  const parts = [...(turn.hasReasoning ? [thought] : []), ...inOrder(turn, said, called)];
  return `{"candidates":[{"content":{"role":"model","parts":[${parts.join()}]}}]}`;
}
