import type { Dirent } from "node:fs";
import { lstat, readdir } from "node:fs/promises";
import { basename, dirname, join, normalize } from "node:path";
import { decodeSnapshot } from "../legacy/decode-snapshot.js";
import {
  groupFileNames,
  isFamilyName,
  sessionIdOfStem,
  stemsOf,
  type FileFamily,
} from "../legacy/file-names.js";
import { isMalformed, type Malformed } from "../legacy/malformed.js";
import { hasCode } from "./durable-file.js";
import { isFileFault, readLegacyFile, type FileFault } from "./legacy-file.js";
import { nextTurn } from "./next-turn.js";
import { isSystemError } from "./system-error.js";

/** Where newer versions of the older system keep their files, inside the folder that was given to it. */
const SUB_FOLDER = "sid-v1";
const MIB = 1024 * 1024;
const MAX_BYTES = 256 * MIB;

/** The files of one session, and the folder that they are in. */
export interface LegacyFamily extends FileFamily {
  readonly folder: string;
}

/** The content of a family. */
export interface LegacySources {
  readonly snapshot: Uint8Array | undefined;
  readonly log: Uint8Array | undefined;
}

/** What is wrong with a file, so that no session is found by it. */
export type LegacyFault = FileFault | MalformedFile | SessionIdTaken;

export interface MalformedFile {
  readonly file: string;
  readonly malformed: Malformed;
}

/** Another family, earlier by its stem, has the session id of this one. */
export interface SessionIdTaken {
  readonly file: string;
  readonly sessionId: string;
  readonly takenBy: string;
}

export interface LegacyDirectoryOptions {
  /** Above it a file is not read. Default: 256 MiB. */
  readonly maxBytes?: number;
  /** Told once of each file. Default: nobody. */
  readonly onFault?: (fault: LegacyFault) => void;
}

/** A folder, or a file, of an older system that was named cannot be used. */
export class LegacyDirectoryError extends Error {
  override readonly name = "LegacyDirectoryError";

  constructor(
    readonly path: string,
    why: string,
    options?: ErrorOptions,
  ) {
    super(`${path}: ${why}`, options);
  }
}

/** The session files of an older system. They are only ever read. */
export class LegacyDirectory {
  readonly families: readonly LegacyFamily[];
  readonly #maxBytes: number;
  readonly #onFault: (fault: LegacyFault) => void;
  readonly #byStem = new Map<string, LegacyFamily[]>();
  readonly #reported = new Set<string>();
  #index: Promise<ReadonlyMap<string, LegacyFamily>> | undefined;

  private constructor(families: readonly LegacyFamily[], options: LegacyDirectoryOptions) {
    this.families = [...families].sort(byStemThenFolder);
    const { maxBytes = MAX_BYTES, onFault = () => undefined } = options;
    this.#maxBytes = maxBytes;
    this.#onFault = onFault;
    for (const family of this.families) {
      this.#byStem.set(family.stem, [...(this.#byStem.get(family.stem) ?? []), family]);
    }
  }

  /** Lists a folder and its `sid-v1`, and reads no file. Throws LegacyDirectoryError. */
  static async open(path: string, options: LegacyDirectoryOptions = {}): Promise<LegacyDirectory> {
    const entries = await entriesOf(path);
    const hasSubFolder = entries.some((entry) => entry.name === SUB_FOLDER && entry.isDirectory());
    const inner = join(path, SUB_FOLDER);
    const families = [
      ...familiesIn(path, entries),
      ...(hasSubFolder ? familiesIn(inner, await entriesOf(inner)) : []),
    ];
    return new LegacyDirectory(families, options);
  }

  /** The families of these files alone, whatever else lies beside them. Throws LegacyDirectoryError. */
  static async ofFiles(
    paths: readonly string[],
    options: LegacyDirectoryOptions = {},
  ): Promise<LegacyDirectory> {
    const namesByFolder = new Map<string, string[]>();
    for (const path of paths) {
      const name = basename(path);
      if (!isFamilyName(name)) {
        throw new LegacyDirectoryError(path, "its name is that of no snapshot and no event log");
      }
      await requireThere(path);
      const folder = normalize(dirname(path));
      namesByFolder.set(folder, [...(namesByFolder.get(folder) ?? []), name]);
    }
    const families = [...namesByFolder].flatMap(([folder, names]) => grouped(folder, names));
    return new LegacyDirectory(families, options);
  }

