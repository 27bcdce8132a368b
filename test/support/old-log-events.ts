import { decodeLog } from "../../src/legacy/decode-log.js";
import { decodeSnapshot } from "../../src/legacy/decode-snapshot.js";
import { isMalformed, type Malformed } from "../../src/legacy/malformed.js";
import { translateSession } from "../../src/legacy/translate-session.js";
import type { Translation } from "../../src/legacy/translation.js";

/** The session of every log here. */
export const SESSION = "old-1";
const utf8 = new TextEncoder();

/** An event as the old system wrote it, or a whole line. Its `Seq` is that of its line unless it says another. */
export type Line = Readonly<Record<string, unknown>> | string;

const NULLS = Object.fromEntries(
  [
    ..."Title ToolCall ToolResult Ask ModelRetry RequestManifest NetworkAttempt".split(" "),
    ..."Authorization Result TurnEnd Hook Approval CompactionArchive UserPrompt Usage".split(" "),
    ..."Subagent Team Parallel Actor Schedule Steer".split(" "),
  ].map((key) => [key, null]),
);

function logBytes(lines: readonly Line[]): Uint8Array {
  const written = lines.map((line, index) => {
    if (typeof line === "string") return line;
    const always = { Seq: index + 1, Turn: 1, Text: "", RunID: "run-1" };
    return `${JSON.stringify({ ...NULLS, ...always, ...line })}\n`;
  });
  return utf8.encode(written.join(""));
}

function whole<Decoded extends object>(decoded: Decoded | Malformed): Decoded {
  if (isMalformed(decoded)) throw new Error(`${decoded.path}: ${decoded.malformed}`);
  return decoded;
}

/** A log of these lines on its own. */
export function translated(...lines: readonly Line[]): Translation {
  const log = whole(decodeLog(logBytes(lines)));
  return translateSession({ sessionId: SESSION, snapshot: undefined, log });
}

/** A log of these lines beside a snapshot. */
export function translatedBoth(snapshot: object, ...lines: readonly Line[]): Translation {
  const stored = { id: SESSION, state: "completed", ...snapshot };
  return translateSession({
    sessionId: SESSION,
    snapshot: whole(decodeSnapshot(utf8.encode(JSON.stringify(stored)))),
    log: whole(decodeLog(logBytes(lines))),
  });
}

export const start = (more: object = {}) => ({ Type: "turn.start", ...more });
export const delta = (Text: string, more: object = {}) => ({
  Type: "message.delta",
  Text,
  ...more,
});
export const call = (ID: string, more: object = {}, Name = "bash") => {
  return { Type: "tool.call", ToolCall: { ID, Name, Args: { ls: ID } }, ...more };
};
export const result = (CallID: string, more: object = {}, Content = `of ${CallID}`) => {
  return { Type: "tool.result", ToolResult: { CallID, Content, IsError: false }, ...more };
};
export const prompt = (Text: string) => ({
  Type: "user_prompt",
  UserPrompt: { Text, Parts: null },
});
export const ask = (call_: string | undefined, of: object = {}) => ({
  Type: "permission.ask",
  Ask: {
    ...{ AskID: `old-1:0:${call_}`, Tool: "bash", Args: { ls: call_ }, Reason: "may it?" },
    ...{ call: call_, origin: "permission", ...of },
  },
});
export const retract = (AskID: string) => ({
  Type: "permission.retract",
  Ask: { AskID, Tool: "", Args: null, Reason: "" },
});
export const approval = (AskID: string, Call: string, Verdict = "allow_once") => ({
  Type: "approval",
  Approval: { AskID, Verdict, Tool: "bash", Call, AllowAlways: false },
});
export const authorization = (Status: string, Call = "a") => ({
  Type: Status === "pending" ? "authorization.required" : "authorization.resolved",
  Authorization: {
    ...{ AuthorizationID: "auth-1", DisplayName: "Mail", Call, Status },
    ExpiresAt: "2026-09-21T12:00:00Z",
  },
});
export const end = () => ({ Type: "result", Result: { Stop: "end_turn" } });
export const gap = `${JSON.stringify({ v: "eventlog-gap/1", r: "append failed" })}\n`;
export const hook = (CallID: string, of: object = {}, more: object = {}) => ({
  Type: "hook",
  Hook: { Phase: "PreToolUse", Tool: "bash", Decision: "info", CallID, Guardrail: null, ...of },
  ...more,
});
export const review = (CallID: string, of: object = {}, more: object = {}) => {
  const Guardrail = {
    ...{ ReviewID: `old-1:${CallID}:action`, Job: "action", Assessment: "unresolved" },
    ...{ Inspection: "complete", Disposition: "ask_action", ReasonCode: "authority_crossing" },
    ...{ RuleID: "rule", RuleOrigin: "config", CheckerProviderID: "prov", CheckerModelID: "mod" },
    ...{ Concerns: [{ Ref: "c1", Category: "exfiltration" }], Sources: null, ...of },
  };
  return hook(CallID, { Guardrail }, more);
};
