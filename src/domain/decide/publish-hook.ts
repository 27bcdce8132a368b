import { create } from "@bufbuild/protobuf";
import type { PublishHookCommand } from "../../../gen/toolmark/engine/v1/command_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { HookSchema } from "../../../gen/toolmark/v1/hook_pb.js";
import type { Origin } from "../../../gen/toolmark/v1/origin_pb.js";
import type { Run } from "../../../gen/toolmark/v1/run_pb.js";
import type { ToolCall } from "../../../gen/toolmark/v1/tool_call_pb.js";
import { EventKind } from "../event-kind.js";
import { isRefusal, refuse, type Refusal } from "../refusal.js";
import type { SessionState } from "../session-state.js";
import type { Decided, Draft } from "./draft.js";
import { findCall, refuseForCall } from "./find-call.js";

function refuseForeignOrigin(sessionId: string, origin: Origin | undefined): Refusal | undefined {
  if (origin === undefined || origin.sessionId === sessionId) return undefined;
  return refuse(ErrorReason.ORIGIN_MISMATCH, "command.origin is not the session written to", {
    field: "command.origin",
  });
}

/** The call that evidence names: retained, of this session's own, and with the tool that the evidence names. */
function callOfEvidence(
  draft: Draft,
  state: SessionState,
  toolCallId: string,
  toolName: string,
): ToolCall | Refusal {
  const found = findCall(state, draft.facts, toolCallId);
  if (isRefusal(found)) return found;
  const { call } = found;
  if (call.inheritedFromSessionId !== undefined) {
    return refuseForCall(ErrorReason.CALL_INHERITED, "the call was copied by a fork", call);
  }
  if (toolName !== "" && toolName !== call.toolName) {
    return refuse(ErrorReason.REFERENCE_MISMATCH, "command.tool_name is not that of the call", {
      field: "command.tool_name",
    });
  }
  return call;
}

export function publishHook(
  draft: Draft,
  state: SessionState,
  run: Run,
  command: PublishHookCommand,
): Decided {
  const foreign = refuseForeignOrigin(draft.sessionId, command.origin);
  if (foreign !== undefined) return foreign;
  let { toolName } = command;
  if (command.toolCallId !== undefined) {
    const call = callOfEvidence(draft, state, command.toolCallId, toolName);
    if (isRefusal(call)) return call;
    ({ toolName } = call);
  }
  const hook = create(HookSchema, {
    hookId: draft.facts.mintId("hook"),
    origin: { sessionId: draft.sessionId },
    runId: run.runId,
    phase: command.phase,
    hookName: command.hookName,
    toolName,
    decision: command.decision,
    text: command.text,
    createTime: draft.facts.now,
  });
  if (command.toolCallId !== undefined) hook.toolCallId = command.toolCallId;
  const published = draft.revise(EventKind.hookPublished, (revision) => {
    hook.revision = revision;
    return { case: "hook", value: hook };
  });
  return draft.decision([published]);
}
