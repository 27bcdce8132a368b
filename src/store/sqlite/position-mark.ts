import { closeSync, constants, fsyncSync, openSync, readSync, rmSync, writeSync } from "node:fs";
import { equalBytes } from "../../domain/bytes.js";
import { digestOf } from "../../domain/sha256.js";
import type { StoreMeta } from "./meta.js";
import { toError } from "./sqlite-database.js";
import { StoreOpenError } from "./store-open-error.js";

const PRIVATE_FILE_MODE = 0o600;
const PART_BYTES = 8;
const MARK_BYTES = 4 * PART_BYTES;

/** How far the log of a store has come. */
export interface StorePlace extends StoreMeta {
  /** Of the last event. */
  readonly position: bigint;
}

interface Mark {
  readonly storeTag: Uint8Array;
  readonly generation: bigint;
  readonly position: bigint;
}

/** Tells that something is amiss and was passed over. */
export type OnWarning = (text: string) => void;

/**
 * The position of the last acknowledged commit, in a file beside the database: `<database path>.position`, mode 0600,
 * written before each acknowledgement. A database that has not come as far lacks committed events: its write-ahead log
 * was removed or cut, or an older copy of it was put in its place.
 *
 * The mark is not synced, except at a clean close: after a power loss it may be older than the database, and then finds
 * less. It is never newer: each value is written after the commit that it names was synced.
 */
export class PositionMark {
  readonly #path: string;
  readonly #found: Mark | undefined;
  readonly #onWarning: OnWarning;
  readonly #bytes = Buffer.alloc(MARK_BYTES);
  #file: number | undefined;
  #store: { readonly tag: Uint8Array; readonly generation: bigint } | undefined;
  #position = -1n;

  private constructor(
    path: string,
    file: number | undefined,
    found: Mark | undefined,
    onWarning: OnWarning,
  ) {
    this.#path = path;
    this.#file = file;
    this.#found = found;
    this.#onWarning = onWarning;
  }

  /**
   * Compares the mark with what the database says; undefined is a database that has no events and never was a store's.
   * Throws StoreOpenError, "events_missing" if the database lacks what the mark names. Nothing is written.
   */
  static open(
    databasePath: string,
    place: StorePlace | undefined,
    onWarning: OnWarning,
  ): PositionMark {
    const path = markPath(databasePath);
    const file = openFile(path, constants.O_RDWR);
    if (file === undefined) return new PositionMark(path, undefined, undefined, onWarning);
    try {
      const found = readMark(file, path, onWarning);
      if (found !== undefined) refuseMissing(databasePath, found, place);
      return new PositionMark(path, file, found, onWarning);
    } catch (error) {
      closeSync(file);
      throw error instanceof StoreOpenError ? error : unavailable(path, error);
    }
  }

  /**
   * Reads the mark, for a store that may be served: says of a later copy of it whether it lacks what was acknowledged
   * by now. What is returned throws as `open` does.
   */
  static before(databasePath: string): (copy: StorePlace) => void {
    const found = markOf(databasePath);
    return (copy) => {
      if (found !== undefined) refuseMissing(databasePath, found, copy);
    };
  }

  /** From here on the mark is this store's. It is written if it said anything else. */
  begin({ storeId, generation, position }: StorePlace): void {
    const tag = tagOf(storeId);
    this.#store = { tag, generation };
    const found = this.#found;
    const isCurrent =
      found?.position === position &&
      found.generation === generation &&
      equalBytes(found.storeTag, tag);
    if (isCurrent) this.#position = position;
    else this.advance(position);
  }

