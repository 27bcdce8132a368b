import type { Actor } from "../../gen/toolmark/v1/origin_pb.js";
import { CHAIN_START } from "../domain/chain.js";
import type { SessionDecision } from "../domain/decide/apply.js";
import type { Caller } from "../domain/principal.js";
import type { SessionState } from "../domain/session-state.js";
import { sessionChecksum } from "./checksums.js";
import { standingOf } from "./standing.js";
import { sealEvent, type SealedEvent } from "./event-codec.js";
import type { LiveSession } from "./live-session.js";
import type { DecidedWrite } from "./provisional.js";
import type { SessionCopy } from "./mutation.js";
import { takeSnapshot } from "./snapshot.js";
import type { CommandWrite, SessionRef, SessionRow } from "./store-port.js";

/** Where a decision is written. */
export interface WriteContext {
  readonly caller: Caller;
  readonly actor: Actor;
  readonly session: SessionRef;
  /** The session before the decision. Absent for its creation. */
  readonly before: LiveSession | undefined;
  readonly nowMs: number;
  readonly positionBefore: bigint;
  readonly randomBytes: (size: number) => Uint8Array;
  readonly snapshotEvery: number;
}

/** What an event that brings records brings besides itself. */
export type Inheritance = Pick<SessionCopy, "inherited" | "pairings"> &
  Partial<Pick<SessionCopy, "bodyCopies">>;

/** Turns a decision into rows: seals its events, moves the head, and takes a snapshot when one is due. */
export function writeOf(
  context: WriteContext,
  decision: SessionDecision,
  memo: Pick<CommandWrite, "request" | "creation">,
  inheritance?: Inheritance,
): DecidedWrite {
  const { session, before, snapshotEvery } = context;
  const { state } = decision;
  const sealed = sealAll(context, decision);
  const row = rowAfter(context, state, sealed);
  const unsaved = (before?.eventsSinceSnapshot ?? 0) + sealed.length;
  const isDue = unsaved >= snapshotEvery && sealed.length > 0;
  const write: CommandWrite = {
    tenant: session.tenant,
    sessionId: session.sessionId,
    session: row,
    events: sealed.map(({ event }, index) =>
      index === 0 && inheritance !== undefined
        ? { ...event, inherited: inheritance.inherited }
        : event,
    ),
    bodies: decision.bodies,
    bodyCopies: inheritance?.bodyCopies,
    pairings: [
      ...(inheritance?.pairings ?? []),
      ...sealed.flatMap(({ pairing }) => (pairing === undefined ? [] : [pairing])),
    ],
    request: memo.request,
    creation: memo.creation,
    snapshot: isDue ? takeSnapshot(state, row.head.chain) : undefined,
  };
  return {
    write,
    session: { kind: "live", row, state, eventsSinceSnapshot: isDue ? 0 : unsaved },
    records: decision.events.map(({ record }) => record),
  };
}

function sealAll(context: WriteContext, decision: SessionDecision): SealedEvent[] {
  const { actor, session, before, nowMs, positionBefore, randomBytes } = context;
  let chainBefore = before?.row.head.chain ?? CHAIN_START;
  const firstSequence = (before?.state.sequence ?? 0n) + 1n;
  return decision.events.map((draft, index) => {
    const place = {
      sessionId: session.sessionId,
      sequence: firstSequence + BigInt(index),
      position: positionBefore + 1n + BigInt(index),
      timeMs: nowMs,
      chainBefore,
    };
    const sealed = sealEvent(draft, actor, place, randomBytes);
    chainBefore = sealed.event.row.chain;
    return sealed;
  });
}

function rowAfter(
  { caller, session, before }: WriteContext,
  state: SessionState,
  sealed: readonly SealedEvent[],
): SessionRow {
  const last = sealed.at(-1)?.event.row;
  if (last === undefined) {
    if (before === undefined) throw new Error("a session is created by an event");
    return before.row;
  }
  const row = {
    tenant: session.tenant,
    sessionId: session.sessionId,
    ownerSubject: state.session.ownerSubject,
    createdBySubject: before?.row.createdBySubject ?? caller.subject,
    ...standingOf(state.session),
    state: state.session.state,
    createPosition: before?.row.createPosition ?? last.position,
    head: {
      sequence: state.sequence,
      position: last.position,
      highWater: state.highWater,
      chain: last.chain,
      sessionSequence: state.sessionSequence,
      activeRunId: state.activeRun?.runId,
      updateTimeMs: last.timeMs,
    },
  };
  return { ...row, checksum: sessionChecksum(row) };
}
