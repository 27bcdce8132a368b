import { ConnectError } from "@connectrpc/connect";
import * as fc from "fast-check";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import { LegacySourceFormat } from "../../gen/toolmark/v1/legacy_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import type { Conversation, RecordsRead } from "../../src/client/index.js";
import { baseBodyOf } from "../../src/domain/session-record.js";
import { allAsks, askAbout } from "./asking.js";
import {
  acceptCall,
  allEvents,
  beginRun,
  complete,
  freshRequestId,
  given,
  publishHook,
  readSession,
  recordMessage,
} from "./conversation.js";
import { writeForkSource } from "./fork-source.js";
import { fork, readBytes, readLists } from "./forking.js";
import { importRequest, type Sources } from "./old-fixtures.js";
import { oldHistories } from "./old-histories.js";
import { logFile } from "./old-log-file.js";
import type { OldModel } from "./old-model.js";
import { snapshotFile } from "./old-snapshot-file.js";
import type { Clients } from "./service.js";
import { openChild } from "./trees.js";

type Base = NonNullable<RecordsRead["base"]>;

/** One thing that a client takes up. */
export type Given =
  | { readonly kind: "event"; readonly event: Event }
  | { readonly kind: "read"; readonly read: RecordsRead };

/** What a server gave of a session that came from elsewhere, in the order in which it came about. */
export interface BroughtLog {
  readonly sessionId: string;
  readonly given: readonly Given[];
}

export const ARCHIVED_TEXT = "what was before";

/** Whether it is an event, or what an event brought: not a list. */
export function isOfTheLog(one: Given): boolean {
  return one.kind === "event" || one.read.base !== undefined;
}

export function take(conversation: Conversation, all: readonly Given[]): void {
  for (const one of all) {
    if (one.kind === "event") conversation.apply(one.event);
    else conversation.applySnapshot(one.read);
  }
}

/** Every record as lists give it now. */
export async function readRecords(
  clients: Clients,
  sessionId: string,
): Promise<Required<Omit<RecordsRead, "base" | "places">>> {
  const { calls, hooks, receipts, authorizations } = await readLists(clients, sessionId, 100);
  const session = await readSession(clients, sessionId);
  const asks = await allAsks(clients, sessionId);
  return { sessionId, session, toolCalls: calls, hooks, asks, receipts, authorizations };
}

/** All events of a session, each with the base state that it brought. */
async function givenBy(clients: Clients, sessionId: string): Promise<Given[]> {
  const all: Given[] = [];
  for (const event of await allEvents(clients, sessionId)) {
    all.push({ kind: "event", event });
    const body = baseBodyOf(event.record?.record ?? { case: undefined });
    if (body === undefined) continue;
    const state = await readBytes(clients, sessionId, body.bodyRef);
    const base: Base = { state, sequence: event.sequence };
    all.push({ kind: "read", read: { sessionId, base } });
  }
  return all;
}

async function archive(clients: Clients, sessionId: string): Promise<void> {
  const throughSequence = BigInt((await allEvents(clients, sessionId)).length);
  const request = { requestId: freshRequestId(), sessionId, throughSequence };
  await clients.sessions.compactSession({ ...request, summary: ARCHIVED_TEXT });
}

/** What happens to a session after it came here. */
async function goOn(clients: Clients, sessionId: string, isArchived = false): Promise<string> {
  const run = await beginRun(clients, sessionId, StartGate.OFF);
  await recordMessage(clients, run);
  const { toolCallId } = await acceptCall(clients, run);
  await publishHook(clients, run, toolCallId);
  const child = await openChild(clients, run, toolCallId);
  await acceptCall(clients, child.run);
  await complete(clients, run, toolCallId);
  if (isArchived) await archive(clients, sessionId);
  await askAbout(clients, run);
  return child.session.sessionId;
}

/** A fork, the fork of the fork, and what became of both; what happened is archived if that is wanted. */
export async function forkedLogs(clients: Clients, isArchived: boolean): Promise<BroughtLog[]> {
  const { run } = await writeForkSource(clients);
  const logs: BroughtLog[] = [];
  let source = run.sessionId;
  for (let generation = 0; generation < 2; generation += 1) {
    const { sessionId } = await fork(clients, source);
    const first = await readRecords(clients, sessionId);
    const childId = await goOn(clients, sessionId, isArchived);
    logs.push({
      sessionId,
      given: [
        ...(await givenBy(clients, sessionId)),
        ...(await givenBy(clients, childId)),
        { kind: "read", read: first },
        { kind: "read", read: await readRecords(clients, sessionId) },
      ],
    });
    source = sessionId;
  }
  return logs;
}

function sourcesOf(model: OldModel): { first: Sources; all: Sources } {
  const { SNAPSHOT, EVENT_LOG } = LegacySourceFormat;
  const snapshot = [SNAPSHOT, Buffer.from(snapshotFile(model, "wrapped"))] as const;
  const log = [EVENT_LOG, Buffer.from(logFile(model, "jsonl"))] as const;
  return { first: [snapshot], all: [snapshot, log] };
}

/** Some sources are not taken beside others: then the session stays as it is. */
async function importAgain({ sessions }: Clients, id: string, sources: Sources): Promise<void> {
  try {
    await sessions.importSession(importRequest(id, sources));
  } catch (error) {
    if (!(error instanceof ConnectError)) throw error;
  }
}

/** An old session that is imported, imported again with more sources, and goes on. */
export async function adoptedLog(clients: Clients, model: OldModel): Promise<BroughtLog> {
  const { id: sessionId } = model;
  const { first, all } = sourcesOf(model);
  await clients.sessions.importSession(importRequest(sessionId, first));
  await importAgain(clients, sessionId, all);
  const read = await readRecords(clients, sessionId);
  const childId = await goOn(clients, sessionId);
  return {
    sessionId,
    given: [
      ...(await givenBy(clients, sessionId)),
      ...(await givenBy(clients, childId)),
      { kind: "read", read },
      { kind: "read", read: await readRecords(clients, sessionId) },
    ],
  };
}

export const oldModels = oldHistories(8);

/** The same in any order, some of it again. */
export function disordered(log: BroughtLog): fc.Arbitrary<Given[]> {
  const { given: all } = log;
  const again = fc.array(fc.nat({ max: all.length - 1 }), { maxLength: 10 });
  return again.chain((more) => {
    const whole = [...all, ...more.map((index) => given(all[index], "a part"))];
    return fc.shuffledSubarray(whole, { minLength: whole.length, maxLength: whole.length });
  });
}
