import { attachmentOf, type Attachment, type Evidence } from "../domain/attachment.js";
import { merge, recordId, type MergeOutcome, type RevisedRecord } from "../domain/merge-law.js";
import type { Hook } from "../../gen/toolmark/v1/hook_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { CallCard } from "./acp-card.js";

/** Names a record within a session. */
export function recordKey(record: RevisedRecord): string {
  return `${record.$typeName}/${recordId(record)}`;
}

/** What is known of one session: its cards, and the evidence as it stands. Nothing of another session is in it. */
export class SessionLog {
  readonly sessionId: string;
  title = "";
  /** Cards with output that is not shown yet. */
  readonly behind = new Set<CallCard>();
  readonly #isRoot: boolean;
  readonly #cards = new Map<string, CallCard>();
  readonly #evidence = new Map<string, Evidence>();
  /** About calls that are not known yet, in the order of arrival. */
  #waiting: Evidence[] = [];
  #sequence = 0n;

  constructor(sessionId: string, isRoot: boolean) {
    this.sessionId = sessionId;
    this.#isRoot = isRoot;
  }

  get isRoot(): boolean {
    return this.#isRoot;
  }

  get name(): string {
    return this.title === "" ? this.sessionId : this.title;
  }

  get hasWaiting(): boolean {
    return this.#waiting.length > 0;
  }

  /** Whether the event of this sequence was not taken up before. The log comes in order. */
  passes(sequence: bigint): boolean {
    if (sequence <= this.#sequence) return false;
    this.#sequence = sequence;
    return true;
  }

  cardOf(toolCallId: string | undefined): CallCard | undefined {
    return toolCallId === undefined ? undefined : this.#cards.get(toolCallId);
  }

  /** What the call's update does, with its card if it is the state of it now. */
  addCall(call: ToolCall): { outcome: MergeOutcome; card: CallCard | undefined } {
    const known = this.#cards.get(call.toolCallId);
    const outcome = merge(known?.call, call);
    if (outcome !== "advanced") return { outcome, card: known };
    if (known !== undefined) {
      known.call = call;
      return { outcome, card: known };
    }
    const card = new CallCard(call, this.#nameOf(call));
    this.#cards.set(call.toolCallId, card);
    return { outcome, card };
  }

  addEvidence(evidence: Evidence): MergeOutcome {
    const key = recordKey(evidence);
    const outcome = merge(this.#evidence.get(key), evidence);
    if (outcome === "advanced") this.#evidence.set(key, evidence);
    return outcome;
  }

  /** Whether the record is known as it is here, or newer. */
  hasSeen(record: Evidence): boolean {
    const known = this.#evidence.get(recordKey(record));
    return known !== undefined && (known.revision ?? 0n) >= (record.revision ?? 0n);
  }

  attachment(evidence: Evidence): Attachment {
    const card = this.cardOf(evidence.toolCallId);
    return attachmentOf(evidence, card === undefined ? [] : [card.call]);
  }

  /** The hook that blocked a call, if it is about this call. */
  blockerOf({ blockedByHookId, toolCallId }: ToolCall): Hook | undefined {
    if (blockedByHookId === undefined) return undefined;
    const found = this.#evidence.get(`toolmark.v1.Hook/${blockedByHookId}`);
    if (found?.$typeName !== "toolmark.v1.Hook") return undefined;
    const isAboutIt = found.toolCallId === toolCallId && this.attachment(found) === "ATTACHED";
    return isAboutIt ? found : undefined;
  }

  /** Keeps evidence until its call comes. */
  wait(evidence: Evidence): void {
    this.#waiting.push(evidence);
  }

  /** Evidence that waited: for this call, or all of it. Each as it stands by now. */
  takeWaiting(toolCallId?: string): Evidence[] {
    const isTaken = (evidence: Evidence): boolean =>
      toolCallId === undefined || evidence.toolCallId === toolCallId;
    const taken = this.#waiting.filter(isTaken);
    this.#waiting = this.#waiting.filter((evidence) => !isTaken(evidence));
    const keys = new Set(taken.map(recordKey));
    return [...keys].flatMap((key) => this.#evidence.get(key) ?? []);
  }

  /** A call of a child has its session in its name: it is never taken for a call of the root. */
  #nameOf({ toolCallId, toolName }: ToolCall): { wireId: string; title: string } {
    if (this.#isRoot) return { wireId: toolCallId, title: toolName };
    return { wireId: `${this.sessionId}/${toolCallId}`, title: `${toolName} (in ${this.name})` };
  }
}
