import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { privateBodyOf } from "../domain/decide/references.js";
import { invariant, InvariantError } from "../domain/invariant.js";
import type { Caller } from "../domain/principal.js";
import { isRefusal, refuse, type Refusal } from "../domain/refusal.js";
import { Batch } from "./batch.js";
import type { BatchOptions, Replies, Waiting } from "./batch-context.js";
import { BodyUploads } from "./body-uploads.js";
import { sessionKey, type LoadedSession } from "./live-session.js";
import { loadSession, type LoadWarning } from "./load-session.js";
import type { CommitFeed } from "./commit-feed.js";
import type { AdoptionOfMounted, Expiration, Mutation, SessionRequest, Trial } from "./mutation.js";
import type { ReviewDetails } from "./review-details.js";
import { takeSnapshot } from "./snapshot.js";
import {
  StoreFault,
  type CommandWrite,
  type CommitFailure,
  type CommitResult,
  type RequestRef,
  type RequestRow,
  type SessionRef,
} from "./store-port.js";

/** Most commands that wait at a time; more are refused. */
const QUEUE_COMMANDS_MAX = 10_000;
/** Most commands of one commit: bounds how long the first of them waits. */
const BATCH_COMMANDS_MAX = 256;
/** No command is added to a commit that has as much in bodies already: bounds the write-ahead log. */
const BATCH_BODY_BYTES_MAX = 8 * 1024 * 1024;
/** Most sessions whose write-side state is kept; the least recently written are loaded again. */
const CACHED_SESSIONS_MAX = 10_000;

/** Waits for nobody: the service's own commands are carried out whoever listens. */
const NEVER_ABORTED: Waiting = { aborted: undefined };

/** What a ledger takes from outside. */
export interface LedgerOptions extends Omit<BatchOptions, "uploads"> {
  /** Is told of every commit. */
  readonly commits: CommitFeed;
  /** Keeps the details of reviews that were committed. */
  readonly details: ReviewDetails;
  /** Older sessions that are mounted. Default: there are none. */
  readonly mounts?: Mounts | undefined;
}

/** Older sessions that can be read and are not stored: they are brought in by the first write to them. */
export interface Mounts {
  /** Absent if there is none of that id, or if it was brought in. */
  find(session: SessionRef): Promise<LoadedSession | undefined>;
}

/** Is told what an operator must know. */
export interface LedgerObserver {
  sessionDamaged(warning: LoadWarning): void;
  /** A commit that the store refused or could not carry out. Its cause holds text of the database. */
  commitFailed(result: Exclude<CommitResult, { outcome: "committed" }>): void;
  /** A commit was carried out. */
  readonly committed?: () => void;
}

interface Pending {
  readonly caller: Caller;
  readonly mutation: Mutation | Trial | Expiration | AdoptionOfMounted;
  readonly waiting: Waiting;
  readonly resolve: (reply: Replies | Refusal) => void;
  readonly reject: (error: Error) => void;
}

/** What the store knows of a request's id, or why it cannot say. */
type Remembered = RequestRow | undefined | Error;

/** A decided command that waits for its batch's commit. */
interface Answered {
  readonly pending: Pending;
  readonly reply: Replies | Refusal | Error;
  /** Its writes in the batch, by index: from, and up to but without. An expiry that it found due is one of them. */
  readonly writes: { readonly from: number; readonly to: number };
}

/** One whose commit was carried out. */
type Committed = Answered & { readonly reply: Replies };

function isCommitted(answered: Answered): answered is Committed {
  const { reply, writes } = answered;
  return !(reply instanceof Error) && !isRefusal(reply) && writes.to > writes.from;
}

/**
 * The one serialized path of every session: commands are decided in the order of arrival, each on the state after the
 * one before it, and everything that waits is committed together. No reply is given before the commit that it was
 * decided on.
 */
export class Ledger {
  /** Bodies that commands may name before they are stored. */
  readonly uploads: BodyUploads;
  readonly #options: LedgerOptions & BatchOptions;
  readonly #observer: LedgerObserver;
  readonly #sessions = new Map<string, LoadedSession>();
  readonly #queue: Pending[] = [];
  #position: bigint | undefined;
  #working: Promise<void> | undefined;
  #committing: Promise<void> | undefined;
  #closing = false;
  /** Why the store takes no more commits. */
  #ended: "lost" | "damaged" | undefined;

