import type { Command } from "../../../gen/toolmark/engine/v1/command_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import type { Run } from "../../../gen/toolmark/v1/run_pb.js";
import { invariant, unreachable } from "../invariant.js";
import { isRefusal, refuse, type Refusal } from "../refusal.js";
import type { SessionState } from "../session-state.js";
import { acceptProviderTurn } from "./accept-provider-turn.js";
import { acceptTurn } from "./accept-turn.js";
import { amendToolCall } from "./amend-tool-call.js";
import type { Decided, Draft } from "./draft.js";
import { endRun } from "./end-run.js";
import { openAsk } from "./open-ask.js";
import { parkToolCall } from "./park-tool-call.js";
import { publishHook } from "./publish-hook.js";
import { publishReview } from "./publish-review.js";
import { reconcileToolCall } from "./reconcile-tool-call.js";
import { recordMessage } from "./record-message.js";
import { recordResult } from "./record-result.js";
import { settleAskByMachine } from "./settle-ask-by-machine.js";
import { settleAuthorization } from "./settle-authorization.js";
import { startToolCall } from "./start-tool-call.js";
import { withdrawAsk } from "./withdraw-ask.js";

/** The run that a command names, if it is the active one. */
function activeRun(draft: Draft, state: SessionState, runId: string): Run | Refusal {
  if (state.activeRun?.runId === runId) return state.activeRun;
  if (draft.facts.settledRecord(runId)?.case !== "run") {
    return refuse(ErrorReason.RUN_NOT_FOUND, "the session has no such run");
  }
  return refuse(ErrorReason.RUN_NOT_ACTIVE, "the run is not the active one");
}

/** Decides one command of a run. */
export function decideCommand(
  draft: Draft,
  state: SessionState,
  runId: string,
  { command }: Command,
): Decided {
  invariant(command.case !== undefined, "command was checked to be there");
  const run = activeRun(draft, state, runId);
  if (command.case === "recordResult") return recordResult(draft, state, run, command.value);
  if (isRefusal(run)) {
    const reconciles = command.case === "reconcileToolCall";
    return reconciles && run.reason === ErrorReason.RUN_NOT_ACTIVE
      ? reconcileToolCall(draft, state, command.value)
      : run;
  }
  switch (command.case) {
    case "recordMessage":
      return recordMessage(draft, run, command.value);
    case "acceptTurn":
      return acceptTurn(draft, state, run, command.value);
    case "acceptProviderTurn":
      return acceptProviderTurn(draft, state, run, command.value);
    case "amendToolCall":
      return amendToolCall(draft, state, command.value);
    case "startToolCall":
      return startToolCall(draft, state, command.value);
    case "reconcileToolCall":
      return reconcileToolCall(draft, state, command.value);
    case "publishHook":
      return publishHook(draft, state, run, command.value);
    case "endRun":
      return endRun(draft, state, run, command.value);
    case "publishReview":
      return publishReview(draft, state, run, command.value);
    case "openAsk":
      return openAsk(draft, state, run, command.value);
    case "withdrawAsk":
      return withdrawAsk(draft, state, command.value);
    case "settleAsk":
      return settleAskByMachine(draft, state, command.value);
    case "parkToolCall":
      return parkToolCall(draft, state, run, command.value);
    case "settleAuthorization":
      return settleAuthorization(draft, state, command.value);
    default:
      return unreachable(command);
  }
}
