import { readFileSync, rmSync, statSync, truncateSync, writeFileSync } from "node:fs";
import BetterSqlite from "better-sqlite3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { commit } from "../../src/domain/chain.js";
import type { EventRow, Store } from "../../src/ledger/store-port.js";
import { verifyStore } from "../../src/server/verify-store.js";
import { openSqliteStore } from "../../src/store/sqlite/sqlite-store.js";
import { StoreOpenError } from "../../src/store/sqlite/store-open-error.js";
import { kindOfAnswer, type AnswerKind } from "../support/damaged-answers.js";
import { everyRead } from "../support/every-read.js";
import {
  OfflineService,
  type OfflineAnswer,
  type OfflineCall,
} from "../support/offline-service.js";
import { startHistoryService, writeHistory } from "../support/rich-history.js";
import { scaled } from "../support/scale.js";
import { seededRandom, seededTitle } from "../support/seed.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { recordResult } from "./results.js";

const FLIPS = 1000;
const SCHEMA_FLIPS = 2000;
const TRUNCATIONS = 100;
const ZEROED_PAGES = 100;
const PAGE_BYTES = 4096;
const SECRET = new Uint8Array(32).fill(1);

let folder: StoreFolder;
let damaged: string;
let reads: OfflineCall[];
/** Requests that changed something, each to be repeated by its id. */
let repeats: OfflineCall[];
/** What the sound store answers to both. */
let originals: OfflineAnswer[];

beforeAll(async () => {
  folder = await makeStoreFolder();
  damaged = `${folder.path}.damaged`;
  const service = await startHistoryService({
    store: folder.store,
    flags: ["--snapshot-every", "4"],
  });
  repeats = [];
  const sessions = await writeHistory(service, (made) => {
    if ("requestId" in made.request) repeats.push(made);
  });
  await service.stop();
  emptyLog(folder.path);
  damage(() => undefined);
  reads = await withStore(damaged, (store) => everyRead(store, sessions));
  const answers = await answersOf(damaged);
  // What was refused when it was made is refused again, and proves nothing.
  repeats = repeats.filter((_, at) => answers[reads.length + at]?.kind === "answered");
  originals = await answersOf(damaged);
  expect(originals.filter(({ kind }) => kind !== "answered")).toEqual([]);
}, 60_000);

afterAll(() => folder.remove());

/** Moves what is in the write-ahead log into the file. */
function emptyLog(path: string): void {
  const database = new BetterSqlite(path);
  database.pragma("wal_checkpoint(TRUNCATE)");
  database.close();
}

async function withStore<Answer>(
  path: string,
  work: (store: Store) => Promise<Answer>,
): Promise<Answer> {
  const store = await openSqliteStore({ path, storeId: "sto_test" });
  try {
    return await work(store);
  } finally {
    await store.close();
  }
}

/** The answer to each read and each repeated request. */
async function answersOf(
  path: string,
  wrap: (store: Store) => Store = (store) => store,
): Promise<OfflineAnswer[]> {
  const calls = [...reads, ...repeats];
  try {
    return await withStore(path, async (store) => {
      const service = new OfflineService(wrap(store), SECRET);
      const answers: OfflineAnswer[] = [];
      for (const call of calls) answers.push(await service.call(call));
      return answers;
    });
  } catch (fault) {
    if (!(fault instanceof StoreOpenError) && !hasSqliteCode(fault)) throw fault;
    return calls.map(() => ({ kind: "failed", fault: toError(fault) }));
  }
}

function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}

function hasSqliteCode(error: unknown): boolean {
  return error instanceof Error && "code" in error && String(error.code).startsWith("SQLITE_");
}

/** What a damaged file says. */
interface Outcome {
  /** What each call was answered, beside what it should have been. */
  readonly answers: readonly { readonly method: string; readonly kind: AnswerKind }[];
  readonly isReported: boolean;
  /** Whether SQLite's own check finds nothing. */
  readonly passesSqlite: boolean;
}

async function outcomeOf(path: string): Promise<Outcome> {
  const isReported = await isReportedByVerify(path);
  const passesSqlite = isPassedBySqlite(path);
  return { answers: kindsOf(await answersOf(path)), isReported, passesSqlite };
}

