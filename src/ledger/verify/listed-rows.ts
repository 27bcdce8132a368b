import type { SessionLog } from "./session-log.js";
import { Unsound, type VerifiedTable } from "./verdict.js";

const PAGE_ROWS = 500;

/** What is wrong with a row. */
export interface RowFault {
  readonly key: string;
  readonly sequence?: bigint;
  readonly fault: string;
}

/** A table's rows of one session in the order of their places, and how each is told from the log. */
export interface RowList<Row, Place extends string | bigint> {
  readonly table: VerifiedTable;
  /** The place before the first row. */
  readonly start: Place;
  /** Rows that are read at a time. Default: as many as there can be of small ones. */
  readonly pageRows?: number;
  list(after: Place, limit: number): Promise<Row[]>;
  placeOf(row: Row): Place;
  /** What is wrong with a row; marks what the log expects as listed. */
  check(row: Row): RowFault | undefined | Promise<RowFault | undefined>;
  /** An expected row that was there before `sequence` and was not listed. */
  missing(sequence: bigint): RowFault | undefined;
}

/**
 * Compares a list with what the log says. Commits may go on: a row that differs is looked at again once the log has
 * caught up, and is bad only if log and row are of one moment. Throws Unsound for the first bad row.
 */
export async function checkList<Row, Place extends string | bigint>(
  log: SessionLog,
  rows: RowList<Row, Place>,
): Promise<void> {
  const startSequence = log.sequence;
  let after = rows.start;
  for (;;) {
    const last = await agreedPage(log, rows, after);
    if (last === undefined) break;
    after = last;
    await log.pause();
  }
  for (;;) {
    const fault = rows.missing(startSequence);
    if (fault === undefined) return;
    if (!(await log.catchUp())) throw new Unsound({ table: rows.table, ...fault });
  }
}

/** The last key of the page, once the page agrees with the log. */
async function agreedPage<Row, Place extends string | bigint>(
  log: SessionLog,
  rows: RowList<Row, Place>,
  after: Place,
): Promise<Place | undefined> {
  for (;;) {
    const page = await log.readPage(
      rows.table,
      String(after),
      rows.pageRows ?? PAGE_ROWS,
      (limit) => rows.list(after, limit),
    );
    const fault = await firstFault(rows, page, after);
    if (fault === undefined) {
      const last = page.at(-1);
      return last === undefined ? undefined : rows.placeOf(last);
    }
    if (!(await log.catchUp())) throw new Unsound({ table: rows.table, ...fault });
  }
}

async function firstFault<Row, Place extends string | bigint>(
  rows: RowList<Row, Place>,
  page: readonly Row[],
  after: Place,
): Promise<RowFault | undefined> {
  let before = after;
  for (const row of page) {
    const place = rows.placeOf(row);
    // A damaged index may lead in circles.
    if (!isAbove(place, before)) return { key: String(place), fault: "is out of order" };
    before = place;
    const checked = rows.check(row);
    const fault = checked instanceof Promise ? await checked : checked;
    if (fault !== undefined) return fault;
  }
  return undefined;
}

/** Texts are in the order of their UTF-8. */
function isAbove(place: string | bigint, before: string | bigint): boolean {
  if (typeof place === "bigint" || typeof before === "bigint") return place > before;
  return Buffer.compare(Buffer.from(place), Buffer.from(before)) > 0;
}
