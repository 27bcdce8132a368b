import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import type { CreateSessionRequest } from "../../gen/toolmark/v1/session_service_pb.js";
import { Draft } from "../domain/decide/draft.js";
import { delegate, type Standing } from "../domain/decide/delegate.js";
import { forkSession } from "../domain/decide/fork-session.js";
import { createSession } from "../domain/decide/session.js";
import { evolve } from "../domain/evolve.js";
import { maySee, type Caller } from "../domain/principal.js";
import { isRefusal, refuse, type Refusal } from "../domain/refusal.js";
import { creationChecksum } from "./checksums.js";
import {
  BatchContext,
  NOTHING_DUE,
  NOTHING_FOUND,
  NOT_REMEMBERED,
  actorOf,
  isTaken,
  refuseReadOnly,
  requestRow,
  writable,
  type BatchOptions,
  type Replies,
  type Waiting,
} from "./batch-context.js";
import { decideAdoption, refuseDiverged } from "./decide-adoption.js";
import { decideOn } from "./decide-mutation.js";
import { raisedHighWater } from "./load-session.js";
import { type LiveSession, type LoadedSession } from "./live-session.js";
import {
  mutationDigest,
  type Creation,
  type Expiration,
  type AdoptionOfMounted,
  type Fork,
  type Import,
  type Mutation,
  type SessionMutation,
  type Trial,
} from "./mutation.js";
import type { Provisional } from "./provisional.js";
import { refuseLargeReply } from "./reply-size.js";
import { refuseUnknownSession } from "./visibility.js";
import type { RequestRow, SessionRef } from "./store-port.js";
import { writeOf } from "./write-of.js";

/** Decides commands in order on provisional state. */
export class Batch {
  readonly #context: BatchContext;

  constructor(
    options: BatchOptions,
    load: (session: SessionRef) => Promise<LoadedSession | undefined>,
    position: bigint,
  ) {
    this.#context = new BatchContext(options, load, position);
  }

  /** What was decided so far. */
  get provisional(): Provisional {
    return this.#context.provisional;
  }

  /** `remembered` is what the store knows of the request's id. */
  decide(
    caller: Caller,
    mutation: Mutation | Trial | Expiration | AdoptionOfMounted,
    waiting: Waiting,
    remembered: RequestRow | undefined,
  ): Promise<Replies | Refusal> {
    switch (mutation.kind) {
      case "try":
        return this.#try(caller, mutation, waiting, remembered);
      case "createSession":
        return this.#create(caller, mutation, waiting);
      case "expire":
        return this.#expire(caller, mutation);
      case "forkSession":
        return this.#fork(caller, mutation, waiting, remembered);
      case "importSession":
        return this.#import(caller, mutation, waiting, remembered);
      case "adopt":
        return this.#adopt(mutation);
      default:
        return this.#change(caller, mutation, waiting, remembered);
    }
  }

