import type { BaseState } from "../../gen/toolmark/v1/base_state_pb.js";
import { EventSchema, type Event, type EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import {
  LegacyEvidenceSchema,
  type Adopted,
  type LegacyEvidence,
} from "../../gen/toolmark/v1/legacy_pb.js";
import { MessageSchema, RunSchema, TurnSchema } from "../../gen/toolmark/v1/run_pb.js";
import type { Message, Run, Turn } from "../../gen/toolmark/v1/run_pb.js";
import { CompactionSchema, SessionSchema } from "../../gen/toolmark/v1/session_pb.js";
import type { Compaction, Session } from "../../gen/toolmark/v1/session_pb.js";
import {
  ToolResultKind,
  type ProvisionalResult,
  type ToolCall,
} from "../../gen/toolmark/v1/tool_call_pb.js";
import { archivedSummary } from "../domain/archived-summary.js";
import type { attachmentOf } from "../domain/attachment.js";
import { recordId, type merge, type RevisedRecord } from "../domain/merge-law.js";
import { KNOWN_EVENT_KINDS } from "./event-kinds.js";
import { EvidenceBindings } from "./evidence-bindings.js";
import { ProvisionalText, type ShownProvisional } from "./provisional-text.js";
import { RevisedRecords, type BasePlace } from "./revised-records.js";
import { SequencedRecords, type ReadAt } from "./sequenced-records.js";

/** The rules that records are taken by. Tests plant other ones. */
export interface ReducerRules {
  readonly merge: typeof merge;
  readonly attachmentOf: typeof attachmentOf;
}

/** What is known of one session: its own records alone, wherever they were read. */
export class SessionRecords {
  readonly revised: RevisedRecords;
  readonly bindings: EvidenceBindings;
  readonly session = new SequencedRecords<Session>(SessionSchema);
  readonly runs = new SequencedRecords<Run>(RunSchema);
  readonly turns = new SequencedRecords<Turn>(TurnSchema);
  readonly messages = new SequencedRecords<Message>(MessageSchema);
  readonly compactions = new SequencedRecords<Compaction>(CompactionSchema);
  readonly legacyEvidence = new SequencedRecords<LegacyEvidence>(LegacyEvidenceSchema);
  /** Events that this version does not understand, or not wholly. */
  readonly unknownEvents = new SequencedRecords<Event>(EventSchema);
  readonly #provisional = new Map<string, ProvisionalText>();
  readonly #cardRevisions = new Map<string, number>();
  readonly #delegating = new Map<string, Set<string>>();
  #changes = 0;

  constructor(
    readonly sessionId: string,
    rules: ReducerRules,
  ) {
    this.revised = new RevisedRecords(rules.merge);
    this.bindings = new EvidenceBindings(this.revised, rules.attachmentOf);
  }

  /** Rises with each change. */
  get changes(): number {
    return this.#changes;
  }

  takeEvent(event: Event): void {
    const at = { sequence: event.sequence, number: 0 };
    const { record } = event;
    if (record?.record.case === undefined || !KNOWN_EVENT_KINDS.has(event.kind)) {
      this.#note(this.unknownEvents.take(String(event.sequence), event, at));
    }
    if (record !== undefined) this.#takeRecord(record.record, at);
  }

  /** Takes the records of a base state that the event with this sequence brought. */
  takeBase(base: BaseState, sequence: bigint): void {
    const { records, archivedRecordCount } = base;
    const archived = archivedSummary(base);
    if (archived !== undefined) {
      const at = { sequence, number: archivedRecordCount - 1 - records.length };
      this.#note(this.compactions.take("brought", archived, at));
    }
    for (const [index, { record }] of records.entries()) {
      if (record === undefined) continue;
      const place = { number: index, asOf: sequence };
      // What an event brings stands before the event itself, and after all earlier ones.
      const number = index - records.length;
      this.#takeRecord(record.record, { sequence, number }, place);
    }
  }

  /** Takes a Session record that was read apart from the log. */
  takeSession(session: Session): void {
    const sequence = session.checkpoint?.sequence ?? 0n;
    this.#note(this.session.take("", session, { sequence, number: 0, isApart: true }));
  }

  takeRevised(record: RevisedRecord, base?: BasePlace): void {
    const takenAs = this.revised.take(record, base);
    if (takenAs === "unchanged") return;
    this.#changes += 1;
    if (takenAs === "conflict") return;
    if (record.$typeName === "toolmark.v1.ToolCall") this.#callChanged(record.toolCallId);
    else if (this.bindings.bind(record) === "ATTACHED") this.touchCard(record.toolCallId ?? "");
    if (record.$typeName === "toolmark.v1.Ask") this.#arrived("ask", record.askId);
  }

  provisionalOf(toolCallId: string): ShownProvisional | undefined {
    return this.#provisional.get(toolCallId)?.shown;
  }

  cardRevision(toolCallId: string): number {
    return this.#cardRevisions.get(toolCallId) ?? 0;
  }

  touchCard(toolCallId: string): void {
    if (this.revised.peek("toolCall", toolCallId) === undefined) return;
    this.#cardRevisions.set(toolCallId, this.cardRevision(toolCallId) + 1);
    this.#changes += 1;
  }

  /** Of the calls that another session works for. */
  touchCardsOf(delegatedSessionId: string): void {
    for (const id of this.#delegating.get(delegatedSessionId) ?? []) this.touchCard(id);
  }

  #note(isChanged: boolean): void {
    if (isChanged) this.#changes += 1;
  }

  #takeRecord(record: EventRecord["record"], at: ReadAt, base?: BasePlace): void {
    switch (record.case) {
      case "toolCall":
      case "hook":
      case "ask":
      case "receipt":
      case "authorization":
        this.takeRevised(record.value, base);
        return;
      case "session":
        this.#note(this.session.take("", record.value, at));
        return;
      case "forked":
      case "adopted":
        if (record.value.session !== undefined) {
          this.#note(this.session.take("", record.value.session, at));
        }
        if (record.case === "adopted") this.#takeAdopted(record.value, at.sequence);
        return;
      case "provisional":
        this.#takeProvisional(record.value, at.sequence);
        return;
      default:
        this.#takeSequenced(record, at);
    }
  }

  #takeSequenced(record: EventRecord["record"], at: ReadAt): void {
    switch (record.case) {
      case "run":
        this.#note(this.runs.take(record.value.runId, record.value, at));
        return;
      case "turn":
        this.#takeTurn(record.value, at);
        return;
      case "message":
        this.#note(this.messages.take(record.value.messageId, record.value, at));
        return;
      case "compaction":
        this.#note(this.compactions.take(String(at.sequence), record.value, at));
        return;
      case "legacyEvidence":
        this.#note(this.legacyEvidence.take(record.value.evidenceId, record.value, at));
        return;
      default:
        return;
    }
  }

  #takeTurn(turn: Turn, at: ReadAt): void {
    if (!this.turns.take(turn.turnId, turn, at)) return;
    this.#changes += 1;
    for (const id of turn.toolCallIds) this.touchCard(id);
  }

  #takeAdopted({ openCalls, asks, pendingAuthorizations }: Adopted, sequence: bigint): void {
    const waiting = [...openCalls, ...asks, ...pendingAuthorizations];
    for (const record of waiting) this.takeRevised(record, { number: Infinity, asOf: sequence });
  }

  #takeProvisional(part: ProvisionalResult, sequence: bigint): void {
    const { toolCallId, offsetBytes, chunk } = part;
    const call = this.revised.peek("toolCall", toolCallId);
    if (call !== undefined && hasCanonicalResult(call)) return;
    const text = this.#provisional.get(toolCallId) ?? new ProvisionalText();
    this.#provisional.set(toolCallId, text);
    if (text.add(sequence, offsetBytes, chunk)) this.touchCard(toolCallId);
  }

  #callChanged(toolCallId: string): void {
    const call = this.revised.peek("toolCall", toolCallId);
    if (call === undefined) return;
    if (hasCanonicalResult(call)) this.#provisional.delete(toolCallId);
    for (const id of call.delegatedSessionIds) {
      this.#delegating.set(id, (this.#delegating.get(id) ?? new Set()).add(toolCallId));
    }
    this.touchCard(toolCallId);
    this.#arrived("toolCall", recordId(call));
  }

  #arrived(kind: "toolCall" | "ask", id: string): void {
    for (const toolCallId of this.bindings.arrived(kind, id)) this.touchCard(toolCallId);
  }
}

function hasCanonicalResult({ result }: ToolCall): boolean {
  return result?.kind === ToolResultKind.CANONICAL;
}
