import { answerAsk } from "../domain/decide/answer-ask.js";
import { decideApply, type SessionDecision } from "../domain/decide/apply.js";
import { beginRun } from "../domain/decide/begin-run.js";
import { compactSession } from "../domain/decide/compact-session.js";
import { Draft, type Decided, type Facts } from "../domain/decide/draft.js";
import { referencesOf, referencesOfAnswer, type References } from "../domain/decide/references.js";
import { cancelUnfinished, endSession } from "../domain/decide/session.js";
import { evolve } from "../domain/evolve.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import type { SessionState } from "../domain/session-state.js";
import type { SessionMutation } from "./mutation.js";

/** What a request does to a session, or why nothing. */
export function decideOn(
  state: SessionState,
  mutation: SessionMutation,
  facts: Facts,
): SessionDecision | Refusal {
  if (mutation.kind === "apply") return decideApply(state, mutation.request, facts);
  const decided = decideOne(new Draft(mutation.request.sessionId, state, facts), state, mutation);
  if (isRefusal(decided)) return decided;
  return { ...decided, state: evolve(state, decided.events), replies: [decided.reply] };
}

function decideOne(
  draft: Draft,
  state: SessionState,
  mutation: Exclude<SessionMutation, { kind: "apply" }>,
): Decided {
  switch (mutation.kind) {
    case "beginRun":
      return beginRun(draft, state, mutation.request);
    case "endSession":
      return endSession(draft, state);
    case "cancelUnfinished":
      return cancelUnfinished(draft, state);
    case "compactSession": {
      const { throughSequence, request } = mutation;
      return compactSession(draft, state, { throughSequence, summary: request.summary });
    }
    case "answerAsk":
      return answerAsk(draft, state, mutation.request);
  }
}

/** What must be looked up before a request can be decided. */
export function referencesOfMutation(mutation: SessionMutation, state: SessionState): References {
  switch (mutation.kind) {
    case "apply":
      return referencesOf(mutation.request.runId, mutation.request.commands, state);
    case "answerAsk":
      return referencesOfAnswer(mutation.request);
    case "beginRun":
    case "endSession":
    case "compactSession":
    case "cancelUnfinished":
      return { recordIds: [], bodyRefs: [] };
  }
}

/** Whether the state itself holds the record as it is. */
export function isOpen(state: SessionState, recordId: string): boolean {
  return (
    recordId === state.activeRun?.runId ||
    state.openCalls.has(recordId) ||
    state.openAsks.has(recordId) ||
    state.pendingAuthorizations.has(recordId)
  );
}
