import { jsonSpan, type JsonPath } from "./json-span.js";

/** A recorded HTTP body: the parsed value, and the text as it was sent if the recording has it. */
export interface RecordedBody {
  readonly value: unknown;
  readonly raw: string | undefined;
}

export interface WireCall {
  readonly providerCallId: string | undefined;
  readonly providerItemId: string | undefined;
  /** Further bytes that the provider wants back, for example a signature. */
  readonly opaque: string | undefined;
  readonly toolName: string;
  readonly arguments: Uint8Array;
}

/** What a request says, in its order: texts, calls that it replays, and results of calls. */
export type RequestItem =
  | { readonly kind: "message"; readonly role: "user" | "system"; readonly text: string }
  | { readonly kind: "call"; readonly id: string | undefined; readonly toolName: string }
  | {
      readonly kind: "result";
      readonly id: string | undefined;
      readonly toolName: string | undefined;
      readonly content: Uint8Array;
      readonly isError: boolean;
    };

export interface WireResponse {
  /** Calls for the harness. */
  readonly calls: readonly WireCall[];
  /** Number of tool uses that the provider carried out itself. */
  readonly serverSideCalls: number;
}

/** How one provider's API writes requests and responses. */
export interface Wire {
  /** Texts that stand outside the conversation and are repeated, perhaps changed, in every request. */
  readonly instructions: (request: RecordedBody) => readonly string[];
  readonly request: (request: RecordedBody) => readonly RequestItem[];
  readonly response: (response: RecordedBody) => WireResponse;
}