  async #create(caller: Caller, mutation: Creation, waiting: Waiting): Promise<Replies | Refusal> {
    const { tenant, subject } = caller;
    const { requestId } = mutation.request;
    const digest = mutationDigest(mutation);
    const known =
      this.#context.provisional.creation(tenant, subject, requestId) ??
      (await this.#context.options.store.findCreation(tenant, subject, requestId));
    if (known !== undefined) return this.#context.repeatCreation(known, digest);
    if (waiting.aborted !== undefined) return waiting.aborted;

    const sessionId = this.#context.options.mintId("session");
    const session = { tenant, sessionId };
    const delegated = await this.#delegate(caller, mutation.request, sessionId);
    if (isRefusal(delegated)) return delegated;
    const facts = this.#context.facts(caller, actorOf(caller), session, NOTHING_FOUND);
    const draft = new Draft(sessionId, undefined, facts);
    const decided = createSession(draft, mutation.request, delegated?.standing);
    if (isRefusal(decided)) return decided;
    delegated?.write();
    const highWater = raisedHighWater(this.#context.options.store, 0n);
    const state = { ...evolve(undefined, decided.events), highWater };
    const remembered = { tenant, subject, requestId, digest, sessionId };
    const creation = { ...remembered, checksum: creationChecksum(remembered) };
    return this.#context.write(
      { ...this.#context.writeContext(caller), session, before: undefined },
      { ...decided, state, replies: [decided.reply] },
      { creation },
    );
  }

  /** What a delegation writes to its parent, not added yet. */
  async #delegate(
    caller: Caller,
    request: CreateSessionRequest,
    childSessionId: string,
  ): Promise<Delegated | Refusal | undefined> {
    const { delegation } = request;
    if (delegation === undefined) return undefined;
    const session = { tenant: caller.tenant, sessionId: delegation.parentSessionId };
    const loaded = await this.#context.session(session);
    if (loaded === undefined || !maySee(caller, loaded.row)) return refuseUnknownSession();
    const live = writable(loaded, "createSession");
    if (isRefusal(live)) return live;
    const before = this.#context.expired(caller, live, NOTHING_DUE);
    const { state } = before;
    const named = { recordIds: [delegation.parentToolCallId], bodyRefs: [] };
    const found = await this.#context.lookUp(before, named);
    if (isRefusal(found)) return found;
    const facts = this.#context.facts(caller, actorOf(caller), session, found);
    const draft = new Draft(session.sessionId, state, facts);
    const standing = delegate(draft, state, request, childSessionId);
    if (isRefusal(standing)) return standing;
    const decision = { ...draft.decision([]), state: evolve(state, draft.events), replies: [] };
    const write = (): void => {
      const parent = this.#context.adopted(before);
      const context = { ...this.#context.writeContext(caller), session, before: parent };
      this.#context.provisional.add(writeOf(context, decision, NOT_REMEMBERED));
    };
    return { standing, write };
  }

  async #change(
    caller: Caller,
    mutation: SessionMutation,
    waiting: Waiting,
    remembered: RequestRow | undefined,
  ): Promise<Replies | Refusal> {
    const taken = await this.#context.takeUp(caller, mutation, remembered);
    if (!isTaken(taken)) return taken;
    const { session, digest } = taken;
    const live = this.#context.expired(caller, taken.live, NOTHING_DUE);
    const facts = await this.#context.factsFor(caller, live, mutation);
    if (isRefusal(facts)) return facts;
    if (waiting.aborted !== undefined) return waiting.aborted;
    const decision = decideOn(live.state, mutation, facts);
    if (isRefusal(decision)) return decision;
    const tooLarge = refuseLargeReply(mutation, decision, this.#context.options.limits);
    if (tooLarge !== undefined) return tooLarge;
    const { requestId } = mutation.request;
    const before = this.#context.adopted(live);
    const context = { ...this.#context.writeContext(caller), session, before };
    return this.#context.write(context, decision, { session, requestId, digest });
  }

  /** The reply of a request that is sent again, and no reply for one that would be taken up. */
  async #try(
    caller: Caller,
    { tried }: Trial,
    waiting: Waiting,
    remembered: RequestRow | undefined,
  ): Promise<Replies | Refusal> {
    const taken = await this.#context.takeUp(caller, tried, remembered);
    return isTaken(taken) ? (waiting.aborted ?? []) : taken;
  }

  /** Begins the copy, and lets the source remember the request. Nothing else of the source changes. */
  async #fork(
    caller: Caller,
    fork: Fork,
    waiting: Waiting,
    remembered: RequestRow | undefined,
  ): Promise<Replies | Refusal> {
    const taken = await this.#context.takeUp(caller, fork, remembered);
    if (!isTaken(taken)) return taken;
    if (waiting.aborted !== undefined) return waiting.aborted;
    const { copy, request } = fork;
    const session = { tenant: caller.tenant, sessionId: copy.newSessionId };
    const facts = this.#context.facts(caller, actorOf(caller), session, NOTHING_FOUND);
    const decided = forkSession(new Draft(copy.newSessionId, undefined, facts), copy);
    if (isRefusal(decided)) return decided;
    const state = evolve(undefined, decided.events);
    const highWater = raisedHighWater(this.#context.options.store, state.highWater);
    const decision = { ...decided, state: { ...state, highWater }, replies: [decided.reply] };
    const context = { ...this.#context.writeContext(caller), session, before: undefined };
    this.#context.provisional.add(writeOf(context, decision, NOT_REMEMBERED, copy));
    const { requestId } = request;
    const memo = { ...taken, requestId, madeSessionId: copy.newSessionId };
    this.#context.provisional.remember(taken.live, requestRow(memo, decision));
    return decision.replies.map((reply) => reply.map(({ record }) => record));
  }

  /** Brings in a session under the id that it had, or what newer sources add to it. */
  async #import(
    caller: Caller,
    { request, adoption }: Import,
    waiting: Waiting,
    remembered: RequestRow | undefined,
  ): Promise<Replies | Refusal> {
    const { sessionId, requestId } = request;
    const session = { tenant: caller.tenant, sessionId };
    const found = await this.#importable(caller, { request, remembered });
    if (isReplies(found) || isRefusal(found)) return found;
    if (waiting.aborted !== undefined) return waiting.aborted;
    const { before, digest } = found;
    const isStale = adoption.earlierSequence !== (before?.state.adoptedSequence ?? 0n);
    if (isStale) return refuse(ErrorReason.STORE_BUSY, "the session is being imported already");
    const context = { ...this.#context.writeContext(caller), session, before };
    const facts = this.#context.facts(caller, actorOf(caller), session, NOTHING_FOUND);
    const decision = decideAdoption(this.#context.options.store, before?.state, adoption, facts);
    if (isRefusal(decision)) return decision;
    const memo = { session, requestId, digest };
    return this.#context.write(context, decision, memo, adoption);
  }

  /** The session before an import, if it can be imported; else what the import is answered with. */
  async #importable(
    caller: Caller,
    { request, remembered }: Pick<Import, "request"> & { remembered: RequestRow | undefined },
  ): Promise<Importable | Replies | Refusal> {
    const { sessionId, requestId } = request;
    const session = { tenant: caller.tenant, sessionId };
    const digest = mutationDigest({ kind: "importSession", request });
    const loaded = await this.#context.session(session);
    if (loaded === undefined || isOnlyMounted(loaded)) {
      return { kind: "importable", before: undefined, digest };
    }
    if (!maySee(caller, loaded.row)) return refuseUnknownSession();
    const known =
      this.#context.provisional.writtenTo(session).requests.get(requestId) ?? remembered;
    if (known !== undefined) return this.#context.repeat(session, known, digest);
    if (loaded.kind === "read-only") return refuseReadOnly();
    const diverged = refuseDiverged(loaded.state);
    return diverged ?? { kind: "importable", before: loaded, digest };
  }

  async #adopt({ session }: AdoptionOfMounted): Promise<Replies | Refusal> {
    const loaded = await this.#context.session(session);
    if (loaded?.kind === "live") this.#context.adopted(loaded);
    return [];
  }

  async #expire(caller: Caller, { session, dueIds }: Expiration): Promise<Replies | Refusal> {
    const loaded = await this.#context.session(session);
    if (loaded === undefined) return refuseUnknownSession();
    if (loaded.kind === "read-only") return refuseReadOnly();
    this.#context.expired(caller, loaded, dueIds);
    return [];
  }
}

function isOnlyMounted(loaded: LoadedSession): boolean {
  return loaded.kind === "live" ? loaded.mounted !== undefined : loaded.isMounted === true;
}

function isReplies(value: object): value is Replies {
  return Array.isArray(value);
}

/** A session that can be imported, as it is before. */
interface Importable {
  readonly kind: "importable";
  readonly before: LiveSession | undefined;
  readonly digest: Uint8Array;
}

/** A delegation as the parent sees it, and what writes it there. */
interface Delegated {
  readonly standing: Standing;
  readonly write: () => void;
}
