import { AskState, type Ask, type AskKind } from "../../../gen/toolmark/v1/ask_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { refuse, type Refusal } from "../refusal.js";
import type { SessionState } from "../session-state.js";
import type { Facts } from "./draft.js";

/** The open ask with this id, or why it cannot be settled. */
export function findOpenAsk(state: SessionState, facts: Facts, askId: string): Ask | Refusal {
  const open = state.openAsks.get(askId);
  if (open !== undefined) return open;
  const settled = facts.settledRecord(askId);
  if (settled?.case === "ask") return refuseSettled(settled.value);
  return refuse(ErrorReason.ASK_NOT_FOUND, "the session has no such ask");
}

/** The open ask of a call and kind: there is at most one. */
export function openAskOf(state: SessionState, toolCallId: string, kind: AskKind): Ask | undefined {
  for (const ask of state.openAsks.values()) {
    if (ask.toolCallId === toolCallId && ask.kind === kind) return ask;
  }
  return undefined;
}

function refuseSettled({ askId, state, receiptId, supersededByAskId }: Ask): Refusal {
  const receipt = receiptId === undefined ? {} : { receipt_id: receiptId };
  switch (state) {
    case AskState.SUPERSEDED: {
      const newer =
        supersededByAskId === undefined ? {} : { superseded_by_ask_id: supersededByAskId };
      const message = "the ask was replaced by a newer one or by amended arguments";
      return refuse(ErrorReason.ASK_SUPERSEDED, message, { ask_id: askId, ...newer });
    }
    case AskState.EXPIRED:
      return refuse(ErrorReason.ASK_EXPIRED, "the ask's time is over", {
        ask_id: askId,
        ...receipt,
      });
    default:
      return refuse(ErrorReason.ASK_NOT_OPEN, "the ask is settled", { ask_id: askId, ...receipt });
  }
}
