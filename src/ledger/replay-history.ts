import { MessageRole, type Message } from "../../gen/toolmark/v1/run_pb.js";
import type { Content, HistoryCall, HistoryEntry, TurnSource } from "../domain/history.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { toldResult } from "../domain/synthetic-text.js";
import { openRecord } from "./base-state.js";
import type { Waiting } from "./batch-context.js";
import { readWholeBody } from "./body-reader.js";
import { isInherited, refuseDamaged } from "./event-codec.js";
import { FIRST_RECORD } from "./page-token.js";
import { archiveOf } from "./replay-archive.js";
import { openTurn, type OpenTurn, type PairedCall } from "./replay-turn.js";
import { RecordFamily, type IndexedRecord, type SessionRow, type Store } from "./store-port.js";
import { RecordCursor } from "./transcript-cursor.js";

/** Records that are read at a time. */
const WANTED = 64;
/** Others have their turn after so many records. */
const RECORDS_PER_PAUSE = 16;

export interface ReplayHistoryOptions {
  readonly store: Store;
  /** Gives others their turn, since reads are synchronous. */
  readonly pause: () => Promise<void>;
}

/** Which records are gone through: behind `after`, up to `through`, by the place of their first event. */
interface PlaceRange {
  readonly after: bigint;
  readonly through: bigint;
}

/**
 * What a session has to tell a model, in its order and up to where it ended when the reading began. Everything is
 * checked against its commitment or digest. A refusal is the last item.
 */
export class ReplayHistory {
  readonly #store: Store;
  readonly #pause: () => Promise<void>;
  readonly #row: SessionRow;
  readonly #waiting: Waiting;
  readonly #head: bigint;

  constructor({ store, pause }: ReplayHistoryOptions, row: SessionRow, waiting: Waiting) {
    this.#store = store;
    this.#pause = pause;
    this.#row = row;
    this.#waiting = waiting;
    this.#head = row.head.sequence;
  }

  async *entries(): AsyncGenerator<HistoryEntry | Refusal, void, void> {
    const archive = await archiveOf(this.#store, this.#row);
    if (isRefusal(archive)) return yield archive;
    const through = archive?.through ?? FIRST_RECORD;
    if (archive !== undefined) {
      yield* this.#archivedCalls(through);
      yield { kind: "summary", content: textOf(archive.summary) };
    }
    const families = [RecordFamily.turn, RecordFamily.message];
    for await (const indexed of this.#records(families, { after: through, through: this.#head })) {
      const entry = isRefusal(indexed) ? indexed : await this.#entry(indexed);
      if (entry === undefined) continue;
      yield entry;
      if (isRefusal(entry)) return;
    }
  }

  /** The retained turns, with what their providers gave. */
  async *turns(): AsyncGenerator<OpenTurn | Refusal, void, void> {
    const archive = await archiveOf(this.#store, this.#row);
    if (isRefusal(archive)) return yield archive;
    yield* this.#turns({ after: archive?.through ?? FIRST_RECORD, through: this.#head });
  }

  /** Ids that were given before stay taken, so that a later call does not get one of them. */
  async *#archivedCalls(through: bigint): AsyncGenerator<HistoryEntry | Refusal, void, void> {
    for await (const opened of this.#turns({ after: FIRST_RECORD, through })) {
      if (isRefusal(opened)) return yield opened;
      const turn = sourceOf(opened);
      for (const { call, pairing } of opened.calls) {
        yield { kind: "archivedCall", call: { toolCallId: call.toolCallId, turn, pairing } };
      }
    }
  }

  async *#turns(range: PlaceRange): AsyncGenerator<OpenTurn | Refusal, void, void> {
    for await (const indexed of this.#records([RecordFamily.turn], range)) {
      const opened = isRefusal(indexed) ? indexed : await openTurn(this.#store, this.#row, indexed);
      yield opened;
      if (isRefusal(opened)) return;
    }
  }

  /** Records of the families in the order of their places. */
  async *#records(
    families: readonly RecordFamily[],
    range: PlaceRange,
  ): AsyncGenerator<IndexedRecord | Refusal, void, void> {
    const cursors = families.map(
      (family) => new RecordCursor(this.#store, this.#row, { ...range, family, wanted: WANTED }),
    );
    for (let count = 1; ; count += 1) {
      if (this.#waiting.aborted !== undefined) return yield this.#waiting.aborted;
      const indexed = await takeFirst(cursors);
      if (indexed === undefined) return;
      yield indexed;
      if (count % RECORDS_PER_PAUSE === 0) await this.#pause();
    }
  }

  async #entry(indexed: IndexedRecord): Promise<HistoryEntry | undefined | Refusal> {
    if (indexed.family === RecordFamily.message) return this.#messageEntry(indexed);
    const opened = await openTurn(this.#store, this.#row, indexed);
    if (isRefusal(opened)) return opened;
    const calls: HistoryCall[] = [];
    for (const [index, paired] of opened.calls.entries()) {
      if (this.#waiting.aborted !== undefined) return this.#waiting.aborted;
      const call = await this.#call(paired);
      if (isRefusal(call)) return call;
      calls.push(call);
      if (index % RECORDS_PER_PAUSE === 0) await this.#pause();
    }
    return { kind: "turn", turn: { ...sourceOf(opened), items: opened.given?.items, calls } };
  }

  /** What a response said stands in its turn. */
  async #messageEntry(indexed: IndexedRecord): Promise<HistoryEntry | undefined | Refusal> {
    const opened = await openRecord(this.#store, this.#row, indexed);
    if (isRefusal(opened)) return opened;
    const isItsEvent = isInherited(indexed) || indexed.firstSequence === indexed.lastSequence;
    if (opened.record.case !== "message" || !isItsEvent) return refuseDamaged(indexed.lastSequence);
    const message: Message = opened.record.value;
    if (message.turnId !== undefined || message.role === MessageRole.UNSPECIFIED) return undefined;
    const content = await readWholeBody(this.#store, this.#row, message.content);
    return isRefusal(content) ? content : { kind: "message", role: message.role, content };
  }

  async #call({ call, pairing }: PairedCall): Promise<HistoryCall | Refusal> {
    const proposed = await readWholeBody(this.#store, this.#row, call.proposed);
    if (isRefusal(proposed)) return proposed;
    const told = toldResult(call);
    const content =
      "text" in told
        ? textOf(told.text)
        : await readWholeBody(this.#store, this.#row, told.result.content);
    if (isRefusal(content)) return content;
    const { toolCallId, toolName } = call;
    const isError = "text" in told ? told.isError : told.result.isError;
    const result = { ...content, isError };
    return { toolCallId, toolName, arguments: proposed.data, pairing, result };
  }
}

async function takeFirst(cursors: readonly RecordCursor[]): Promise<IndexedRecord | undefined> {
  let first: { readonly indexed: IndexedRecord; readonly cursor: RecordCursor } | undefined;
  for (const cursor of cursors) {
    const indexed = await cursor.peek();
    if (indexed === undefined) continue;
    if (first === undefined || indexed.firstSequence < first.indexed.firstSequence) {
      first = { indexed, cursor };
    }
  }
  first?.cursor.take();
  return first?.indexed;
}

function sourceOf({ turn, given }: OpenTurn): TurnSource {
  return { wire: given?.wire, provider: turn.provider };
}

function textOf(text: string): Content {
  return { data: new TextEncoder().encode(text), mediaType: "text/plain" };
}
