import { cpSync } from "node:fs";
import { rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Code, ConnectError } from "@connectrpc/connect";
import { removeMark } from "../../src/store/sqlite/position-mark.js";
import { refused, type Refused } from "../support/refused.js";
import { makeStoreFolder } from "../support/store-folder.js";
import { AcknowledgingWriter, type Acknowledgement } from "./acknowledging-writer.js";
import type { RoomLever } from "./disk-full-levers.js";
import { servedProblems } from "./power-cut-cuts.js";
import { startListening, type FaultyServer } from "./strace-server.js";

/** How a server took a full disk. */
export interface FullDiskOutcome {
  /** From room given to a command acknowledged. */
  readonly resumedMs: number;
  /** What went otherwise than promised, one line each. */
  readonly problems: readonly string[];
}

export const DATABASE = "toolmark.db";
/** The longest that writes may take to resume. */
export const RESUMED_MAX_MS = 5000;
const BODY_BYTES = 20_000;
const WRITERS = 2;
/** Enough to fill the largest of the disks several times. */
const ROUNDS_MAX = 200;
const TRY_AGAIN_MS = 20;

/** Fills the disk of a server through commands, gives it room again, and opens its store anew. */
export async function fillDisk(lever: RoomLever, preload?: string): Promise<FullDiskOutcome> {
  const { path: place, remove } = await makeStoreFolder();
  const folder = dirname(place);
  const store = join(folder, "store");
  await lever.prepare(store);
  try {
    const planted = preload === undefined ? {} : { preload };
    const server = await startListening({ folder, path: join(store, DATABASE), ...planted });
    const full = new FullDisk(store, lever, server);
    try {
      await full.fill();
      await full.readWhileFull();
      await full.resume();
    } catch (error) {
      // A read that is refused is a problem of the store, not of the test.
      if (!(error instanceof ConnectError)) throw error;
      full.problems.push(`a call failed: ${error.message}`);
    } finally {
      await server.end("SIGKILL");
    }
    const left = join(folder, "left");
    cpSync(store, left, { recursive: true });
    // What the database itself holds, whatever a planted fault made of the mark.
    removeMark(join(left, DATABASE));
    const lost = await servedProblems(join(left, DATABASE), full.told);
    await rm(left, { recursive: true });
    return { resumedMs: full.resumedMs, problems: [...full.problems, ...lost] };
  } finally {
    await lever.remove(store);
    await remove();
  }
}

class FullDisk {
  readonly problems: string[] = [];
  resumedMs = Number.POSITIVE_INFINITY;
  readonly #folder: string;
  readonly #lever: RoomLever;
  readonly #server: FaultyServer;
  readonly #writers: AcknowledgingWriter[] = [];

  constructor(folder: string, lever: RoomLever, server: FaultyServer) {
    this.#folder = folder;
    this.#lever = lever;
    this.#server = server;
  }

  get told(): Acknowledgement[] {
    return this.#writers.flatMap(({ acknowledged }) => acknowledged);
  }

  async fill(): Promise<void> {
    const writers = Array.from({ length: WRITERS }, () => this.#writer());
    await Promise.all(writers.map((writer) => writer.begin()));
    await this.#lever.tighten(this.#folder, this.#server);
    await Promise.all(writers.map((writer) => this.#writeUntilFull(writer)));
    // There is still no room for the next.
    const [first] = writers;
    if (first !== undefined) await this.#expectFull(first);
  }

  async readWhileFull(): Promise<void> {
    const { sessions, history } = this.#server.clients();
    for (const sessionId of new Set(this.told.map((command) => command.sessionId))) {
      const { session } = await sessions.getSession({ sessionId });
      const { events } = await history.listEvents({ sessionId, pageSize: 500 });
      const last = session?.checkpoint?.sequence;
      if (last !== events.at(-1)?.sequence) this.problems.push(`${sessionId} is read in part`);
    }
  }

  async resume(): Promise<void> {
    await this.#lever.loosen(this.#folder, this.#server);
    const fromMs = performance.now();
    while (performance.now() - fromMs < RESUMED_MAX_MS) {
      const refusal = await this.#refusalOf(() => this.#writer().begin());
      if (refusal === undefined) {
        this.resumedMs = performance.now() - fromMs;
        await this.#writer().begin();
        return;
      }
      await delay(TRY_AGAIN_MS);
    }
    this.problems.push(`no command was taken within ${RESUMED_MAX_MS} ms of room`);
  }

  async #writeUntilFull(writer: AcknowledgingWriter): Promise<void> {
    for (let round = 0; round < ROUNDS_MAX; round += 1) {
      const refusal = await this.#refusalOf(() => writer.round());
      if (refusal === undefined) continue;
      this.#checkFull(refusal);
      return;
    }
    this.problems.push(`${ROUNDS_MAX} rounds were acknowledged`);
  }

  async #expectFull(writer: AcknowledgingWriter): Promise<void> {
    const refusal = await this.#refusalOf(() => writer.round());
    if (refusal === undefined) this.problems.push("a round was acknowledged on a full disk");
    else this.#checkFull(refusal);
  }

  #checkFull({ code, reason, message }: Refused): void {
    if (code === Code.ResourceExhausted && reason === "STORE_FULL") return;
    this.problems.push(`refused by ${Code[code]}/${reason}: ${message}`);
  }

  async #refusalOf(write: () => Promise<void>): Promise<Refused | undefined> {
    const [result] = await Promise.allSettled([write()]);
    if (result.status === "fulfilled") return undefined;
    return refused(Promise.reject(result.reason as Error));
  }

  #writer(): AcknowledgingWriter {
    const name = `writer-${this.#writers.length}`;
    const options = { name, bodyBytes: BODY_BYTES, asksForSequence: false };
    const writer = new AcknowledgingWriter(this.#server.clients(), options);
    this.#writers.push(writer);
    return writer;
  }
}
