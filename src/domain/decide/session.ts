import { create } from "@bufbuild/protobuf";
import {
  SessionSchema,
  SessionState as State,
  type Session,
} from "../../../gen/toolmark/v1/session_pb.js";
import type { CreateSessionRequest } from "../../../gen/toolmark/v1/session_service_pb.js";
import { ErrorReason } from "../../../gen/toolmark/v1/errors_pb.js";
import { EventKind } from "../event-kind.js";
import { refuse, type Refusal } from "../refusal.js";
import type { SessionState } from "../session-state.js";
import type { Standing } from "./delegate.js";
import type { Decided, Draft } from "./draft.js";
import { endUnfinished } from "./end-run.js";

/** Begins a session. `standing` says where it stands, if it works for another one. */
export function createSession(
  draft: Draft,
  request: CreateSessionRequest,
  standing: Standing | undefined,
): Decided {
  const { caller, now } = draft.facts;
  const { delegation, ownerSubject } = request;
  const session = create(SessionSchema, {
    sessionId: draft.sessionId,
    ownerSubject: standing?.ownerSubject ?? (ownerSubject === "" ? caller.subject : ownerSubject),
    kind: request.kind,
    title: request.title,
    labels: request.labels,
    ...(delegation === undefined ? {} : { delegation }),
    delegationPath: [...(standing?.delegationPath ?? [])],
    state: State.OPEN,
    createTime: now,
  });
  return draft.decision([
    draft.write(EventKind.sessionCreated, { case: "session", value: session }),
  ]);
}

export function endSession(draft: Draft, state: SessionState): Decided {
  endUnfinished(draft, state);
  const ended = draft.write(EventKind.sessionEnded, {
    case: "session",
    value: { ...state.session, state: State.ENDED, endTime: draft.facts.now },
  });
  return draft.decision([ended]);
}

/** Ends what is unfinished in a session whose ancestor ends. It stays open; its reply has everything that was ended. */
export function cancelUnfinished(draft: Draft, state: SessionState): Decided {
  endUnfinished(draft, state);
  return draft.decision(draft.written);
}

/**
 * A session that has ended or was erased takes no commands. An ended one can be copied, and an answer to an ask of it
 * is told how that ask was settled.
 */
export function refuseClosed(
  { session: { state } }: { readonly session: Pick<Session, "state"> },
  command: string,
): Refusal | undefined {
  if (state === State.OPEN) return undefined;
  const isOfEnded = command === "answerAsk" || command === "forkSession";
  if (state === State.ENDED && isOfEnded) return undefined;
  return state === State.ERASED
    ? refuse(ErrorReason.SESSION_ERASED, "the session was erased")
    : refuse(ErrorReason.SESSION_ENDED, "the session has ended");
}
