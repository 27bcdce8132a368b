import { fromBinary } from "@bufbuild/protobuf";
import { BaseStateSchema, type BaseState } from "../../gen/toolmark/v1/base_state_pb.js";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import type {
  GetReviewDetailResponse,
  SessionPlace,
  WatchEventsResponse,
} from "../../gen/toolmark/v1/history_service_pb.js";
import type { Message, Run, Turn } from "../../gen/toolmark/v1/run_pb.js";
import type { LegacyEvidence } from "../../gen/toolmark/v1/legacy_pb.js";
import { SessionState, type Compaction, type Session } from "../../gen/toolmark/v1/session_pb.js";
import { attachmentOf, type Attachment } from "../domain/attachment.js";
import { merge, type RevisedRecord } from "../domain/merge-law.js";
import { cardOf, type Card } from "./conversation-cards.js";
import { noticesOf, settledAskOf, type Notice } from "./conversation-notices.js";
import { promptsOf, type Prompt } from "./conversation-prompts.js";
import { compareValues } from "./record-order.js";
import { ReviewDetails, type ReviewDetailRequest } from "./review-details.js";
import { keyOf, type ConflictReason, type RecordsByKind } from "./revised-records.js";
import { SessionRecords, type ReducerRules } from "./session-records.js";

/** Which hidden notices are wanted. */
export interface ConversationOptions {
  /** Shows the notices that say that all is well. */
  readonly showBenign?: boolean;
  /** Shows everything. */
  readonly debug?: boolean;
}

/** Whole records as they were read, for example by lists. Every part may be absent. */
export interface RecordsRead {
  /** The session that was read. Absent: the conversation's. */
  readonly sessionId?: string;
  /** Of lists with descendants: the sessions that they name. A record of such an origin is that session's. */
  readonly places?: readonly SessionPlace[];
  readonly session?: Session;
  readonly toolCalls?: readonly RecordsByKind["toolCall"][];
  readonly hooks?: readonly RecordsByKind["hook"][];
  readonly asks?: readonly RecordsByKind["ask"][];
  readonly receipts?: readonly RecordsByKind["receipt"][];
  readonly authorizations?: readonly RecordsByKind["authorization"][];
  /** The base state of a FORKED or ADOPTED event, decoded or as read by its body_ref, and that event's sequence. */
  readonly base?: { readonly state: BaseState | Uint8Array; readonly sequence: bigint };
}

/** A record, and where it stands. */
export interface EvidenceView {
  /** Unique in its session. */
  readonly key: string;
  readonly sessionId: string;
  /** A call only in a conflict. */
  readonly record: RevisedRecord;
  readonly attachment: Attachment;
  /** Why it stands alone beside the record with its id. Absent for the record itself. */
  readonly conflict: ConflictReason | undefined;
}

/** One session as far as it is known. */
export interface SessionView {
  readonly sessionId: string;
  /** Its payloads are gone for good, here too. */
  readonly isErased: boolean;
  readonly session: Session | undefined;
  readonly runs: readonly Run[];
  readonly turns: readonly Turn[];
  readonly messages: readonly Message[];
  readonly compactions: readonly Compaction[];
  readonly legacyEvidence: readonly LegacyEvidence[];
  /** Events that are not understood here, whole. */
  readonly unknownEvents: readonly Event[];
}

/** Everything that a conversation knows: the same for the same input, in whatever order and however often it came. */
export interface ConversationView {
  readonly sessions: readonly SessionView[];
  readonly cards: readonly Omit<Card, "revision">[];
  readonly evidence: readonly EvidenceView[];
  readonly notices: readonly Notice[];
  readonly prompts: readonly Prompt[];
}

const RULES: ReducerRules = { merge, attachmentOf };

/**
 * What a session and the sessions below it came to, from events, frames of a watch and whole records in any order, with
 * any overlap and repetition. Everything it gives is a copy; it keeps no reference to what it is given.
 */
export class Conversation {
  readonly #options: ConversationOptions;
  readonly #rules: ReducerRules;
  readonly #sessions = new Map<string, SessionRecords>();
  readonly #erased = new Set<string>();
  readonly #gaps = new Set<string>();
  readonly #unknownPhases = new Set<string>();
  readonly #expanded = new Set<string>();
  readonly #details = new ReviewDetails();
  #isCaughtUp = false;
  #changes = 0;

  /** `sessionId` is the session whose cards are shown. `rules` are for tests. */
  constructor(
    readonly sessionId: string,
    options: ConversationOptions = {},
    rules: ReducerRules = RULES,
  ) {
    this.#options = options;
    this.#rules = rules;
    this.#recordsOf(sessionId);
  }