function kindsOf(answers: readonly OfflineAnswer[]): Outcome["answers"] {
  return [...reads, ...repeats].map((call, at) => {
    const [original, answer] = [originals[at], answers[at]];
    if (original === undefined || answer === undefined) throw new Error("an answer is missing");
    return { method: call.method.name, kind: kindOfAnswer(call, original, answer) };
  });
}

async function isReportedByVerify(path: string): Promise<boolean> {
  try {
    return !(await verifyStore({ path })).isSound;
  } catch (error) {
    if (error instanceof StoreOpenError) return true;
    throw error;
  }
}

function isPassedBySqlite(path: string): boolean {
  const database = new BetterSqlite(path, { readonly: true });
  try {
    return database.pragma("integrity_check", { simple: true }) === "ok";
  } catch (error) {
    if (hasSqliteCode(error)) return false;
    throw error;
  } finally {
    database.close();
  }
}

/** Damages a fresh copy of the file, with nothing beside it. */
function damage(change: (bytes: Buffer) => void): void {
  const bytes = readFileSync(folder.path);
  change(bytes);
  for (const suffix of ["-wal", "-shm", ".position"]) {
    rmSync(`${damaged}${suffix}`, { force: true });
  }
  writeFileSync(damaged, bytes);
}

/** Numbers of the pages that say which tables there are. */
function schemaPages(): number[] {
  const database = new BetterSqlite(folder.path, { readonly: true });
  try {
    const numbers = database.prepare("SELECT pageno FROM dbstat WHERE name = 'sqlite_schema'");
    return numbers.pluck().all() as number[];
  } finally {
    database.close();
  }
}

interface Tally {
  count: number;
  /** Damage by which something was said that is not so. */
  readonly served: string[];
  /** Damage that changed or hid an answer, and that verify does not report. */
  readonly passed: string[];
  /** Damage by which a list lacked items, or part of one. */
  reduced: number;
  /** Damage by which a request was not known any more and carried out again. */
  repeated: number;
  unaltered: number;
  /** Damage that verify reports and SQLite's own check passes. */
  missedBySqlite: number;
}

function newTally(): Tally {
  const counts = { count: 0, reduced: 0, repeated: 0, unaltered: 0, missedBySqlite: 0 };
  return { ...counts, served: [], passed: [] };
}

async function tallyUp(tally: Tally, what: string): Promise<void> {
  const { answers, isReported, passesSqlite } = await outcomeOf(damaged);
  const has = (wanted: AnswerKind) => answers.some(({ kind }) => kind === wanted);
  const altered = answers.filter(({ kind }) => kind === "altered").map(({ method }) => method);
  const isUnaltered = answers.every(({ kind }) => kind === "same");
  tally.count += 1;
  if (altered.length > 0) tally.served.push(`${what}: ${[...new Set(altered)].join(", ")}`);
  if (!isReported && !isUnaltered) tally.passed.push(what);
  if (has("reduced")) tally.reduced += 1;
  if (has("repeated")) tally.repeated += 1;
  if (isUnaltered) tally.unaltered += 1;
  if (isReported && passesSqlite) tally.missedBySqlite += 1;
}

