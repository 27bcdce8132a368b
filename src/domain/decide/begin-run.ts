import { create } from "@bufbuild/protobuf";
import { TakeOver, type BeginRunRequest } from "../../../gen/toolmark/engine/v1/run_service_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { RunOutcome, RunSchema, RunState, StartGate } from "../../../gen/toolmark/v1/run_pb.js";
import { Ran } from "../../../gen/toolmark/v1/tool_call_pb.js";
import { EventKind } from "../event-kind.js";
import { refuse } from "../refusal.js";
import type { SessionState } from "../session-state.js";
import type { Decided, Draft } from "./draft.js";
import { replaceRun } from "./end-run.js";
import { isUnstarted } from "./find-call.js";

/** From now on a call can run without a recorded start, so that nobody can say of it that it did not. */
function liftStartGate(draft: Draft, { openCalls }: SessionState): void {
  for (const { call } of openCalls.values()) {
    if (!isUnstarted(call) || call.ran !== Ran.NO) continue;
    draft.revise(EventKind.startGateLifted, (revision) => ({
      case: "toolCall",
      value: { ...call, revision, ran: Ran.UNKNOWN },
    }));
  }
}

export function beginRun(draft: Draft, state: SessionState, request: BeginRunRequest): Decided {
  const { activeRun } = state;
  if (activeRun !== undefined) {
    if (request.takeOver === undefined) {
      return refuse(ErrorReason.RUN_ACTIVE, `run ${activeRun.runId} is active`, {
        run_id: activeRun.runId,
      });
    }
    const resumes = request.takeOver === TakeOver.RESUME;
    const outcome = resumes ? RunOutcome.PARKED : RunOutcome.INTERRUPTED;
    replaceRun(draft, state, activeRun, outcome);
  }
  const takesOver = activeRun !== undefined && request.takeOver === TakeOver.END;
  if (request.startGate === StartGate.OFF && !takesOver) liftStartGate(draft, state);
  const run = create(RunSchema, {
    runId: draft.facts.mintId("run"),
    startGate: request.startGate,
    state: RunState.ACTIVE,
    beginTime: draft.facts.now,
  });
  return draft.decision([draft.write(EventKind.runBegun, { case: "run", value: run })]);
}
