import { mkdir, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { openStore } from "../src/server/service.js";
import { cursorAtEnd, takeMessages } from "./bare-messages.js";
import { type ServerProcess, startServer } from "./child-process.js";
import { ledgerOn, LedgerWriter } from "./ledger-writer.js";
import type { Options } from "./options.js";
import { type ActiveRun, Preparation } from "./requests.js";
import { storePath } from "./service-process.js";
import { appendEvents } from "./session-content.js";
import type { Watch } from "./watch-client.js";

const DIST = resolve(import.meta.dirname, "..");

/** Ways to watch, with the listeners that offer them. */
export const LISTENERS = [
  { name: "gRPC", contentType: "application/grpc+proto", at: "grpcAddress" },
  { name: "Connect", contentType: "application/connect+proto", at: "httpAddress" },
] as const;
export type Listener = (typeof LISTENERS)[number];

/** A session that is written to, with a call that hook outcomes are about. */
export interface CallOfRun extends ActiveRun {
  readonly toolCallId: string;
}

/** The service, and a server that sends equal messages with nothing behind them. */
export interface WatchSubjects {
  readonly service: ServerProcess;
  readonly bare: ServerProcess;
  readonly preparation: Preparation;
  /** What is watched while it is written to. */
  readonly watched: CallOfRun;
  /** What nobody watches. */
  readonly other: CallOfRun;
  readonly replayed: { readonly sessionId: string; readonly events: number };
  stop(): Promise<void>;
}

/** Both servers, on a store of their own. */
export async function startSubjects(options: Options, folder: string): Promise<WatchSubjects> {
  const own = join(folder, "watched");
  await mkdir(own);
  const replayed = await writeReplayed(own, options.replayed);
  const service = await startWatched(own, options.profile);
  const preparation = new Preparation(service.grpcAddress);
  try {
    const watched = await beginWithCall(preparation);
    const other = await beginWithCall(preparation);
    const bare = await startBare(preparation, replayed.sessionId, watched, folder);
    const stop = async (): Promise<void> => {
      preparation.close();
      await service.stop();
      await bare.stop();
    };
    return { service, bare, preparation, watched, other, replayed, stop };
  } catch (error) {
    preparation.close();
    await service.stop();
    throw error;
  }
}

/** A watch of what is committed to the watched session from now on; its first message says that it has begun. */
export async function watchOfService(
  { service, preparation, watched: { sessionId } }: WatchSubjects,
  listener: Listener,
): Promise<Watch> {
  const cursor = await cursorAtEnd(preparation, sessionId);
  return { ...placeOf(service, listener), sessionId, cursor };
}

/** The same of the bare server: a replay of so many messages, one to say that it is over, and what is broadcast. */
export function watchOfBare({ bare }: WatchSubjects, listener: Listener, replayed = 0): Watch {
  return { ...placeOf(bare, listener), sessionId: String(replayed) };
}

export function placeOf(
  server: ServerProcess,
  { at, contentType }: Listener,
): Pick<Watch, "address" | "contentType"> {
  const address = server[at];
  if (address === undefined) throw new Error("the server has no such listener");
  return { address, contentType };
}

async function writeReplayed(folder: string, events: number): Promise<WatchSubjects["replayed"]> {
  const store = await openStore({ kind: "sqlite", path: storePath(folder) });
  try {
    const ledger = ledgerOn(store);
    const writer = new LedgerWriter(ledger, "replayed");
    const run = await writer.beginRun();
    const before = await store.findSession(run);
    await appendEvents(writer, run, events - Number(before?.head.sequence ?? 0n));
    await ledger.close();
    const written = Number((await store.findSession(run))?.head.sequence ?? 0n);
    if (written !== events) throw new Error(`${written} events instead of ${events}`);
    return { sessionId: run.sessionId, events };
  } finally {
    await store.close();
  }
}

function startWatched(folder: string, profile?: string): Promise<ServerProcess> {
  const profiling =
    profile === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${resolve(profile)}`];
  return startServer(
    "watched-service",
    [
      ...["--expose-gc", ...profiling, join(DIST, "bench/watched-service.js")],
      ...["--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"],
      ...["--store", `sqlite:${storePath(folder)}`],
    ],
    folder,
    { isAsked: true },
  );
}

async function startBare(
  preparation: Preparation,
  replayedSessionId: string,
  watched: CallOfRun,
  folder: string,
): Promise<ServerProcess> {
  const { toolCallId } = watched;
  const messages = await takeMessages(preparation, replayedSessionId, watched, toolCallId);
  const file = join(folder, "bare-messages.json");
  await writeFile(file, JSON.stringify(messages));
  const script = join(DIST, "bench/bare-stream-server.js");
  return startServer("bare", ["--expose-gc", script, "--messages", file], folder, {
    isAsked: true,
  });
}

async function beginWithCall(preparation: Preparation): Promise<CallOfRun> {
  const run = await preparation.beginRun();
  return { ...run, toolCallId: await preparation.acceptCall(run) };
}
