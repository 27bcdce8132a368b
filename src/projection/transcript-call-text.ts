import type { Ask } from "../../gen/toolmark/v1/ask_pb.js";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import type { SessionReference, TranscriptCall } from "../../gen/toolmark/v1/history_service_pb.js";
import type { Receipt } from "../../gen/toolmark/v1/receipt_pb.js";
import { SessionKind, SessionState } from "../../gen/toolmark/v1/session_pb.js";
import {
  ToolCallState,
  ToolResultKind,
  type ToolCall,
  type ToolResult,
} from "../../gen/toolmark/v1/tool_call_pb.js";
import { isReceiptOf } from "../domain/attachment.js";
import { equalBytes } from "../domain/bytes.js";
import { bodyText, shortened } from "./acp-body-text.js";
import { headlineOf } from "./acp-call-text.js";
import { legacyText, noteText } from "./acp-note-text.js";

const ARGUMENTS_CHARACTERS = 400;
const RESULT_CHARACTERS = 1000;
const EVIDENCE_CHARACTERS = 1000;

/** What a call and everything about it says: its name, and texts in the order in which things happen to a call. */
export function callParts(entry: TranscriptCall): { heading: string; texts: string[] } {
  const { toolCall: call } = entry;
  if (call === undefined) return { heading: "A call", texts: [] };
  return {
    heading: `Call of ${call.toolName === "" ? "a tool without a name" : call.toolName} (${call.toolCallId})`,
    texts: [
      ...argumentTexts(call),
      ...entry.hooks.map((hook) => brief(noteText(hook))),
      ...askTexts(entry),
      ...entry.authorizations.map(noteText),
      ...entry.legacyEvidence.map((evidence) => {
        return brief(legacyText(evidence, shown(evidence.content, EVIDENCE_CHARACTERS)));
      }),
      ...entry.children.map(childText),
      ...(entry.truncated ? ["More is recorded about this call than is shown here."] : []),
      stateText(entry, call),
      ...resultTexts("Result", call.result),
      ...resultTexts("Came late, and changed nothing", call.lateResult),
    ],
  };
}

function argumentTexts({ proposed, effective }: ToolCall): string[] {
  const isAmended = !equalBytes(proposed?.sha256 ?? NONE, effective?.sha256 ?? NONE);
  const first = `Arguments: ${shown(proposed, ARGUMENTS_CHARACTERS)}`;
  if (!isAmended) return [first];
  return [first, `Changed to: ${shown(effective, ARGUMENTS_CHARACTERS)}`];
}

const NONE = new Uint8Array();

/** Each question, followed by how it was settled. */
function askTexts({ asks, receipts }: TranscriptCall): string[] {
  const settled = (ask: Ask): Receipt[] => receipts.filter((receipt) => isReceiptOf(receipt, ask));
  const others = receipts.filter((receipt) => !asks.some((ask) => isReceiptOf(receipt, ask)));
  return [
    ...asks.flatMap((ask) => [brief(noteText(ask)), ...settled(ask).map(noteText)]),
    ...others.map(noteText),
  ];
}

const KINDS: Readonly<Record<SessionKind, string>> = {
  [SessionKind.UNSPECIFIED]: "session",
  [SessionKind.MAIN]: "main session",
  [SessionKind.SUBAGENT]: "sub-agent",
  [SessionKind.PARALLEL_BRANCH]: "parallel branch",
  [SessionKind.TEAM_MEMBER]: "team member",
  [SessionKind.SCHEDULED]: "scheduled session",
  [SessionKind.DEBUG]: "debug session",
};

const SESSION_STATES: Readonly<Record<SessionState, string>> = {
  [SessionState.UNSPECIFIED]: "state unknown",
  [SessionState.OPEN]: "open",
  [SessionState.ENDED]: "ended",
  [SessionState.ERASED]: "erased",
};

function childText({ sessionId, kind, title, state }: SessionReference): string {
  const what = (KINDS as Readonly<Record<number, string>>)[kind] ?? "session";
  const standing = (SESSION_STATES as Readonly<Record<number, string>>)[state] ?? `state ${state}`;
  const named = title === "" ? "" : `: ${title}`;
  return `Worked on by ${sessionId} (${what}, ${standing})${named}`;
}

/** What happened to the call, in words of which no two are alike. */
function stateText({ hooks }: TranscriptCall, call: ToolCall): string {
  const blocker = hooks.find(({ hookId }) => hookId === call.blockedByHookId);
  const told = headlineOf(call, blocker).trim();
  if (told !== "") return told;
  switch (call.state) {
    case ToolCallState.ACCEPTED:
      return "Accepted: not started as far as is recorded.";
    case ToolCallState.STARTED:
      return "Started: no result yet.";
    case ToolCallState.COMPLETED:
      return "Completed.";
    default:
      return `In a state that this version does not know (${call.state}).`;
  }
}

function resultTexts(name: string, result: ToolResult | undefined): string[] {
  if (result === undefined) return [];
  const by = result.kind === ToolResultKind.SYNTHETIC ? " (written by the service)" : "";
  const error = result.isError ? " (an error)" : "";
  const text = shown(result.content, RESULT_CHARACTERS);
  return [`${name}${by}${error}: ${text === "" ? "empty" : text}`];
}

function shown(body: Body | undefined, characters: number): string {
  return body === undefined
    ? ""
    : shortened(
        bodyText(body, ({ data }) => data),
        characters,
      );
}

function brief(text: string): string {
  return shortened(text, EVIDENCE_CHARACTERS);
}