  /** Rises with each change of what is shown, and only then. */
  get revision(): number {
    const sessions = [...this.#sessions.values()];
    return sessions.reduce((sum, { changes }) => sum + changes, this.#changes);
  }

  /** Whether a watch has given everything that was there when it began. */
  get isCaughtUp(): boolean {
    return this.#isCaughtUp;
  }

  /** Takes an event: of a watch, a list or an export. */
  apply(event: Event): void {
    const { sessionId } = event;
    if (this.#erased.has(sessionId)) return;
    const records = this.#recordsOf(sessionId);
    this.#noticeKind(sessionId, () => {
      records.takeEvent(event);
    });
  }

  /** Takes a message of WatchEvents. */
  applyFrame({ phase, cursor, event }: WatchEventsResponse): void {
    if (event !== undefined) this.apply(event);
    switch (phase) {
      case "replay":
      case "heartbeat":
        return;
      case "live":
        if (event === undefined && !this.#isCaughtUp) {
          this.#isCaughtUp = true;
          this.#changes += 1;
        }
        return;
      case "gap":
        this.#remember(this.#gaps, cursor);
        return;
      case "erased":
        this.#erase(event?.sessionId ?? this.sessionId);
        return;
      default:
        this.#remember(this.#unknownPhases, phase);
    }
  }

  /** Takes whole records. Throws if a base state given as bytes is none. */
  applySnapshot(read: RecordsRead): void {
    const { sessionId = this.sessionId, session, base } = read;
    const places = new Set(read.places?.map((place) => place.sessionId));
    if (session !== undefined) this.#takeSession(session);
    if (base !== undefined && !this.#erased.has(sessionId)) {
      const { state, sequence } = base;
      const decoded = state instanceof Uint8Array ? fromBinary(BaseStateSchema, state) : state;
      this.#noticeKind(sessionId, () => {
        this.#recordsOf(sessionId).takeBase(decoded, sequence);
      });
    }
    const { toolCalls = [], hooks = [], asks = [], receipts = [], authorizations = [] } = read;
    for (const record of [...toolCalls, ...hooks, ...asks, ...receipts, ...authorizations]) {
      const originId = record.origin?.sessionId ?? "";
      const recordedIn = places.has(originId) ? originId : sessionId;
      if (!this.#erased.has(recordedIn)) this.#recordsOf(recordedIn).takeRevised(record);
    }
  }

