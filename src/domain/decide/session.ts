import { create } from "@bufbuild/protobuf";
import { SessionSchema, SessionState as State } from "../../../gen/toolmark/v1/session_pb.js";
import { RunOutcome } from "../../../gen/toolmark/v1/run_pb.js";
import type {
  CreateSessionRequest,
  EndSessionRequest,
} from "../../../gen/toolmark/v1/session_service_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { EventKind } from "../event-kind.js";
import { refuse, type Refusal } from "../refusal.js";
import type { SessionState } from "../session-state.js";
import type { Decided, Draft } from "./draft.js";
import { endParkedCalls, replaceRun } from "./end-run.js";

function refuseFeature(feature: string): Refusal {
  return refuse(ErrorReason.UNIMPLEMENTED, `this server does not offer ${feature} yet`, {
    feature,
  });
}

export function createSession(draft: Draft, request: CreateSessionRequest): Decided {
  if (request.delegation !== undefined) return refuseFeature("delegation");
  const { caller, now } = draft.facts;
  const session = create(SessionSchema, {
    sessionId: draft.sessionId,
    ownerSubject: request.ownerSubject === "" ? caller.subject : request.ownerSubject,
    kind: request.kind,
    title: request.title,
    labels: request.labels,
    state: State.OPEN,
    createTime: now,
  });
  return draft.decision([
    draft.write(EventKind.sessionCreated, { case: "session", value: session }),
  ]);
}

export function endSession(draft: Draft, state: SessionState, request: EndSessionRequest): Decided {
  if (request.cancelDescendants) return refuseFeature("cancel_descendants");
  if (state.activeRun === undefined) endParkedCalls(draft, state);
  else replaceRun(draft, state, state.activeRun, RunOutcome.CANCELLED);
  const ended = draft.write(EventKind.sessionEnded, {
    case: "session",
    value: { ...state.session, state: State.ENDED, endTime: draft.facts.now },
  });
  return draft.decision([ended]);
}

/**
 * A session that has ended or was erased takes no commands. An answer to an ask of an ended one is told how that ask
 * was settled instead.
 */
export function refuseClosed(state: SessionState, command: string): Refusal | undefined {
  if (state.session.state === State.OPEN) return undefined;
  if (state.session.state === State.ENDED && command === "answerAsk") return undefined;
  return state.session.state === State.ERASED
    ? refuse(ErrorReason.SESSION_ERASED, "the session was erased")
    : refuse(ErrorReason.SESSION_ENDED, "the session has ended");
}