type JsonObject = Readonly<Record<string, unknown>>;

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function objectOf(value: unknown): JsonObject {
  return isObject(value) ? value : {};
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function stringOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

function nameOf(value: unknown): string {
  if (typeof value !== "string") throw new Error("a recorded call has no tool name");
  return value;
}

const utf8 = new TextEncoder();

function at(value: unknown, path: JsonPath): unknown {
  return path.reduce<unknown>(
    (holder, step) => (typeof step === "number" ? listOf(holder)[step] : objectOf(holder)[step]),
    value,
  );
}

/** Bytes of an embedded value: a string's own text, else the JSON as it was written, as far as that was recorded. */
function contentBytes(body: RecordedBody, path: JsonPath): Uint8Array {
  const value = at(body.value, path);
  return typeof value === "string" ? utf8.encode(value) : jsonBytes(body, path);
}

function jsonBytes(body: RecordedBody, path: JsonPath): Uint8Array {
  const value = at(body.value, path);
  if (value === undefined) return new Uint8Array();
  if (body.raw === undefined) return utf8.encode(JSON.stringify(value));
  const span = jsonSpan(body.raw, path);
  if (span === undefined) throw new Error(`the raw body has nothing at ${path.join(".")}`);
  return utf8.encode(body.raw.slice(span.start, span.end));
}

/** Each text of a content that is a string or a list of parts. Parts that are no text are left out. */
function textsOf(content: unknown): string[] {
  if (typeof content === "string") return [content];
  return listOf(content).flatMap((part) => stringOf(objectOf(part)["text"]) ?? []);
}

function messages(role: unknown, content: unknown): RequestItem[] {
  if (role !== "user" && role !== "system" && role !== "developer") return [];
  const speaker = role === "user" ? "user" : "system";
  return textsOf(content).map((text) => ({ kind: "message", role: speaker, text }));
}

const NO_RESPONSE: WireResponse = { calls: [], serverSideCalls: 0 };

export const openaiResponses: Wire = {
  instructions: ({ value }) => textsOf(objectOf(value)["instructions"]),
  request: (body) => {
    const { input } = objectOf(body.value);
    if (typeof input === "string") return messages("user", input);
    return listOf(input).flatMap((entry, index): RequestItem[] => {
      const item = objectOf(entry);
      const id = stringOf(item["call_id"]);
      if (item["type"] === "function_call") {
        return [{ kind: "call", id, toolName: nameOf(item["name"]) }];
      }
      if (item["type"] === "function_call_output") {
        const content = contentBytes(body, ["input", index, "output"]);
        return [{ kind: "result", id, toolName: undefined, content, isError: false }];
      }
      return messages(item["role"], item["content"]);
    });
  },
  response: ({ value }) => {
    const calls: WireCall[] = [];
    let serverSideCalls = 0;
    let opaque: string | undefined;
    for (const entry of listOf(objectOf(value)["output"])) {
      const item = objectOf(entry);
      const type = stringOf(item["type"]) ?? "";
      if (type === "reasoning") {
        opaque = stringOf(item["encrypted_content"]);
      } else if (type === "function_call") {
        calls.push({
          providerCallId: stringOf(item["call_id"]),
          providerItemId: stringOf(item["id"]),
          opaque,
          toolName: nameOf(item["name"]),
          arguments: utf8.encode(stringOf(item["arguments"]) ?? ""),
        });
        opaque = undefined;
      } else if (type.endsWith("_call")) {
        serverSideCalls += 1;
      }
    }
    return { calls, serverSideCalls };
  },
};

function chatCalls(message: JsonObject): WireCall[] {
  return listOf(message["tool_calls"]).map((entry) => {
    const call = objectOf(entry);
    const { name, arguments: text } = objectOf(call["function"]);
    return {
      providerCallId: stringOf(call["id"]),
      providerItemId: undefined,
      opaque: undefined,
      toolName: nameOf(name),
      arguments: utf8.encode(stringOf(text) ?? ""),
    };
  });
}

export const chatCompletions: Wire = {
  instructions: () => [],
  request: (body) =>
    listOf(objectOf(body.value)["messages"]).flatMap((entry, index): RequestItem[] => {
      const message = objectOf(entry);
      if (message["role"] !== "tool") {
        const calls = chatCalls(message).map(({ providerCallId: id, toolName }): RequestItem => ({
          kind: "call",
          id,
          toolName,
        }));
        return [...messages(message["role"], message["content"]), ...calls];
      }
      return [
        {
          kind: "result",
          id: stringOf(message["tool_call_id"]),
          toolName: stringOf(message["name"]),
          content: contentBytes(body, ["messages", index, "content"]),
          isError: false,
        },
      ];
    }),
  response: ({ value }) => {
    const message = objectOf(at(value, ["choices", 0, "message"]));
    return { ...NO_RESPONSE, calls: chatCalls(message) };
  },
};

const ANTHROPIC_SERVER_CALLS: ReadonlySet<unknown> = new Set(["server_tool_use", "mcp_tool_use"]);

function anthropicItem(body: RecordedBody, role: unknown, path: JsonPath): RequestItem[] {
  const block = objectOf(at(body.value, path));
  if (block["type"] === "tool_use") {
    return [{ kind: "call", id: stringOf(block["id"]), toolName: nameOf(block["name"]) }];
  }
  if (block["type"] !== "tool_result") return messages(role, [block]);
  return [
    {
      kind: "result",
      id: stringOf(block["tool_use_id"]),
      toolName: undefined,
      content: contentBytes(body, [...path, "content"]),
      isError: block["is_error"] === true,
    },
  ];
}

export const anthropicMessages: Wire = {
  instructions: ({ value }) => textsOf(objectOf(value)["system"]),
  request: (body) =>
    listOf(objectOf(body.value)["messages"]).flatMap((entry, index) => {
      const { role, content } = objectOf(entry);
      if (typeof content === "string") return messages(role, content);
      return listOf(content).flatMap((_, part) =>
        anthropicItem(body, role, ["messages", index, "content", part]),
      );
    }),
  response: (body) => {
    const blocks = listOf(objectOf(body.value)["content"]).map(objectOf);
    const calls = blocks.flatMap((block, index): WireCall[] => {
      if (block["type"] !== "tool_use") return [];
      return [
        {
          providerCallId: stringOf(block["id"]),
          providerItemId: undefined,
          opaque: undefined,
          toolName: nameOf(block["name"]),
          arguments: jsonBytes(body, ["content", index, "input"]),
        },
      ];
    });
    const served = blocks.filter(({ type }) => ANTHROPIC_SERVER_CALLS.has(type));
    return { calls, serverSideCalls: served.length };
  },
};

function geminiItem(body: RecordedBody, role: unknown, path: JsonPath): RequestItem[] {
  const part = objectOf(at(body.value, path));
  if (isObject(part["functionCall"])) {
    const { id, name } = part["functionCall"];
    return [{ kind: "call", id: stringOf(id), toolName: nameOf(name) }];
  }
  if (!isObject(part["functionResponse"])) {
    return role === "model" ? [] : messages("user", [part]);
  }
  const { id, name, response } = part["functionResponse"];
  return [
    {
      kind: "result",
      id: stringOf(id),
      toolName: stringOf(name),
      content: contentBytes(body, [...path, "functionResponse", "response"]),
      isError: isObject(response) && "error" in response,
    },
  ];
}

export const gemini: Wire = {
  instructions: ({ value }) => textsOf(at(value, ["systemInstruction", "parts"])),
  request: (body) =>
    listOf(objectOf(body.value)["contents"]).flatMap((entry, index) => {
      const { role, parts } = objectOf(entry);
      return listOf(parts).flatMap((_, part) =>
        geminiItem(body, role, ["contents", index, "parts", part]),
      );
    }),
  response: (body) => {
    const path = ["candidates", 0, "content", "parts"];
    const parts = listOf(at(body.value, path)).map(objectOf);
    const calls = parts.flatMap((part, index): WireCall[] => {
      if (!isObject(part["functionCall"])) return [];
      const { id, name } = part["functionCall"];
      return [
        {
          providerCallId: stringOf(id),
          providerItemId: undefined,
          opaque: stringOf(part["thoughtSignature"]),
          toolName: nameOf(name),
          arguments: jsonBytes(body, [...path, index, "functionCall", "args"]),
        },
      ];
    });
    const served = parts.filter((part) => "executableCode" in part || "toolCall" in part);
    return { calls, serverSideCalls: served.length };
  },
};
