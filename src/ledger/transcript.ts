import { create, toBinary } from "@bufbuild/protobuf";
import type { EventRecord } from "../../gen/toolmark/v1/event_pb.js";
import {
  TranscriptEntrySchema,
  type GetTranscriptRequest,
  type TranscriptEntry,
} from "../../gen/toolmark/v1/history_service_pb.js";
import type { ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import type { Limits } from "../domain/limits.js";
import type { Caller } from "../domain/principal.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { openRecord } from "./base-state.js";
import { refuseDamaged } from "./event-codec.js";
import { PageBuilder, type Page } from "./page.js";
import { findRecord, findSessionRecord } from "./stored-record.js";
import type { SessionRow, Store } from "./store-port.js";
import { InlineBodies } from "./transcript-bodies.js";
import { isToldWith, transcriptCall } from "./transcript-call.js";
import { archivedThrough } from "./transcript-compactions.js";
import { Mentions, type Mention } from "./transcript-mentions.js";
import { transcriptPlaceOf, transcriptTokenOf, type TranscriptPlace } from "./transcript-place.js";
import { findVisible } from "./visibility.js";

/** Records told with their call that one page goes past at most: bounds what a page without entries costs. */
const PASSED_MAX = 1000;

type Entry = TranscriptEntry["entry"];

/** What one page is made from. */
interface Making {
  readonly caller: Caller;
  readonly row: SessionRow;
  readonly mentions: Mentions;
  /** Calls that were looked up: absent ones too. */
  readonly calls: Map<string, ToolCall | undefined>;
}

/** A mention, opened to know whether it is an entry of its own. */
type Opened = EventRecord["record"] | { readonly case: "origin" };

/** The account of a session for people, page by page: see GetTranscript. */
export class TranscriptReader {
  readonly #store: Store;
  readonly #limits: Limits;
  readonly #bodies: InlineBodies;

  constructor(store: Store, limits: Limits) {
    this.#store = store;
    this.#limits = limits;
    this.#bodies = new InlineBodies(store, limits);
  }

  async page(
    caller: Caller,
    { sessionId, pageSize, pageToken }: GetTranscriptRequest,
  ): Promise<Page<TranscriptEntry> | Refusal> {
    const row = await findVisible(this.#store, caller, sessionId);
    if (isRefusal(row)) return row;
    const after = transcriptPlaceOf(this.#store, row, pageToken);
    if (isRefusal(after)) return after;
    const archived = await archivedThrough(this.#store, row);
    if (isRefusal(archived)) return archived;
    const builder = new PageBuilder<TranscriptEntry>(pageSize, this.#limits);
    const range = { after, archived, wanted: builder.rowsToRead };
    const mentions = await Mentions.after(this.#store, row, range);
    if (isRefusal(mentions)) return mentions;
    return this.#filled({ caller, row, mentions, calls: new Map() }, builder, after);
  }

  /** Takes entries until the page is full, or nothing is left. */
  async #filled(
    making: Making,
    builder: PageBuilder<TranscriptEntry>,
    after: TranscriptPlace,
  ): Promise<Page<TranscriptEntry> | Refusal> {
    const pageTo = (place: TranscriptPlace): Page<TranscriptEntry> => ({
      items: builder.items,
      nextPageToken: transcriptTokenOf(this.#store, making.row, place),
    });
    let last = after;
    for (let passed = 0; passed <= PASSED_MAX;) {
      const isFull = builder.items.length === builder.rowsToRead - 1;
      const next = await making.mentions.next();
      if (next === undefined) return { items: builder.items, nextPageToken: "" };
      // What is wrong with an entry of the next page is told there.
      if (isRefusal(next)) return isFull ? pageTo(last) : next;
      if (next.kind === "paused") return pageTo(next.place);
      const opened = await this.#open(making, next);
      if (isRefusal(opened)) return isFull ? pageTo(last) : opened;
      if (opened === undefined) {
        passed += 1;
        last = next.place;
        continue;
      }
      if (isFull) return pageTo(last);
      const entry = await this.#entry(making, next, opened);
      if (isRefusal(entry)) return entry;
      const sizeBytes = toBinary(TranscriptEntrySchema, entry).length;
      if (!builder.take(entry, next.place.sequence, sizeBytes)) return pageTo(last);
      last = next.place;
    }
    return pageTo(last);
  }

  /** What is mentioned. Absent if it is told with a call. */
  async #open(making: Making, mention: Mention): Promise<Opened | undefined | Refusal> {
    if (mention.kind === "origin") return { case: "origin" };
    if (mention.kind === "compaction") return { case: "compaction", value: mention.value };
    const opened = await openRecord(this.#store, making.row, mention.indexed);
    if (isRefusal(opened)) return opened;
    const { record } = opened;
    if (record.case !== "hook" && record.case !== "legacyEvidence") return record;
    const call = await this.#callOf(making, record.value.toolCallId ?? "");
    if (isRefusal(call)) return call;
    return call !== undefined && isToldWith(record.value, call) ? undefined : record;
  }

  async #callOf(
    { row, calls }: Making,
    toolCallId: string,
  ): Promise<ToolCall | undefined | Refusal> {
    if (toolCallId === "" || calls.has(toolCallId)) return calls.get(toolCallId);
    const record = await findRecord(this.#store, row, toolCallId);
    if (isRefusal(record)) return record;
    const call = record?.case === "toolCall" ? record.value : undefined;
    calls.set(toolCallId, call);
    return call;
  }

  async #entry(
    making: Making,
    { place }: Mention,
    opened: Opened,
  ): Promise<TranscriptEntry | Refusal> {
    const entry = await this.#told(making, opened, place);
    if (isRefusal(entry)) return entry;
    const { sequence: head } = making.row.head;
    // A mounted session has no events yet. What another record's event brought came with the first one.
    const own = place.sequence < 1n ? 1n : place.sequence;
    return create(TranscriptEntrySchema, {
      sequence: head === 0n ? 0n : own,
      archived: making.mentions.isArchived(place),
      entry,
    });
  }

  async #told(making: Making, opened: Opened, place: TranscriptPlace): Promise<Entry | Refusal> {
    const { caller, row } = making;
    switch (opened.case) {
      case "message": {
        const whole = await this.#bodies.into(row, opened);
        return isRefusal(whole) ? whole : whole.record;
      }
      case "legacyEvidence": {
        const whole = await this.#bodies.into(row, opened);
        return isRefusal(whole) ? whole : whole.record;
      }
      case "toolCall": {
        const parts = { store: this.#store, bodies: this.#bodies, limits: this.#limits };
        const value = await transcriptCall({ ...parts, caller, row }, opened.value);
        return isRefusal(value) ? value : { case: "call", value };
      }
      case "origin": {
        const value = await findSessionRecord(this.#store, row);
        return isRefusal(value) ? value : { case: "origin", value };
      }
      case "hook":
      case "run":
      case "compaction":
        return opened;
      default:
        return refuseDamaged(place.sequence);
    }
  }
}