  /** The bytes of a family's files, or why there are none. Nothing is reported to `onFault`. */
  async read(family: LegacyFamily): Promise<LegacySources | FileFault> {
    const snapshot = await this.#readFile(family, family.snapshot);
    if (snapshot !== undefined && isFileFault(snapshot)) return snapshot;
    const log = await this.#readFile(family, family.log);
    if (log !== undefined && isFileFault(log)) return log;
    return { snapshot, log };
  }

  /**
   * The family of a session: by its name if it has the right one, else by what the snapshots say, all of which are
   * read once for it.
   */
  async find(sessionId: string): Promise<LegacyFamily | undefined> {
    for (const stem of stemsOf(sessionId)) {
      for (const family of this.#byStem.get(stem) ?? []) {
        if (await this.#isOf(family, sessionId)) return family;
      }
    }
    this.#index ??= this.#indexAll();
    return (await this.#index).get(sessionId);
  }

  /** A log alone is believed its name. The store's own stem can be told from an id even where no id can from it. */
  async #isOf(family: LegacyFamily, sessionId: string): Promise<boolean> {
    const [ownStem] = stemsOf(sessionId);
    if (family.snapshot === undefined && family.stem === ownStem) return true;
    return (await this.#sessionIdOf(family)) === sessionId;
  }

  async #indexAll(): Promise<ReadonlyMap<string, LegacyFamily>> {
    const index = new Map<string, LegacyFamily>();
    for (const family of this.families) {
      const sessionId = await this.#sessionIdOf(family);
      await nextTurn();
      if (sessionId === undefined) continue;
      const earlier = index.get(sessionId);
      if (earlier === undefined) index.set(sessionId, family);
      else this.#report({ file: fileOf(family), sessionId, takenBy: fileOf(earlier) });
    }
    return index;
  }

  async #sessionIdOf(family: LegacyFamily): Promise<string | undefined> {
    if (family.snapshot === undefined) return sessionIdOfStem(family.stem);
    const file = fileOf(family);
    const bytes = await readLegacyFile(file, this.#maxBytes);
    if (isFileFault(bytes)) {
      this.#report(bytes);
      return undefined;
    }
    const snapshot = decodeSnapshot(bytes);
    if (!isMalformed(snapshot)) return snapshot.sessionId;
    this.#report({ file, malformed: snapshot });
    return undefined;
  }

  async #readFile(
    { folder }: LegacyFamily,
    name: string | undefined,
  ): Promise<Uint8Array | FileFault | undefined> {
    return name === undefined ? undefined : readLegacyFile(join(folder, name), this.#maxBytes);
  }

  #report(fault: LegacyFault): void {
    if (this.#reported.has(fault.file)) return;
    this.#reported.add(fault.file);
    this.#onFault(fault);
  }
}

/** The file that a family is named by: its snapshot, if it has one. */
export function fileOf({ folder, stem, snapshot, log }: LegacyFamily): string {
  return join(folder, snapshot ?? log ?? stem);
}

/** Only regular files count: a link may lead out of the folder. */
function familiesIn(folder: string, entries: readonly Dirent[]): LegacyFamily[] {
  return grouped(
    folder,
    entries.filter((entry) => entry.isFile()).map(({ name }) => name),
  );
}

function grouped(folder: string, names: readonly string[]): LegacyFamily[] {
  return groupFileNames(names).map((family) => ({ ...family, folder }));
}

async function entriesOf(path: string): Promise<Dirent[]> {
  try {
    return await readdir(path, { withFileTypes: true });
  } catch (error) {
    if (hasCode(error, "ENOENT")) throw new LegacyDirectoryError(path, "there is no such folder");
    throw asUnusable(path, error);
  }
}

async function requireThere(path: string): Promise<void> {
  try {
    await lstat(path);
  } catch (error) {
    if (hasCode(error, "ENOENT")) throw new LegacyDirectoryError(path, "there is no such file");
    throw asUnusable(path, error);
  }
}

function asUnusable(path: string, error: unknown): unknown {
  if (!isSystemError(error)) return error;
  return new LegacyDirectoryError(path, "it cannot be read", { cause: error });
}

function byStemThenFolder(a: LegacyFamily, b: LegacyFamily): number {
  if (a.stem !== b.stem) return a.stem < b.stem ? -1 : 1;
  return a.folder < b.folder ? -1 : 1;
}
