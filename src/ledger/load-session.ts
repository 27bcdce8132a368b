import { create, fromBinary } from "@bufbuild/protobuf";
import { ProviderPairingSchema } from "../../gen/toolmark/engine/v1/command_pb.js";
import { EventRecordSchema } from "../../gen/toolmark/v1/event_pb.js";
import { equalBytes } from "../domain/bytes.js";
import { CHAIN_START, commit } from "../domain/chain.js";
import { evolve } from "../domain/evolve.js";
import { InvariantError } from "../domain/invariant.js";
import { isRefusal } from "../domain/refusal.js";
import { baseBodyOf } from "../domain/session-record.js";
import type { DraftEvent, OpenCall, SessionState } from "../domain/session-state.js";
import { readBaseState } from "./base-state.js";
import { isIntactSession } from "./checksums.js";
import { followsChain, openPayload } from "./event-codec.js";
import type { LoadedSession } from "./live-session.js";
import { openSnapshot, restoreState } from "./snapshot.js";
import type { EventRow, PairingRow, SessionRow, SnapshotRow, Store } from "./store-port.js";

/** Something about a stored session that an operator must know. */
export interface LoadWarning {
  readonly sessionId: string;
  readonly warning: "snapshot_damaged" | "high_water_unavailable";
  readonly cause: string;
}

/** A point of the log from which the rest can be replayed. */
interface Base {
  readonly state: SessionState | undefined;
  readonly sequence: bigint;
  readonly chain: Uint8Array;
}

const BEGINNING: Base = { state: undefined, sequence: 0n, chain: CHAIN_START };
const PAGE_EVENTS = 500;
const PAGE_BYTES = 8 * 1024 * 1024;
/** Revisions of a log generation start above those that an earlier generation can have published. */
const REVISIONS_PER_GENERATION = 1n << 32n;

/** Thrown inside this module only: the rows do not prove the session's state. */
class Unproven extends Error {}

/**
 * Loads a session's write-side state: the newest sound snapshot and the committed events after it, reconciled with the
 * head. Writes nothing. A damaged snapshot falls back to an older one, with a warning; missing or broken rows give a
 * session that can be read but not published to.
 */
export async function loadSession(
  store: Store,
  row: SessionRow,
  warn: (warning: LoadWarning) => void,
): Promise<LoadedSession> {
  const { sessionId } = row;
  try {
    if (!isIntactSession(row)) throw new Unproven("the session's row does not match its checksum");
    const base = await newestBase(store, row, (cause) => {
      warn({ sessionId, warning: "snapshot_damaged", cause });
    });
    const replayed = await replayTail(store, row, base);
    const state = await addProviderIds(store, row, reconcile(store, row, replayed));
    const eventsSinceSnapshot = Number(state.sequence - base.sequence);
    return { kind: "live", row, state, eventsSinceSnapshot };
  } catch (error) {
    if (!(error instanceof Unproven)) throw error;
    warn({ sessionId, warning: "high_water_unavailable", cause: error.message });
    return { kind: "read-only", row, cause: error.message };
  }
}

async function newestBase(
  store: Store,
  row: SessionRow,
  warn: (cause: string) => void,
): Promise<Base> {
  for (const snapshot of await store.readSnapshots(row)) {
    if (snapshot.sequence > row.head.sequence) {
      throw new Unproven(`the snapshot at ${snapshot.sequence} is ahead of the last event`);
    }
    const base = await baseOf(store, row, snapshot);
    if (base !== undefined) return base;
    warn(`the snapshot at ${snapshot.sequence} is damaged`);
  }
  return BEGINNING;
}

async function baseOf(
  store: Store,
  row: SessionRow,
  snapshot: SnapshotRow,
): Promise<Base | undefined> {
  const stored = openSnapshot(snapshot);
  const event = await store.readEvent(row, snapshot.sequence);
  if (event === undefined) throw new Unproven(`event ${snapshot.sequence} is missing`);
  if (stored === undefined || !equalBytes(event.chain, snapshot.chain)) return undefined;
  const state = restoreState(snapshot, stored);
  return state && { state, sequence: snapshot.sequence, chain: snapshot.chain };
}

async function replayTail(store: Store, row: SessionRow, base: Base): Promise<SessionState> {
  let { state, sequence, chain } = base;
  for (;;) {
    const page = await store.readEvents(row, sequence, PAGE_EVENTS, PAGE_BYTES);
    if (page.length === 0) break;
    const events: DraftEvent[] = [];
    for (const event of page) {
      if (event.sequence !== sequence + 1n) throw new Unproven(`event ${sequence + 1n} is missing`);
      events.push(checkedEvent(row.sessionId, chain, event));
      ({ sequence, chain } = event);
    }
    state = folded(state, events);
  }
  if (sequence < row.head.sequence) throw new Unproven(`event ${sequence + 1n} is missing`);
  if (state === undefined || sequence > row.head.sequence || !equalBytes(chain, row.head.chain)) {
    throw new Unproven("the head does not end the chain");
  }
  return state;
}

