import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { AnyRecord, KnownBody } from "../domain/decide/draft.js";
import { invariant } from "../domain/invariant.js";
import { recordIdOf } from "../domain/record-id.js";
import { sessionKey, type LiveSession, type LoadedSession } from "./live-session.js";
import type { CommandWrite, CreationRow, RequestRow, SessionRef } from "./store-port.js";

/** What the commands decided so far in a batch have written to one session. */
class SessionWrites {
  readonly records = new Map<string, AnyRecord>();
  readonly events = new Map<bigint, EventRecord>();
  readonly requests = new Map<string, RequestRow>();
  readonly bodies = new Map<string, KnownBody>();
}

const NOTHING: Pick<SessionWrites, "records" | "events" | "requests" | "bodies"> =
  new SessionWrites();

/** A decided command: what it writes, and the session after it. */
export interface DecidedWrite {
  readonly write: CommandWrite;
  readonly session: LiveSession;
  /** The records of the write's events, in order. */
  readonly records: readonly EventRecord[];
}

/** The state that a batch decides on: committed rows under what the batch itself has decided but not committed. */
export class Provisional {
  readonly writes: CommandWrite[] = [];
  /** Bytes of the bodies among them, and of what providers gave. */
  bodyBytes = 0;
  readonly sessions = new Map<string, LoadedSession>();
  readonly #written = new Map<string, SessionWrites>();
  readonly #creations = new Map<string, CreationRow>();

  constructor(public position: bigint) {}

  add({ write, session, records }: DecidedWrite): void {
    const key = sessionKey(write);
    this.writes.push(write);
    this.sessions.set(key, session);
    const written = this.#written.get(key) ?? new SessionWrites();
    this.#written.set(key, written);
    for (const [index, { row }] of write.events.entries()) {
      const record = records[index];
      invariant(record !== undefined, "each event of a write has its record");
      written.events.set(row.sequence, record);
      const id = recordIdOf(record.record);
      if (id !== undefined) written.records.set(id, record.record);
      this.position = row.position;
    }
    for (const body of write.bodies) {
      written.bodies.set(body.bodyRef, body);
      this.bodyBytes += body.data.length;
    }
    for (const { pairing } of write.pairings) this.bodyBytes += pairing?.length ?? 0;
    if (write.request !== undefined) written.requests.set(write.request.requestId, write.request);
    if (write.creation !== undefined) {
      this.#creations.set(creationKey(write.creation), write.creation);
    }
  }

  /** Lets a session remember a request that changed nothing of it. */
  remember(session: LiveSession, request: RequestRow): void {
    const { row } = session;
    const { tenant, sessionId } = row;
    const nothing = { events: [], bodies: [], pairings: [], creation: undefined };
    const write = { tenant, sessionId, session: row, ...nothing, request, snapshot: undefined };
    this.add({ write, session, records: [] });
  }

  writtenTo(session: SessionRef): typeof NOTHING {
    return this.#written.get(sessionKey(session)) ?? NOTHING;
  }

  creation(tenant: string, subject: string, requestId: string): CreationRow | undefined {
    return this.#creations.get(creationKey({ tenant, subject, requestId }));
  }
}

function creationKey(creation: Pick<CreationRow, "tenant" | "subject" | "requestId">): string {
  const { tenant, subject, requestId } = creation;
  return `${tenant.length}:${tenant}${subject.length}:${subject}${requestId}`;
}
