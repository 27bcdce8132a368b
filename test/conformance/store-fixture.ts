import { expect } from "vitest";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { SessionState } from "../../gen/toolmark/v1/session_pb.js";
import {
  RecordFamily,
  type AskEntry,
  type BodyRow,
  type CommandWrite,
  type EventRow,
  type NewEvent,
  type PairingRow,
  type RecordKey,
  type RequestRow,
  type SessionRef,
  type SessionRow,
  type SnapshotRow,
  type Store,
} from "../../src/ledger/store-port.js";

/** One store's data, opened any number of times. */
export interface StoreFixture {
  open(): Promise<Store>;
  /** Closes the store and opens another one on the same data. */
  reopen(store: Store): Promise<Store>;
  dispose(): Promise<void>;
}

/** A rule of the port that every store must keep. */
export interface ConformanceCase {
  /** The rule. */
  readonly name: string;
  /** A wrong implementation that the case finds. */
  readonly catches: string;
  run(store: Store, fixture: StoreFixture): Promise<void>;
}

export const A: SessionRef = { tenant: "acme", sessionId: "ses_a" };
export const B: SessionRef = { tenant: "acme", sessionId: "ses_b" };
/** Another tenant's session with the id of A. */
export const OTHER_A: SessionRef = { tenant: "other", sessionId: "ses_a" };

export const NO_BYTE_LIMIT = 1 << 30;

export function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

export function eventRow(
  sequence: bigint,
  position: bigint,
  changes: Partial<EventRow> = {},
): EventRow {
  return {
    sequence,
    position,
    revision: undefined,
    kind: "tool_call",
    timeMs: 1_764_600_000_123,
    payload: bytes(`payload ${position}`),
    salt: bytes(`salt of 16 bytes`),
    commitment: bytes(`commitment ${position}`),
    privateCommitment: undefined,
    chain: bytes(`chain ${position}`),
    ...changes,
  };
}

export function newEvent(
  sequence: bigint,
  position: bigint,
  changes: Partial<EventRow> = {},
  record?: RecordKey,
): NewEvent {
  const row = eventRow(sequence, position, changes);
  return { row, record, ask: undefined, deadline: undefined };
}

/** An event of an ask about the call `tc_1`. */
export function askEvent(
  sequence: bigint,
  position: bigint,
  askId: string,
  changes: Partial<AskEntry> = {},
): NewEvent {
  const record = { recordId: askId, family: RecordFamily.ask, toolCallId: "tc_1" };
  const entry = { toolName: "bash", createTimeMs: 1000, expireTimeMs: undefined };
  const ask = { ...entry, state: AskState.OPEN, ...changes };
  return { ...newEvent(sequence, position, {}, record), ask };
}

/** An event after which a hook waits until `timeMs`, or no longer. */
export function deadlineEvent(
  sequence: bigint,
  position: bigint,
  recordId: string,
  timeMs?: number,
): NewEvent {
  return { ...newEvent(sequence, position, {}, hook(recordId)), deadline: { timeMs } };
}

export function hook(recordId: string, toolCallId?: string): RecordKey {
  return { recordId, family: RecordFamily.hook, toolCallId };
}

export function sessionRow(
  session: SessionRef,
  events: readonly NewEvent[],
  changes: Partial<SessionRow> = {},
): SessionRow {
  const last = events.at(-1)?.row;
  return {
    ...session,
    ownerSubject: "owner",
    createdBySubject: "creator",
    parentSessionId: undefined,
    rootSessionId: session.sessionId,
    state: SessionState.OPEN,
    createPosition: 1n,
    head: {
      sequence: last?.sequence ?? 0n,
      position: last?.position ?? 0n,
      highWater: last?.revision ?? 0n,
      chain: last?.chain ?? bytes("chain start"),
      sessionSequence: 1n,
      activeRunId: undefined,
      updateTimeMs: 1_764_600_000_456,
    },
    checksum: bytes(`checksum at ${last?.sequence ?? 0n}`),
    ...changes,
  };
}

export function write(
  session: SessionRef,
  events: readonly NewEvent[],
  changes: Partial<CommandWrite> = {},
): CommandWrite {
  return {
    ...session,
    session: sessionRow(session, events),
    events,
    bodies: [],
    pairings: [],
    request: undefined,
    creation: undefined,
    snapshot: undefined,
    ...changes,
  };
}

export function bodyRow(bodyRef: string, content: string): BodyRow {
  const data = bytes(content);
  return {
    bodyRef,
    sha256: bytes(`sha256 of ${content}`),
    sizeBytes: data.length,
    isJsonObject: content.startsWith("{"),
    data,
  };
}

export function pairingRow(recordId: string, changes: Partial<PairingRow> = {}): PairingRow {
  return {
    recordId,
    sequence: 1n,
    salt: bytes("salt"),
    pairing: bytes(`pairing of ${recordId}`),
    ...changes,
  };
}

export function requestRow(requestId: string): RequestRow {
  const digest = bytes(`digest ${requestId}`);
  return { requestId, digest, outcome: bytes("outcome"), checksum: bytes(`checksum ${requestId}`) };
}

export function snapshotRow(sequence: bigint, state = `state ${sequence}`): SnapshotRow {
  return {
    sequence,
    highWater: sequence * 2n,
    chain: bytes(`chain ${sequence}`),
    state: bytes(state),
    digest: bytes(`digest of ${state}`),
  };
}

export async function expectCommitted(
  store: Store,
  ...writes: readonly CommandWrite[]
): Promise<void> {
  expect(await store.commit(writes)).toEqual({ outcome: "committed" });
}

/** Expects the write at `index` to be refused and named. */
export async function expectRefused(
  store: Store,
  index: number,
  ...writes: readonly CommandWrite[]
): Promise<void> {
  const result = await store.commit(writes);
  expect(result).toMatchObject({ outcome: "command_failed", index });
  expect(result).toHaveProperty("cause", expect.any(Error));
}

export async function allEvents(store: Store, session: SessionRef): Promise<EventRow[]> {
  return store.readEvents(session, 0n, 1000, NO_BYTE_LIMIT);
}

export async function sequencesOf(store: Store, session: SessionRef): Promise<bigint[]> {
  return (await allEvents(store, session)).map(({ sequence }) => sequence);
}

/** What a store remembers of one request. */
export async function findRequest(
  store: Store,
  session: SessionRef,
  requestId: string,
): Promise<RequestRow | undefined> {
  const [found] = await store.findRequests([{ session, requestId }]);
  return found;
}
