import type { SessionUpdate, ToolCallUpdate } from "@agentclientprotocol/sdk";
import type { Body } from "../../gen/toolmark/v1/body_pb.js";
import type { Event, EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import type { LegacyEvidence } from "../../gen/toolmark/v1/legacy_pb.js";
import { MessageRole, RunOutcome, type Message, type Run } from "../../gen/toolmark/v1/run_pb.js";
import { SessionState, type Session } from "../../gen/toolmark/v1/session_pb.js";
import type { ProvisionalResult, ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import type { Evidence } from "../domain/attachment.js";
import { sessionOf } from "../domain/session-record.js";
import { bodyText, type BytesOf } from "./acp-body-text.js";
import type { CallCard } from "./acp-card.js";
import { recordKey, SessionLog } from "./acp-log.js";
import { legacyText, noteText } from "./acp-note-text.js";

type AnyRecord = EventRecord["record"];

const NOTHING_READ: BytesOf = () => undefined;

/**
 * Shows the events of a session as updates of the Agent Client Protocol. Events are added in the order of their log,
 * those of sessions below in between. A call is one card, under its own id; evidence goes onto the card of the call
 * that it names, if both were born in the same session, and is a message of its own otherwise. What was added before
 * changes nothing. The same events give the same updates.
 */
export class AcpProjection {
  readonly #rootId: string;
  readonly #logs = new Map<string, SessionLog>();

  constructor(sessionId: string) {
    this.#rootId = sessionId;
  }

  /** Whether something is held back for `settle`. */
  get isSettled(): boolean {
    return [...this.#logs.values()].every(
      ({ hasWaiting, behind }) => !hasWaiting && behind.size === 0,
    );
  }

  /** The bodies of a record that adding it shows. */
  bodiesToShow(sessionId: string, record: AnyRecord): readonly Body[] {
    const log = this.#logOf(sessionId);
    switch (record.case) {
      case "message":
        return record.value.content === undefined ? [] : [record.value.content];
      case "toolCall": {
        const { result, lateResult, effective, toolCallId } = record.value;
        const card = log.cardOf(toolCallId);
        if (card !== undefined) return card.bodiesToShow(record.value);
        const bodies = [effective, result?.content, lateResult?.content];
        return bodies.filter((body) => body !== undefined);
      }
      case "legacyEvidence": {
        const { content, toolCallId } = record.value;
        const onCard = log.cardOf(toolCallId)?.bodiesToShow() ?? [];
        return content === undefined ? onCard : [content, ...onCard];
      }
      case "hook":
      case "ask":
      case "receipt":
      case "authorization":
        return log.cardOf(record.value.toolCallId)?.bodiesToShow() ?? [];
      default:
        return [];
    }
  }

  /** Adds the next event. */
  add({ sessionId, sequence, record }: Event, bytesOf: BytesOf): SessionUpdate[] {
    const log = this.#logOf(sessionId);
    const isNew = log.passes(sequence);
    return record === undefined ? [] : this.#record({ log, isNew, bytesOf }, record.record);
  }

  /** Adds a record that an event brought from elsewhere: of what a fork copied, or an older system kept. */
  addBrought(sessionId: string, record: AnyRecord, bytesOf: BytesOf): SessionUpdate[] {
    return this.#record({ log: this.#logOf(sessionId), isNew: true, bytesOf }, record);
  }

  /** Shows what is held back: output since the last update, and evidence whose call did not come. */
  settle(): SessionUpdate[] {
    return [...this.#logs.values()].flatMap((log) => [
      ...log.takeWaiting().map((evidence) => alone(log, evidence)),
      ...[...log.behind].flatMap((card) => cardUpdates(log, card, NOTHING_READ)),
    ]);
  }

  /** Whether the record was added as it is here, or newer. */
  hasSeen(sessionId: string, record: Evidence): boolean {
    return this.#logs.get(sessionId)?.hasSeen(record) ?? false;
  }

  /** The bodies that the whole card of a call shows. */
  bodiesOnCard(sessionId: string, toolCallId: string): readonly Body[] {
    return this.#logs.get(sessionId)?.cardOf(toolCallId)?.bodiesToShow() ?? [];
  }

  /** The whole card of a call, for a question about it. Absent if there is none. */
  cardOf(sessionId: string, toolCallId: string, bytesOf: BytesOf): ToolCallUpdate | undefined {
    return this.#logs.get(sessionId)?.cardOf(toolCallId)?.whole(bytesOf);
  }

  #logOf(sessionId: string): SessionLog {
    const known = this.#logs.get(sessionId);
    if (known !== undefined) return known;
    const log = new SessionLog(sessionId, sessionId === this.#rootId);
    this.#logs.set(sessionId, log);
    return log;
  }

  #record(place: Place, record: AnyRecord): SessionUpdate[] {
    const { log, isNew, bytesOf } = place;
    switch (record.case) {
      case "toolCall":
        return addCall(place, record.value);
      case "hook":
      case "ask":
      case "receipt":
      case "authorization":
        return addEvidence(place, record.value);
      default:
        break;
    }
    // What has no revision applies once, by its place in the log.
    if (!isNew) return [];
    const session = sessionOf(record);
    switch (record.case) {
      case "provisional":
        return addOutput(log, record.value);
      case "message":
        return messageUpdates(log, record.value, bytesOf);
      case "legacyEvidence":
        return addLegacy(place, record.value);
      case "compaction":
        return [said(log, `What came before was archived. ${record.value.summary}`)];
      case "run":
        return runUpdates(log, record.value);
      default:
        return session === undefined ? [] : sessionUpdates(log, session);
    }
  }
}