/** Rows that contradict the rules are damage of this session, no fault of the program. */
function folded(state: SessionState | undefined, events: readonly DraftEvent[]): SessionState {
  try {
    return evolve(state, events);
  } catch (error) {
    if (!(error instanceof InvariantError)) throw error;
    throw new Unproven(`the events contradict each other: ${error.message}`);
  }
}

function checkedEvent(sessionId: string, chainBefore: Uint8Array, event: EventRow): DraftEvent {
  const payload = openPayload(event);
  if (isRefusal(payload) || !followsChain(sessionId, chainBefore, event)) {
    throw new Unproven(`event ${event.sequence} is damaged`);
  }
  const { kind, revision } = event;
  const record = payload.record ?? create(EventRecordSchema);
  return { kind, revision, record, pairing: undefined };
}

/** The revision below which nothing is published in a log of this generation. */
export function highWaterFloor({ generation }: Pick<Store, "generation">): bigint {
  return generation * REVISIONS_PER_GENERATION;
}

/** The log generation that a revision was published in. */
export function generationOf(revision: bigint): bigint {
  return revision / REVISIONS_PER_GENERATION;
}

/** The high-water of a session in this generation, whose events and head alone give `highWater`. */
export function raisedHighWater(store: Pick<Store, "generation">, highWater: bigint): bigint {
  const floor = highWaterFloor(store);
  return highWater > floor ? highWater : floor;
}

/** The high-water is the highest of what snapshot and tail, the head, and the generation prove. */
function reconcile(store: Store, row: SessionRow, state: SessionState): SessionState {
  const proven = raisedHighWater(store, state.highWater);
  const stated = raisedHighWater(store, row.head.highWater);
  if (proven !== stated) {
    throw new Unproven("the head's high-water is not that of the events");
  }
  return { ...state, highWater: proven };
}

/** Restores the provider ids of open calls, each proven by the private commitment of the call's first event. */
async function addProviderIds(
  store: Store,
  row: SessionRow,
  state: SessionState,
): Promise<SessionState> {
  if (state.openCalls.size === 0) return state;
  const pairings = new Map<string, PairingRow>();
  for (const pairing of await store.readPairings(row, [...state.openCalls.keys()])) {
    pairings.set(pairing.recordId, pairing);
  }
  const adopted = await adoptedCommitments(store, row, state);
  const openCalls = new Map<string, OpenCall>();
  for (const [id, open] of state.openCalls) {
    const committed = adopted.has(id) ? adopted.get(id) : await firstCommitment(store, row, id);
    openCalls.set(id, { ...open, providerCallId: providerIdOf(id, committed, pairings.get(id)) });
  }
  return { ...state, openCalls };
}

async function firstCommitment(
  store: Store,
  row: SessionRow,
  toolCallId: string,
): Promise<Uint8Array | undefined> {
  const first = (await store.findRecord(row, toolCallId))?.firstSequence;
  const event = first === undefined ? undefined : await store.readEvent(row, first);
  if (event === undefined) throw new Unproven(`the first event of call ${toolCallId} is missing`);
  return event.privateCommitment;
}

/** Calls of an older system have no first event: their commitments stand beside them in the base state. */
async function adoptedCommitments(
  store: Store,
  row: SessionRow,
  { adoptedSequence }: SessionState,
): Promise<Map<string, Uint8Array | undefined>> {
  const commitments = new Map<string, Uint8Array | undefined>();
  if (adoptedSequence === 0n) return commitments;
  const event = await store.readEvent(row, adoptedSequence);
  const payload = event && openPayload(event);
  if (payload === undefined || isRefusal(payload)) {
    throw new Unproven(`event ${adoptedSequence} is damaged`);
  }
  const base = await readBaseState(store, row, {
    base: baseBodyOf(payload.record?.record ?? { case: undefined }),
  });
  if (isRefusal(base)) throw new Unproven("the records of the older system are damaged");
  for (const { record, privateCommitment } of base.records) {
    if (record?.record.case !== "toolCall") continue;
    const committed = privateCommitment.length === 0 ? undefined : privateCommitment;
    commitments.set(record.record.value.toolCallId, committed);
  }
  return commitments;
}

function providerIdOf(
  toolCallId: string,
  committed: Uint8Array | undefined,
  pairing: PairingRow | undefined,
): string {
  if (committed === undefined) return "";
  const { salt, pairing: bytes } = pairing ?? {};
  if (salt === undefined || bytes === undefined || !equalBytes(commit(salt, bytes), committed)) {
    throw new Unproven(`the provider pairing of call ${toolCallId} is damaged`);
  }
  return fromBinary(ProviderPairingSchema, bytes).providerCallId ?? "";
}
