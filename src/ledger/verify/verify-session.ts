import { SessionState } from "../../../gen/toolmark/v1/session_pb.js";
import { equalBytes } from "../../domain/bytes.js";
import { isIntactSession } from "../checksums.js";
import { standingOf } from "../standing.js";
import type { EventRow, SessionRef, SessionRow, SessionRows } from "../store-port.js";
import { bodyList, pairingList, requestList, type BodyCount } from "./content-lists.js";
import { askList, deadlineList, difference, recordLists } from "./index-lists.js";
import { checkList } from "./listed-rows.js";
import { reading } from "./reading.js";
import { SessionLog, type Pace } from "./session-log.js";
import { isHighWater, SnapshotCheck } from "./snapshot-check.js";
import { Aborted, Unsound, type LogPoint, type Verdict, type VerifiedCounts } from "./verdict.js";

export interface VerifyOptions extends Pace {
  /** Points that the log must go through. */
  readonly checkpoints: readonly LogPoint[];
  /** The revision below which nothing is published in a log of this generation. */
  readonly generationFloor: bigint;
  /** Looks at the log alone: commitments, chain, head and checkpoints, not at what follows from it. Default: false. */
  readonly logOnly?: boolean;
}

/**
 * Rebuilds from a session's events everything else that is stored of it, and compares: chain, revisions, state,
 * snapshots, head, indices, bodies, pairings and requests. Writes nothing and takes no lock: commits may go on. Absent
 * if there is no such session. Rejects with StoreFault if the store cannot be read for another reason than damage.
 */
export async function verifySession(
  rows: SessionRows,
  session: SessionRef,
  options: VerifyOptions,
): Promise<Verdict | undefined> {
  const verification = new Verification(rows, session, options);
  try {
    return await verification.run();
  } catch (error) {
    if (error instanceof Aborted) return { outcome: "aborted" };
    if (!(error instanceof Unsound)) throw error;
    return { outcome: "damaged", finding: error.finding, counts: verification.counts };
  }
}

class Verification {
  readonly #rows: SessionRows;
  readonly #session: SessionRef;
  readonly #options: VerifyOptions;
  readonly #bodies: BodyCount = { bodies: 0, bytes: 0 };
  #log: SessionLog | undefined;
  readonly #missed: Set<LogPoint>;

  constructor(rows: SessionRows, session: SessionRef, options: VerifyOptions) {
    this.#rows = rows;
    this.#session = session;
    this.#options = options;
    this.#missed = new Set(options.checkpoints);
  }

  get counts(): VerifiedCounts {
    const { bodies, bytes } = this.#bodies;
    return { events: this.#log?.events ?? 0, bodies, bytes: bytes + (this.#log?.bytes ?? 0) };
  }

  async run(): Promise<Verdict | undefined> {
    const row = await this.#findRow();
    if (row === undefined) return undefined;
    const log = await this.#readLog(row);
    const session = await this.#checkRow(log);
    if (this.#options.logOnly === true) return this.#verdict(log);
    if (!log.isErased) {
      for (const list of recordLists(this.#rows, session, log)) await checkList(log, list);
      await checkList(log, askList(this.#rows, session, log));
      await checkList(log, deadlineList(this.#rows, session, log));
    }
    await checkList(log, bodyList(this.#rows, session, log, this.#bodies));
    await checkList(log, pairingList(this.#rows, session, log));
    await checkList(log, requestList(this.#rows, session, log));
    return this.#verdict(log);
  }

  #verdict(log: SessionLog): Verdict {
    const { head } = log;
    const { counts } = this;
    const [missed] = this.#missed;
    if (missed === undefined) return { outcome: "sound", head, counts };
    return { outcome: "checkpoint_missed", sequence: missed.sequence, head, counts };
  }

  async #readLog(row: SessionRow): Promise<SessionLog> {
    const key = this.#session.sessionId;
    const { logOnly = false } = this.#options;
    const stored = await reading(
      async () => (logOnly ? [] : this.#rows.readSnapshots(this.#session)),
      { table: "snapshots", key },
      "has a snapshot that cannot be read",
    );
    const snapshots = new SnapshotCheck(stored, this.#options.generationFloor);
    const source = {
      rows: this.#rows,
      session: this.#session,
      mayBeErased: row.state === SessionState.ERASED,
      logOnly,
    };
    const log = new SessionLog(source, this.#options, (event, state) => {
      snapshots.at(event, state);
      this.#lookForCheckpoint(event);
    });
    this.#log = log;
    await this.#readToHead(log);
    snapshots.finish();
    return log;
  }

  /** The head, if it can be believed, tells whether events are missing at the end. */
  async #readToHead(log: SessionLog): Promise<void> {
    await log.catchUp();
    for (;;) {
      const row = await this.#findRow();
      if (row === undefined || !isIntactSession(row) || row.head.sequence <= log.sequence) return;
      if (await log.catchUp()) continue;
      const sequence = log.sequence + 1n;
      throw new Unsound({ table: "events", key: String(sequence), sequence, fault: "is missing" });
    }
  }

  #lookForCheckpoint({ sequence, position, chain }: EventRow): void {
    for (const point of this.#missed) {
      const isHere = point.sequence === sequence && point.position === position;
      if (isHere && equalBytes(point.chain, chain)) this.#missed.delete(point);
    }
  }

  /** The session's row, compared with the log of the same moment. */
  async #checkRow(log: SessionLog): Promise<SessionRow> {
    for (;;) {
      const row = await this.#findRow();
      const fault = row === undefined ? "is missing" : this.#rowFault(row, log);
      if (row !== undefined && fault === undefined) return row;
      if (await log.catchUp()) continue;
      throw this.#unsoundRow(fault ?? "is missing");
    }
  }

  #rowFault(row: SessionRow, log: SessionLog): string | undefined {
    if (!isIntactSession(row)) return "does not match its checksum";
    const { head } = row;
    const { sequence, position, chain } = log;
    if (head.sequence !== sequence || head.position !== position) {
      return "has another end of the log than the events";
    }
    if (!equalBytes(head.chain, chain)) return "has another chain value than the last event";
    const { updateTimeMs } = head;
    return difference({ updateTimeMs }, { updateTimeMs: log.timeMs }) ?? this.#stateFault(row, log);
  }

  #stateFault(row: SessionRow, { state, createPosition, creatorSubject, isErased }: SessionLog) {
    if (isErased || this.#options.logOnly === true) return undefined;
    if (state === undefined) return "has no events";
    const { head, ownerSubject, createdBySubject, parentSessionId, rootSessionId } = row;
    const found = {
      ownerSubject,
      createdBySubject,
      parentSessionId,
      rootSessionId,
      createPosition: row.createPosition,
      state: row.state,
      sessionSequence: head.sessionSequence,
      activeRunId: head.activeRunId,
    };
    const fault = difference(found, {
      ownerSubject: state.session.ownerSubject,
      createdBySubject: creatorSubject,
      ...standingOf(state.session),
      createPosition,
      state: state.session.state,
      sessionSequence: state.sessionSequence,
      activeRunId: state.activeRun?.runId,
    });
    if (fault !== undefined) return fault;
    const { generationFloor } = this.#options;
    if (isHighWater(head.highWater, state.highWater, generationFloor)) return undefined;
    return "has another high-water than the events";
  }

  async #findRow(): Promise<SessionRow | undefined> {
    const { sessionId } = this.#session;
    const find = () => this.#rows.findSession(this.#session);
    return reading(find, { table: "sessions", key: sessionId });
  }

  #unsoundRow(fault: string): Unsound {
    return new Unsound({ table: "sessions", key: this.#session.sessionId, fault });
  }
}
