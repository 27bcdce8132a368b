import type { WithdrawAskCommand } from "../../../gen/toolmark/engine/v1/command_pb.js";
import { isRefusal } from "../refusal.js";
import type { SessionState } from "../session-state.js";
import type { Decided, Draft } from "./draft.js";
import { findOpenAsk } from "./find-ask.js";
import { settleAsk, withdrawal } from "./settle-ask.js";

export function withdrawAsk(
  draft: Draft,
  state: SessionState,
  { askId, reason }: WithdrawAskCommand,
): Decided {
  const ask = findOpenAsk(state, draft.facts, askId);
  if (isRefusal(ask)) return ask;
  return draft.decision([settleAsk(draft, state, ask, withdrawal(draft, reason))]);
}
