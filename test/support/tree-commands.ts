import { AskKind, AskProvenance } from "../../gen/toolmark/v1/ask_pb.js";
import { HookDecision } from "../../gen/toolmark/v1/hook_pb.js";
import { MessageRole, RunOutcome } from "../../gen/toolmark/v1/run_pb.js";
import { sha256 } from "../../src/domain/sha256.js";
import type { Replies } from "../../src/ledger/batch-context.js";
import { bytes } from "./conversation.js";
import type { CommandInit } from "./decider.js";
import type { ModelCall, ModelSession } from "./tree-model.js";
import { recordOf, recordsOf } from "./tree-replies.js";
import type { AgentStep } from "./tree-steps.js";

/** What every call of a tree is made with. */
const ARGUMENTS = bytes('{"task":"look"}');

/** A step that is one command of the active run. */
type CommandStep = Exclude<AgentStep, { kind: "beginRun" | "answer" | "touchCopied" }>;

/** A step as a command. Absent if the session has nothing that it could be about. */
export function commandOf(
  taken: CommandStep,
  session: ModelSession,
  call: ModelCall | undefined,
): CommandInit | undefined {
  switch (taken.kind) {
    case "endRun":
      return { case: "endRun", value: { outcome: taken.outcome } };
    case "acceptTurn": {
      const data = ARGUMENTS;
      const calls = Array.from({ length: taken.calls }, () => ({
        ...{ toolName: "task", arguments: { data } },
      }));
      return { case: "acceptTurn", value: { calls } };
    }
    case "message": {
      const content = { data: bytes("hello") };
      return { case: "recordMessage", value: { role: MessageRole.USER, content } };
    }
    default:
      if (call === undefined) return undefined;
      return aboutCall(taken.kind, call.toolCallId, session.openAskOf(call)?.ask.askId);
  }
}

export function aboutCall(
  kind: "start" | "ask" | "result" | "hook" | "withdraw",
  toolCallId: string,
  openAskId = "ask_none",
): CommandInit {
  switch (kind) {
    case "start":
      return { case: "startToolCall", value: { toolCallId, argumentsSha256: sha256(ARGUMENTS) } };
    case "ask": {
      const asked = { kind: AskKind.ACTION, provenance: AskProvenance.PERMISSION };
      return { case: "openAsk", value: { toolCallId, ...asked } };
    }
    case "result": {
      const value = { content: { data: bytes(`result of ${toolCallId}`) } };
      return { case: "recordResult", value: { toolCallId, result: { case: "canonical", value } } };
    }
    case "hook": {
      const decision = HookDecision.INFO;
      return { case: "publishHook", value: { toolCallId, phase: "pre_tool_use", decision } };
    }
    case "withdraw":
      return { case: "withdrawAsk", value: { askId: openAskId } };
  }
}

/** What a command that was accepted changes in the model. */
export function noteCommand(
  taken: CommandStep,
  session: ModelSession,
  call: ModelCall | undefined,
  reply: Replies,
): void {
  switch (taken.kind) {
    case "endRun":
      if (taken.outcome === RunOutcome.PARKED) session.run = undefined;
      else session.close();
      return;
    case "acceptTurn":
      for (const { toolCallId } of recordsOf(reply, "toolCall")) {
        session.calls.push({ toolCallId, state: "open", hasStarted: false, children: [] });
      }
      return;
    case "start":
      if (call !== undefined) call.hasStarted = true;
      return;
    case "result":
      if (call !== undefined) call.state = "answered";
      return;
    case "hook":
      session.hookIds.push(recordOf(reply, "hook")?.hookId ?? "");
      return;
    case "ask":
    case "withdraw": {
      const before = call && session.openAskOf(call);
      if (before !== undefined) before.isOpen = false;
      const ask = taken.kind === "ask" ? recordOf(reply, "ask") : undefined;
      if (ask !== undefined) session.asks.push({ ask, isOpen: true });
      return;
    }
    case "message":
      return;
  }
}
