import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { RequestOutcomeSchema } from "../../gen/toolmark/storage/v1/storage_pb.js";
import { ActorKind, ActorSchema, type Actor } from "../../gen/toolmark/v1/origin_pb.js";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { EventRecordSchema, type EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import { equalBytes } from "../domain/bytes.js";
import { adoptSession } from "../domain/decide/adopt-session.js";
import type { SessionDecision } from "../domain/decide/apply.js";
import { Draft, type Facts, type KnownBody, type NewBody } from "../domain/decide/draft.js";
import { expireDue, hasDue, SYSTEM_ACTOR } from "../domain/decide/expire-due.js";
import type { References } from "../domain/decide/references.js";
import { refuseClosed } from "../domain/decide/session.js";
import { invariant } from "../domain/invariant.js";
import type { MintId } from "../domain/identity.js";
import type { Limits } from "../domain/limits.js";
import { maySee, type Caller } from "../domain/principal.js";
import type { ReadProviderTurn } from "../domain/provider-turn.js";
import { isRefusal, refuse, type Refusal } from "../domain/refusal.js";
import type { AnswerTokens } from "./answer-token.js";
import { findBody } from "./body-reader.js";
import type { BodyUploads } from "./body-uploads.js";
import { creationChecksum, requestChecksum } from "./checksums.js";
import { isOpen, referencesOfMutation } from "./decide-mutation.js";
import { openPayload, refuseDamagedRow } from "./event-codec.js";
import { sessionKey, type LiveSession, type LoadedSession } from "./live-session.js";
import { mutationDigest, type SessionMutation, type SessionRequest } from "./mutation.js";
import { Provisional } from "./provisional.js";
import { findRecord } from "./stored-record.js";
import { refuseUnknownSession } from "./visibility.js";
import type { CreationRow, RequestRow, SessionRef, Store } from "./store-port.js";
import { writeOf, type Inheritance, type WriteContext } from "./write-of.js";

/** What deciding takes from outside: everything that is not a rule. */
export interface BatchOptions {
  readonly store: Store;
  readonly limits: Limits;
  readonly mintId: MintId;
  readonly nowMs: () => number;
  readonly randomBytes: (size: number) => Uint8Array;
  readonly tokens: AnswerTokens;
  readonly uploads: BodyUploads;
  readonly readProviderTurn: ReadProviderTurn;
  /** A snapshot is taken every so many events of a session. */
  readonly snapshotEvery: number;
}

/** The records of each command's reply, in order. */
export type Replies = readonly (readonly EventRecord[])[];

/** Tells, when asked, whether the caller still waits. */
export interface Waiting {
  readonly aborted: Refusal | undefined;
}

/** What the commands of one batch are decided on, and where what they write is collected. */
export class BatchContext {
  readonly provisional: Provisional;
  readonly options: BatchOptions;
  readonly #load: (session: SessionRef) => Promise<LoadedSession | undefined>;
  readonly #nowMs: number;

  constructor(
    options: BatchOptions,
    load: (session: SessionRef) => Promise<LoadedSession | undefined>,
    position: bigint,
  ) {
    this.options = options;
    this.#load = load;
    this.provisional = new Provisional(position);
    this.#nowMs = options.nowMs();
  }

  /** A new request about a session that can take it; else what it is answered with. */
  async takeUp(
    caller: Caller,
    requested: SessionRequest,
    remembered: RequestRow | undefined,
  ): Promise<Taken | Replies | Refusal> {
    const { sessionId, requestId } = requested.request;
    const session = { tenant: caller.tenant, sessionId };
    const loaded = await this.session(session);
    if (loaded === undefined || !maySee(caller, loaded.row)) return refuseUnknownSession();
    const digest = mutationDigest(requested);
    const known = this.provisional.writtenTo(session).requests.get(requestId) ?? remembered;
    if (known !== undefined) return this.repeat(session, known, digest);
    const live = writable(loaded, requested.kind);
    return isRefusal(live) ? live : { kind: "taken", session, live, digest };
  }

  async session(session: SessionRef): Promise<LoadedSession | undefined> {
    return this.provisional.sessions.get(sessionKey(session)) ?? (await this.#load(session));
  }

  /** The session once it is stored: one that is only mounted is brought in by what is written to it first. */
  adopted(live: LiveSession): LiveSession {
    const { mounted, row, state } = live;
    if (mounted === undefined) return live;
    const { tenant, sessionId } = row;
    const session = { tenant, sessionId };
    const nobody: Caller = { tenant, subject: "", scope: "tenant" };
    const facts = this.facts(nobody, SYSTEM_ACTOR, session, NOTHING_FOUND);
    const decided = adoptSession(new Draft(sessionId, undefined, facts), mounted);
    invariant(!isRefusal(decided), "what is mounted can be adopted");
    const context = { ...this.writeContext(nobody), actor: SYSTEM_ACTOR, session };
    const written = writeOf(
      { ...context, before: undefined },
      { ...decided, state, replies: [] },
      NOT_REMEMBERED,
      mounted,
    );
    this.provisional.add(written);
    return written.session;
  }

  /** The session once what has waited long enough has expired: nothing is decided on a question whose time is over. */
  expired(caller: Caller, before: LiveSession, dueIds: ReadonlySet<string>): LiveSession {
    if (dueIds.size === 0 && !hasDue(before.state, this.#nowMs)) return before;
    const { tenant, sessionId } = before.row;
    const session = { tenant, sessionId };
    const facts = this.facts(caller, SYSTEM_ACTOR, session, NOTHING_FOUND);
    const decision = expireDue(sessionId, before.state, facts, dueIds);
    if (decision.events.length === 0) return before;
    const own = this.adopted(before);
    const context = { ...this.writeContext(caller), actor: SYSTEM_ACTOR, session, before: own };
    const written = writeOf(context, decision, NOT_REMEMBERED);
    this.provisional.add(written);
    return written.session;
  }

  async factsFor(
    caller: Caller,
    live: LiveSession,
    mutation: SessionMutation,
  ): Promise<Facts | Refusal> {
    const found = await this.lookUp(live, referencesOfMutation(mutation, live.state));
    return isRefusal(found) ? found : this.facts(caller, actorOf(caller), live.row, found);
  }

  /** Finds what commands name and the state does not hold: in the batch's own writes, else in the store. */
  async lookUp(live: LiveSession, references: References): Promise<Found | Refusal> {
    const { row, state } = live;
    const written = this.provisional.writtenTo(row);
    const records: Found["records"] = new Map();
    const bodies: Found["bodies"] = new Map();
    const uploads: Found["uploads"] = new Map();
    for (const id of references.recordIds) {
      if (isOpen(state, id)) continue;
      const record = written.records.get(id) ?? (await findRecord(this.options.store, row, id));
      if (isRefusal(record)) return record;
      if (record !== undefined) records.set(id, record);
    }
    for (const ref of references.bodyRefs) {
      const body = written.bodies.get(ref) ?? (await findBody(this.options.store, row, ref));
      if (isRefusal(body)) return body;
      if (body !== undefined) bodies.set(ref, body);
      const uploaded = body === undefined ? this.options.uploads.find(row, ref) : undefined;
      if (uploaded !== undefined) uploads.set(ref, uploaded);
    }
    const privateUploads: Found["privateUploads"] = new Map();
    for (const ref of references.privateRefs ?? []) {
      const uploaded = this.options.uploads.findPrivate(row, ref);
      if (uploaded !== undefined) privateUploads.set(ref, uploaded);
    }
    return { records, bodies, uploads, privateUploads };
  }

  facts(caller: Caller, actor: Actor, session: SessionRef, found: Found): Facts {
    return {
      now: timestampFromMs(this.#nowMs),
      caller,
      actor,
      limits: this.options.limits,
      mintId: this.options.mintId,
      settledRecord: (id) => found.records.get(id),
      storedBody: (ref) => found.bodies.get(ref),
      uploadedBody: (ref) => found.uploads.get(ref),
      privateUpload: (ref) => found.privateUploads.get(ref),
      readProviderTurn: this.options.readProviderTurn,
      isAnswerToken: (ask, token) => this.options.tokens.isTokenOf(session, ask, token),
    };
  }

  writeContext(caller: Caller): Omit<WriteContext, "session" | "before"> {
    const { randomBytes, snapshotEvery } = this.options;
    return {
      caller,
      actor: actorOf(caller),
      nowMs: this.#nowMs,
      positionBefore: this.provisional.position,
      randomBytes,
      snapshotEvery,
    };
  }

  write(
    context: WriteContext,
    decision: SessionDecision,
    memo: Memo,
    inheritance?: Inheritance,
  ): Replies {
    const remembered = {
      creation: memo.creation,
      request: memo.requestId === undefined ? undefined : requestRow(memo, decision),
    };
    const decided = writeOf(context, decision, remembered, inheritance);
    this.provisional.add(decided);
    return decision.replies.map((reply) => reply.map(({ record }) => record));
  }

  repeat(session: SessionRef, known: RequestRow, digest: Uint8Array): Promise<Replies | Refusal> {
    if (!equalBytes(requestChecksum(session, known), known.checksum)) {
      return Promise.resolve(refuseDamagedRow(known.requestId));
    }
    if (!equalBytes(known.digest, digest)) return Promise.resolve(refuseReused());
    const { commands, madeSessionId } = fromBinary(RequestOutcomeSchema, known.outcome);
    return this.#recordsOf(
      madeSessionId === "" ? session : { tenant: session.tenant, sessionId: madeSessionId },
      commands.map(({ sequences }) => sequences),
    );
  }

  repeatCreation(known: CreationRow, digest: Uint8Array): Promise<Replies | Refusal> {
    if (!equalBytes(creationChecksum(known), known.checksum)) {
      return Promise.resolve(refuseDamagedRow(known.requestId));
    }
    if (!equalBytes(known.digest, digest)) return Promise.resolve(refuseReused());
    return this.#recordsOf(known, [[1n]]);
  }

  async #recordsOf(
    session: SessionRef,
    replies: readonly (readonly bigint[])[],
  ): Promise<Replies | Refusal> {
    const written = this.provisional.writtenTo(session).events;
    const out: EventRecord[][] = [];
    for (const sequences of replies) {
      const records: EventRecord[] = [];
      for (const sequence of sequences) {
        const record = written.get(sequence) ?? (await this.#storedEvent(session, sequence));
        if (isRefusal(record)) return record;
        records.push(record);
      }
      out.push(records);
    }
    return out;
  }

  async #storedEvent(session: SessionRef, sequence: bigint): Promise<EventRecord | Refusal> {
    const row = await this.options.store.readEvent(session, sequence);
    if (row === undefined) throw new Error(`event ${sequence} of a known request is missing`);
    const payload = openPayload(row);
    return isRefusal(payload) ? payload : (payload.record ?? create(EventRecordSchema));
  }
}

/** A request that is new, about a session that can take it. */
export interface Taken {
  readonly kind: "taken";
  readonly session: SessionRef;
  readonly live: LiveSession;
  readonly digest: Uint8Array;
}

export function isTaken(value: Taken | Replies | Refusal): value is Taken {
  return "kind" in value && value.kind === "taken";
}

export const NOT_REMEMBERED = { creation: undefined, request: undefined };

/** What was looked up for a command. */
export interface Found {
  readonly records: Map<string, EventRecord["record"]>;
  readonly bodies: Map<string, KnownBody>;
  /** Bodies that are uploaded and not stored. */
  readonly uploads: Map<string, NewBody>;
  /** Bodies that were uploaded for AcceptProviderTurn alone. */
  readonly privateUploads: Map<string, NewBody>;
}

export const NOTHING_FOUND: Found = {
  records: new Map(),
  bodies: new Map(),
  uploads: new Map(),
  privateUploads: new Map(),
};
export const NOTHING_DUE: ReadonlySet<string> = new Set();

export function actorOf({ subject }: Caller): Actor {
  return create(ActorSchema, { subject, kind: ActorKind.PRINCIPAL });
}

/** How a request is remembered. */
type Memo = { readonly creation: CreationRow; readonly requestId?: undefined } | RequestMemo;

interface RequestMemo {
  readonly creation?: undefined;
  readonly session: SessionRef;
  readonly requestId: string;
  readonly digest: Uint8Array;
  /** The session that the events are in, if the request made one. */
  readonly madeSessionId?: string;
}

export function requestRow(
  { session, ...memo }: RequestMemo,
  decision: SessionDecision,
): RequestRow {
  const outcome = create(RequestOutcomeSchema, {
    madeSessionId: memo.madeSessionId ?? "",
    commands: decision.replies.map((reply) => ({
      sequences: reply.map(({ sequence }) => sequence),
    })),
  });
  const { requestId, digest } = memo;
  const row = { requestId, digest, outcome: toBinary(RequestOutcomeSchema, outcome) };
  return { ...row, checksum: requestChecksum(session, row) };
}

/** The session, if it takes a request of the kind. */
export function writable(loaded: LoadedSession, requestKind: string): LiveSession | Refusal {
  if (loaded.kind === "read-only") return refuseReadOnly();
  return refuseClosed(loaded.state, requestKind) ?? loaded;
}

function refuseReused(): Refusal {
  return refuse(ErrorReason.REQUEST_ID_REUSED, "the request id was used with another message");
}

export function refuseReadOnly(): Refusal {
  return refuse(
    ErrorReason.HIGH_WATER_UNAVAILABLE,
    "the session's last revision cannot be established; it is read-only",
  );
}
