import type { Message, MessageInitShape } from "@bufbuild/protobuf";
import type { Ask, DelegationStep } from "../../gen/toolmark/v1/ask_pb.js";
import { EventKind } from "../../src/domain/event-kind.js";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { DelegationKind, SessionKind, type Session } from "../../gen/toolmark/v1/session_pb.js";
import type {
  CreateSessionRequestSchema,
  ListSessionsRequestSchema,
} from "../../gen/toolmark/v1/session_service_pb.js";
import { askAbout } from "./asking.js";
import {
  acceptCall,
  acceptTurn,
  allEvents,
  beginRun,
  freshRequestId,
  given,
  newCall,
  openRun,
  type OpenRun,
} from "./conversation.js";
import type { Clients } from "./service.js";

/** Every kind of delegation, and the kind of session that it makes. */
export const DELEGATIONS = [
  ["SUBAGENT", DelegationKind.SUBAGENT, SessionKind.SUBAGENT],
  ["PARALLEL_BRANCH", DelegationKind.PARALLEL_BRANCH, SessionKind.PARALLEL_BRANCH],
  ["TEAM_MEMBER", DelegationKind.TEAM_MEMBER, SessionKind.TEAM_MEMBER],
] as const;

type CreationInit = Exclude<MessageInitShape<typeof CreateSessionRequestSchema>, Message>;

/** A session that works for another one, with an active run. */
export interface Child {
  readonly session: Session;
  readonly run: OpenRun;
}

/** The request for a session that works for a call; a subagent, unless `changed` says otherwise. */
export function delegationOf(
  parentSessionId: string,
  parentToolCallId: string,
  changed: CreationInit = {},
): CreationInit {
  const delegation = { parentSessionId, parentToolCallId, kind: DelegationKind.SUBAGENT };
  return { requestId: freshRequestId(), kind: SessionKind.SUBAGENT, delegation, ...changed };
}

/** Hands work of a call over to a new session. */
export async function delegateTo(
  { sessions }: Clients,
  parentSessionId: string,
  toolCallId: string,
  changed: CreationInit = {},
): Promise<Session> {
  const request = delegationOf(parentSessionId, toolCallId, changed);
  return given((await sessions.createSession(request)).session, "session");
}

/** A new session with an active run that works for a call; for a new call of the parent if none is named. */
export async function openChild(
  clients: Clients,
  parent: OpenRun,
  toolCallId?: string,
): Promise<Child> {
  const calling = toolCallId ?? (await acceptCall(clients, parent)).toolCallId;
  const session = await delegateTo(clients, parent.sessionId, calling);
  return { session, run: await beginRun(clients, session.sessionId, StartGate.OFF) };
}

/** A root session's run, and below it `depth` sessions, each of which works for the one before it. */
export async function openLine(
  clients: Clients,
  depth: number,
): Promise<{ readonly root: OpenRun; readonly line: readonly Child[]; readonly last: OpenRun }> {
  const root = await openRun(clients);
  const line: Child[] = [];
  let last = root;
  while (line.length < depth) {
    const child = await openChild(clients, last);
    line.push(child);
    last = child.run;
  }
  return { root, line, last };
}

/** `count` sessions that work for one call each of a run, in the order of creation, each with an open ask. */
export async function askingChildren(
  clients: Clients,
  parent: OpenRun,
  count: number,
): Promise<{ readonly child: Child; readonly ask: Ask }[]> {
  const turn = Array.from({ length: count }, (_, index) => newCall(`call_${index}`));
  const sessions: Session[] = [];
  for (const { toolCallId } of await acceptTurn(clients, parent, turn)) {
    sessions.push(await delegateTo(clients, parent.sessionId, toolCallId));
  }
  // Each model of its own counts from 0 again.
  const ask = async (session: Session) => {
    const run = await beginRun(clients, session.sessionId);
    return { child: { session, run }, ask: await askAbout(clients, run, {}, newCall("call_0")) };
  };
  return Promise.all(sessions.map(ask));
}

/** The steps of a path as text, outermost first. */
export function stepsOf(path: readonly DelegationStep[]): string[] {
  return path.map(({ sessionId, toolCallId }) => `${sessionId} ${toolCallId}`);
}

/** The steps from a root session to a child, as the sessions on the way say it. */
export function stepsTo(line: readonly Child[]): string[] {
  return line.map(({ session: { delegation } }) => {
    const { parentSessionId, parentToolCallId } = given(delegation, "delegation");
    return `${parentSessionId} ${parentToolCallId}`;
  });
}

/** The events by which calls of a session were handed over. */
export async function delegatedEvents(clients: Clients, sessionId: string): Promise<Event[]> {
  const events = await allEvents(clients, sessionId);
  return events.filter(({ kind }) => kind === EventKind.toolCallDelegated);
}

/** Every session that matches, page by page. */
export async function listedSessions(
  { sessions }: Clients,
  filter: MessageInitShape<typeof ListSessionsRequestSchema>,
): Promise<Session[]> {
  const all: Session[] = [];
  let pageToken = "";
  do {
    const page = await sessions.listSessions({ ...filter, pageToken });
    all.push(...page.sessions);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return all;
}

/** The ids of some sessions, in their order. */
export function idsOf(sessions: readonly Pick<Session, "sessionId">[]): string[] {
  return sessions.map(({ sessionId }) => sessionId);
}
