import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import { readRecordedTexts } from "./recorded-files.js";
import {
  isObject,
  listOf,
  member,
  objectOf,
  parseLossless,
  textAt,
  writeLossless,
  type Lossless,
} from "./lossless-json.js";

/** One thing that a request says, whichever message it stands in. */
export interface Atom {
  readonly speaker: "system" | "user" | "assistant" | "tool";
  /** The item, block or part; of a message its content. */
  readonly value: Lossless;
}

/** What a client did to an item of a response before it sent it back. */
export interface Observed {
  readonly item: string;
  readonly change: readonly string[];
}

export interface RecordedReplayStep {
  readonly system: readonly Lossless[];
  readonly atoms: readonly Atom[];
  /** The request has only what is new: the provider keeps the rest. */
  readonly continues: boolean;
  /** The response as it came, or as the recorder wrote it. */
  readonly response: string;
  readonly isRaw: boolean;
  /** What the next request made of this response. */
  readonly observed: readonly Observed[];
}

export interface RecordedReplay {
  readonly file: string;
  readonly wire: ProviderWire;
  readonly steps: readonly RecordedReplayStep[];
}

/** How a wire writes what a request says. */
export interface AtomWire {
  readonly wire: ProviderWire;
  readonly system: (request: Lossless) => readonly Lossless[];
  readonly items: (request: Lossless) => Lossless | undefined;
  readonly atoms: (items: Lossless | undefined) => Atom[];
  /** The items of a response, as one item of a request. */
  readonly responseItems: (response: Lossless) => Lossless | undefined;
  /** A response of one item. */
  readonly asResponse: (item: Lossless) => Lossless;
  readonly nativeMediaType: string;
  readonly callId: (call: Lossless) => string | undefined;
  readonly resultId: (result: Lossless) => string | undefined;
  /** What the result says, as the wire's own JSON. */
  readonly resultContent: (result: Lossless) => Lossless | undefined;
  readonly isCall: (value: Lossless) => boolean;
}

function spokenBy(role: string | undefined): Atom["speaker"] {
  if (role === "system" || role === "developer") return "system";
  if (role === "assistant" || role === "model") return "assistant";
  return role === "tool" ? "tool" : "user";
}

function responsesAtom(item: Lossless): Atom {
  const type = textAt(item, "type");
  if (type === "function_call_output") return { speaker: "tool", value: item };
  const role = textAt(item, "role");
  const isMessage = type === undefined || type === "message";
  if (!isMessage || role === "assistant") return { speaker: "assistant", value: item };
  return { speaker: spokenBy(role), value: member(item, "content") ?? null };
}

const openaiResponses: AtomWire = {
  wire: ProviderWire.OPENAI_RESPONSES,
  system: () => [],
  items: (request) => member(request, "input"),
  atoms: (items) =>
    typeof items === "string"
      ? [{ speaker: "user", value: items }]
      : listOf(items).map(responsesAtom),
  responseItems: (response) => member(response, "output"),
  asResponse: (item) => objectOf({ object: "response", output: [item] }),
  nativeMediaType: "application/vnd.toolmark.openai-responses+json",
  callId: (call) => textAt(call, "call_id"),
  resultId: (result) => textAt(result, "call_id"),
  resultContent: (result) => member(result, "output"),
  isCall: (value) => textAt(value, "type") === "function_call",
};

function chatAtom(message: Lossless): Atom {
  const speaker = spokenBy(textAt(message, "role"));
  const isSaid = speaker === "user" || speaker === "system";
  return { speaker, value: isSaid ? (member(message, "content") ?? null) : message };
}

const chat: AtomWire = {
  wire: ProviderWire.OPENAI_CHAT_COMPLETIONS,
  system: () => [],
  items: (request) => member(request, "messages"),
  atoms: (items) => listOf(items).map(chatAtom),
  responseItems: (response) => {
    const message = member(listOf(member(response, "choices"))[0], "message");
    return message === undefined ? undefined : [message];
  },
  asResponse: (message) => objectOf({ choices: [objectOf({ message })] }),
  nativeMediaType: "application/vnd.toolmark.openai-chat+json",
  callId: (call) => textAt(call, "id"),
  resultId: (result) => textAt(result, "tool_call_id"),
  resultContent: (result) => member(result, "content"),
  isCall: (value) => listOf(member(value, "tool_calls")).length > 0,
};

function blocksOf(content: Lossless | undefined): Lossless[] {
  if (typeof content !== "string") return listOf(content);
  return [objectOf({ type: "text", text: content })];
}