  constructor(options: LedgerOptions, observer: LedgerObserver) {
    this.uploads = new BodyUploads(options.nowMs);
    this.#options = { ...options, uploads: this.uploads };
    this.#observer = observer;
  }

  /** Resolves when the commands that are decided and committed together now are answered. Undefined if none are. */
  get committing(): Promise<void> | undefined {
    return this.#committing;
  }

  /**
   * Carries a request out, once: the records of each command's reply, or why nothing was done. Rejects on a fault; what
   * became of the command is then found by repeating the request.
   */
  submit(caller: Caller, mutation: Mutation, waiting: Waiting): Promise<Replies | Refusal> {
    return this.#enqueue(caller, mutation, waiting);
  }

  /**
   * What a request would be answered with before anything is made ready for it: the refusal of one that is not taken
   * up, the replies of one that is sent again, no reply for one that can go on. Nothing is carried out.
   */
  tryOut(caller: Caller, tried: SessionRequest, waiting: Waiting): Promise<Replies | Refusal> {
    return this.#enqueue(caller, { kind: "try", tried }, waiting);
  }

  /**
   * Expires what has waited long enough in a session: by the clock, and the named records whatever it says. False if
   * that could not be done now, for example in a session that can only be read.
   */
  async expire(session: SessionRef, recordIds: readonly string[]): Promise<boolean> {
    const caller: Caller = { tenant: session.tenant, subject: "", scope: "tenant" };
    const expiration = { kind: "expire", session, dueIds: new Set(recordIds) } as const;
    return !isRefusal(await this.#enqueue(caller, expiration, NEVER_ABORTED));
  }

  /** Brings in a session if it is only mounted. */
  async adopt(session: SessionRef): Promise<Refusal | undefined> {
    const caller: Caller = { tenant: session.tenant, subject: "", scope: "tenant" };
    const adopted = await this.#enqueue(caller, { kind: "adopt", session }, NEVER_ABORTED);
    return isRefusal(adopted) ? adopted : undefined;
  }

  #enqueue(
    caller: Caller,
    mutation: Pending["mutation"],
    waiting: Waiting,
  ): Promise<Replies | Refusal> {
    if (this.#closing || this.#ended === "lost") return Promise.resolve(refuseDraining());
    if (this.#queue.length >= QUEUE_COMMANDS_MAX) return Promise.resolve(refuseBusy());
    return new Promise((resolve, reject) => {
      this.#queue.push({ caller, mutation, waiting, resolve, reject });
      this.#working ??= this.#work();
    });
  }

  /**
   * Refuses new commands, finishes those that wait, and saves a snapshot of what has none. A store that takes no more
   * commits is left alone.
   */
  async close(): Promise<void> {
    this.#closing = true;
    await this.#working;
    if (this.#ended !== undefined) return;
    const writes = [...this.#sessions.values()].flatMap(snapshotWrite);
    for (let start = 0; start < writes.length; start += BATCH_COMMANDS_MAX) {
      const result = await this.#options.store.commit(
        writes.slice(start, start + BATCH_COMMANDS_MAX),
      );
      if (result.outcome === "committed") {
        this.#observer.committed?.();
        continue;
      }
      if (result.outcome === "failed") this.#forget(result.reason, []);
      // A snapshot only saves time at the next load, so one that cannot be written is no fault of the shutdown.
      this.#observer.commitFailed(result);
      return;
    }
  }

  async #work(): Promise<void> {
    while (this.#queue.length > 0) {
      this.#committing = this.#commitNext();
      await this.#committing;
    }
    this.#committing = undefined;
    this.#working = undefined;
  }

  async #commitNext(): Promise<void> {
    await this.#gather();
    await this.#runBatch(this.#queue.splice(0, BATCH_COMMANDS_MAX));
  }

  /** Waits while each turn of the event loop brings more commands: one sync then serves all of them. */
  async #gather(): Promise<void> {
    let waiting: number;
    do {
      waiting = this.#queue.length;
      await nextTurn();
    } while (this.#queue.length > waiting && this.#queue.length < BATCH_COMMANDS_MAX);
  }

  async #runBatch(commands: readonly Pending[]): Promise<void> {
    try {
      let waiting = commands;
      while (waiting.length > 0) {
        // What was decided after a lost commit would be decided on what may not be stored.
        if (this.#ended === "lost") for (const { resolve } of waiting) resolve(refuseDraining());
        waiting = this.#ended === "lost" ? [] : await this.#tryBatch(waiting);
      }
    } catch (error) {
      const cause = error instanceof Error ? error : new Error(String(error));
      // What was committed is not known any more: everything is loaded again before it is used.
      this.#position = undefined;
      this.#sessions.clear();
      for (const { reject } of commands) reject(cause);
    }
  }

  /** Decides and commits; returns the commands that are left, or must be decided again without a refused one. */
  async #tryBatch(commands: readonly Pending[]): Promise<readonly Pending[]> {
    this.#position ??= await this.#options.store.lastPosition();
    const batch = new Batch(this.#options, (ref) => this.#load(ref), this.#position);
    const answers: Answered[] = [];
    const remembered = await this.#remembered(commands.map(requestRef));
    for (const [index, pending] of commands.entries()) {
      if (batch.provisional.bodyBytes >= BATCH_BODY_BYTES_MAX) break;
      answers.push(await decide(batch, pending, remembered[index]));
    }
    const left = commands.slice(answers.length);
    const { writes, sessions, position } = batch.provisional;
    if (writes.length === 0) {
      settle(answers);
      return left;
    }
    const result = await this.#options.store.commit(writes);
    if (result.outcome === "committed") {
      this.#position = position;
      for (const [key, session] of sessions) this.#remember(key, session);
      this.#observer.committed?.();
      this.#publish(answers, writes);
      settle(answers);
      return left;
    }
    if (result.outcome === "failed") this.#forget(result.reason, sessions.keys());
    this.#observer.commitFailed(result);
    if (result.outcome === "command_failed") return [...withoutFailed(answers, result), ...left];
    // It may be stored all the same: who waits for it reads again.
    this.#options.commits.publish(writes, "unknown");
    const refusal = refuseCommit(result.reason);
    for (const { pending } of answers) pending.resolve(refusal);
    return left;
  }

  /** A row that cannot be read is its own command's fault alone, so that all are then looked up one by one. */
  async #remembered(refs: readonly RequestRef[]): Promise<readonly Remembered[]> {
    const { store } = this.#options;
    try {
      return await store.findRequests(refs);
    } catch (error) {
      if (!(error instanceof StoreFault)) throw error;
      const found: Remembered[] = [];
      for (const ref of refs) {
        found.push(await store.findRequests([ref]).then(([row]) => row, toFault));
      }
      return found;
    }
  }

