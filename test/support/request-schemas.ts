import { ChatCompletionRequest$outboundSchema } from "@mistralai/mistralai/models/components";

import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import { isJsonFault, parseJsonText, type JsonNode } from "../../src/domain/json-text.js";
import { TypedLiterals } from "./typed-literals.js";

/** The items of a request for a provider as JSON text, and its system value if the wire has one beside them. */
export interface RequestOfWire {
  readonly wire: ProviderWire;
  readonly itemsJson: string;
  readonly systemJson?: string | undefined;
  /**
   * Whether turns in it go back to the provider that made them, with the members that the providers of Chat
   * Completions add and their clients send back. Else only what OpenAI documents is taken.
   */
  readonly isReplay?: boolean;
}

/** The types of a provider's own package: one item of a request, and what stands beside the items. */
interface RequestTypes {
  readonly items: string;
  /** In the place of `items` for a replay. */
  readonly replayedItems?: string;
  readonly system?: string;
}

const PREAMBLE = `
import type { ResponseInputItem } from "openai/resources/responses/responses";
import type {
  ChatCompletionAssistantMessageParam, ChatCompletionMessageFunctionToolCall, ChatCompletionMessageParam,
} from "openai/resources/chat/completions/completions";
import type { BetaMessageParam } from "@anthropic-ai/sdk/resources/beta/messages/messages";
import type { MessageCreateParams } from "@anthropic-ai/sdk/resources/messages/messages";
import type { Content } from "@google/genai";
type ReplayedChatMessage = ChatCompletionMessageParam | (
  Omit<ChatCompletionAssistantMessageParam, "tool_calls"> & {
    annotations?: unknown; reasoning?: unknown; reasoning_content?: unknown; reasoning_details?: unknown;
    tool_calls?: (ChatCompletionMessageFunctionToolCall & { index?: number; custom?: unknown })[] | null;
  }
);
/** A type whose enums are those strings that JSON has in their place. */
type AsJson<T> = T extends string ? \`\${T}\` : T extends object ? { [K in keyof T]: AsJson<T[K]> } : T;
type GeminiContent = AsJson<Content>;
type AnthropicSystem = NonNullable<MessageCreateParams["system"]>;
`;

const TYPES: ReadonlyMap<ProviderWire, RequestTypes> = new Map<ProviderWire, RequestTypes>([
  [ProviderWire.OPENAI_RESPONSES, { items: "ResponseInputItem" }],
  [
    ProviderWire.OPENAI_CHAT_COMPLETIONS,
    { items: "ChatCompletionMessageParam", replayedItems: "ReplayedChatMessage" },
  ],
  // The stable types are part of these, which know the blocks of every recording.
  [ProviderWire.ANTHROPIC_MESSAGES, { items: "BetaMessageParam", system: "AnthropicSystem" }],
  [ProviderWire.GEMINI, { items: "GeminiContent", system: "GeminiContent" }],
]);

const literals = new TypedLiterals(PREAMBLE);

/**
 * What the provider's own package finds wrong with each request, in their order; nothing for one that fits. Takes
 * seconds the first time, so that many requests are best checked at once.
 */
export function checkRequests(requests: readonly RequestOfWire[]): readonly (readonly string[])[] {
  const checks = requests.map(literalsOf);
  const faults = literals.faults(checks.flatMap(({ typed }) => typed));
  return checks.map(({ typed, found }) => [
    ...found,
    ...typed.flatMap((literal) =>
      (faults.get(literal) ?? []).map((fault) => `${literal.path}: ${fault}`),
    ),
  ]);
}

/** As `checkRequests`, for one. */
export function checkRequest(
  wire: ProviderWire,
  itemsJson: string,
  systemJson?: string,
): readonly string[] {
  return checkRequests([{ wire, itemsJson, systemJson }])[0] ?? [];
}

interface TypedValue {
  readonly path: string;
  readonly type: string;
  readonly json: string;
}

/** What the compiler is to look at, and what was found without it. */
interface RequestCheck {
  readonly typed: readonly TypedValue[];
  readonly found: readonly string[];
}

function literalsOf({ wire, itemsJson, systemJson, isReplay }: RequestOfWire): RequestCheck {
  const items = parseJsonText(itemsJson);
  if (isJsonFault(items)) return { typed: [], found: [`items: ${items.fault}`] };
  if (items.type !== "array") return { typed: [], found: ["items: no array"] };
  if (wire === ProviderWire.MISTRAL) return { typed: [], found: mistralFaults(itemsJson) };
  const types = TYPES.get(wire);
  if (types === undefined) throw new Error(`no types of wire ${wire}`);
  const typed = (items.children ?? []).map((item, index) => ({
    path: `items[${index}]`,
    type: isReplay === true ? (types.replayedItems ?? types.items) : types.items,
    json: written(itemsJson, item),
  }));
  if (systemJson === undefined) return { typed, found: [] };
  if (types.system === undefined) return { typed, found: ["system: the wire has none"] };
  const system = parseJsonText(systemJson);
  if (isJsonFault(system)) return { typed, found: [`system: ${system.fault}`] };
  const value = { path: "system", type: types.system, json: written(systemJson, system) };
  return { typed: [...typed, value], found: [] };
}

function written(text: string, { offset, length }: JsonNode): string {
  return text.slice(offset, offset + length);
}

function mistralFaults(itemsJson: string): readonly string[] {
  const messages: unknown = JSON.parse(itemsJson);
  const read = ChatCompletionRequest$outboundSchema.safeParse({
    model: "a-model",
    messages: withKeys(messages, inCamelCase),
  });
  if (!read.success) {
    return read.error.issues.map(({ path, message }) => `${path.join(".")}: ${message}`);
  }
  // The package passes over members that it does not know.
  return membersMissing(messages, withKeys(read.data.messages, inSnakeCase), "items");
}

/** A JSON value with other keys. Arguments have keys of the model's own. */
function withKeys(value: unknown, keyOf: (key: string) => string): unknown {
  if (Array.isArray(value)) return value.map((element) => withKeys(element, keyOf));
  if (!isRecord(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, member]) => [
      keyOf(key),
      key === "arguments" ? member : withKeys(member, keyOf),
    ]),
  );
}

function inCamelCase(key: string): string {
  return key.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function inSnakeCase(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function membersMissing(given: unknown, read: unknown, path: string): string[] {
  if (Array.isArray(given)) {
    const elements: readonly unknown[] = Array.isArray(read) ? read : [];
    return given.flatMap((element, index) =>
      membersMissing(element, elements[index], `${path}[${index}]`),
    );
  }
  if (!isRecord(given)) return [];
  return Object.entries(given).flatMap(([key, member]) =>
    isRecord(read) && key in read
      ? membersMissing(member, read[key], `${path}.${key}`)
      : [`${path}.${key}: unknown`],
  );
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
