import { create } from "@bufbuild/protobuf";
import {
  ForkedSchema,
  SessionSchema,
  SessionState,
  type ForkPoint,
  type Session,
} from "../../../gen/toolmark/v1/session_pb.js";
import { EventKind } from "../event-kind.js";
import type { Decided, Draft } from "./draft.js";
import { storeBytes } from "./intake-body.js";

export const BASE_MEDIA_TYPE = "application/x-protobuf; messageType=toolmark.v1.BaseState";

/** What a fork begins with. */
export interface ForkBase {
  /** The source as of the fork point. */
  readonly source: Session;
  readonly point: Pick<ForkPoint, "sessionId" | "sequence">;
  readonly sourceChain: Uint8Array;
  readonly highWater: bigint;
  /** The encoded BaseState. */
  readonly base: Uint8Array;
}

/** Begins a session as a copy of another one. It has its owner, kind, title and labels, and works for nobody. */
export function forkSession(draft: Draft, fork: ForkBase): Decided {
  const { ownerSubject, kind, title, labels } = fork.source;
  const session = create(SessionSchema, {
    sessionId: draft.sessionId,
    ...{ ownerSubject, kind, title, labels },
    forkedFrom: { sessionId: fork.point.sessionId, sequence: fork.point.sequence },
    state: SessionState.OPEN,
    createTime: draft.facts.now,
  });
  const forked = create(ForkedSchema, {
    session,
    sourceChain: fork.sourceChain,
    highWater: fork.highWater,
    base: storeBytes(draft, fork.base, BASE_MEDIA_TYPE),
  });
  return draft.decision([draft.write(EventKind.forked, { case: "forked", value: forked })]);
}
