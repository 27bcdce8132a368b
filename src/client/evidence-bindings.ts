import { isAskOfReview, isReceiptOf } from "../domain/attachment.js";
import type { attachmentOf, Attachment, Evidence } from "../domain/attachment.js";
import { recordId } from "../domain/merge-law.js";
import { keyOf, kindOf, type RecordKind, type RevisedRecords } from "./revised-records.js";

type EvidenceKind = Exclude<RecordKind, "toolCall">;

/**
 * Which evidence of a session belongs to which of its calls. What waits for its call is decided when the call comes; a
 * receipt waits for its ask too. What was decided once stays: nothing is bound anew, and nothing is let go.
 */
export class EvidenceBindings {
  readonly #records: RevisedRecords;
  readonly #rule: typeof attachmentOf;
  readonly #decided = new Map<string, Attachment>();
  readonly #waiting = new Map<string, Map<string, Evidence>>();
  readonly #attached = new Map<string, Record<EvidenceKind, Set<string>>>();

  constructor(records: RevisedRecords, rule: typeof attachmentOf) {
    this.#records = records;
    this.#rule = rule;
  }

  /** Where evidence belongs. Decides it if it is not decided yet. */
  bind(evidence: Evidence): Attachment {
    const key = keyOf(evidence);
    const known = this.#decided.get(key);
    if (known !== undefined && known !== "PENDING") return known;
    const attachment = this.#decide(evidence);
    this.#decided.set(key, attachment);
    if (attachment === "ATTACHED") this.#attach(evidence);
    if (attachment === "PENDING") this.#wait(key, evidence);
    return attachment;
  }

  /** What was decided about evidence with this id. */
  attachmentOf(kind: RecordKind, id: string): Attachment {
    return this.#decided.get(`${kind}/${id}`) ?? "STANDALONE";
  }

  /** Decides about what waited for a call or an ask. Returns the calls that got something. */
  arrived(kind: "toolCall" | "ask", id: string): Set<string> {
    const waiting = this.#waiting.get(`${kind}/${id}`);
    this.#waiting.delete(`${kind}/${id}`);
    const bound = new Set<string>();
    for (const evidence of waiting?.values() ?? []) {
      if (this.bind(evidence) === "ATTACHED") bound.add(evidence.toolCallId ?? "");
    }
    return bound;
  }

  /** Ids of the evidence of a kind that is attached to a call. */
  attached(kind: EvidenceKind, toolCallId: string): Iterable<string> {
    return this.#attached.get(toolCallId)?.[kind] ?? [];
  }

  #decide(evidence: Evidence): Attachment {
    const toolCallId = evidence.toolCallId ?? "";
    const call = this.#records.peek("toolCall", toolCallId);
    const calls = call === undefined ? [] : [call, ...this.#records.rivalsOf(toolCallId)];
    const attachment = this.#rule(evidence, calls);
    if (attachment !== "ATTACHED") return attachment;
    if (evidence.$typeName === "toolmark.v1.Receipt") {
      const ask = this.#records.peek("ask", evidence.askId);
      if (ask === undefined) return "PENDING";
      return isReceiptOf(evidence, ask) ? "ATTACHED" : "STANDALONE";
    }
    if (evidence.$typeName === "toolmark.v1.Ask") {
      const review = this.#records.peek("hook", evidence.reviewId);
      return review === undefined || isAskOfReview(evidence, review) ? "ATTACHED" : "STANDALONE";
    }
    return attachment;
  }

  #wait(key: string, evidence: Evidence): void {
    const awaited = [`toolCall/${evidence.toolCallId ?? ""}`];
    if (evidence.$typeName === "toolmark.v1.Receipt") awaited.push(`ask/${evidence.askId}`);
    for (const name of awaited) {
      const waiting = this.#waiting.get(name) ?? new Map<string, Evidence>();
      this.#waiting.set(name, waiting.set(key, evidence));
    }
  }

  #attach(evidence: Evidence): void {
    const { toolCallId = "" } = evidence;
    const attached = this.#attached.get(toolCallId) ?? {
      hook: new Set<string>(),
      ask: new Set<string>(),
      receipt: new Set<string>(),
      authorization: new Set<string>(),
    };
    attached[kindOf(evidence) as EvidenceKind].add(recordId(evidence));
    this.#attached.set(toolCallId, attached);
  }
}
