import { createHash } from "node:crypto";
import { toBinary } from "@bufbuild/protobuf";
import BetterSqlite from "better-sqlite3";
import { EventSchema } from "../../gen/toolmark/v1/event_pb.js";
import { DEFAULT_LIMITS } from "../../src/domain/limits.js";
import { isRefusal } from "../../src/domain/refusal.js";
import { Reader } from "../../src/ledger/reader.js";
import type { Store } from "../../src/ledger/store-port.js";
import { openSqliteStore } from "../../src/store/sqlite/sqlite-store.js";
import { TENANT_CALLER } from "../support/outside-world.js";
import { recomputedChain } from "../support/stored-chain.js";
import type { Acknowledgement } from "./acknowledging-writer.js";

/** What a store holds of one session, as the service reads it. */
interface StoredSession {
  /** Digests of the events, in order. */
  readonly events: readonly string[];
  readonly chain: ReadonlyMap<bigint, string>;
  readonly requestIds: ReadonlySet<string>;
  /** SHA-256 of the bytes of each body, under its reference. */
  readonly bodies: ReadonlyMap<string, string>;
}

export type StoredSessions = ReadonlyMap<string, StoredSession>;

/** Opens a store as the service does, and reads and checks all of it. Rejects if anything is wrong. */
export async function readStored(
  path: string,
  sessionIds: readonly string[],
): Promise<StoredSessions> {
  const store = await openSqliteStore({ path, storeId: "reopened" });
  try {
    const sessions = new Map<string, StoredSession>();
    for (const sessionId of sessionIds) {
      const events = await readEvents(store, sessionId);
      const requestIds = new Set<string>();
      const bodies = new Map<string, string>();
      sessions.set(sessionId, { events, chain: new Map(), requestIds, bodies });
    }
    return addRows(path, sessions);
  } finally {
    await store.close();
  }
}

async function readEvents(store: Store, sessionId: string): Promise<string[]> {
  const reader = new Reader(store, DEFAULT_LIMITS);
  if ((await store.findSession({ tenant: TENANT_CALLER.tenant, sessionId })) === undefined) {
    return [];
  }
  const digests: string[] = [];
  let pageToken = "";
  do {
    const request = { pageSize: DEFAULT_LIMITS.pageSize, pageToken };
    const page = await reader.listEvents(TENANT_CALLER, sessionId, 0n, request);
    if (isRefusal(page)) throw new Error(`${sessionId}: ${page.message}`);
    for (const event of page.items) digests.push(digestOf(toBinary(EventSchema, event)));
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return digests;
}

interface RequestRow {
  readonly session_id: string;
  readonly request_id: string;
}

interface BodyRow {
  readonly session_id: string;
  readonly body_ref: string;
  readonly sha256: Buffer;
  readonly data: Buffer;
}

const READ_REQUESTS = "SELECT session_id, request_id FROM requests JOIN sessions USING (session)";
const READ_BODIES =
  "SELECT session_id, body_ref, sha256, data FROM bodies JOIN sessions USING (session)";
const COUNT_EVENTS = "SELECT count(*) - coalesce(max(position), 0) FROM events";

/** Adds what the service shows to nobody. */
function addRows(path: string, sessions: Map<string, StoredSession>): StoredSessions {
  const database = new BetterSqlite(path, { readonly: true });
  const requests = new Map<string, Set<string>>();
  const bodies = new Map<string, Map<string, string>>();
  try {
    const damage = String(database.pragma("quick_check", { simple: true }));
    if (damage !== "ok") throw new Error(damage);
    const holes = database.prepare<[], number>(COUNT_EVENTS).pluck().get();
    if (holes !== 0) throw new Error("positions have a hole");
    for (const row of database.prepare<[], RequestRow>(READ_REQUESTS).iterate()) {
      entryOf(requests, row.session_id, () => new Set<string>()).add(row.request_id);
    }
    for (const row of database.prepare<[], BodyRow>(READ_BODIES).iterate()) {
      const digest = digestOf(row.data);
      if (digest !== row.sha256.toString("hex")) throw new Error(`${row.body_ref} is damaged`);
      entryOf(bodies, row.session_id, () => new Map<string, string>()).set(row.body_ref, digest);
    }
  } finally {
    database.close();
  }
  for (const [sessionId, { events }] of sessions) {
    const rows = { requestIds: requests.get(sessionId), bodies: bodies.get(sessionId) };
    sessions.set(sessionId, {
      events,
      chain: recomputedChain(path, sessionId),
      requestIds: rows.requestIds ?? new Set<string>(),
      bodies: rows.bodies ?? new Map<string, string>(),
    });
  }
  return sessions;
}

function entryOf<Value>(map: Map<string, Value>, key: string, make: () => Value): Value {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make();
  map.set(key, made);
  return made;
}

function digestOf(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** What is wrong with a store that is left of a whole one, one line each. */
export interface CutProblems {
  /** Acknowledged, and gone. */
  readonly lost: string[];
  /** Half commands, altered or unknown rows. */
  readonly corrupt: string[];
}

/** Compares what a power cut left with the whole, and with what had been acknowledged before it. */
export function cutProblems(
  left: StoredSessions,
  whole: StoredSessions,
  told: readonly Acknowledgement[],
  toldBefore: ReadonlySet<Acknowledgement>,
): CutProblems {
  const lost: string[] = [];
  const corrupt: string[] = [];
  for (const [sessionId, session] of left) {
    const full = whole.get(sessionId);
    if (full === undefined) throw new Error(`${sessionId} is not in the whole store`);
    const commands = told.filter((command) => command.sessionId === sessionId);
    const head = BigInt(session.events.length);
    for (const command of commands) {
      if (command.sequenceAfter <= head) continue;
      if (toldBefore.has(command)) lost.push(command.requestId);
    }
    corrupt.push(...corruption(sessionId, session, full, commands));
  }
  return { lost, corrupt };
}

function corruption(
  sessionId: string,
  left: StoredSession,
  whole: StoredSession,
  commands: readonly Acknowledgement[],
): string[] {
  const head = BigInt(left.events.length);
  const problems: string[] = [];
  if (left.events.some((digest, index) => digest !== whole.events[index])) {
    problems.push(`${sessionId}: an event is another`);
  }
  for (const [sequence, chain] of left.chain) {
    if (chain !== whole.chain.get(sequence)) problems.push(`${sessionId}: chain of ${sequence}`);
  }
  if (left.chain.size !== left.events.length) problems.push(`${sessionId}: events are not shown`);
  if (head > 0n && !commands.some(({ sequenceAfter }) => sequenceAfter === head)) {
    problems.push(`${sessionId}: half a command ends at ${head}`);
  }
  for (const { requestId, sequenceAfter } of commands) {
    // The request that made the session is in a table of its own.
    if (!whole.requestIds.has(requestId)) continue;
    if (left.requestIds.has(requestId) !== sequenceAfter <= head) {
      problems.push(`${requestId}: its events and its request id disagree`);
    }
  }
  for (const [bodyRef, digest] of left.bodies) {
    if (whole.bodies.get(bodyRef) !== digest) problems.push(`${bodyRef}: other bytes`);
  }
  return problems;
}
