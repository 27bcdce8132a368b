import { isEntry } from "./old-model.js";
import type {
  OldArchive,
  OldAsk,
  OldCall,
  OldEntry,
  OldHook,
  OldItem,
  OldMessage,
  OldModel,
  OldReference,
  OldReview,
  OldTurn,
} from "./old-model.js";
import {
  askJson,
  callJson,
  jsonList,
  jsonObject,
  jsonText,
  resultJson,
  snapshotEntries,
  usageJson,
} from "./old-snapshot-file.js";

/** Forms of a log, one record a line. Only `jsonl` and `redis` can record a gap. */
export const LOG_FORMS = ["jsonl", "redis", "enveloped", "enveloped-base64", "bare"] as const;
export type LogForm = (typeof LOG_FORMS)[number];

/** The keys of an event beside `Type`, in order. Those without a value are written as `null`. */
const EVENT_KEYS = [
  ...["Seq", "Turn", "Text", "Title", "ToolCall", "ToolResult", "Ask", "ModelRetry"],
  ...["RequestManifest", "NetworkAttempt", "Authorization", "Result", "TurnEnd", "Hook"],
  ...["Approval", "CompactionArchive", "UserPrompt", "Usage", "Subagent", "Team", "Parallel"],
  ...["RunID", "Actor", "Schedule", "Steer"],
] as const;
type EventKey = (typeof EVENT_KEYS)[number];
type EventMembers = Partial<Record<EventKey, string>>;

type LogRecord = { readonly event: string } | { readonly gap: string };

/** Beyond as many fragments a turn was too long for one coalesced delta. */
const FRAGMENTS_OF_ONE_DELTA = 4;

function eventJson(type: string, members: EventMembers): string {
  const written = EVENT_KEYS.map((key) => `,"${key}":${members[key] ?? "null"}`);
  return `{"Type":${jsonText(type)}${written.join("")}}`;
}

/** A message in the untagged encoding. Only the later versions have `ReasoningItemID`. */
function archivedMessageJson(entry: OldEntry, hasItemIds: boolean): string {
  const isResult = entry.kind === "result";
  const spoken = isResult ? undefined : entry;
  const role = entry.kind === "message" ? entry.role : isResult ? "tool" : "assistant";
  return jsonObject({
    Role: jsonText(role),
    Text: jsonText(spoken?.text ?? ""),
    ToolCalls: entry.kind === "turn" ? jsonList(entry.calls.map(callJson)) : "null",
    ToolResult: isResult ? resultJson(entry) : "null",
    Reasoning: jsonText(spoken?.reasoning ?? ""),
    ProviderPhase: jsonText(spoken?.phase ?? ""),
    ReasoningItemID: hasItemIds ? jsonText(spoken?.reasoningItemId ?? "") : undefined,
    Parts: "null",
  });
}

/** What the archive at an index of a history holds. */
export function archivedEntries(items: readonly OldItem[], index: number): OldEntry[] {
  const before = items.slice(0, index);
  const archive = items[index];
  if (archive?.kind !== "archive") return [];
  return archive.reach === "session" ? before.filter(isEntry) : snapshotEntries(before);
}

function referencesJson(references: readonly OldReference[]): string {
  if (references.length === 0) return "null";
  return jsonList(
    references.map(({ ref, category }) => {
      return jsonObject({ Ref: jsonText(ref), Category: jsonText(category) });
    }),
  );
}

function reviewJson(review: OldReview): string {
  return jsonObject({
    ReviewID: jsonText(review.reviewId),
    Job: jsonText(review.job),
    Assessment: jsonText(review.assessment),
    Inspection: jsonText(review.inspection),
    Disposition: jsonText(review.disposition),
    ReasonCode: jsonText(review.reasonCode),
    RuleID: '""',
    RuleOrigin: '""',
    CheckerProviderID: '"p"',
    CheckerModelID: '"m"',
    Concerns: referencesJson(review.concerns),
    Sources: "null",
  });
}

function hookJson({ phase, tool, decision, providerCallId, review }: OldHook): string {
  return jsonObject({
    Phase: jsonText(phase),
    Tool: jsonText(tool),
    Decision: jsonText(decision),
    CallID: jsonText(providerCallId),
    Guardrail: review ? reviewJson(review) : "null",
  });
}

