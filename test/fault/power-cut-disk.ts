import { closeSync, ftruncateSync, mkdirSync, openSync, writeSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import type { Operation, SyncOperation } from "./strace-log.js";

const SECTOR_BYTES = 512;
/** The index of the write-ahead log: SQLite makes it anew. */
const NEVER_KEPT = "-shm";

type Random = () => number;

/** A change of a file's content that is not known to be on the disk. */
interface Change {
  /** The operation's place in the trace. */
  readonly index: number;
  /** Absent: the file was cut to `offset`. */
  readonly data?: Buffer;
  readonly offset: number;
}

/** A file under whatever names it has. */
interface File {
  synced: Buffer;
  pending: Change[];
}

/** A change of a folder that is not known to be on the disk. */
interface Renaming {
  readonly index: number;
  readonly folder: string;
  readonly apply: (names: Map<string, File | undefined>) => void;
}

/** How much of what was not synced a power cut leaves. */
export const SURVIVALS = ["nothing", "everything", "prefix", "writes", "sectors"] as const;
export type Survival = (typeof SURVIVALS)[number];

/**
 * A disk that follows a trace. What was synced is on it; of the rest, a power cut leaves what it likes. A name is on it
 * once its folder was synced.
 */
export class PowerCutDisk {
  readonly #root: string;
  /** Files by path; a folder is undefined. As the system shows them, and as they are on the disk. */
  readonly #shown = new Map<string, File | undefined>();
  readonly #synced = new Map<string, File | undefined>();
  #renamings: Renaming[] = [];
  #operations = 0;

  /** `root` is a folder that is there and on the disk. */
  constructor(root: string) {
    this.#root = root;
    this.#shown.set(root, undefined);
    this.#synced.set(root, undefined);
  }

  apply(operation: Operation): void {
    const index = this.#operations;
    this.#operations += 1;
    switch (operation.kind) {
      case "write":
      case "truncate":
        this.#changed(operation, index);
        break;
      case "sync":
        this.#sync(operation);
        break;
      case "send":
        break;
      default:
        this.#renamed(renaming(operation, index, this.#shown));
    }
  }

  /** Puts what a power cut leaves now into an empty folder in place of the root. */
  rebuild(target: string, survival: Survival, random: Random): void {
    const oldest = this.#oldestUnsynced();
    const limit = oldest + (this.#operations - oldest) * random();
    const chance = 0.1 + 0.8 * random();
    const isKept = (index: number): boolean => {
      if (survival === "nothing" || survival === "everything") return survival === "everything";
      return survival === "prefix" ? index < limit : random() < chance;
    };
    const names = new Map(this.#synced);
    for (const { index, apply } of this.#renamings) if (isKept(index)) apply(names);
    // A folder comes before what is in it.
    for (const [path, file] of [...names].sort(([one], [other]) => one.length - other.length)) {
      if (!names.has(dirname(path)) && path !== this.#root) continue;
      const to = join(target, relative(this.#root, path));
      if (file === undefined) mkdirSync(to, { recursive: true });
      else if (!path.endsWith(NEVER_KEPT)) {
        const pieces = survival === "sectors" || survival === "prefix";
        const changes = pieces ? torn(file.pending, survival, random) : file.pending;
        writeFile(
          to,
          file.synced,
          changes.filter(({ index }) => isKept(index)),
        );
      }
    }
  }

  #oldestUnsynced(): number {
    const files = [...this.#shown.values()].flatMap((file) => file?.pending ?? []);
    return [...files, ...this.#renamings].reduce(
      (oldest, { index }) => Math.min(oldest, index),
      this.#operations,
    );
  }

  #changed(operation: Extract<Operation, { kind: "write" | "truncate" }>, index: number): void {
    const file = this.#shown.get(operation.path);
    if (file === undefined) throw new Error(`${operation.path} was never created`);
    if (operation.kind === "truncate") file.pending.push({ index, offset: operation.size });
    else file.pending.push({ index, offset: operation.offset, data: operation.data });
  }

  #renamed(change: Renaming): void {
    change.apply(this.#shown);
    this.#renamings.push(change);
  }

  #sync({ path, covers }: SyncOperation): void {
    const file = this.#shown.get(path);
    if (file !== undefined) {
      for (const change of file.pending) if (change.index < covers) changeBuffer(file, change);
      file.pending = file.pending.filter(({ index }) => index >= covers);
      return;
    }
    const isCovered = ({ folder, index }: Renaming): boolean => folder === path && index < covers;
    for (const change of this.#renamings) if (isCovered(change)) change.apply(this.#synced);
    this.#renamings = this.#renamings.filter((change) => !isCovered(change));
  }
}

function renaming(
  operation: Extract<Operation, { kind: "create" | "makeFolder" | "unlink" | "link" | "rename" }>,
  index: number,
  shown: ReadonlyMap<string, File | undefined>,
): Renaming {
  const { path } = operation;
  const known = shown.get(path);
  const to = "to" in operation ? operation.to : path;
  const made: File = { synced: Buffer.alloc(0), pending: [] };
  const apply = (names: Map<string, File | undefined>): void => {
    switch (operation.kind) {
      case "makeFolder":
        names.set(path, undefined);
        break;
      case "create":
        names.set(path, made);
        break;
      case "unlink":
        names.delete(path);
        break;
      case "rename":
        names.delete(path);
        names.set(to, known);
        break;
      case "link":
        names.set(to, known);
    }
  };
  return { index, folder: dirname(to), apply };
}

/** Writes cut at the borders of sectors, those between two truncations in any order. */
function torn(changes: readonly Change[], survival: Survival, random: Random): Change[] {
  const pieces: Change[] = [];
  let segment: Change[] = [];
  for (const change of changes) {
    if (change.data === undefined) {
      pieces.push(...shuffled(segment, survival, random), change);
      segment = [];
    } else segment.push(...sectorsOf(change, change.data));
  }
  return [...pieces, ...shuffled(segment, survival, random)];
}

/** A prefix keeps its order; its last write ends within itself. */
function sectorsOf({ index, offset }: Change, data: Buffer): Change[] {
  const sectors: Change[] = [];
  let from = 0;
  while (from < data.length) {
    const to = Math.min(data.length, from + SECTOR_BYTES - ((offset + from) % SECTOR_BYTES));
    const within = from / data.length;
    sectors.push({ index: index + within, offset: offset + from, data: data.subarray(from, to) });
    from = to;
  }
  return sectors;
}

function shuffled(changes: Change[], survival: Survival, random: Random): Change[] {
  if (survival === "prefix") return changes;
  for (let at = changes.length - 1; at > 0; at -= 1) {
    const other = Math.floor(random() * (at + 1));
    const [one, two] = [changes[at], changes[other]];
    if (one !== undefined && two !== undefined) [changes[at], changes[other]] = [two, one];
  }
  return changes;
}

function changeBuffer(file: File, { offset, data }: Change): void {
  if (data === undefined) {
    const cut = Buffer.alloc(offset);
    file.synced.copy(cut);
    file.synced = cut;
    return;
  }
  if (offset + data.length > file.synced.length) {
    file.synced = grown(file.synced, offset + data.length);
  }
  data.copy(file.synced, offset);
}

/** A longer view on the same memory where there is room: a log grows by thousands of small writes. */
function grown(bytes: Buffer, size: number): Buffer {
  const { buffer, byteOffset, length } = bytes;
  if (buffer.byteLength - byteOffset >= size && length > 0) {
    return Buffer.from(buffer, byteOffset, size).fill(0, length);
  }
  const larger = Buffer.from(new ArrayBuffer(Math.max(SECTOR_BYTES, size * 2)), 0, size);
  bytes.copy(larger);
  return larger;
}

function writeFile(path: string, synced: Buffer, changes: readonly Change[]): void {
  const descriptor = openSync(path, "w", 0o600);
  try {
    writeSync(descriptor, synced, 0, synced.length, 0);
    for (const { offset, data } of changes) {
      if (data === undefined) ftruncateSync(descriptor, offset);
      else writeSync(descriptor, data, 0, data.length, offset);
    }
  } finally {
    closeSync(descriptor);
  }
}
