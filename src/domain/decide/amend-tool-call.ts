import type { AmendToolCallCommand } from "../../../gen/toolmark/engine/v1/command_pb.js";
import { AskKind, AskState } from "../../../gen/toolmark/v1/ask_pb.js";
import type { ToolCallState } from "../../../gen/toolmark/v1/tool_call_pb.js";
import { equalBytes } from "../bytes.js";
import { EventKind } from "../event-kind.js";
import { isRefusal } from "../refusal.js";
import type { OpenCall, SessionState } from "../session-state.js";
import { voidAllows } from "./allows.js";
import { unchanged, type Decided, type Draft } from "./draft.js";
import { openAskOf } from "./find-ask.js";
import { findUnstartedCall } from "./find-call.js";
import { intakeBody } from "./intake-body.js";
import { stateWithout } from "./waits-for.js";

export function amendToolCall(
  draft: Draft,
  state: SessionState,
  command: AmendToolCallCommand,
): Decided {
  const open = findUnstartedCall(state, draft.facts, command.toolCallId);
  if (isRefusal(open)) return open;
  const { call } = open;
  const effective = intakeBody(draft, command.effective, "command.effective");
  if (isRefusal(effective)) return effective;
  if (equalBytes(effective.sha256, call.effective?.sha256 ?? new Uint8Array(0))) {
    return { events: [], bodies: [], reply: [unchanged(open)] };
  }
  const stateAfter = takeBackConsent(draft, state, open);
  const amended = draft.revise(EventKind.toolCallAmended, (revision) => ({
    case: "toolCall",
    value: { ...call, revision, effective, state: stateAfter },
  }));
  return draft.decision([amended]);
}

/** Whatever was asked or allowed was about other arguments. Returns the state that this leaves the call in. */
function takeBackConsent(
  draft: Draft,
  session: SessionState,
  { call, unspentAllows }: OpenCall,
): ToolCallState {
  voidAllows(draft, unspentAllows);
  const ask = openAskOf(session, call.toolCallId, AskKind.ACTION);
  if (ask === undefined) return call.state;
  draft.revise(EventKind.askSuperseded, (revision) => ({
    case: "ask",
    value: { ...ask, revision, state: AskState.SUPERSEDED },
  }));
  return stateWithout(ask, session, call.toolCallId);
}
