import type { Authorization } from "../../gen/toolmark/v1/authorization_pb.js";
import type { Hook } from "../../gen/toolmark/v1/hook_pb.js";
import type { Receipt } from "../../gen/toolmark/v1/receipt_pb.js";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { ToolCallState, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { askView, type AskView } from "./ask-standing.js";
import { enumText } from "./enum-text.js";
import type { ShownProvisional } from "./provisional-text.js";
import type { SessionRecords } from "./session-records.js";

/** A session that works for a call. Its records are its own: none is attached to the call's card. */
export interface DelegatedSession {
  readonly sessionId: string;
  /** In words; of a kind that is not known its number. Absent while the session is not known. */
  readonly kind: string | undefined;
}

/** A call as it is shown: the call, and the evidence that names it. All of it is a copy. */
export interface Card {
  /** Whether sessions work for the call, and whether they are members of a team. */
  readonly kind: "tool" | "subagent" | "team";
  readonly sessionId: string;
  /** Rises when something on the card changes, and only then. */
  readonly revision: number;
  readonly call: ToolCall;
  /** The call's state in words; of one that is not known its number. */
  readonly standing: string;
  /** Names of the provider and the model that made the call, if the harness said. Never an id. */
  readonly provider: string | undefined;
  readonly model: string | undefined;
  /** Hook records and reviews in the order of their first update. */
  readonly hooks: readonly Hook[];
  readonly asks: readonly AskView[];
  readonly receipts: readonly Receipt[];
  readonly authorizations: readonly Authorization[];
  readonly delegated: readonly DelegatedSession[];
  /** Parts of the result for display, until the canonical result is there. */
  readonly provisional: ShownProvisional | undefined;
}

/** What is known of other sessions. */
export type KindOfSession = (sessionId: string) => SessionKind | undefined;

export function cardOf(records: SessionRecords, call: ToolCall, kindOf: KindOfSession): Card {
  const { revised, bindings, sessionId } = records;
  const { toolCallId } = call;
  const receipts = revised.some("receipt", bindings.attached("receipt", toolCallId));
  const asks = revised.some("ask", bindings.attached("ask", toolCallId));
  const turn = records.turns.peek(call.turnId);
  return {
    kind: cardKindOf(call, kindOf),
    sessionId,
    revision: records.cardRevision(toolCallId),
    call,
    standing: enumText(ToolCallState, call.state),
    provider: turn?.provider,
    model: turn?.model,
    hooks: revised.some("hook", bindings.attached("hook", toolCallId)),
    asks: asks.map((ask) => askView(ask, receipts)),
    receipts,
    authorizations: revised.some("authorization", bindings.attached("authorization", toolCallId)),
    delegated: call.delegatedSessionIds.map((id) => delegatedSession(id, kindOf(id))),
    provisional: records.provisionalOf(toolCallId),
  };
}

function cardKindOf(call: ToolCall, kindOf: KindOfSession): Card["kind"] {
  if (call.delegatedSessionIds.length === 0) return "tool";
  const isTeam = call.delegatedSessionIds.some((id) => kindOf(id) === SessionKind.TEAM_MEMBER);
  return isTeam ? "team" : "subagent";
}

function delegatedSession(sessionId: string, kind: SessionKind | undefined): DelegatedSession {
  return { sessionId, kind: kind === undefined ? undefined : enumText(SessionKind, kind) };
}
