import { createHash } from "node:crypto";
import { AskKind, AskProvenance } from "../gen/toolmark/v1/ask_pb.js";
import { HookDecision } from "../gen/toolmark/v1/hook_pb.js";
import { MessageRole } from "../gen/toolmark/v1/run_pb.js";
import {
  type CommandInit,
  type LedgerWriter,
  recordsOf,
  type WrittenRun,
} from "./ledger-writer.js";

const OPEN_CALLS = 8;
/** Of a turn: its message, itself, and four for each of its calls. */
const TURN_EVENTS = 2;
const CALL_EVENTS = 4;
/** Three commands for each call have to fit into one Apply. */
const TURN_CALLS_MAX = 64;
const MESSAGES_MAX = 256;
const DEADLINE_SECONDS = 5_000_000_000n;

const OUTPUT = "src/domain/evolve.ts: 212 lines, 7 functions; src/domain/chain.ts: 54 lines\n";
const encoder = new TextEncoder();

interface Argued {
  readonly toolCallId: string;
  readonly data: Uint8Array;
}

/** Calls with provider ids that stay open, and a question about one that waits for years. */
export async function leaveOpen(writer: LedgerWriter, run: WrittenRun): Promise<void> {
  const [first] = await acceptTurn(writer, run, OPEN_CALLS, "open");
  if (first === undefined) throw new Error("the turn has no call");
  const value = {
    toolCallId: first.toolCallId,
    kind: AskKind.ACTION,
    provenance: AskProvenance.PERMISSION,
    prompt: "May this command run?",
    expireTime: { seconds: DEADLINE_SECONDS },
  };
  await writer.apply(run, [{ case: "openAsk", value }]);
}

/** Writes so many events: turns whose calls are started, hooked and completed, at the end messages. */
export async function appendEvents(
  writer: LedgerWriter,
  run: WrittenRun,
  count: number,
  callsMax = TURN_CALLS_MAX,
): Promise<void> {
  let left = count;
  while (left >= TURN_EVENTS + CALL_EVENTS) {
    const calls = Math.min(callsMax, Math.floor((left - TURN_EVENTS) / CALL_EVENTS));
    await completeTurn(writer, run, calls, `${left}`);
    left -= TURN_EVENTS + CALL_EVENTS * calls;
  }
  if (left > MESSAGES_MAX) throw new Error(`${left} messages are too many`);
  const rest = Array.from({ length: left }, (_, index) => message(`${left} ${index}`));
  if (rest.length > 0) await writer.apply(run, rest);
}

async function completeTurn(
  writer: LedgerWriter,
  run: WrittenRun,
  calls: number,
  name: string,
): Promise<void> {
  const accepted = await acceptTurn(writer, run, calls, name, [message(name)]);
  await writer.apply(run, accepted.flatMap(completion));
}

async function acceptTurn(
  writer: LedgerWriter,
  run: WrittenRun,
  count: number,
  name: string,
  before: readonly CommandInit[] = [],
): Promise<Argued[]> {
  const bodies = Array.from({ length: count }, (_, index) => argumentsOf(`${name}-${index}`));
  const calls = bodies.map((data, index) => ({
    toolName: "bash",
    arguments: { data, mediaType: "application/json" },
    pairing: { providerCallId: `toolu_${name}_${index}` },
  }));
  const value = { provider: "anthropic", model: "a-model", calls };
  const records = await writer.apply(run, [...before, { case: "acceptTurn", value }]);
  const accepted = recordsOf(records, "toolCall");
  return bodies.flatMap((data, index) => {
    const toolCallId = accepted[index]?.toolCallId;
    return toolCallId === undefined ? [] : [{ toolCallId, data }];
  });
}

function completion({ toolCallId, data }: Argued): CommandInit[] {
  const argumentsSha256 = createHash("sha256").update(data).digest();
  const hook = {
    ...{ toolCallId, toolName: "bash", phase: "pre_tool_use", hookName: "guard-paths" },
    ...{ decision: HookDecision.INFO, text: "It writes below the working folder only." },
  };
  const content = { data: encoder.encode(`${toolCallId}\n${OUTPUT.repeat(4)}`) };
  return [
    { case: "publishHook", value: hook },
    { case: "startToolCall", value: { toolCallId, argumentsSha256 } },
    {
      case: "recordResult",
      value: { toolCallId, result: { case: "canonical", value: { content } } },
    },
  ];
}

function message(name: string): CommandInit {
  const data = encoder.encode(`I shall look at the files of step ${name} first. ${OUTPUT}`);
  return { case: "recordMessage", value: { role: MessageRole.ASSISTANT, content: { data } } };
}

function argumentsOf(name: string): Uint8Array {
  return encoder.encode(
    JSON.stringify({ command: `rg --files src/${name} | head -50`, timeout_ms: 30_000 }),
  );
}