describe("a damaged file is never served nor passed", () => {
  test(seededTitle("a flipped bit"), async () => {
    const random = seededRandom("flips");
    const size = statSync(folder.path).size;
    const tally = newTally();
    for (let round = 0; round < scaled(FLIPS); round += 1) {
      const at = Math.floor(random() * size);
      const bit = Math.floor(random() * 8);
      damage((bytes) => {
        bytes[at] = (bytes[at] ?? 0) ^ (1 << bit);
      });
      await tallyUp(tally, `bit ${bit} of byte ${at}`);
    }
    const planted = [
      { name: "verify = integrity_check only", caught: tally.missedBySqlite },
      { name: "commitments not checked", caught: await servedUnchecked() },
    ];
    report("bit flips", "flips", FLIPS, tally, planted);
    expect(tally.served).toEqual([]);
    expect(tally.passed).toEqual([]);
    for (const { caught } of planted) expect(caught).toBeGreaterThan(0);
  });

  test(seededTitle("a flipped bit in what the tables are"), async () => {
    const random = seededRandom("schema flips");
    const pages = schemaPages();
    const tally = newTally();
    for (let round = 0; round < scaled(SCHEMA_FLIPS); round += 1) {
      const page = pages[Math.floor(random() * pages.length)] ?? 1;
      const at = (page - 1) * PAGE_BYTES + Math.floor(random() * PAGE_BYTES);
      const bit = Math.floor(random() * 8);
      damage((bytes) => {
        bytes[at] = (bytes[at] ?? 0) ^ (1 << bit);
      });
      await tallyUp(tally, `bit ${bit} of byte ${at}`);
    }
    expect(tally.served).toEqual([]);
    expect(tally.passed).toEqual([]);
    expect(tally.unaltered).toBeLessThan(tally.count);
  });

  test(seededTitle("a truncated file"), async () => {
    const random = seededRandom("truncations");
    const size = statSync(folder.path).size;
    const tally = newTally();
    for (let round = 0; round < scaled(TRUNCATIONS); round += 1) {
      const to = Math.floor(random() * size);
      damage(() => undefined);
      truncateSync(damaged, to);
      await tallyUp(tally, `cut to ${to} bytes`);
    }
    const planted = [{ name: "commitments not checked", caught: await servedUnchecked() }];
    report("truncations", "files", TRUNCATIONS, tally, planted);
    expect(tally.served).toEqual([]);
    expect(tally.passed).toEqual([]);
  });

  test(seededTitle("a zeroed page"), async () => {
    const random = seededRandom("pages");
    const pages = statSync(folder.path).size / PAGE_BYTES;
    const tally = newTally();
    for (let round = 0; round < scaled(ZEROED_PAGES); round += 1) {
      const page = Math.floor(random() * pages);
      damage((bytes) => bytes.fill(0, page * PAGE_BYTES, (page + 1) * PAGE_BYTES));
      await tallyUp(tally, `page ${page + 1}`);
    }
    const planted = [{ name: "commitments not checked", caught: await servedUnchecked() }];
    report("zeroed pages", "pages", ZEROED_PAGES, tally, planted);
    expect(tally.served).toEqual([]);
    expect(tally.passed).toEqual([]);
  });
});

function report(
  part: string,
  counted: string,
  wanted: number,
  tally: Tally,
  planted: readonly { readonly name: string; readonly caught: number }[],
): void {
  const { count, served, passed, ...counts } = tally;
  recordResult({
    ...{ promise: 6, part, counted, count, wanted, planted },
    violations: served.length + passed.length,
    figures: { served: served.length, passed: passed.length, ...counts },
  });
}

/** Calls that answer altered data once nobody looks at commitments, of a file in which a text was changed. */
async function servedUnchecked(): Promise<number> {
  damage((bytes) => {
    for (let at = bytes.indexOf("never remove"); at >= 0; at = bytes.indexOf("never remove", at)) {
      bytes.write("Never", at);
    }
  });
  const alteredOf = (answers: readonly OfflineAnswer[]) =>
    kindsOf(answers).filter(({ kind }) => kind === "altered");
  const unchecked = alteredOf(await answersOf(damaged, withoutCommitments));
  expect(alteredOf(await answersOf(damaged))).toEqual([]);
  return unchecked.length;
}

/** A store whose rows always match their commitments, whatever became of them. */
function withoutCommitments(store: Store): Store {
  const recommitted = (row: EventRow): EventRow => {
    const { salt, payload } = row;
    const isErased = salt === undefined || payload === undefined;
    return isErased ? row : { ...row, commitment: commit(salt, payload) };
  };
  const indexed = <Row extends { readonly event: EventRow | undefined }>(row: Row): Row => ({
    ...row,
    event: row.event && recommitted(row.event),
  });
  return {
    ...store,
    readEvent: async (...args) => {
      const row = await store.readEvent(...args);
      return row && recommitted(row);
    },
    findRecord: async (...args) => {
      const row = await store.findRecord(...args);
      return row && indexed(row);
    },
    listRecords: async (...args) => (await store.listRecords(...args)).map(indexed),
  };
}