const RETRACTED: Omit<OldAsk, "askId"> = {
  ...{ tool: "", argumentsText: null, reason: "", providerCallId: "", namesCall: false },
};

/** Writes the events of a session as they happened. */
class LogWriter {
  readonly records: LogRecord[] = [];
  readonly #model: OldModel;
  readonly #hasItemIds: boolean;
  readonly #usage: string;
  #runId: string;
  #seq = 0;
  #turn = 0;
  /** Dispatched calls of the last turn whose `tool.call` was not written yet. */
  #waiting: OldCall[] = [];

  constructor(model: OldModel) {
    this.#model = model;
    this.#runId = model.runId;
    this.#usage = usageJson(model.tokens);
    this.#hasItemIds = model.items.some((item) => {
      return isEntry(item) && item.kind !== "result" && item.reasoningItemId !== undefined;
    });
  }

  write(): void {
    this.#model.items.forEach((item, index) => {
      if (item.kind === "message" || item.kind === "turn" || item.kind === "archive") {
        this.#closeTurn();
      }
      this.#item(item, index);
    });
    this.#closeTurn();
  }

  /** One event; `fragments` is how many live events it stands for. */
  #event(type: string, members: EventMembers = {}, fragments = 1): void {
    const always = { Seq: String(this.#seq + 1), Turn: String(this.#turn), Text: '""' };
    this.records.push({
      event: eventJson(type, { ...always, RunID: jsonText(this.#runId), ...members }),
    });
    this.#seq += fragments;
  }

  #item(item: OldItem, index: number): void {
    switch (item.kind) {
      case "message": {
        this.#message(item);
        return;
      }
      case "turn": {
        this.#turnOf(item);
        return;
      }
      case "result":
        this.#openCard(item.providerCallId);
        {
          this.#event("tool.result", { ToolResult: resultJson(item) });
          return;
        }
      case "archive": {
        this.#archive(item, index);
        return;
      }
      case "hook":
        if (!item.beforeCard) this.#openCard(item.providerCallId);
        {
          this.#event("hook", { Text: jsonText(item.text), Hook: hookJson(item) });
          return;
        }
      case "ask":
        this.#openCard(item.ask.providerCallId);
        {
          this.#event("permission.ask", { Ask: askJson(item.ask) });
          return;
        }
      case "retraction": {
        const Ask = askJson({ ...RETRACTED, askId: item.askId });
        this.#event("permission.retract", { Ask });
        return;
      }
      case "gap":
        this.records.push({ gap: item.reason });
        return;
      case "unknown": {
        this.#event(item.type, { Text: jsonText(item.text) });
        return;
      }
      default: {
        this.#rare(item);
        return;
      }
    }
  }

  #rare(
    item: Extract<OldItem, { kind: "approval" | "authorization" | "run" | "runEnd" | "restart" }>,
  ) {
    switch (item.kind) {
      case "approval": {
        this.#event("approval", { Approval: approvalJson(item) });
        return;
      }
      case "authorization": {
        this.#openCard(item.providerCallId);
        const type = item.status === "pending" ? "required" : "resolved";
        this.#event(`authorization.${type}`, { Authorization: authorizationJson(item) });
        return;
      }
      case "run":
        this.#closeTurn();
        [this.#runId, this.#seq, this.#turn] = [item.runId, 0, 0];
        {
          this.#event("session.init");
          return;
        }
      case "runEnd":
        this.#closeTurn();
        {
          this.#event("result", { Result: this.#resultJson(item.stop) });
          return;
        }
      case "restart":
        this.#seq = 0;
    }
  }

  #resultJson(stop: string): string {
    return jsonObject({ Stop: jsonText(stop), Usage: this.#usage });
  }

  #message(message: OldMessage): void {
    if (message.role === "assistant") {
      this.#spoken(message);
      return;
    }
    if (message.role === "system") return;
    const Text = jsonText(message.text);
    this.#event("user_prompt", { Text, UserPrompt: jsonObject({ Text, Parts: "null" }) });
  }

  #spoken({ text, reasoning, ...spoken }: OldMessage | OldTurn): void {
    const fragments = Math.max(1, spoken.fragments ?? 1);
    this.#turn += 1;
    this.#event("turn.start");
    if (reasoning) this.#event("reasoning.delta", { Text: jsonText(reasoning) }, fragments);
    for (const piece of pieces(text, fragments)) {
      this.#event("message.delta", { Text: jsonText(piece) }, fragments);
    }
    this.#event("turn.end", { TurnEnd: jsonObject({ Usage: this.#usage }) });
  }

  #turnOf(turn: OldTurn): void {
    this.#spoken(turn);
    this.#waiting = turn.calls.slice(0, turn.calls.length - turn.undispatched);
    if (turn.dispatch === "batch") this.#closeTurn();
  }

  /** Serial dispatch: the calls up to the first waiting one with this id begin. */
  #openCard(providerCallId: string): void {
    const index = this.#waiting.findIndex((call) => call.providerCallId === providerCallId);
    for (const call of this.#waiting.splice(0, index + 1)) {
      this.#event("tool.call", { ToolCall: callJson({ ...call, itemId: undefined }) });
    }
  }

  #closeTurn(): void {
    for (const call of this.#waiting.splice(0)) {
      this.#event("tool.call", { ToolCall: callJson({ ...call, itemId: undefined }) });
    }
  }

  #archive(archive: OldArchive, index: number): void {
    const replaced = archivedEntries(this.#model.items, index).map((entry) => {
      return archivedMessageJson(entry, this.#hasItemIds);
    });
    const CompactionArchive = jsonObject({ Replaced: jsonList(replaced) });
    this.#event("compaction.archive", { CompactionArchive });
    this.#event("compaction", { Text: jsonText(archive.summary) });
  }
}

