import { createReadStream } from "node:fs";
import { dirname } from "node:path";
import { createInterface } from "node:readline";

/** What a process did to files and sockets, one system call each, in the order in which they ended. */
export type Operation =
  | { readonly kind: "create"; readonly path: string }
  | {
      readonly kind: "write";
      readonly path: string;
      readonly offset: number;
      readonly data: Buffer;
    }
  | { readonly kind: "truncate"; readonly path: string; readonly size: number }
  | SyncOperation
  | { readonly kind: "unlink"; readonly path: string }
  | { readonly kind: "link" | "rename"; readonly path: string; readonly to: string }
  | { readonly kind: "makeFolder"; readonly path: string }
  | SendOperation;

export interface SyncOperation {
  readonly kind: "sync";
  readonly path: string;
  /** How many operations had ended when it began: it covers no others. */
  readonly covers: number;
}

export interface SendOperation {
  readonly kind: "send";
  readonly socket: string;
  readonly data: Buffer;
  /** How many operations had ended when it began. */
  readonly operationsBefore: number;
}

/** What strace is told, to be read by `readTrace`. */
export function traceArguments(file: string): string[] {
  return ["-y", "-xx", "-s", String(LARGEST_WRITE_BYTES), "-e", `trace=${CALLS}`, "-o", file];
}

const LARGEST_WRITE_BYTES = 64 * 1024 * 1024;
const CALLS = [
  ...["openat", "open", "creat", "close", "dup", "dup2", "dup3"],
  ...["pwrite64", "write", "writev", "pwritev", "pwritev2", "sendmsg", "sendto"],
  ...["fsync", "fdatasync", "ftruncate", "truncate", "fallocate", "msync", "sync_file_range"],
  ...["unlink", "unlinkat", "rename", "renameat", "renameat2", "link", "linkat"],
  ...["mkdir", "mkdirat"],
].join(",");

const LINE = /^(\d+) +(.*)$/s;
const UNFINISHED = / <unfinished \.\.\.>$/;
const RESUMED = /^<\.\.\. \w+ resumed>/;
const CALL = /^(\w+)\((.*)\) += (-?\d+)/s;
const STRING = /"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?/g;
const DESCRIPTOR = /^(?:\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2})*)>/;

/** A call that has begun. */
interface Begun {
  readonly text: string;
  readonly operationsBefore: number;
}

/** Reads what `strace -f` wrote: what was done below a folder, and what was sent on sockets. */
export async function readTrace(file: string, folder: string): Promise<Operation[]> {
  const reader = new TraceReader(folder);
  const lines = createInterface({ input: createReadStream(file, "latin1"), crlfDelay: Infinity });
  for await (const line of lines) reader.take(line);
  return reader.operations;
}

class TraceReader {
  readonly operations: Operation[] = [];
  readonly #folder: string;
  readonly #begun = new Map<string, Begun>();
  readonly #known = new Set<string>();
  readonly #ends = new Map<string, number>();

  constructor(folder: string) {
    this.#folder = folder;
  }

  take(line: string): void {
    const [, thread = "", text = ""] = LINE.exec(line) ?? [];
    const before = this.operations.length;
    if (text.endsWith(" <unfinished ...>")) {
      const beginning = text.replace(UNFINISHED, "");
      this.#begun.set(thread, { text: beginning, operationsBefore: before });
      return;
    }
    const begun = this.#begun.get(thread);
    if (RESUMED.test(text) && begun !== undefined) {
      this.#begun.delete(thread);
      this.#call(begun.text + text.replace(RESUMED, ""), begun.operationsBefore);
    } else this.#call(text, before);
  }

  #call(text: string, operationsBefore: number): void {
    const [, name = "", args = "", returned = "-1"] = CALL.exec(text) ?? [];
    const result = Number(returned);
    if (result < 0) return;
    const path = pathOf(args);
    if (path?.startsWith("socket:") === true || path?.startsWith("TCP") === true) {
      const data = writtenBytes(args, result);
      if (data.length > 0) {
        this.operations.push({ kind: "send", socket: path, data, operationsBefore });
      }
      return;
    }
    const operation = this.#operationOf(name, args, result, operationsBefore);
    if (operation !== undefined) this.operations.push(operation);
  }

  #operationOf(name: string, args: string, result: number, covers: number): Operation | undefined {
    const [first = "", second = ""] = stringsOf(args).map(String);
    const path = pathOf(args) ?? "";
    switch (name) {
      case "open":
      case "openat":
      case "creat":
        return this.#opened(first, args);
      case "write":
      case "writev":
        return this.#within(path, { kind: "write", path, ...this.#appended(path, args, result) });
      case "pwrite64":
        return this.#within(path, { kind: "write", path, ...placed(args, result) });
      case "ftruncate":
        return this.#within(path, { kind: "truncate", path, size: lastNumber(args) });
      case "fsync":
      case "fdatasync":
        return this.#within(path, { kind: "sync", path, covers });
      case "unlink":
      case "unlinkat":
        this.#known.delete(first);
        return this.#within(first, { kind: "unlink", path: first });
      case "link":
      case "linkat":
        this.#known.add(second);
        return this.#within(first, { kind: "link", path: first, to: second });
      case "rename":
      case "renameat":
      case "renameat2":
        this.#known.add(second);
        return this.#within(first, { kind: "rename", path: first, to: second });
      case "mkdir":
      case "mkdirat":
        return this.#within(first, { kind: "makeFolder", path: first });
      case "close":
      case "dup":
      case "dup2":
      case "dup3":
        return undefined;
      default:
        // A call that is not modelled would make the rebuilt disks wrong.
        if (this.#isWithin(path) || this.#isWithin(first)) throw new Error(`unknown call: ${name}`);
        return undefined;
    }
  }

  #opened(path: string, args: string): Operation | undefined {
    if (!this.#isWithin(path) || !args.includes("O_CREAT")) return undefined;
    if (this.#known.has(path)) {
      if (args.includes("O_TRUNC")) throw new Error(`${path} is truncated by opening it`);
      return undefined;
    }
    this.#known.add(path);
    this.#ends.delete(path);
    return { kind: "create", path };
  }

  /** Plain writes append: files are made by them, once. */
  #appended(path: string, args: string, result: number) {
    const offset = this.#ends.get(path) ?? 0;
    this.#ends.set(path, offset + result);
    return { offset, data: writtenBytes(args, result) };
  }

  #within(path: string, operation: Operation): Operation | undefined {
    return this.#isWithin(path) ? operation : undefined;
  }

  #isWithin(path: string): boolean {
    return path === this.#folder || path.startsWith(`${this.#folder}/`);
  }
}

/** The name of a file's folder. */
export const folderOf = dirname;

function placed(args: string, result: number) {
  return { offset: lastNumber(args), data: writtenBytes(args, result) };
}

/** What a descriptor in first place stands for. */
function pathOf(args: string): string | undefined {
  const [, encoded] = DESCRIPTOR.exec(args) ?? [];
  return encoded === undefined ? undefined : String(decoded(encoded));
}

function writtenBytes(args: string, count: number): Buffer {
  return Buffer.concat(stringsOf(args)).subarray(0, count);
}

function stringsOf(args: string): Buffer[] {
  return [...args.matchAll(STRING)].map(([, encoded = "", cut]) => {
    if (cut !== undefined) throw new Error("strace has cut a string short");
    return decoded(encoded);
  });
}

function decoded(encoded: string): Buffer {
  return Buffer.from(encoded.replaceAll("\\x", ""), "hex");
}

function lastNumber(args: string): number {
  return Number(args.slice(args.lastIndexOf(",") + 1));
}
