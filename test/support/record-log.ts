import type { Ask } from "../../gen/toolmark/v1/ask_pb.js";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { AuthorizationState, type Authorization } from "../../gen/toolmark/v1/authorization_pb.js";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import type { Hook } from "../../gen/toolmark/v1/hook_pb.js";
import type { Receipt } from "../../gen/toolmark/v1/receipt_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";

/** What of an event says what happened. */
export type LogEntry = Pick<Event, "kind" | "record">;

/** A session's log, and the last state of each record in it, by id and in the order of their first events. */
export class RecordLog<Entry extends LogEntry = LogEntry> {
  readonly entries: Entry[] = [];
  readonly calls = new Map<string, ToolCall>();
  readonly asks = new Map<string, Ask>();
  readonly receipts = new Map<string, Receipt>();
  readonly authorizations = new Map<string, Authorization>();
  readonly hooks = new Map<string, Hook>();

  constructor(entries: readonly Entry[] = []) {
    this.add(entries);
  }

  add(entries: readonly Entry[]): void {
    for (const entry of entries) {
      this.entries.push(entry);
      this.#keep(entry.record?.record);
    }
  }

  openAsks(): Ask[] {
    return [...this.asks.values()].filter(({ state }) => state === AskState.OPEN);
  }

  pendingAuthorizations(): Authorization[] {
    const all = [...this.authorizations.values()];
    return all.filter(({ state }) => state === AuthorizationState.PENDING);
  }

  #keep(record: NonNullable<LogEntry["record"]>["record"] | undefined): void {
    switch (record?.case) {
      case "toolCall":
        this.calls.set(record.value.toolCallId, record.value);
        return;
      case "ask":
        this.asks.set(record.value.askId, record.value);
        return;
      case "receipt":
        this.receipts.set(record.value.receiptId, record.value);
        return;
      case "authorization":
        this.authorizations.set(record.value.authorizationId, record.value);
        return;
      case "hook":
        this.hooks.set(record.value.hookId, record.value);
        return;
      default:
        return;
    }
  }
}
