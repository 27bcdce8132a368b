import { ProviderWire } from "../../gen/toolmark/engine/v1/command_pb.js";
import { invariant } from "../domain/invariant.js";
import { anthropicMessages } from "./anthropic-messages.js";
import { gemini } from "./gemini.js";
import { mistral } from "./mistral.js";
import { openaiChat } from "./openai-chat.js";
import { openaiResponses } from "./openai-responses.js";
import type { Wire } from "./wire.js";

const WIRES: Readonly<Record<ProviderWire, Wire | undefined>> = {
  [ProviderWire.UNSPECIFIED]: undefined,
  [ProviderWire.OPENAI_RESPONSES]: openaiResponses,
  [ProviderWire.OPENAI_CHAT_COMPLETIONS]: openaiChat,
  [ProviderWire.ANTHROPIC_MESSAGES]: anthropicMessages,
  [ProviderWire.GEMINI]: gemini,
  [ProviderWire.MISTRAL]: mistral,
};

/** How to speak with a provider. */
export function wireOf(wire: ProviderWire): Wire {
  const found = WIRES[wire];
  invariant(found !== undefined, `there is no wire ${wire}`);
  return found;
}

/** Whether the items of one wire are those of the other. */
export function isSameFamily(left: ProviderWire, right: ProviderWire): boolean {
  return familyOf(left) === familyOf(right);
}

function familyOf(wire: ProviderWire): ProviderWire {
  return wire === ProviderWire.MISTRAL ? ProviderWire.OPENAI_CHAT_COMPLETIONS : wire;
}
