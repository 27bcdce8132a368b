import type {
  PermissionOption,
  PermissionOptionKind,
  ToolCallUpdate,
} from "@agentclientprotocol/sdk";
import { AskKind, type Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { Verdict } from "../../gen/toolmark/v1/receipt_pb.js";
import { isAskOfChild, isOffered } from "../domain/offered-verdicts.js";
import { bodyText, shownObject, type BytesOf } from "./acp-body-text.js";
import { questionOf } from "./acp-note-text.js";
import { toolKindOf } from "./acp-tool-kind.js";

interface Choice {
  readonly optionId: string;
  readonly verdict: Verdict;
  readonly kind: PermissionOptionKind;
  readonly name: string;
  /** For a held result. Absent: it is not offered for one. */
  readonly releaseName?: string;
}

const CHOICES: readonly Choice[] = [
  {
    optionId: "allow_once",
    verdict: Verdict.ALLOW_ONCE,
    kind: "allow_once",
    name: "Allow once",
    releaseName: "Release the result",
  },
  {
    optionId: "allow_always",
    verdict: Verdict.ALLOW_ALWAYS,
    kind: "allow_always",
    name: "Allow always",
  },
  {
    optionId: "deny",
    verdict: Verdict.DENY,
    kind: "reject_once",
    name: "Deny",
    releaseName: "Withhold the result",
  },
];

/**
 * The answers that an ask takes, as options of a permission request for the session that the editor shows. Empty if it
 * takes none.
 */
export function permissionOptions(ask: Ask, rootId: string): PermissionOption[] {
  const isRelease = ask.kind === AskKind.RESULT_RELEASE;
  const isChild = isAskOfChild(ask, rootId);
  return CHOICES.filter(({ verdict }) => isOffered(ask, verdict, isChild)).map((choice) => {
    const name = (isRelease ? choice.releaseName : undefined) ?? choice.name;
    return { optionId: choice.optionId, kind: choice.kind, name };
  });
}

/** The verdict of a chosen option. Absent for an option that was not offered. */
export function verdictOf(ask: Ask, rootId: string, optionId: string): Verdict | undefined {
  const choice = CHOICES.find((candidate) => candidate.optionId === optionId);
  return choice !== undefined && isOffered(ask, choice.verdict, isAskOfChild(ask, rootId))
    ? choice.verdict
    : undefined;
}

/** What a permission request shows: the call's card as it is, with the question and what exactly is asked about. */
export function permissionCard(
  ask: Ask,
  card: ToolCallUpdate | undefined,
  bytesOf: BytesOf,
): ToolCallUpdate {
  const { toolCallId, toolName, presented, kind } = ask;
  const shown = card ?? { toolCallId, title: toolName, kind: toolKindOf(toolName) };
  const isAction = kind === AskKind.ACTION && presented !== undefined;
  const rawInput = isAction ? shownObject(presented, bytesOf) : undefined;
  const argumentsText =
    isAction && rawInput === undefined ? `\nArguments: ${bodyText(presented, bytesOf)}` : "";
  const size = isAction || presented === undefined ? "" : `\n(${presented.sizeBytes} bytes)`;
  const text = `${questionOf(ask)}${argumentsText}${size}`;
  const question = { type: "content" as const, content: { type: "text" as const, text } };
  const content = [question, ...(shown.content ?? [])];
  return { ...shown, ...(rawInput === undefined ? {} : { rawInput }), content };
}