/** Where a record comes in. */
interface Place {
  readonly log: SessionLog;
  readonly isNew: boolean;
  readonly bytesOf: BytesOf;
}

function addCall({ log, isNew, bytesOf }: Place, call: ToolCall): SessionUpdate[] {
  const { outcome, card } = log.addCall(call);
  if (outcome === "conflict" && isNew) {
    return [said(log, `An update of ${call.toolCallId} contradicts it and is left out.`)];
  }
  if (outcome !== "advanced" || card === undefined) return [];
  const beside = log
    .takeWaiting(call.toolCallId)
    .flatMap((evidence) => (attach(log, card, evidence) ? [] : [alone(log, evidence)]));
  for (const sessionId of call.delegatedSessionIds) {
    card.note(`delegated/${sessionId}`, `Session ${sessionId} works for it.`);
  }
  return [...cardUpdates(log, card, bytesOf), ...beside];
}

function addEvidence({ log, isNew, bytesOf }: Place, evidence: Evidence): SessionUpdate[] {
  const outcome = log.addEvidence(evidence);
  if (outcome === "conflict") {
    return isNew ? [said(log, `It contradicts what is known: ${noteText(evidence)}`)] : [];
  }
  if (outcome !== "advanced") return [];
  const attachment = log.attachment(evidence);
  if (attachment === "PENDING") {
    log.wait(evidence);
    return [];
  }
  const card = log.cardOf(evidence.toolCallId);
  const isOnCard = attachment === "ATTACHED" && card !== undefined && attach(log, card, evidence);
  return isOnCard ? cardUpdates(log, card, bytesOf) : [alone(log, evidence)];
}

/** Puts evidence onto a card. False if it does not belong there, or the card is full. */
function attach(log: SessionLog, card: CallCard, evidence: Evidence): boolean {
  if (log.attachment(evidence) !== "ATTACHED") return false;
  return card.note(recordKey(evidence), noteText(evidence));
}

/** Evidence as a message. It says which call it names, if any. */
function alone(log: SessionLog, evidence: Evidence): SessionUpdate {
  const { toolCallId } = evidence;
  const about = toolCallId === undefined || toolCallId === "" ? "" : ` (about ${toolCallId})`;
  return said(log, `${noteText(evidence)}${about}`);
}

