import { isDeepStrictEqual } from "node:util";
import type { Hook } from "../../gen/toolmark/v1/hook_pb.js";
import { legacyId } from "../domain/identity.js";
import { isOfChild } from "./child-ids.js";
import { hookRecord, retell, type ToldHook } from "./hook-record.js";
import type { DraftCall, TranslationDraft } from "./translation-draft.js";
import { isUsableId } from "./old-id.js";

/** A hook record that was accepted, while its log is read. */
interface DraftHook {
  readonly record: Hook;
  readonly isOfChild: boolean;
  /** The provider's id of the call, empty if none is named. Once named, it stays. */
  providerCallId: string;
  /** The newest seq that was accepted, by run; empty while no outcome could be told from a repeated one. */
  readonly newest: Map<string, number>;
}

/** The calls of the log so far that have one provider's id. */
interface NamedCalls {
  /** Absent if nothing can be attached to it. */
  readonly first: DraftCall | undefined;
  readonly isOnly: boolean;
}

/** What an event says, by which a repeated one is known. */
type Payload = Pick<ToldHook, "hook" | "text">;

/**
 * The hook outcomes of a log as records, reduced as clients of the old system did: what is repeated is dropped, a
 * review is updated in place, and what contradicts what was accepted stands alone and changes nothing. A record gets
 * its call when exactly one of the log so far has the id that it names, and keeps it.
 */
export class LogHooks {
  readonly #draft: TranslationDraft;
  readonly #byReview = new Map<string, DraftHook>();
  /** Accepted payloads as they came, by run and seq. */
  readonly #accepted = new Map<string, Payload>();
  readonly #conflicts = new Map<string, Payload[]>();
  readonly #calls = new Map<string, NamedCalls>();
  /** Records that name a call which did not come yet, in the order of arrival. */
  readonly #pending = new Map<string, Set<DraftHook>>();

  constructor(draft: TranslationDraft) {
    this.#draft = draft;
  }

  addCall(providerCallId: string, call: DraftCall | undefined): void {
    if (providerCallId === "") return;
    const known = this.#calls.get(providerCallId);
    this.#calls.set(providerCallId, { first: known?.first ?? call, isOnly: known === undefined });
    for (const hook of this.#pending.get(providerCallId) ?? []) this.#attach(hook);
    this.#pending.delete(providerCallId);
  }

  add(told: ToldHook): void {
    const { hook, text } = told;
    const source = sourceOf(told);
    const accepted = source === undefined ? undefined : this.#accepted.get(source);
    if (accepted !== undefined) {
      if (!isDeepStrictEqual(accepted, { hook, text })) this.#addConflict(told, source);
      return;
    }
    const reviewId = hook.review?.reviewId ?? "";
    const known = reviewId === "" ? undefined : this.#byReview.get(reviewId);
    if (known !== undefined && this.#contradicts(known, told, source)) {
      this.#addConflict(told, source);
      return;
    }
    const accepting = known ?? this.#addRecord(told, reviewId);
    if (known !== undefined) retell(known.record, known.record.hookId, told);
    accepting.providerCallId = hook.providerCallId;
    if (source !== undefined) {
      this.#accepted.set(source, { hook, text });
      accepting.newest.set(told.place.runId, told.seq);
    }
    this.#attach(accepting);
  }

  #addRecord(told: ToldHook, reviewId: string): DraftHook {
    const { sessionId, records } = this.#draft;
    const hookId = this.#draft.takeOldId(reviewId) ? reviewId : this.#ownId(told);
    const record = hookRecord(sessionId, { hookId, reviewId: hookId }, told);
    records.push({ case: "hook", value: record });
    const ofChild = isOfChild(sessionId, reviewId);
    const hook = { record, isOfChild: ofChild, providerCallId: "", newest: new Map() };
    if (reviewId !== "") this.#byReview.set(reviewId, hook);
    return hook;
  }

  /** Whether an outcome of a known review cannot be taken for its newest. */
  #contradicts(known: DraftHook, { place, seq, hook }: ToldHook, source: string | undefined) {
    const { newest, providerCallId } = known;
    const isStale = source !== undefined && (newest.get(place.runId) ?? 0) > seq;
    const isUnidentified = source === undefined && newest.size > 0;
    const isOfOtherCall = providerCallId !== "" && providerCallId !== hook.providerCallId;
    const isAmbiguous = this.#calls.get(hook.providerCallId)?.isOnly === false && !known.isOfChild;
    return isStale || isUnidentified || isOfOtherCall || isAmbiguous;
  }

  /** A conflict that is repeated is one conflict, where it can be told that it is. */
  #addConflict(told: ToldHook, source: string | undefined): void {
    const { hook, text } = told;
    if (source !== undefined) {
      const conflicts = this.#conflicts.get(source) ?? [];
      if (conflicts.some((each) => isDeepStrictEqual(each, { hook, text }))) return;
      conflicts.push({ hook, text });
      this.#conflicts.set(source, conflicts);
    }
    const { sessionId, records } = this.#draft;
    const hookId = this.#ownId(told);
    // Named as it was: a record that is not called as its review is, is of no call.
    const reviewId = hook.review?.reviewId ?? "";
    const ids = { hookId, reviewId: isUsableId(reviewId) ? reviewId : hookId };
    records.push({ case: "hook", value: hookRecord(sessionId, ids, told) });
  }

  #attach(hook: DraftHook): void {
    const { record, providerCallId } = hook;
    if (record.toolCallId !== undefined || providerCallId === "" || hook.isOfChild) return;
    const named = this.#calls.get(providerCallId);
    if (named === undefined) {
      const pending = this.#pending.get(providerCallId) ?? new Set();
      this.#pending.set(providerCallId, pending.add(hook));
      return;
    }
    if (!named.isOnly || named.first === undefined) return;
    const { toolCallId, toolName } = named.first.call;
    record.toolCallId = toolCallId;
    record.toolName = toolName;
  }

  #ownId({ place }: ToldHook): string {
    return legacyId("legacyHook", this.#draft.sessionId, place.occurrence);
  }
}

/** By what an outcome is known when it comes again: a run and its number there. Without either it is always another. */
function sourceOf({ place, seq }: ToldHook): string | undefined {
  return place.runId === "" || seq === 0 ? undefined : `${place.runId}\0${seq}`;
}
