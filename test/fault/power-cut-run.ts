import { cpSync } from "node:fs";
import { mkdir, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { removeMark } from "../../src/store/sqlite/position-mark.js";
import { makeStoreFolder } from "../support/store-folder.js";
import { AcknowledgingWriter, type Acknowledgement } from "./acknowledging-writer.js";
import { readStored, type StoredSessions } from "./power-cut-store.js";
import { readTrace, traceArguments, type Operation } from "./strace-log.js";
import { startListening } from "./strace-server.js";

/** What a recorded server is made to do. */
export interface RecordedWork {
  /** An empty folder for this run alone. */
  readonly folder: string;
  readonly writers: number;
  readonly bodyBytes: number;
  readonly write: (writer: AcknowledgingWriter) => Promise<void>;
  /** Whether the server has to make the folder of its store. */
  readonly makesFolder?: boolean;
  /** A module of test/mutants. */
  readonly preload?: string;
  /** As for strace: a call that fails. */
  readonly inject?: string;
}

/** A command, and when its reply began to be sent. */
export interface TimedAcknowledgement {
  readonly command: Acknowledgement;
  /** How many operations had ended by then. */
  readonly operationsBefore: number;
}

/** What a server did to its disk while writers were acknowledged. */
export interface RecordedRun {
  /** The folder that all is in. */
  readonly root: string;
  /** The database, relative to that folder. */
  readonly database: string;
  readonly operations: readonly Operation[];
  readonly told: readonly Acknowledgement[];
  readonly timed: readonly TimedAcknowledgement[];
  /** What the store holds if nothing is lost. */
  readonly whole: StoredSessions;
}

/** The name of the database in the folder of the store. */
const DATABASE = "toolmark.db";

/** As `recordRun` in a folder that is gone when `look` has ended. */
export async function withRecordedRun<Found>(
  work: Omit<RecordedWork, "folder">,
  look: (run: RecordedRun) => Promise<Found> | Found,
): Promise<Found> {
  const { path, remove } = await makeStoreFolder();
  try {
    return await look(await recordRun({ ...work, folder: dirname(path) }));
  } finally {
    await remove();
  }
}

/** Runs the server under strace, has it written to, and kills it once every writer was answered. */
async function recordRun(work: RecordedWork): Promise<RecordedRun> {
  const { folder, makesFolder = false, preload, inject } = work;
  const root = join(folder, "store");
  const database = makesFolder ? join("made", DATABASE) : DATABASE;
  const trace = join(folder, "trace");
  await mkdir(root);
  const injection = inject === undefined ? [] : ["-e", `inject=${inject}`];
  const server = await startListening({
    ...{ folder, path: join(root, database), strace: [...traceArguments(trace), ...injection] },
    ...(preload === undefined ? {} : { preload }),
  });
  const told: Acknowledgement[] = [];
  try {
    const writers = Array.from({ length: work.writers }, (_, index) => {
      const name = `writer-${index}`;
      const options = { name, bodyBytes: work.bodyBytes, asksForSequence: true };
      return new AcknowledgingWriter(server.clients(), options);
    });
    await Promise.all(writers.map((writer) => work.write(writer)));
    told.push(...writers.flatMap(({ acknowledged }) => acknowledged));
  } finally {
    await server.end("SIGKILL");
  }
  const operations = await readTrace(trace, root);
  await rm(trace);
  const sessionIds = [...new Set(told.map(({ sessionId }) => sessionId))];
  const copy = join(folder, "whole");
  cpSync(root, copy, { recursive: true });
  // What the database itself holds, whatever a planted fault made of the mark.
  removeMark(join(copy, database));
  const whole = await readStored(join(copy, database), sessionIds);
  await rm(copy, { recursive: true });
  return { root, database, operations, told, timed: timesOf(operations, told), whole };
}

/** What a writer does in so many rounds. */
export function rounds(count: number): RecordedWork["write"] {
  return async (writer) => {
    await writer.begin();
    for (let round = 0; round < count; round += 1) await writer.round();
  };
}

/** Finds each reply among the bytes that were sent. */
function timesOf(
  operations: readonly Operation[],
  told: readonly Acknowledgement[],
): TimedAcknowledgement[] {
  const sends = operations.filter((operation) => operation.kind === "send");
  const streams = [...new Set(sends.map(({ socket }) => socket))].map((name) => {
    const parts = sends.filter(({ socket }) => socket === name);
    return { parts, bytes: Buffer.concat(parts.map(({ data }) => data)) };
  });
  return told.map((command) => {
    for (const { parts, bytes } of streams) {
      const at = bytes.indexOf(command.reply);
      if (at < 0) continue;
      let end = 0;
      const last = parts.find(({ data }) => (end += data.length) >= at + command.reply.length);
      if (last !== undefined) return { command, operationsBefore: last.operationsBefore };
    }
    throw new Error(`the reply to ${command.requestId} was never sent`);
  });
}