/** A streamed text as its coalesced deltas. */
function pieces(text: string, fragments: number): string[] {
  if (text === "") return [];
  const points = Array.from(text);
  if (fragments <= FRAGMENTS_OF_ONE_DELTA || points.length === 1) return [text];
  const middle = Math.ceil(points.length / 2);
  return [points.slice(0, middle).join(""), points.slice(middle).join("")];
}

function approvalJson(item: Extract<OldItem, { kind: "approval" }>): string {
  return jsonObject({
    AskID: jsonText(item.askId),
    Verdict: jsonText(item.verdict),
    Tool: jsonText(item.tool),
    Call: jsonText(item.providerCallId),
    AllowAlways: String(item.verdict === "allow_always"),
    Origin: item.origin === undefined ? undefined : jsonText(item.origin),
  });
}

function authorizationJson(item: Extract<OldItem, { kind: "authorization" }>): string {
  return jsonObject({
    AuthorizationID: jsonText(item.authorizationId),
    DisplayName: jsonText(item.displayName),
    Call: jsonText(item.providerCallId),
    ExpiresAt: jsonText(item.expiresAt),
    Status: jsonText(item.status),
  });
}

/** How a form writes a record, or nothing if it cannot. */
function recordLine(record: LogRecord, form: LogForm): string[] {
  if ("gap" in record) {
    const reason = jsonText(record.gap);
    if (form === "jsonl") return [jsonObject({ v: '"eventlog-gap/1"', r: reason })];
    if (form === "redis") {
      return [jsonObject({ v: '"redisstore-eventlog/1"', ev: "null", r: reason })];
    }
    return [];
  }
  const format = '"eventlog-json/1"';
  switch (form) {
    case "jsonl":
      return [jsonObject({ v: format, ev: record.event })];
    case "redis":
      return [jsonObject({ v: '"redisstore-eventlog/1"', ev: record.event })];
    case "enveloped":
      return [jsonObject({ format, payload: record.event })];
    case "enveloped-base64": {
      const payload = `"${Buffer.from(record.event, "utf8").toString("base64")}"`;
      return [jsonObject({ format, payload })];
    }
    case "bare":
      return [record.event];
  }
}

/** The event log of a session in a form, every line ended. */
export function logFile(model: OldModel, form: LogForm): Uint8Array {
  const writer = new LogWriter(model);
  writer.write();
  const generation = jsonObject({ v: '"eventlog-gen/1"', g: '"0123456789abcdef"' });
  const lines = [
    ...(form === "jsonl" ? [generation] : []),
    ...writer.records.flatMap((record) => recordLine(record, form)),
  ];
  return new TextEncoder().encode(lines.map((line) => `${line}\n`).join(""));
}
