import type { StartToolCallCommand } from "../../../gen/toolmark/engine/v1/command_pb.js";
import { AskKind } from "../../../gen/toolmark/v1/ask_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { Ran, ToolCallState } from "../../../gen/toolmark/v1/tool_call_pb.js";
import { equalBytes } from "../bytes.js";
import { EventKind } from "../event-kind.js";
import { isRefusal, type Refusal } from "../refusal.js";
import type { OpenCall, SessionState } from "../session-state.js";
import { spendAllows } from "./allows.js";
import type { Decided, Draft } from "./draft.js";
import {
  findUnstartedCall,
  isWaiting,
  refuseForCall,
  refuseUnallowed,
  refuseWaiting,
} from "./find-call.js";

export function startToolCall(
  draft: Draft,
  state: SessionState,
  command: StartToolCallCommand,
): Decided {
  const open = findUnstartedCall(state, draft.facts, command.toolCallId);
  if (isRefusal(open)) return open;
  const { call, unspentAllows } = open;
  const refused = refuseStart(state, open, command.argumentsSha256);
  if (refused !== undefined) return refused;
  spendAllows(
    draft,
    unspentAllows.filter(({ kind }) => kind === AskKind.ACTION),
  );
  const started = draft.revise(EventKind.toolCallStarted, (revision) => ({
    case: "toolCall",
    value: {
      ...call,
      revision,
      state: ToolCallState.STARTED,
      ran: Ran.YES,
      startTime: draft.facts.now,
    },
  }));
  return draft.decision([started]);
}

function refuseStart(
  state: SessionState,
  { call, needsAllow }: OpenCall,
  argumentsSha256: Uint8Array,
): Refusal | undefined {
  if (isWaiting(call)) return refuseWaiting(state, call);
  if (!equalBytes(argumentsSha256, call.effective?.sha256 ?? new Uint8Array(0))) {
    const message = "the digest is not that of the effective arguments";
    return refuseForCall(ErrorReason.ARGUMENTS_MISMATCH, message, call);
  }
  return needsAllow ? refuseUnallowed(call) : undefined;
}
