import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import { MessageRole } from "../../gen/toolmark/v1/run_pb.js";
import { bytes, given, of, openRun, type OpenRun } from "./conversation.js";
import { acceptResponse, say, type SpokenWire } from "./replaying.js";
import type { Clients } from "./service.js";

/** A call of the conversation and what came of it. */
export interface SpokenCall {
  readonly name: string;
  readonly args: string;
  readonly result: string;
  readonly mediaType: string;
  readonly isError: boolean;
}

export interface SpokenTurn {
  readonly thought: string | undefined;
  readonly text: string;
  readonly calls: readonly SpokenCall[];
}

export const SYSTEM_TEXT = "You answer in one line.";
export const USER_TEXTS = ["How late is it in 東京? 😀", "Thank you."] as const;

/** A conversation with texts, a thought, parallel calls, an error, structured results and arguments that are empty. */
export const SPOKEN_TURNS: readonly SpokenTurn[] = [
  {
    thought: "two clocks to read",
    text: "I look at both clocks.",
    calls: [
      spoken("get_time", '{"city":"東京","id":2512292042121000001}', '{"hour":9,"ok":true}', {
        mediaType: "application/json",
      }),
      spoken("list_clocks", "{}", "no clock answers\n– none –", { isError: true }),
    ],
  },
  { thought: undefined, text: "", calls: [spoken("get_time", '{ "city" : "Zürich" }', "1:00 😀")] },
  { thought: undefined, text: "Nine in 東京, one in Zürich.", calls: [] },
];

function spoken(
  name: string,
  args: string,
  result: string,
  said: Partial<SpokenCall> = {},
): SpokenCall {
  return { name, args, result, mediaType: "text/plain", isError: false, ...said };
}

/** What a thought comes with that only its provider can read. */
export const SEAL = "c2VhbGVkIHRob3VnaHQ=";

const CALL_IDS: Readonly<Record<SpokenWire, string>> = {
  [ProviderWire.OPENAI_RESPONSES]: "call_r",
  [ProviderWire.OPENAI_CHAT_COMPLETIONS]: "call_c",
  [ProviderWire.ANTHROPIC_MESSAGES]: "toolu_a",
  [ProviderWire.GEMINI]: "gemini-g",
  [ProviderWire.MISTRAL]: "m0000000",
};

/** A turn as a provider of the wire returns it. `number` makes its ids its own. */
export function spokenResponse(wire: SpokenWire, turn: SpokenTurn, number: number): string {
  const ids = turn.calls.map((_call, index) => `${CALL_IDS[wire]}${number * 2 + index}`);
  switch (wire) {
    case ProviderWire.OPENAI_RESPONSES:
      return `{"object":"response","status":"completed","output":[${responsesItems(turn, ids).join()}]}`;
    case ProviderWire.ANTHROPIC_MESSAGES:
      return `{"type":"message","role":"assistant","content":[${anthropicBlocks(turn, ids).join()}]}`;
    case ProviderWire.GEMINI: {
      const content = `{"parts":[${geminiParts(turn, ids).join()}],"role":"model"}`;
      return `{"candidates":[{"content":${content},"finishReason":"STOP"}]}`;
    }
    default:
      return JSON.stringify({ choices: [{ index: 0, message: chatMessage(wire, turn, ids) }] });
  }
}

function responsesItems({ thought, text, calls }: SpokenTurn, ids: readonly string[]): string[] {
  const [first = "said"] = ids;
  const summary = [{ type: "summary_text", text: thought }];
  const reasoning = { type: "reasoning", id: `rs_${first}`, summary, encrypted_content: SEAL };
  const content = [{ type: "output_text", annotations: [], logprobs: [], text }];
  const message = { type: "message", id: `msg_${first}`, role: "assistant", content };
  const called = calls.map(({ name, args }, index) => ({
    ...{ type: "function_call", id: `fc_${ids[index]}`, status: "completed" },
    ...{ call_id: ids[index], name, arguments: args },
  }));
  return [
    ...(thought === undefined ? [] : [reasoning]),
    ...(text === "" ? [] : [{ ...message, status: "completed" }]),
    ...called,
  ].map((item) => JSON.stringify(item));
}

function chatMessage(
  wire: SpokenWire,
  { thought, text, calls }: SpokenTurn,
  ids: readonly string[],
): object {
  const called = calls.map(({ name, args }, index) => ({
    ...{ id: ids[index], function: { name, arguments: args } },
    ...(wire === ProviderWire.MISTRAL ? { index } : { type: "function" }),
  }));
  return {
    ...{ role: "assistant", content: text === "" && calls.length > 0 ? null : text },
    ...(wire === ProviderWire.MISTRAL ? { content: text } : { refusal: null }),
    ...(thought === undefined || wire === ProviderWire.MISTRAL
      ? {}
      : { reasoning_content: thought }),
    ...(called.length === 0 ? {} : { tool_calls: called }),
  };
}

function anthropicBlocks({ thought, text, calls }: SpokenTurn, ids: readonly string[]): string[] {
  const thinking = JSON.stringify({ type: "thinking", thinking: thought, signature: SEAL });
  return [
    ...(thought === undefined ? [] : [thinking]),
    ...(text === "" ? [] : [JSON.stringify({ type: "text", text })]),
    ...calls.map(({ name, args }, index) => {
      const head = JSON.stringify({ type: "tool_use", id: ids[index], name });
      return `${head.slice(0, -1)},"input":${args}}`;
    }),
  ];
}

function geminiParts({ thought, text, calls }: SpokenTurn, ids: readonly string[]): string[] {
  return [
    ...(thought === undefined ? [] : [JSON.stringify({ thought: true, text: thought })]),
    ...(text === "" ? [] : [JSON.stringify({ text })]),
    ...calls.map(({ name, args }, index) => {
      const head = JSON.stringify({ name, id: ids[index] });
      const signature = index === 0 ? `,"thoughtSignature":"${SEAL}"` : "";
      return `{"functionCall":${head.slice(0, -1)},"args":${args}}${signature}}`;
    }),
  ];
}

/** The provider of every turn of the conversation. */
export const PROVIDER = "one";

/** Holds the conversation, each turn over the wire that `wireOf` names. */
export async function holdConversation(
  clients: Clients,
  wireOf: (number: number) => SpokenWire,
): Promise<OpenRun> {
  const run = await openRun(clients);
  await say(clients, run, SYSTEM_TEXT, MessageRole.SYSTEM);
  await say(clients, run, USER_TEXTS[0]);
  for (const [number, turn] of SPOKEN_TURNS.entries()) {
    const wire = wireOf(number);
    const response = spokenResponse(wire, turn, number);
    const { toolCalls } = await acceptResponse(clients, run, wire, response, {
      provider: PROVIDER,
    });
    for (const [index, { toolCallId }] of toolCalls.entries()) {
      const { result, mediaType, isError } = given(turn.calls[index], "call");
      const value = { content: { data: bytes(result), mediaType }, isError };
      const command = { toolCallId, result: { case: "canonical" as const, value } };
      await clients.calls.recordResult({ ...of(run), command });
    }
  }
  await say(clients, run, USER_TEXTS[1]);
  return run;
}
