import type { EventRecord } from "../../../gen/toolmark/v1/event_pb.js";
import { CHAIN_START } from "../../domain/chain.js";
import { Fold } from "../../domain/evolve.js";
import { InvariantError } from "../../domain/invariant.js";
import { isRefusal } from "../../domain/refusal.js";
import { bringsRecords, type BringingRecord } from "../../domain/session-record.js";
import type { SessionState } from "../../domain/session-state.js";
import { readBaseState } from "../base-state.js";
import { followsChain, isIntact } from "../event-codec.js";
import type { EventRow, SessionRef, SessionRows } from "../store-port.js";
import { decodePayload, recordFault, recordOf } from "./event-rules.js";
import { ExpectedRows } from "./expected-rows.js";
import { reading } from "./reading.js";
import { Aborted, Unsound, type LogPoint, type VerifiedTable } from "./verdict.js";

const PAGE_EVENTS = 256;
const PAGE_BYTES = 4 * 1024 * 1024;
const UNREADABLE = "is followed by a row that cannot be read";

/** How the work gives way to others. */
export interface Pace {
  /** Gives others their turn. */
  readonly pause: () => Promise<void>;
  /** Whether nobody waits for the verdict any more. */
  readonly isAborted: () => boolean;
}

/** Told of each event once it is checked and folded. */
export type OnEvent = (row: EventRow, state: SessionState | undefined) => void;

/** The events of one session as far as they were checked, and what they say of every other row. */
export class SessionLog {
  readonly expected: ExpectedRows;
  /** The state after the last event. Absent before the first, and once an erased event came. */
  state: SessionState | undefined;
  sequence = 0n;
  position = 0n;
  chain: Uint8Array = CHAIN_START;
  timeMs = 0;
  createPosition = 0n;
  creatorSubject = "";
  /** Whether a payload was erased: then the other rows cannot be told from the events. */
  isErased = false;
  events = 0;
  bytes = 0;
  readonly #rows: SessionRows;
  readonly #session: SessionRef;
  readonly #mayBeErased: boolean;
  readonly #logOnly: boolean;
  readonly #pace: Pace;
  readonly #onEvent: OnEvent;
  readonly #fold = new Fold(undefined);
  /** The record of the event that was just taken, if it brings others. */
  #bringing: BringingRecord | undefined;

  constructor(
    { rows, session, mayBeErased, logOnly }: LogSource,
    pace: Pace,
    onEvent: OnEvent = () => undefined,
  ) {
    this.#rows = rows;
    this.#session = session;
    this.#mayBeErased = mayBeErased;
    this.#logOnly = logOnly;
    this.#pace = pace;
    this.#onEvent = onEvent;
    this.expected = new ExpectedRows(session.sessionId);
  }

  get head(): LogPoint {
    const { sequence, position, chain } = this;
    return { sequence, position, chain };
  }

  /** Checks the events that came since. False if there were none: then log and rows are of one moment. */
  async catchUp(): Promise<boolean> {
    const before = this.sequence;
    for (;;) {
      const page = await this.readPage("events", String(this.sequence), PAGE_EVENTS, (limit) =>
        this.#rows.readEvents(this.#session, this.sequence, limit, PAGE_BYTES),
      );
      if (page.length === 0) return this.sequence > before;
      for (const row of page) {
        this.#take(row);
        if (this.#bringing !== undefined) await this.#takeInherited(row, this.#bringing);
      }
      await this.pause();
    }
  }

  /** Throws Aborted if nobody waits any more. */
  async pause(): Promise<void> {
    if (this.#pace.isAborted()) throw new Aborted();
    await this.#pace.pause();
  }

  /** Rows of a table after a key; fewer, if the page as a whole cannot be read. */
  async readPage<Row>(
    table: VerifiedTable,
    after: string,
    limit: number,
    read: (limit: number) => Promise<Row[]>,
  ): Promise<Row[]> {
    try {
      return await reading(() => read(limit), { table, key: after }, UNREADABLE);
    } catch (error) {
      if (!(error instanceof Unsound) || limit === 1) throw error;
      return this.readPage(table, after, 1, read);
    }
  }

  #take(row: EventRow): void {
    const fault = this.#placeFault(row) ?? this.#payloadFault(row);
    if (fault !== undefined) this.#refuse(row.sequence, fault);
    this.sequence = row.sequence;
    this.position = row.position;
    this.chain = row.chain;
    this.timeMs = row.timeMs;
    this.events += 1;
    this.bytes += row.payload?.length ?? 0;
    this.#onEvent(row, this.state);
  }

  /** Records that an event brings are in a body: its bytes are those that the event names. */
  async #takeInherited(row: EventRow, record: BringingRecord): Promise<void> {
    this.#bringing = undefined;
    const found = await this.readPage("bodies", record.value.base?.bodyRef ?? "", 1, async () => [
      await readBaseState(this.#rows, this.#session, record.value),
    ]);
    const [base] = found;
    const fault =
      base === undefined || isRefusal(base)
        ? "brings records that are not as it says"
        : this.expected.addInherited(row, base, record.case);
    if (fault !== undefined) this.#refuse(row.sequence, fault);
  }

  #placeFault(row: EventRow): string | undefined {
    const next = this.sequence + 1n;
    if (row.sequence !== next) this.#refuse(next, "is missing");
    if (row.position <= this.position) return "has no higher position than the event before it";
    if (followsChain(this.#session.sessionId, this.chain, row)) return undefined;
    return "does not follow the chain";
  }

  #payloadFault(row: EventRow): string | undefined {
    if (row.payload === undefined && row.salt === undefined && this.#mayBeErased) {
      this.isErased = true;
      this.state = undefined;
      return undefined;
    }
    if (row.payload === undefined || row.salt === undefined) return "has no payload or no salt";
    if (!isIntact(row)) return "does not match its commitment";
    if (this.#logOnly) return undefined;
    const payload = decodePayload(row.payload);
    if (payload === undefined) return "has a payload that cannot be decoded";
    if (row.sequence === 1n) {
      this.createPosition = row.position;
      this.creatorSubject = payload.actor?.subject ?? "";
    }
    const record = recordOf(payload);
    if (bringsRecords(record.record)) this.#bringing = record.record;
    return (
      recordFault(this.#session.sessionId, row, record.record) ??
      this.#foldFault(row, record) ??
      this.expected.add(row, record.record)
    );
  }

  #foldFault({ kind, revision }: EventRow, record: EventRecord): string | undefined {
    // What is open cannot be told without the erased ones.
    if (this.isErased) return undefined;
    try {
      this.state = this.#fold.add([{ kind, revision, record, pairing: undefined }]);
      return undefined;
    } catch (error) {
      if (!(error instanceof InvariantError)) throw error;
      return `contradicts the events before it: ${error.message}`;
    }
  }

  #refuse(sequence: bigint, fault: string): never {
    throw new Unsound({ table: "events", key: String(sequence), sequence, fault });
  }
}

export interface LogSource {
  readonly rows: SessionRows;
  readonly session: SessionRef;
  /** Whether events without payload and salt are allowed. */
  readonly mayBeErased: boolean;
  /** Whether payloads are not decoded, but checked against their commitments alone. */
  readonly logOnly: boolean;
}