  /** The calls of a session in the order of acceptance. Records of other sessions are on none of them. */
  cards(sessionId = this.sessionId): Card[] {
    const records = this.#sessions.get(sessionId);
    if (records === undefined) return [];
    return records.revised.all("toolCall").map((call) => cardOf(records, call, this.#kindOf));
  }

  /** One call. Undefined if it is not known. */
  card(toolCallId: string, sessionId = this.sessionId): Card | undefined {
    const records = this.#sessions.get(sessionId);
    const [call] = records?.revised.some("toolCall", [toolCallId]) ?? [];
    return records && call && cardOf(records, call, this.#kindOf);
  }

  /** The sessions, the conversation's first. */
  sessions(): SessionView[] {
    return this.#ordered().map((records) => this.#sessionView(records));
  }

  /** Hook records, asks, receipts and authorizations of a session, attached or not, and what contradicts any record. */
  evidence(sessionId = this.sessionId): EvidenceView[] {
    const records = this.#sessions.get(sessionId);
    if (records === undefined) return [];
    const { revised, bindings } = records;
    const kinds = ["hook", "ask", "receipt", "authorization"] as const;
    const own = kinds.flatMap((kind) => revised.all(kind).map((record) => ({ kind, record })));
    return [
      ...own.map(({ kind, record }) => {
        const attachment = bindings.attachmentOf(kind, keyOf(record).slice(kind.length + 1));
        return { key: keyOf(record), sessionId, record, attachment, conflict: undefined };
      }),
      ...revised.conflicts().map(({ key, reason, record }) => {
        return { key, sessionId, record, attachment: "STANDALONE" as const, conflict: reason };
      }),
    ];
  }

  /** What a person is told. Notices that say that all is well are left out if nobody asked for them. */
  notices(): Notice[] {
    const { showBenign = false, debug = false } = this.#options;
    const isShown = ({ key, isBenign }: Notice): boolean =>
      !isBenign || showBenign || debug || this.#expanded.has(key);
    return this.#allNotices().filter(isShown);
  }

  /** Shows a notice that says that all is well, by its key. */
  expandNotice(key: string): void {
    this.#remember(this.#expanded, key);
  }

  /** Hides it again. */
  collapseNotice(key: string): void {
    if (this.#expanded.delete(key)) this.#changes += 1;
  }

  /** The questions that wait for a person, of all sessions, the oldest first. */
  prompts(): Prompt[] {
    return promptsOf(this.sessionId, this.#sessions.values());
  }

  /**
   * A request of a review's rationale, to be sent with GetReviewDetail. Undefined: the review is not known, the
   * rationale is there, or it was asked for already; after the review's ask was settled, once more.
   */
  requestReviewDetail(
    reviewId: string,
    sessionId = this.sessionId,
  ): ReviewDetailRequest | undefined {
    const records = this.#sessions.get(sessionId);
    const settled = records && settledAskOf(records, reviewId);
    const isKnown = records?.revised.peek("hook", reviewId)?.review !== undefined;
    if (!isKnown && settled === undefined) return undefined;
    const request = this.#details.request(sessionId, reviewId, settled !== undefined);
    if (request !== undefined) this.#changes += 1;
    return request;
  }

  /** Takes the reply to a request, undefined if it failed. False: it is not the awaited one, and changes nothing. */
  applyReviewDetail(
    request: ReviewDetailRequest,
    reply: GetReviewDetailResponse | undefined,
  ): boolean {
    const isTaken = this.#details.take(request, reply);
    if (isTaken) this.#changes += 1;
    return isTaken;
  }

  /** Everything at once, the notices that say that all is well among it. */
  view(): ConversationView {
    const ordered = this.#ordered().map(({ sessionId }) => sessionId);
    const cards = ordered.flatMap((id) => this.cards(id));
    return {
      sessions: this.sessions(),
      cards: cards.map(({ revision: _revision, ...card }) => card),
      evidence: ordered.flatMap((id) => this.evidence(id)),
      notices: this.#allNotices(),
      prompts: this.prompts(),
    };
  }

  #recordsOf(sessionId: string): SessionRecords {
    const known = this.#sessions.get(sessionId);
    if (known !== undefined) return known;
    const records = new SessionRecords(sessionId, this.#rules);
    this.#sessions.set(sessionId, records);
    return records;
  }

  #takeSession(session: Session): void {
    const { sessionId } = session;
    if (this.#erased.has(sessionId)) return;
    this.#noticeKind(sessionId, () => {
      this.#recordsOf(sessionId).takeSession(session);
    });
  }

  /** The cards that a session works for show its kind; an erased session is no more. */
  #noticeKind(sessionId: string, take: () => void): void {
    const before = this.#kindOf(sessionId);
    take();
    const session = this.#sessions.get(sessionId)?.session.peek("");
    if (session?.state === SessionState.ERASED) this.#erase(sessionId);
    if (this.#kindOf(sessionId) === before) return;
    for (const records of this.#sessions.values()) records.touchCardsOf(sessionId);
  }

  readonly #kindOf = (sessionId: string): Session["kind"] | undefined =>
    this.#sessions.get(sessionId)?.session.peek("")?.kind;

  #erase(sessionId: string): void {
    if (this.#erased.has(sessionId)) return;
    this.#changes += 1 + this.#recordsOf(sessionId).changes;
    this.#erased.add(sessionId);
    this.#sessions.set(sessionId, new SessionRecords(sessionId, this.#rules));
    this.#details.forget(sessionId);
  }

  #remember(names: Set<string>, name: string): void {
    if (names.has(name)) return;
    names.add(name);
    this.#changes += 1;
  }

  #ordered(): SessionRecords[] {
    const isBelow = ({ sessionId }: SessionRecords): number => Number(sessionId !== this.sessionId);
    return [...this.#sessions.values()].sort(
      (left, right) =>
        isBelow(left) - isBelow(right) || compareValues(left.sessionId, right.sessionId),
    );
  }

  #sessionView(records: SessionRecords): SessionView {
    const { sessionId } = records;
    return {
      sessionId,
      isErased: this.#erased.has(sessionId),
      session: records.session.all()[0],
      runs: records.runs.all(),
      turns: records.turns.all(),
      messages: records.messages.all(),
      compactions: records.compactions.all(),
      legacyEvidence: records.legacyEvidence.all(),
      unknownEvents: records.unknownEvents.all(),
    };
  }

  #allNotices(): Notice[] {
    return [
      ...this.#ordered().flatMap((records) => noticesOf(records, this.#details)),
      ...this.#streamNotices("erased", this.#erased, (id) => `Session ${id} was erased.`),
      ...this.#streamNotices("gap", this.#gaps, () => "Events may be missing here."),
      ...this.#streamNotices(
        "unknown",
        this.#unknownPhases,
        (phase) => `Messages of a phase that is not understood here: ${phase}.`,
      ),
    ];
  }

  #streamNotices(
    about: "erased" | "gap" | "unknown",
    names: ReadonlySet<string>,
    text: (name: string) => string,
  ): Notice[] {
    const { sessionId } = this;
    return [...names].sort(compareValues).map((name) => {
      const key = `${sessionId}/${about}/${name}`;
      return { key, sessionId, about, severity: "warning", text: text(name), isBenign: false };
    });
  }
}
