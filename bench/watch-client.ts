import { type ChildProcessByStdio, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { promisify } from "node:util";
import { create } from "@bufbuild/protobuf";
import { WatchEventsRequestSchema } from "../gen/toolmark/v1/history_service_pb.js";
import { frame, WATCH_EVENTS_PATH } from "./requests.js";

const run = promisify(execFile);

/** The listener's limit. */
const STREAMS_PER_CONNECTION = 100;
const WAIT_MS = 60_000;

/** What is watched by which protocol. */
export interface Watch {
  readonly address: string;
  readonly contentType: string;
  readonly sessionId: string;
  readonly cursor?: string;
}

/** When all watchers have received so many messages, by the clock that every process of the machine shares. */
export interface Received {
  readonly messages: number;
  /** When the first watch began. */
  readonly startMs: number;
  /** When the last watcher's message came. */
  readonly lastMs: number;
}

interface Line {
  readonly messages: number;
  readonly startNs: number;
  readonly lastNs: number;
}

/** Compiles and runs watch.c. */
export class WatchClient {
  readonly #folder: string;
  readonly #program: string;

  private constructor(folder: string) {
    this.#folder = folder;
    this.#program = join(folder, "watch");
  }

  static async compile(source: string, folder: string): Promise<WatchClient> {
    const client = new WatchClient(folder);
    await run("gcc", ["-O2", "-o", client.#program, source, "-lnghttp2"]);
    return client;
  }

  /** Opens so many watches. They tell when all have received `first` messages, and then of each one more. */
  async open(watch: Watch, watchers: number, first = 1): Promise<Watchers> {
    const { address, contentType, sessionId, cursor = "" } = watch;
    const file = join(this.#folder, `watch-${sessionId}.bin`);
    const request = create(WatchEventsRequestSchema, { sessionId, cursor });
    await writeFile(file, frame(WatchEventsRequestSchema, request));
    const streams = Math.min(watchers, STREAMS_PER_CONNECTION);
    const amounts = [Math.ceil(watchers / streams), streams, first, 1];
    const [host = "", port = ""] = address.split(":");
    const child = spawn(
      this.#program,
      [host, port, WATCH_EVENTS_PATH, contentType, file, ...amounts.map(String)],
      { stdio: ["pipe", "pipe", "inherit"] },
    );
    return new Watchers(child);
  }
}

/** Open watches in a process of their own. */
export class Watchers {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: AsyncIterator<string>;
  readonly #exit: Promise<unknown>;

  constructor(child: ChildProcessByStdio<Writable, Readable, null>) {
    this.#child = child;
    this.#lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    this.#exit = once(child, "exit");
  }

  /** The next time that all have received what is told of. Throws if a watch ended. */
  async received(): Promise<Received> {
    const killer = setTimeout(() => this.#child.kill("SIGKILL"), WAIT_MS);
    const next = await this.#lines.next();
    clearTimeout(killer);
    if (next.done === true) throw new Error("a watch ended, or not every watcher got its message");
    const { messages, startNs, lastNs } = JSON.parse(next.value) as Line;
    return { messages, startMs: startNs / 1e6, lastMs: lastNs / 1e6 };
  }

  /** Throws if a watch had ended before. */
  async close(): Promise<void> {
    this.#child.stdin.end();
    await this.#exit;
    if (this.#child.exitCode !== 0) throw new Error("a watch ended");
  }
}
