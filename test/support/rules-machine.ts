import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionState } from "../../gen/toolmark/v1/session_pb.js";
import { InvariantError } from "../../src/domain/invariant.js";
import { isRefusal, type Refusal } from "../../src/domain/refusal.js";
import type { DraftEvent } from "../../src/domain/session-state.js";
import { consentFaults } from "./consent-checks.js";
import { Decider, type BentRules } from "./decider.js";
import type { RuleStep } from "./ledger-steps.js";
import { RecordLog } from "./record-log.js";
import { actionOf, type Action } from "./step-actions.js";

/** Drives the rules alone through a history. Returns what is wrong: with the log, or with what was accepted. */
export function faultsOfRules(steps: readonly RuleStep[], bent: BentRules): string[] {
  const decider = new Decider(StartGate.OFF, bent);
  const log = new RecordLog<DraftEvent>();
  const faults: string[] = [];
  try {
    for (const step of steps) {
      log.add(decider.history.slice(log.entries.length));
      if (decider.state.session.state === SessionState.ENDED) break;
      const tokenOf = ({ askId }: { readonly askId: string }): string => `token of ${askId}`;
      const action = actionOf(step, { log, nowMs: decider.nowMs, tokenOf });
      if (action !== undefined) faults.push(...take(decider, action));
    }
  } catch (error) {
    // Bent rules can end where no rule holds any more: what was written until then is looked at.
    if (!(error instanceof InvariantError)) throw error;
    if (Object.keys(bent).length === 0) faults.push(error.message);
  }
  return [...faults, ...consentFaults(decider.history)];
}

/** As the ledger does: what has waited long enough expires before a command is decided. */
function take(decider: Decider, action: Action): string[] {
  switch (action.kind) {
    case "jump":
      decider.jump(action.byMs);
      return [];
    case "expire":
      decider.pass(0, action.dueIds);
      return [];
    default:
      decider.pass(1);
      return command(decider, action);
  }
}

function command(decider: Decider, action: Exclude<Action, { kind: "jump" | "expire" }>): string[] {
  switch (action.kind) {
    case "beginRun":
      decider.begin(action.gate, action.takeOver);
      return [];
    case "endSession":
      decider.end();
      return [];
    case "command":
      decider.when([action.command]);
      return [];
    case "answer":
      return answerFaults(action.isRight, decider.send(action.request));
  }
}

/** An answer that is not right is refused, whatever it says. */
export function answerFaults(isRight: boolean, answer: Refusal | readonly unknown[]): string[] {
  return isRight || isRefusal(answer) ? [] : ["a wrong or late answer was accepted"];
}
