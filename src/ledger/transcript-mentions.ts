import type { Compaction } from "../../gen/toolmark/v1/session_pb.js";
import { isRefusal, type Refusal } from "../domain/refusal.js";
import { RecordFamily, type IndexedRecord, type SessionRow, type Store } from "./store-port.js";
import { broughtAfter, type Brought } from "./transcript-brought.js";
import { CompactionCursor } from "./transcript-compactions.js";
import { RecordCursor } from "./transcript-cursor.js";
import { isBefore, type TranscriptPlace } from "./transcript-place.js";

/** Kinds of record that can be entries of their own. */
const FAMILIES = [
  RecordFamily.run,
  RecordFamily.message,
  RecordFamily.toolCall,
  RecordFamily.hook,
  RecordFamily.legacyEvidence,
];

/** The first mention of something, at its place. */
export type Mention = { readonly place: TranscriptPlace } & (
  | { readonly kind: "record"; readonly indexed: IndexedRecord }
  | { readonly kind: "compaction"; readonly value: Compaction }
  | { readonly kind: "origin" }
);

/** The page has looked far enough: what follows `place` is for the next one. */
export interface Paused {
  readonly kind: "paused";
  readonly place: TranscriptPlace;
}

/** Which mentions are wanted. */
export interface MentionRange {
  readonly after: TranscriptPlace;
  /** How many are wanted at first. */
  readonly wanted: number;
  /** The last archived event. 0 if there is none: then no compaction is looked for. */
  readonly archived: bigint;
}

interface Source {
  readonly mention: Mention;
  readonly take: () => void;
}

/**
 * Everything that a session mentions, in the order of first mention: of each kind of record no more is read than is
 * needed. Ends at the head of the log as it was at first, so that nothing that is written meanwhile comes before its
 * time.
 */
export class Mentions {
  readonly #cursors: readonly RecordCursor[];
  readonly #compactions: CompactionCursor | undefined;
  readonly #through: bigint;
  readonly #archived: bigint;
  readonly #broughtArchived: bigint | undefined;
  #others: Mention[];

  private constructor(store: Store, row: SessionRow, range: MentionRange, brought: Brought) {
    const { sequence: after } = range.after;
    // A mounted session shows an empty log; what adopting it would write is at 1.
    this.#through = row.head.sequence === 0n ? 1n : row.head.sequence;
    const { wanted, archived } = range;
    this.#archived = archived;
    this.#broughtArchived = brought.summary?.place.sequence;
    this.#cursors = FAMILIES.map(
      (family) => new RecordCursor(store, row, { family, after, through: this.#through, wanted }),
    );
    this.#compactions =
      archived > 0n ? new CompactionCursor(store, row, after < 0n ? 0n : after) : undefined;
    this.#others = othersOf(brought).filter(({ place }) => isBefore(range.after, place));
  }

  static async after(
    store: Store,
    row: SessionRow,
    range: MentionRange,
  ): Promise<Mentions | Refusal> {
    const brought = await broughtAfter(store, row, range.after);
    return isRefusal(brought) ? brought : new Mentions(store, row, range, brought);
  }

  /** The next one. Absent behind the last. */
  async next(): Promise<Mention | Paused | undefined | Refusal> {
    const first = await this.#firstSource();
    const through = first?.mention.place.sequence ?? this.#through;
    const compaction = await this.#compactions?.peek(through);
    if (isRefusal(compaction)) return compaction;
    if (compaction === undefined) {
      first?.take();
      return first?.mention;
    }
    if ("through" in compaction) {
      return { kind: "paused", place: { sequence: compaction.through, behind: 1n } };
    }
    this.#compactions?.take();
    const { sequence, value } = compaction;
    return { kind: "compaction", place: { sequence, behind: 0n }, value };
  }

  /** Whether a summary stands for what is at a place: one of this session, or one that a fork brought. */
  isArchived({ sequence, behind }: TranscriptPlace): boolean {
    if (sequence > 0n) return sequence <= this.#archived;
    // What a session came with was brought by its first event.
    if (this.#archived > 0n) return true;
    return (
      behind === 0n && this.#broughtArchived !== undefined && sequence <= this.#broughtArchived
    );
  }

  async #firstSource(): Promise<Source | undefined> {
    let first: Source | undefined;
    for (const source of [...(await this.#records()), ...this.#other()]) {
      if (first === undefined || isBefore(source.mention.place, first.mention.place)) {
        first = source;
      }
    }
    return first;
  }

  async #records(): Promise<Source[]> {
    const sources: Source[] = [];
    for (const cursor of this.#cursors) {
      const indexed = await cursor.peek();
      if (indexed === undefined) continue;
      const place = { sequence: indexed.firstSequence, behind: 0n } as const;
      sources.push({
        mention: { kind: "record", place, indexed },
        take: () => {
          cursor.take();
        },
      });
    }
    return sources;
  }

  #other(): Source[] {
    const [mention, ...rest] = this.#others;
    if (mention === undefined) return [];
    const take = (): void => {
      this.#others = rest;
    };
    return [{ mention, take }];
  }
}

/** What a session came with beside records, in its order. */
function othersOf({ origin, summary }: Brought): Mention[] {
  const others: Mention[] = [];
  if (summary !== undefined) others.push({ kind: "compaction", ...summary });
  if (origin !== undefined) others.push({ kind: "origin", place: origin });
  return others;
}
