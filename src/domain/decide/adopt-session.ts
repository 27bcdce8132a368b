import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { AskState, type Ask } from "../../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState } from "../../../gen/toolmark/v1/authorization_pb.js";
import type { EventRecord } from "../../../gen/toolmark/v1/event_pb.js";
import {
  AdoptedSchema,
  type Adopted,
  type LegacySource,
} from "../../../gen/toolmark/v1/legacy_pb.js";
import { SessionSchema, SessionState, type Session } from "../../../gen/toolmark/v1/session_pb.js";
import { EventKind } from "../event-kind.js";
import type { LegacySession } from "../legacy-session.js";
import { summaryOf } from "../legacy-summary.js";
import type { Decided, Draft, NewBody } from "./draft.js";
import { storeBytes } from "./intake-body.js";
import { BASE_MEDIA_TYPE } from "./fork-session.js";

/** An older session, made ready to become one of this service. */
export interface Adoption {
  readonly session: Session;
  readonly sources: readonly LegacySource[];
  /** As the base state has them. */
  readonly records: readonly EventRecord["record"][];
  /** The encoded BaseState. */
  readonly base: Uint8Array;
  /** Of the records, and the sources themselves. */
  readonly bodies: readonly NewBody[];
}

/** The Session record of an older session. Nobody here created it, so that it has no time of creation but its own. */
export function legacySessionRecord(
  { sessionId, kind, title, labels, createTimeMs }: LegacySession,
  ownerSubject: string,
): Session {
  return create(SessionSchema, {
    ...{ sessionId, ownerSubject, kind, title, state: SessionState.OPEN },
    labels: labels.map(({ key, value }) => ({ key, value })),
    ...(createTimeMs === undefined ? {} : { createTime: timestampFromMs(createTimeMs) }),
  });
}

/** Brings an older session in by one event. Nothing of its past becomes an event, and nothing gets a revision. */
export function adoptSession(draft: Draft, adoption: Adoption): Decided {
  const { session, sources, records, base, bodies } = adoption;
  const adopted = create(AdoptedSchema, {
    ...{ session, sources: [...sources], ...goingOn(records), summary: summaryOf(records) },
    base: storeBytes(draft, base, BASE_MEDIA_TYPE),
  });
  draft.bodies.push(...bodies);
  return draft.decision([draft.write(EventKind.adopted, { case: "adopted", value: adopted })]);
}

/** What of the records can still change, and every ask: the inbox reads those from the event. */
function goingOn(
  records: readonly EventRecord["record"][],
): Pick<Adopted, "openCalls" | "asks" | "pendingAuthorizations"> {
  return {
    openCalls: records.flatMap((record) =>
      record.case === "toolCall" && record.value.result === undefined ? [record.value] : [],
    ),
    asks: records.flatMap((record) => (record.case === "ask" ? [record.value] : [])),
    pendingAuthorizations: records.flatMap((record) =>
      record.case === "authorization" && record.value.state === AuthorizationState.PENDING
        ? [record.value]
        : [],
    ),
  };
}

/** An ask that newer sources no longer have was settled in the older system: it cannot be answered any more. */
export function withdrawnAsk(ask: Ask): Ask {
  return { ...ask, state: AskState.WITHDRAWN };
}