  #forget(reason: CommitFailure, sessionKeys: Iterable<string>): void {
    if (reason === "lost" || reason === "damaged") this.#ended = reason;
    this.#position = undefined;
    for (const key of sessionKeys) this.#sessions.delete(key);
  }

  #publish(answers: readonly Answered[], writes: readonly CommandWrite[]): void {
    for (const answered of answers) {
      if (!isCommitted(answered)) continue;
      this.#keepDetails(answered);
      this.#forgetPrivate(answered);
    }
    this.uploads.forgetCommitted(writes);
    this.#options.commits.publish(writes);
  }

  /** Neither of refused reviews nor of those that are told again. */
  #keepDetails({ pending: { caller, mutation }, reply }: Committed): void {
    if (mutation.kind !== "apply") return;
    const session = { tenant: caller.tenant, sessionId: mutation.request.sessionId };
    for (const [index, { command }] of mutation.request.commands.entries()) {
      if (command.case !== "publishReview" || command.value.detail === "") continue;
      const record = reply[index]?.[0]?.record;
      invariant(record?.case === "hook", "a published review is answered with its record");
      const { hookId, revision = 0n } = record.value;
      this.#options.details.put(session, hookId, { text: command.value.detail, revision });
    }
  }

  /** Private uploads are no bodies that a commit stores. */
  #forgetPrivate({ pending: { caller, mutation } }: Committed): void {
    if (mutation.kind !== "apply") return;
    const session = { tenant: caller.tenant, sessionId: mutation.request.sessionId };
    for (const command of mutation.request.commands) {
      const ref = privateBodyOf(command)?.bodyRef ?? "";
      if (ref !== "") this.uploads.forgetPrivate(session, ref);
    }
  }

  async #load(session: SessionRef): Promise<LoadedSession | undefined> {
    const key = sessionKey(session);
    const known = this.#sessions.get(key);
    if (known !== undefined) return known;
    const mounted = await this.#options.mounts?.find(session);
    if (mounted !== undefined) return mounted;
    const row = await this.#options.store.findSession(session);
    if (row === undefined) return undefined;
    const loaded = await loadSession(this.#options.store, row, (warning) => {
      this.#observer.sessionDamaged(warning);
    });
    this.#remember(key, loaded);
    return loaded;
  }

  #remember(key: string, session: LoadedSession): void {
    this.#sessions.delete(key);
    this.#sessions.set(key, session);
    if (this.#sessions.size <= CACHED_SESSIONS_MAX) return;
    const [oldest] = this.#sessions.keys();
    if (oldest !== undefined) this.#sessions.delete(oldest);
  }
}

