import { cpSync, existsSync, mkdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { Code } from "@connectrpc/connect";
import { refused, type Refused } from "../support/refused.js";
import { startTestService } from "../support/service.js";
import { makeStoreFolder } from "../support/store-folder.js";
import { AcknowledgingWriter, type Acknowledgement } from "./acknowledging-writer.js";
import { servedProblems } from "./power-cut-cuts.js";
import { startFaulty, type Ended, type FaultyServer } from "./strace-server.js";

/** A system call that fails once. */
export interface InjectedFault {
  readonly call: "fsync" | "pwrite64";
  readonly error: "EIO" | "ENOSPC";
  /** The how manieth call fails. */
  readonly when: number;
  /** Whether the server makes its store, or finds one. */
  readonly store: "new" | "used";
  /** Only calls on this file of the store count, if it is named. */
  readonly file?: string;
}

/** What a server made of a fault. */
export interface FaultOutcome {
  readonly fault: InjectedFault;
  /** One of those that `misbehaviour` allows, or what is wrong. */
  readonly behaviour: string;
  /** What was acknowledged and is not there when the store is opened again, and what else is wrong with it. */
  readonly problems: readonly string[];
}

/** A store that was in use, and what its writers were told. */
export interface UsedStore {
  readonly folder: string;
  readonly told: readonly Acknowledgement[];
}

/** How a fault is put in and what the server is made to do until it is reached. */
export interface FaultRun {
  readonly rounds: number;
  readonly bodyBytes: number;
  /** A module of test/mutants. */
  readonly preload?: string;
}

export const DATABASE = "toolmark.db";
const WRITERS = 2;
const EXIT_CODE = { storeFailed: 71, storeUnusable: 74 };
const END_TIMEOUT_MS = 20_000;
const SYNCS = "fsync,fdatasync";

/** Has a store written to and ended in good order. */
export async function useStore(folder: string): Promise<UsedStore> {
  const service = await startTestService({ store: `sqlite:${join(folder, DATABASE)}` });
  const writer = new AcknowledgingWriter(service.clients(), optionsOf("before", 600));
  try {
    await writer.begin();
    await writer.round();
  } finally {
    await service.stop();
  }
  return { folder, told: writer.acknowledged };
}

/** Runs a server with a fault until it has dealt with it, then opens its store without one. */
export async function runWithFault(
  fault: InjectedFault,
  used: UsedStore,
  run: FaultRun,
): Promise<FaultOutcome> {
  const { path: place, remove } = await makeStoreFolder();
  try {
    const folder = dirname(place);
    const path = join(folder, "store", DATABASE);
    if (fault.store === "used") cpSync(used.folder, dirname(path), { recursive: true });
    else mkdirSync(dirname(path));
    const told = fault.store === "used" ? [...used.told] : [];
    const trace = join(folder, "trace");
    const { preload } = run;
    const server = await startFaulty({
      ...{ folder, path, strace: injection(fault, path, trace) },
      ...(preload === undefined ? {} : { preload }),
    });
    const isListening = "clients" in server;
    const seen = isListening ? await writeUntilFault(server, run, told) : startOf(server);
    const behaviour = seen ?? unseen(await readFile(trace, "utf8"), dirname(path));
    const problems = existsSync(path) ? await servedProblems(path, told) : [];
    return { fault, behaviour, problems };
  } finally {
    await remove();
  }
}

/** What is wrong with how a server took a fault, if anything is. */
export function misbehaviour({ fault, behaviour }: FaultOutcome): string | undefined {
  // Moving the log into the database can be done again: it is nothing to the callers.
  if (fault.file === DATABASE) return behaviour.startsWith("unnoticed") ? undefined : behaviour;
  // A write that finds no room can be tried again; a sync that failed cannot.
  const isFull = fault.call === "pwrite64" && fault.error === "ENOSPC";
  const allowed = [
    "start refused",
    "made good",
    "mark left behind",
    isFull ? "store full" : "store failed",
  ];
  return allowed.includes(behaviour) ? undefined : behaviour;
}

function injection({ call, error, when, file }: InjectedFault, path: string, trace: string) {
  const calls = call === "fsync" ? SYNCS : call;
  const only = file === undefined ? [] : ["-P", join(dirname(path), file)];
  const inject = `inject=${calls}:error=${error}:when=${when}`;
  return [...only, "-y", "-s", "0", "-e", `trace=openat,${calls}`, "-e", inject, "-o", trace];
}

/**
 * What became of a fault that no caller saw. SQLite passes over a folder that it cannot sync: then it must have been
 * synced otherwise, with the name of the write-ahead log in it.
 */
function unseen(trace: string, folder: string): string {
  const lines = trace.split("\n");
  const failed = lines.find((line) => line.endsWith("(INJECTED)"));
  if (failed === undefined) return "not reached";
  // The mark may be behind the database, never ahead of it.
  if (failed.includes(`${DATABASE}.position>`)) return "mark left behind";
  const made = lines.findIndex((line) => line.includes("O_CREAT") && line.includes(`-wal"`));
  const isSynced = lines.some((line, index) => {
    return index > made && line.includes(`<${folder}>`) && /sync.* = 0$/.test(line);
  });
  const isFolder = failed.includes(`<${folder}>`);
  return isFolder && made >= 0 && isSynced ? "made good" : `unnoticed: ${failed.trim()}`;
}

function optionsOf(name: string, bodyBytes: number) {
  return { name, bodyBytes, asksForSequence: false };
}

/** What became of a server that did not come to listen. */
function startOf({ code, output }: Ended): string {
  const text = output.trim();
  if (code === EXIT_CODE.storeUnusable && text !== "") return "start refused";
  return `the start ended with ${code ?? "a signal"}: ${text}`;
}

/** Undefined if nobody saw a fault. */
async function writeUntilFault(
  server: FaultyServer,
  { rounds, bodyBytes }: FaultRun,
  told: Acknowledgement[],
): Promise<string | undefined> {
  const writers = Array.from({ length: WRITERS }, (_, index) => {
    return new AcknowledgingWriter(server.clients(), optionsOf(`writer-${index}`, bodyBytes));
  });
  const write = async (writer: AcknowledgingWriter): Promise<void> => {
    await writer.begin();
    for (let round = 0; round < rounds; round += 1) await writer.round();
  };
  const results = await Promise.allSettled(writers.map(write));
  const faults = await Promise.all(results.flatMap(faultsOf));
  try {
    return faults.length === 0 ? undefined : await behaviourAfter(server, faults, told);
  } finally {
    told.push(...writers.flatMap(({ acknowledged }) => acknowledged));
    await server.end("SIGKILL");
  }
}

/** What a writer was refused with, if it was. */
function faultsOf(result: PromiseSettledResult<void>): Promise<Refused>[] {
  if (result.status === "fulfilled") return [];
  const reason: unknown = result.reason;
  return [refused(Promise.reject(reason instanceof Error ? reason : new Error(String(reason))))];
}

/** The one place that says which replies and which end belong together. */
async function behaviourAfter(
  server: FaultyServer,
  faults: readonly Refused[],
  told: Acknowledgement[],
): Promise<string> {
  const seen = faults.map(({ code, reason }) => `${Code[code]}/${reason}`);
  if (seen.every((reply) => reply === "ResourceExhausted/STORE_FULL")) {
    const more = new AcknowledgingWriter(server.clients(), optionsOf("more", 600));
    await more.begin();
    await more.round();
    told.push(...more.acknowledged);
    return "store full";
  }
  // A reply without a reason is that of a connection whose server is gone.
  const replies = faults.filter(({ reason }) => reason !== "");
  const areUncertain = replies.every(({ code, reason }) => {
    return code === Code.Unavailable && (reason === "COMMIT_UNCERTAIN" || reason === "DRAINING");
  });
  const code = await endOf(server);
  if (replies.length > 0 && areUncertain && code === EXIT_CODE.storeFailed) return "store failed";
  return `${seen.join(", ")}, then ${code ?? "no end"}`;
}

async function endOf(server: FaultyServer): Promise<number | null> {
  const timeout = new Promise<null>((resolve) => {
    setTimeout(resolve, END_TIMEOUT_MS, null).unref();
  });
  return Promise.race([server.ended.then(({ code }) => code), timeout]);
}
