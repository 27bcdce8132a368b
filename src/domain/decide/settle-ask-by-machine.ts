import type { SettleAskCommand } from "../../../gen/toolmark/engine/v1/command_pb.js";
import { AskKind, type Ask } from "../../../gen/toolmark/v1/ask_pb.js";
import { isRefusal, type Refusal } from "../refusal.js";
import type { SessionState } from "../session-state.js";
import type { Decided, Draft, Facts } from "./draft.js";
import { findOpenAsk } from "./find-ask.js";
import { blocksCall, findHookOfCall, refuseHook } from "./find-hook.js";
import { isAllow, refuseVerdict, settleAsk } from "./settle-ask.js";

/** The answer of a rule or a hook, told by the harness. */
export function settleAskByMachine(
  draft: Draft,
  state: SessionState,
  command: SettleAskCommand,
): Decided {
  const ask = findOpenAsk(state, draft.facts, command.askId);
  if (isRefusal(ask)) return ask;
  const refused =
    refuseVerdict(ask, command.verdict) ?? refuseSettlingHook(draft.facts, ask, command);
  if (refused !== undefined) return refused;
  const { verdict, path, rule, hookId, reason } = command;
  const { actor } = draft.facts;
  const receipt = settleAsk(draft, state, ask, { verdict, path, actor, reason, rule, hookId });
  return draft.decision([receipt]);
}

function refuseSettlingHook(
  facts: Facts,
  { toolCallId, kind }: Ask,
  { hookId, verdict }: SettleAskCommand,
): Refusal | undefined {
  if (hookId === undefined) return undefined;
  const hook = findHookOfCall(facts, toolCallId, hookId, "command.hook_id");
  if (isRefusal(hook)) return hook;
  const contradicts = kind === AskKind.ACTION && isAllow(verdict) && blocksCall(hook);
  return contradicts ? refuseHook("command.hook_id", "blocks the call") : undefined;
}
