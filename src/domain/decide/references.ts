import type { Command } from "../../../gen/toolmark/engine/v1/command_pb.js";
import type { AnswerAskRequest } from "../../../gen/toolmark/v1/approval_service_pb.js";
import type { Body } from "../../../gen/toolmark/v1/body_pb.js";
import type { SessionState } from "../session-state.js";
import { reviewIdOf } from "./publish-review.js";

/** What must be looked up before commands can be decided. */
export interface References {
  readonly recordIds: readonly string[];
  readonly bodyRefs: readonly string[];
  /** Bodies that were uploaded for one command alone. Absent: none. */
  readonly privateRefs?: readonly string[];
}

function recordIdsOf({ command }: Command, state: SessionState): readonly string[] {
  switch (command.case) {
    case "amendToolCall":
    case "startToolCall":
    case "reconcileToolCall":
      return [command.value.toolCallId];
    case "recordResult": {
      const { result, toolCallId } = command.value;
      const hookId = result.case === "canonical" ? result.value.blockedByHookId : undefined;
      return hookId === undefined ? [toolCallId] : [toolCallId, hookId];
    }
    case "openAsk": {
      const { toolCallId, reviewId } = command.value;
      const superseded = state.openCalls.get(toolCallId)?.supersededAskId;
      return [toolCallId, reviewId, superseded].filter((id) => id !== undefined);
    }
    case "withdrawAsk":
      return [command.value.askId];
    case "settleAsk": {
      const { askId, hookId } = command.value;
      return hookId === undefined ? [askId] : [askId, hookId];
    }
    case "parkToolCall":
      return [command.value.toolCallId];
    case "settleAuthorization":
      return [command.value.authorizationId];
    case "publishReview":
      return [command.value.toolCallId, reviewIdOf(command.value)];
    case "publishHook":
      return command.value.toolCallId === undefined ? [] : [command.value.toolCallId];
    case "endRun":
      return [...command.value.notRunToolCallIds, ...command.value.interruptedToolCallIds];
    default:
      return [];
  }
}

function bodiesOf({ command }: Command): readonly (Body | undefined)[] {
  switch (command.case) {
    case "recordMessage":
    case "reconcileToolCall":
      return [command.value.content];
    case "acceptTurn":
      return command.value.calls.map((call) => call.arguments);
    case "amendToolCall":
      return [command.value.effective];
    case "recordResult": {
      const { result } = command.value;
      return result.case === "canonical" ? [result.value.content] : [];
    }
    default:
      return [];
  }
}

/** A body that only this command takes. */
export function privateBodyOf({ command }: Command): Body | undefined {
  return command.case === "acceptProviderTurn" ? command.value.payload : undefined;
}

/** What an answer names. */
export function referencesOfAnswer({ askId }: AnswerAskRequest): References {
  return { recordIds: [askId], bodyRefs: [] };
}

/** The records and stored bodies that commands name, or need of what they name. */
export function referencesOf(
  runId: string,
  commands: readonly Command[],
  state: SessionState,
): References {
  const recordIds = [runId, ...commands.flatMap((command) => recordIdsOf(command, state))];
  const bodyRefs = refsOf(commands.flatMap(bodiesOf));
  return { recordIds, bodyRefs, privateRefs: refsOf(commands.map(privateBodyOf)) };
}

function refsOf(bodies: readonly (Body | undefined)[]): string[] {
  return bodies
    .map((body) => (body?.data === undefined ? (body?.bodyRef ?? "") : ""))
    .filter((ref) => ref !== "");
}