/** Creations are remembered by their principal instead, so none is found for the empty session id. */
function requestRef({ caller: { tenant }, mutation }: Pending): RequestRef {
  if (mutation.kind === "expire" || mutation.kind === "adopt") {
    return { session: mutation.session, requestId: "" };
  }
  const { kind, request } = mutation.kind === "try" ? mutation.tried : mutation;
  const sessionId = kind === "createSession" ? "" : request.sessionId;
  return { session: { tenant, sessionId }, requestId: request.requestId };
}

async function decide(batch: Batch, pending: Pending, remembered: Remembered): Promise<Answered> {
  const { caller, mutation, waiting } = pending;
  const { writes } = batch.provisional;
  const from = writes.length;
  if (remembered instanceof Error) {
    return { pending, reply: remembered, writes: { from, to: from } };
  }
  try {
    const reply = await batch.decide(caller, mutation, waiting, remembered);
    return { pending, reply, writes: { from, to: writes.length } };
  } catch (error) {
    // A broken invariant leaves no state to go on with; any other fault is this command's alone.
    if (error instanceof InvariantError || !(error instanceof Error)) throw error;
    return { pending, reply: error, writes: { from, to: writes.length } };
  }
}

function toFault(error: unknown): Error {
  if (error instanceof StoreFault) return error;
  throw error;
}

function settle(answers: readonly Answered[]): void {
  for (const { pending, reply } of answers) {
    if (reply instanceof Error) pending.reject(reply);
    else pending.resolve(reply);
  }
}

function withoutFailed(
  answers: readonly Answered[],
  failed: Extract<CommitResult, { outcome: "command_failed" }>,
): readonly Pending[] {
  const rest: Pending[] = [];
  for (const { pending, writes } of answers) {
    if (writes.from <= failed.index && failed.index < writes.to) pending.reject(failed.cause);
    else rest.push(pending);
  }
  invariant(rest.length < answers.length, "a failed write belongs to a command of its batch");
  return rest;
}

function snapshotWrite(session: LoadedSession): readonly CommandWrite[] {
  if (session.kind === "read-only" || session.eventsSinceSnapshot === 0) return [];
  const { row, state } = session;
  return [
    {
      tenant: row.tenant,
      sessionId: row.sessionId,
      session: row,
      events: [],
      bodies: [],
      pairings: [],
      request: undefined,
      creation: undefined,
      snapshot: takeSnapshot(state, row.head.chain),
    },
  ];
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}

function refuseDraining(): Refusal {
  return refuse(ErrorReason.DRAINING, "the server is shutting down");
}

function refuseBusy(): Refusal {
  return refuse(ErrorReason.STORE_BUSY, "too many commands wait");
}

function refuseCommit(reason: CommitFailure): Refusal {
  switch (reason) {
    case "full":
      return refuse(ErrorReason.STORE_FULL, "the store is full");
    case "busy":
      return refuse(ErrorReason.STORE_BUSY, "the store is busy");
    case "damaged":
      return refuse(ErrorReason.DATA_DAMAGED, "the store is damaged and takes no more commands");
    case "lost":
    case "other":
      return refuse(ErrorReason.COMMIT_UNCERTAIN, "the commit failed or its outcome is unknown");
  }
}
