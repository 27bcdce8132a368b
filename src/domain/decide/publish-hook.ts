import { create } from "@bufbuild/protobuf";
import type { PublishHookCommand } from "../../../gen/toolmark/engine/v1/command_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { HookSchema } from "../../../gen/toolmark/v1/hook_pb.js";
import type { Run } from "../../../gen/toolmark/v1/run_pb.js";
import type { ToolCall } from "../../../gen/toolmark/v1/tool_call_pb.js";
import { EventKind } from "../event-kind.js";
import { isRefusal, refuse, type Refusal } from "../refusal.js";
import type { SessionState } from "../session-state.js";
import type { Decided, Draft } from "./draft.js";
import { findOwnCall } from "./find-call.js";
import { refuseForeignOrigin } from "./foreign-origin.js";

/** The call that a hook names: retained, of this session's own, and with the tool that the hook names. */
function callOfHook(
  draft: Draft,
  state: SessionState,
  toolCallId: string,
  toolName: string,
): ToolCall | Refusal {
  const found = findOwnCall(state, draft.facts, toolCallId);
  if (isRefusal(found)) return found;
  const { call } = found;
  if (toolName === "" || toolName === call.toolName) return call;
  return refuse(ErrorReason.REFERENCE_MISMATCH, "command.tool_name is not that of the call", {
    field: "command.tool_name",
  });
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
    const call = callOfHook(draft, state, command.toolCallId, toolName);
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
