import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import type { TranscriptEntry } from "../../gen/toolmark/v1/history_service_pb.js";
import type { Hook } from "../../gen/toolmark/v1/hook_pb.js";
import type { LegacyEvidence } from "../../gen/toolmark/v1/legacy_pb.js";
import {
  MessageRole,
  RunOutcome,
  RunState,
  type Message,
  type Run,
} from "../../gen/toolmark/v1/run_pb.js";
import type { Compaction, Session } from "../../gen/toolmark/v1/session_pb.js";
import { bodyText } from "./acp-body-text.js";
import { legacyText, noteText } from "./acp-note-text.js";
import { oneLine, plainLines } from "./plain-lines.js";
import { callParts } from "./transcript-call-text.js";

/** What an entry says: a heading of one line, and texts below it. */
interface Told {
  readonly heading: string;
  readonly texts: readonly string[];
}

const INDENT = "  ";
const DATE_MS_MAX = 8.64e15;

/**
 * An entry of a transcript as lines for a terminal of so many columns. Whatever was recorded stands indented or spelled
 * out, so that it can neither steer the terminal nor look like an entry of its own.
 */
export function transcriptText(entry: TranscriptEntry, width: number): string {
  const { heading, texts } = told(entry);
  const mark = entry.archived ? " [archived]" : "";
  const place = entry.sequence === 0n ? "" : `${entry.sequence} `;
  return [
    ...plainLines(oneLine(`${place}${heading}${mark}`), width),
    ...texts.flatMap((text) => plainLines(text, width, INDENT)),
  ].join("\n");
}

function told({ entry }: TranscriptEntry): Told {
  switch (entry.case) {
    case "message":
      return messageTold(entry.value);
    case "call":
      return callParts(entry.value);
    case "hook":
      return hookTold(entry.value);
    case "legacyEvidence":
      return legacyTold(entry.value);
    case "compaction":
      return compactionTold(entry.value);
    case "run":
      return runTold(entry.value);
    case "origin":
      return originTold(entry.value);
    case undefined:
      return { heading: "Something that this version does not know", texts: [] };
  }
}

const SPEAKERS: Readonly<Record<MessageRole, string>> = {
  [MessageRole.UNSPECIFIED]: "Somebody",
  [MessageRole.USER]: "User",
  [MessageRole.SYSTEM]: "System",
  [MessageRole.ASSISTANT]: "Assistant",
};

function messageTold({ role, content, createTime }: Message): Told {
  const speaker = (SPEAKERS as Readonly<Record<number, string>>)[role] ?? `Role ${role}`;
  return { heading: `${speaker}${at(createTime)}`, texts: contentTexts(content) };
}

function hookTold(hook: Hook): Told {
  const about = hook.toolCallId ?? "";
  const relation = about === "" ? "about no call" : `names call ${about}, is not shown with it`;
  return { heading: `Hook${at(hook.createTime)}, ${relation}`, texts: [noteText(hook)] };
}

function legacyTold(evidence: LegacyEvidence): Told {
  const content = contentTexts(evidence.content).join("\n");
  return { heading: "Of an older system, about no call", texts: [legacyText(evidence, content)] };
}

function compactionTold({ throughSequence, summary }: Compaction): Told {
  const through = throughSequence === 0n ? "" : `, up to ${throughSequence}`;
  return { heading: `Summary of what came before${through}`, texts: [summary] };
}

const OUTCOMES: Readonly<Record<RunOutcome, string>> = {
  [RunOutcome.UNSPECIFIED]: "ended",
  [RunOutcome.COMPLETED]: "completed",
  [RunOutcome.CANCELLED]: "cancelled",
  [RunOutcome.FAILED]: "failed",
  [RunOutcome.INTERRUPTED]: "interrupted",
  [RunOutcome.PARKED]: "parked: what was unfinished went on",
};

function runTold({ runId, state, outcome, beginTime, endTime }: Run): Told {
  const began = `Run ${runId}${at(beginTime)}`;
  if (state === RunState.ACTIVE) return { heading: `${began}: active`, texts: [] };
  const how = (OUTCOMES as Readonly<Record<number, string>>)[outcome] ?? `outcome ${outcome}`;
  return { heading: `${began}: ${how}${at(endTime)}`, texts: [] };
}

function originTold({ forkedFrom }: Session): Told {
  const from =
    forkedFrom === undefined
      ? "Came from an older system"
      : `Copied from session ${forkedFrom.sessionId} as of its event ${forkedFrom.sequence}`;
  return { heading: `${from}; what follows is this session's own`, texts: [] };
}

function contentTexts(content: Body | undefined): string[] {
  const text = content === undefined ? "" : bodyText(content, ({ data }) => data);
  return text === "" ? [] : [text];
}

/** A time, if there is one that a calendar has. */
function at(time: Timestamp | undefined): string {
  const timeMs = time === undefined ? NaN : Number(time.seconds) * 1000;
  return Math.abs(timeMs) <= DATE_MS_MAX
    ? ` at ${new Date(timeMs).toISOString().slice(0, 19)}Z`
    : "";
}
