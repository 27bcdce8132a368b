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

/** Whether a turn of one wire can be given back over another as it came: Mistral's has members of its own. */
export function isReplayedOver(from: ProviderWire, to: ProviderWire): boolean {
  return (
    from === to || (from === ProviderWire.OPENAI_CHAT_COMPLETIONS && to === ProviderWire.MISTRAL)
  );
}
