import type { ApplyRequest } from "../../../gen/toolmark/engine/v1/run_service_pb.js";
import { recordIdOf } from "../record-id.js";
import { Fold } from "../evolve.js";
import { isRefusal, type Refusal } from "../refusal.js";
import type { DraftEvent, SessionState } from "../session-state.js";
import { decideCommand } from "./command.js";
import { Draft, type AnyRecord, type Facts, type NewBody, type ReplyRecord } from "./draft.js";

/** What a request does to its session: the state after it, what to commit, and one reply for each command. */
export interface SessionDecision {
  readonly state: SessionState;
  readonly events: readonly DraftEvent[];
  readonly bodies: readonly NewBody[];
  readonly replies: readonly (readonly ReplyRecord[])[];
}

/** Decides commands in order, each on the state after the ones before it; one refusal refuses all. */
export function decideApply(
  before: SessionState,
  request: ApplyRequest,
  facts: Facts,
): SessionDecision | Refusal {
  const written = new Map<string, AnyRecord>();
  const bodies: NewBody[] = [];
  const events: DraftEvent[] = [];
  const replies: (readonly ReplyRecord[])[] = [];
  const minted = new Set<string>();
  const seen: Facts = {
    ...facts,
    mintId: (kind) => {
      const id = facts.mintId(kind);
      minted.add(id);
      return id;
    },
    settledRecord: (id) => written.get(id) ?? facts.settledRecord(id),
    storedBody: (ref) => bodies.find(({ bodyRef }) => bodyRef === ref) ?? facts.storedBody(ref),
  };
  const fold = new Fold(before);
  let state = before;
  for (const [index, command] of request.commands.entries()) {
    const draft = new Draft(request.sessionId, state, seen);
    const decided = decideCommand(draft, state, request.runId, command);
    if (isRefusal(decided)) {
      return refuseAll(decided, index, minted);
    }
    state = fold.add(decided.events);
    for (const { record } of decided.events) {
      const id = recordIdOf(record.record);
      if (id !== undefined) written.set(id, record.record);
    }
    events.push(...decided.events);
    bodies.push(...decided.bodies);
    replies.push(decided.reply);
  }
  return { state, events, bodies, replies };
}

/** The refusal of one command refuses all: ids that the earlier ones were given name nothing. */
function refuseAll(refusal: Refusal, index: number, minted: ReadonlySet<string>): Refusal {
  const lasting = Object.entries(refusal.metadata).filter(
    ([, value]) => !value.split(",").some((id) => minted.has(id)),
  );
  return { ...refusal, metadata: { ...Object.fromEntries(lasting), command: String(index) } };
}
