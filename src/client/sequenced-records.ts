import type { DescMessage, Message as AnyMessage } from "@bufbuild/protobuf";
import { detachedCopy } from "./detached-copy.js";
import { compareValues } from "./record-order.js";

/** Where a record without a revision was read: in an event, or in something that an event brought. */
export interface ReadAt {
  readonly sequence: bigint;
  /** Its number in what the event brought; 0 for the event's own record. */
  readonly number: number;
  /** A record that was read apart from the log, as it stood after `sequence`. It says more than the event. */
  readonly isApart?: boolean;
}

interface Kept<M> {
  readonly record: M;
  readonly at: ReadAt;
  /** The earliest place that is known: where the record is shown. */
  readonly first: ReadAt;
}

/** Records without a revision, of one kind: of each id the one with the highest sequence. */
export class SequencedRecords<M extends AnyMessage> {
  readonly #kept = new Map<string, Kept<M>>();
  readonly #schema: DescMessage;

  constructor(schema: DescMessage) {
    this.#schema = schema;
  }

  /** Whether it changes what is kept. */
  take(id: string, record: M, at: ReadAt): boolean {
    const known = this.#kept.get(id);
    if (known === undefined) {
      this.#kept.set(id, { record: this.#copy(record), at, first: at });
      return true;
    }
    const first = compareReadAt(at, known.first) < 0 ? at : known.first;
    const isNewer = compareReadAt(at, known.at) > 0;
    if (!isNewer && first === known.first) return false;
    const newest = isNewer ? { record: this.#copy(record), at } : known;
    this.#kept.set(id, { record: newest.record, at: newest.at, first });
    return isNewer;
  }

  /** The record itself, not to be given away. */
  peek(id: string): M | undefined {
    return this.#kept.get(id)?.record;
  }

  /** Copies, in the order of first mention. */
  all(): M[] {
    const all = [...this.#kept].sort(
      ([leftId, left], [rightId, right]) =>
        compareReadAt(left.first, right.first) || compareValues(leftId, rightId),
    );
    return all.map(([, { record }]) => this.#copy(record));
  }

  #copy(record: M): M {
    return detachedCopy(this.#schema, record);
  }
}

function compareReadAt(left: ReadAt, right: ReadAt): number {
  return (
    compareValues(left.sequence, right.sequence) ||
    Number(left.isApart ?? false) - Number(right.isApart ?? false) ||
    compareValues(left.number, right.number)
  );
}