function addLegacy({ log, bytesOf }: Place, evidence: LegacyEvidence): SessionUpdate[] {
  const { content, toolCallId, origin, evidenceId } = evidence;
  const text = legacyText(evidence, content === undefined ? "" : bodyText(content, bytesOf));
  const card = log.cardOf(toolCallId);
  const isSameOrigin = card?.call.origin?.sessionId === origin?.sessionId;
  const isOnCard = card !== undefined && isSameOrigin && card.note(`legacy/${evidenceId}`, text);
  return isOnCard ? cardUpdates(log, card, bytesOf) : [said(log, text)];
}

function addOutput(log: SessionLog, part: ProvisionalResult): SessionUpdate[] {
  const card = log.cardOf(part.toolCallId);
  if (card === undefined) return [];
  const isDue = card.output(part.offsetBytes, part.chunk);
  if (card.isBehind) log.behind.add(card);
  return isDue ? cardUpdates(log, card, NOTHING_READ) : [];
}

function cardUpdates(log: SessionLog, card: CallCard, bytesOf: BytesOf): SessionUpdate[] {
  log.behind.delete(card);
  const update = card.update(bytesOf, log.blockerOf(card.call));
  return update === undefined ? [] : [update];
}

function messageUpdates(log: SessionLog, message: Message, bytesOf: BytesOf): SessionUpdate[] {
  const { role, content, messageId } = message;
  const text = content === undefined ? "" : bodyText(content, bytesOf);
  if (text === "") return [];
  if (!log.isRoot || (role !== MessageRole.USER && role !== MessageRole.ASSISTANT)) {
    return [said(log, `${ROLES[role] ?? "Message"}: ${text}`, messageId)];
  }
  const isUser = role === MessageRole.USER;
  const sessionUpdate = isUser ? "user_message_chunk" : "agent_message_chunk";
  return [{ sessionUpdate, content: { type: "text", text }, messageId }];
}

const ROLES: Readonly<Partial<Record<MessageRole, string>>> = {
  [MessageRole.USER]: "User",
  [MessageRole.SYSTEM]: "System",
  [MessageRole.ASSISTANT]: "Assistant",
};

const OUTCOMES: Readonly<Partial<Record<RunOutcome, string>>> = {
  [RunOutcome.CANCELLED]: "The run was cancelled.",
  [RunOutcome.FAILED]: "The run failed.",
  [RunOutcome.INTERRUPTED]: "The run was interrupted.",
};

function runUpdates(log: SessionLog, { outcome }: Run): SessionUpdate[] {
  const text = OUTCOMES[outcome];
  return text === undefined ? [] : [said(log, text)];
}

function sessionUpdates(log: SessionLog, session: Session): SessionUpdate[] {
  const { title, state, forkedFrom } = session;
  const updates: SessionUpdate[] = [];
  if (log.isRoot && title !== "" && title !== log.title) {
    updates.push({ sessionUpdate: "session_info_update", title });
  }
  log.title = title;
  if (state === SessionState.ENDED) return [...updates, said(log, "The session has ended.")];
  if (forkedFrom === undefined) return updates;
  return [...updates, said(log, `Continued from a copy of ${forkedFrom.sessionId}.`)];
}

/** A message of our own, apart from those of the model. */
function said({ isRoot, name }: SessionLog, text: string, messageId?: string): SessionUpdate {
  return acpNotice(isRoot ? text : `In ${name}: ${text}`, messageId);
}

/** A text that is no record's content, as a message. Editors put messages that follow one another together. */
export function acpNotice(text: string, messageId?: string): SessionUpdate {
  const content = { type: "text" as const, text: `\n\n${text}\n\n` };
  const update = { sessionUpdate: "agent_message_chunk" as const, content };
  return messageId === undefined ? update : { ...update, messageId };
}