  /**
   * Every event up to a position is committed and synced. If that cannot be written, the commit stands all the same:
   * the mark stays where it is from then on.
   */
  advance(position: bigint): void {
    if (this.#store === undefined || position <= this.#position) return;
    const { tag, generation } = this.#store;
    try {
      this.#file ??= openFile(this.#path, constants.O_RDWR | constants.O_CREAT);
      if (this.#file === undefined) return;
      encodeMark(this.#bytes, { storeTag: tag, generation, position });
      writeSync(this.#file, this.#bytes, 0, MARK_BYTES, 0);
      this.#position = position;
    } catch (error) {
      this.#store = undefined;
      const { message } = toError(error);
      this.#onWarning(`${this.#path} cannot be written and stays as it is: ${message}`);
    }
  }

  /** Syncs and releases the file. */
  close(): void {
    const file = this.#file;
    if (file === undefined) return;
    this.#file = undefined;
    this.#store = undefined;
    try {
      if (this.#position >= 0n) fsyncSync(file);
    } catch (error) {
      this.#onWarning(`${this.#path} cannot be synced: ${toError(error).message}`);
    } finally {
      closeSync(file);
    }
  }
}

/**
 * Says how far the database has come, synced; for whoever puts another database in the place of one. To be written
 * after the database is in its place: a mark ahead of it would refuse it.
 */
export function writeMark(databasePath: string, place: StorePlace): void {
  const path = markPath(databasePath);
  const bytes = Buffer.alloc(MARK_BYTES);
  encodeMark(bytes, { ...place, storeTag: tagOf(place.storeId) });
  const file = openSync(path, constants.O_RDWR | constants.O_CREAT, PRIVATE_FILE_MODE);
  try {
    writeSync(file, bytes, 0, MARK_BYTES, 0);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

/** The generation that the mark names, whatever store it is of. Absent if there is no sound mark. */
export function markedGeneration(databasePath: string): bigint | undefined {
  return markOf(databasePath)?.generation;
}

function markOf(databasePath: string): Mark | undefined {
  const path = markPath(databasePath);
  const file = openFile(path, constants.O_RDONLY);
  if (file === undefined) return undefined;
  try {
    return readMark(file, path, () => undefined);
  } finally {
    closeSync(file);
  }
}

/** Forgets how far the database had come. */
export function removeMark(databasePath: string): void {
  rmSync(markPath(databasePath), { force: true });
}

export function markPath(databasePath: string): string {
  return `${databasePath}.position`;
}

/** Undefined if it is not there and not to be made. */
function openFile(path: string, flags: number): number | undefined {
  try {
    // A pipe in the place of a file must not keep the start waiting.
    return openSync(path, flags | constants.O_NONBLOCK, PRIVATE_FILE_MODE);
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw unavailable(path, error);
  }
}

function unavailable(path: string, thrown: unknown): StoreOpenError {
  const cause = toError(thrown);
  const details = { path, cause: cause.message };
  return new StoreOpenError("unavailable", `cannot read ${path}: ${cause.message}`, details, {
    cause,
  });
}

function readMark(file: number, path: string, onWarning: OnWarning): Mark | undefined {
  const bytes = Buffer.alloc(MARK_BYTES);
  const size = readSync(file, bytes, 0, MARK_BYTES, 0);
  if (size === 0) return undefined;
  const mark = decodeMark(bytes);
  const rewritten = Buffer.alloc(MARK_BYTES);
  encodeMark(rewritten, mark);
  if (size === MARK_BYTES && equalBytes(rewritten, bytes)) return mark;
  onWarning(`${path} is damaged and is written anew: whether events are missing is not known`);
  return undefined;
}

/** Tag of the store, generation and position, then a check over them; numbers big-endian. */
function encodeMark(bytes: Buffer, { storeTag, generation, position }: Mark): void {
  bytes.set(storeTag, 0);
  bytes.writeBigUInt64BE(generation, PART_BYTES);
  bytes.writeBigUInt64BE(position, 2 * PART_BYTES);
  const check = digestOf(["position mark", storeTag, generation, position]);
  bytes.set(check.subarray(0, PART_BYTES), 3 * PART_BYTES);
}

function decodeMark(bytes: Buffer): Mark {
  return {
    storeTag: bytes.subarray(0, PART_BYTES),
    generation: bytes.readBigUInt64BE(PART_BYTES),
    position: bytes.readBigUInt64BE(2 * PART_BYTES),
  };
}

/** Tells the mark of another store from a damaged one. */
function tagOf(storeId: string): Uint8Array {
  return digestOf(["store of a position mark", storeId]).subarray(0, PART_BYTES);
}

function refuseMissing(path: string, mark: Mark, place: StorePlace | undefined): void {
  if (place === undefined) {
    if (mark.position > 0n) throw storeMissing(path, mark);
    return;
  }
  if (!equalBytes(mark.storeTag, tagOf(place.storeId))) return;
  if (mark.generation > place.generation) {
    throw eventsMissing(path, mark, `it is of generation ${place.generation}`);
  }
  if (mark.generation < place.generation || mark.position <= place.position) return;
  throw eventsMissing(path, mark, `its last event has position ${place.position}`);
}

function eventsMissing(path: string, mark: Mark, found: string): StoreOpenError {
  return refusal(
    path,
    mark,
    found,
    "put the right files back, or restore a backup by `toolmark restore`, which begins a new generation so that no " +
      "revision comes again",
  );
}

/** Also of a young store whose rows were all in the log. */
function storeMissing(path: string, mark: Mark): StoreOpenError {
  return refusal(
    path,
    mark,
    "it holds no store",
    "put the right files back, or restore a backup by `toolmark restore`. To begin a new store here, remove " +
      markPath(path),
  );
}

function refusal(path: string, mark: Mark, found: string, advice: string): StoreOpenError {
  const position = String(mark.position);
  const generation = String(mark.generation);
  return new StoreOpenError(
    "events_missing",
    `committed events are missing from ${path}: ${found}, but events up to position ${position} of generation ` +
      `${generation} were acknowledged. Its write-ahead log was removed or cut, or the database was removed or an ` +
      `older copy put in its place: ${advice}`,
    { path, found, position, generation },
  );
}
