import { ProviderWire } from "../gen/toolmark/engine/v1/command_pb.js";
import { MessageRole } from "../gen/toolmark/v1/run_pb.js";
import {
  type CommandInit,
  type LedgerWriter,
  recordsOf,
  type WrittenRun,
} from "./ledger-writer.js";

const TURN_CALLS = 4;
/** All of them, and all of their results, have to fit into one Apply each. */
const TURNS_AT_A_TIME = 40;

const OUTPUT = "src/domain/evolve.ts: 212 lines, 7 functions; src/domain/chain.ts: 54 lines\n";
const SIGNATURE = "ErUBCkYIBRgCIkA".repeat(16);
const encoder = new TextEncoder();

/** Writes turns of Anthropic Messages with so many calls, each with its result, and what the user says between. */
export async function appendProviderTurns(
  writer: LedgerWriter,
  run: WrittenRun,
  calls: number,
): Promise<void> {
  const turns = calls / TURN_CALLS;
  if (!Number.isInteger(turns)) throw new Error(`${calls} calls are no whole turns`);
  for (let first = 0; first < turns; first += TURNS_AT_A_TIME) {
    const count = Math.min(TURNS_AT_A_TIME, turns - first);
    const numbers = Array.from({ length: count }, (_, index) => first + index);
    const records = await writer.apply(run, numbers.flatMap(turnCommands));
    await writer.apply(
      run,
      recordsOf(records, "toolCall").map(({ toolCallId }) => resultCommand(toolCallId)),
    );
  }
}

function turnCommands(turn: number): CommandInit[] {
  const said = `What is in part ${turn}? ${OUTPUT}`;
  const message = { role: MessageRole.USER, content: { data: encoder.encode(said) } };
  const payload = { data: encoder.encode(responseOf(turn)) };
  return [
    { case: "recordMessage", value: message },
    {
      case: "acceptProviderTurn",
      value: { wire: ProviderWire.ANTHROPIC_MESSAGES, provider: "anthropic", payload },
    },
  ];
}

function responseOf(turn: number): string {
  const thinking = `The user asks about part ${turn}. ${OUTPUT}`;
  const uses = Array.from({ length: TURN_CALLS }, (_, call) => ({
    type: "tool_use",
    id: `toolu_01A09q90qw90lq917835l${turn}x${call}`,
    name: "bash",
    input: { command: `rg --files src/${turn}/${call} | head -50`, timeout_ms: 30_000 },
  }));
  const content = [
    { type: "thinking", thinking, signature: SIGNATURE },
    { type: "text", text: `I shall look at part ${turn} first.` },
    ...uses,
  ];
  return JSON.stringify({ id: `msg_${turn}`, type: "message", role: "assistant", content });
}

function resultCommand(toolCallId: string): CommandInit {
  const content = { data: encoder.encode(`${toolCallId}\n${OUTPUT.repeat(4)}`) };
  return {
    case: "recordResult",
    value: { toolCallId, result: { case: "canonical", value: { content } } },
  };
}
