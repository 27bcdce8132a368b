import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import type {
  AcceptProviderTurnResponse,
  ReplayedCall,
  ReplayedTurn,
} from "../../gen/toolmark/engine/v1/replay_service_pb.js";
import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { bytes, complete, given, of, type OpenRun } from "./conversation.js";
import type { Clients } from "./service.js";

/** A projected request, as a harness puts it together. */
export interface ProjectedRequest {
  /** JSON text of the system value. Empty if there is none. */
  readonly system: string;
  /** JSON text of the array of items. */
  readonly items: string;
  readonly partSizes: readonly number[];
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

export async function project(
  { replays }: Clients,
  sessionId: string,
  wire: ProviderWire,
  provider?: string,
): Promise<ProjectedRequest> {
  const system: Uint8Array[] = [];
  const items: Uint8Array[] = [];
  const request = { sessionId, wire, ...(provider === undefined ? {} : { provider }) };
  for await (const { part } of replays.projectReplay(request)) {
    if (part.case === "system") system.push(part.value);
    if (part.case === "items") items.push(part.value);
  }
  return {
    system: utf8.decode(Buffer.concat(system)),
    items: utf8.decode(Buffer.concat(items)),
    partSizes: [...system, ...items].map(({ length }) => length),
  };
}

/** What GetReplay gives, turn by turn. */
export interface ReplayedParts {
  readonly turn: ReplayedTurn;
  readonly items: string;
  readonly calls: readonly ReplayedCall[];
}

export async function readReplay(
  { replays }: Clients,
  sessionId: string,
): Promise<ReplayedParts[]> {
  const turns: { turn: ReplayedTurn; items: Uint8Array[]; calls: ReplayedCall[] }[] = [];
  for await (const { part } of replays.getReplay({ sessionId })) {
    if (part.case === "turn") turns.push({ turn: part.value, items: [], calls: [] });
    if (part.case === "items") turns.at(-1)?.items.push(part.value);
    if (part.case === "toolCall") turns.at(-1)?.calls.push(part.value);
  }
  return turns.map(({ turn, items, calls }) => ({
    turn,
    items: utf8.decode(Buffer.concat(items)),
    calls,
  }));
}

export async function acceptResponse(
  clients: Clients,
  run: OpenRun,
  wire: ProviderWire,
  response: string,
  said: { readonly provider?: string; readonly model?: string } = {},
): Promise<AcceptProviderTurnResponse> {
  const command = { wire, payload: { data: bytes(response) }, ...said };
  return clients.replays.acceptProviderTurn({ ...of(run), command });
}

export async function say(
  clients: Clients,
  run: OpenRun,
  text: string,
  role = MessageRole.USER,
  mediaType = "text/plain",
): Promise<void> {
  const command = { role, content: { data: bytes(text), mediaType } };
  await clients.evidence.recordMessage({ ...of(run), command });
}

/** Records a result for each call, the first text for the first one. */
export async function completeAll(
  clients: Clients,
  run: OpenRun,
  calls: readonly ToolCall[],
  texts: readonly string[],
): Promise<void> {
  for (const [index, { toolCallId }] of calls.entries()) {
    await complete(clients, run, toolCallId, given(texts[index], "text"));
  }
}

/** A function call of a response, in the words of a test. */
export interface SaidCall {
  readonly id?: string;
  readonly itemId?: string;
  readonly name?: string;
  /** JSON text; for wires that hold arguments as a string, any text. */
  readonly args?: string;
}

function argsOf({ args = '{"command":"ls"}' }: SaidCall): string {
  return args;
}

/** Responses of providers with some text and some calls, as minimal as the wires allow. */
export const RESPONSE = {
  [ProviderWire.OPENAI_RESPONSES]: (text: string, ...calls: readonly SaidCall[]): string => {
    const message = {
      ...{ type: "message", id: "msg_said", role: "assistant", status: "completed" },
      content: [{ type: "output_text", text, annotations: [] }],
    };
    const items = calls.map((call, index) => ({
      type: "function_call",
      ...(call.itemId === undefined ? {} : { id: call.itemId }),
      ...{ call_id: call.id ?? `call_${index}`, name: call.name ?? "bash" },
      ...{ arguments: argsOf(call), status: "completed" },
    }));
    const output = [...(text === "" ? [] : [message]), ...items];
    return JSON.stringify({ id: "resp_1", object: "response", status: "completed", output });
  },
  [ProviderWire.OPENAI_CHAT_COMPLETIONS]: chatResponse,
  [ProviderWire.MISTRAL]: chatResponse,
  [ProviderWire.ANTHROPIC_MESSAGES]: (text: string, ...calls: readonly SaidCall[]): string => {
    const said = text === "" ? [] : [JSON.stringify({ type: "text", text })];
    const uses = calls.map((call, index) => {
      const id = JSON.stringify(call.id ?? `toolu_${index}`);
      const name = JSON.stringify(call.name ?? "bash");
      return `{"type":"tool_use","id":${id},"name":${name},"input":${argsOf(call)}}`;
    });
    const content = [...said, ...uses].join(",");
    return `{"id":"msg_1","type":"message","role":"assistant","content":[${content}],"stop_reason":"tool_use"}`;
  },
  [ProviderWire.GEMINI]: (text: string, ...calls: readonly SaidCall[]): string => {
    const said = text === "" ? [] : [JSON.stringify({ text })];
    const parts = calls.map((call) => {
      const id = call.id === undefined ? "" : `"id":${JSON.stringify(call.id)},`;
      const name = JSON.stringify(call.name ?? "bash");
      return `{"functionCall":{${id}"name":${name},"args":${argsOf(call)}}}`;
    });
    const all = [...said, ...parts].join(",");
    return `{"candidates":[{"content":{"role":"model","parts":[${all}]},"finishReason":"STOP"}]}`;
  },
} as const;

export type SpokenWire = keyof typeof RESPONSE;

export const WIRES: readonly SpokenWire[] = [
  ProviderWire.OPENAI_RESPONSES,
  ProviderWire.OPENAI_CHAT_COMPLETIONS,
  ProviderWire.ANTHROPIC_MESSAGES,
  ProviderWire.GEMINI,
  ProviderWire.MISTRAL,
];

function chatResponse(text: string, ...calls: readonly SaidCall[]): string {
  const toolCalls = calls.map((call, index) => ({
    id: call.id ?? `call_${index}`,
    type: "function",
    function: { name: call.name ?? "bash", arguments: argsOf(call) },
  }));
  const message = {
    ...{ role: "assistant", content: text === "" ? null : text },
    ...(calls.length === 0 ? {} : { tool_calls: toolCalls }),
  };
  const choices = [
    { index: 0, message, finish_reason: calls.length === 0 ? "stop" : "tool_calls" },
  ];
  return JSON.stringify({ id: "chatcmpl-1", object: "chat.completion", choices });
}