function anthropicAtoms(message: Lossless): Atom[] {
  const speaker = spokenBy(textAt(message, "role"));
  return blocksOf(member(message, "content")).map((value) => {
    const isResult = speaker === "user" && textAt(value, "type") === "tool_result";
    return { speaker: isResult ? "tool" : speaker, value };
  });
}

const anthropic: AtomWire = {
  wire: ProviderWire.ANTHROPIC_MESSAGES,
  system: (request) => blocksOf(member(request, "system")),
  items: (request) => member(request, "messages"),
  atoms: (items) => listOf(items).flatMap(anthropicAtoms),
  responseItems: (response) => [
    objectOf({ role: "assistant", content: member(response, "content") ?? null }),
  ],
  asResponse: (block) => objectOf({ type: "message", role: "assistant", content: [block] }),
  nativeMediaType: "application/vnd.toolmark.anthropic-messages+json",
  callId: (call) => textAt(call, "id"),
  resultId: (result) => textAt(result, "tool_use_id"),
  resultContent: (result) => member(result, "content"),
  isCall: (value) => textAt(value, "type") === "tool_use",
};

function geminiAtoms(content: Lossless): Atom[] {
  const speaker = spokenBy(textAt(content, "role"));
  return listOf(member(content, "parts")).map((value) => {
    const isResult = member(value, "functionResponse") !== undefined;
    return { speaker: isResult ? "tool" : speaker, value };
  });
}

const gemini: AtomWire = {
  wire: ProviderWire.GEMINI,
  system: (request) => listOf(member(request, "systemInstruction", "parts")),
  items: (request) => member(request, "contents"),
  atoms: (items) => listOf(items).flatMap(geminiAtoms),
  responseItems: (response) => {
    const content = member(listOf(member(response, "candidates"))[0], "content");
    return content === undefined ? undefined : [content];
  },
  asResponse: (part) =>
    objectOf({ candidates: [objectOf({ content: objectOf({ role: "model", parts: [part] }) })] }),
  nativeMediaType: "application/vnd.toolmark.gemini+json",
  callId: (call) => textAt(call, "functionCall", "id"),
  resultId: (result) => textAt(result, "functionResponse", "id"),
  resultContent: (result) => member(result, "functionResponse", "response"),
  isCall: (value) => member(value, "functionCall") !== undefined,
};

const ATOM_WIRES: Readonly<Record<string, AtomWire>> = {
  "openai-responses": openaiResponses,
  "openai-chat": chat,
  mistral: {
    ...chat,
    wire: ProviderWire.MISTRAL,
    nativeMediaType: "application/vnd.toolmark.mistral+json",
  },
  "anthropic-messages": anthropic,
  gemini,
};

export function atomWireOf(wire: ProviderWire): AtomWire {
  const found = Object.values(ATOM_WIRES).find((each) => each.wire === wire);
  if (found === undefined) throw new Error(`no wire ${wire}`);
  return found;
}

function observedOf(file: Lossless, step: number): Observed[] {
  const entries = listOf(member(file, "replay_observed"));
  const entry = entries.find((each) => {
    const from = member(each, "from_response");
    return isNumber(from) && Number(from.number) === step;
  });
  return listOf(member(entry, "assistant_items")).map((item) => ({
    item: textAt(item, "item") ?? "",
    change: listOf(member(item, "change")).map(String),
  }));
}

function isNumber(value: Lossless | undefined): value is Extract<Lossless, { isNumber: true }> {
  return typeof value === "object" && value !== null && "isNumber" in value;
}

function replayOf(name: string, text: string): RecordedReplay {
  const file = parseLossless(text);
  const wire = ATOM_WIRES[textAt(file, "wire") ?? ""];
  if (wire === undefined) throw new Error(`${name} has an unknown wire`);
  const steps = listOf(member(file, "steps")).map((step, index): RecordedReplayStep => {
    const rawRequest = textAt(step, "request_raw");
    const rawResponse = textAt(step, "response_raw");
    const request =
      rawRequest === undefined ? (member(step, "request") ?? null) : parseLossless(rawRequest);
    return {
      system: wire.system(request),
      atoms: wire.atoms(wire.items(request)),
      continues: isObject(request) && typeof request.get("previous_response_id") === "string",
      response: rawResponse ?? writeLossless(member(step, "response") ?? null),
      isRaw: rawResponse !== undefined,
      observed: observedOf(file, index),
    };
  });
  return { file: name, wire: wire.wire, steps };
}

/** Every recorded conversation, or nothing if there is no such folder. */
export function readRecordedReplays(): readonly RecordedReplay[] | undefined {
  return readRecordedTexts()?.map(({ file, text }) => replayOf(file, text));
}
