import { existsSync } from "node:fs";
import { mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { SessionRef, Store } from "../src/ledger/store-port.js";
import { openStore } from "../src/server/service.js";
import { ledgerOn, LedgerWriter, type WrittenRun } from "./ledger-writer.js";
import { grouped, print } from "./report.js";
import { storePath } from "./service-process.js";
import { appendEvents, leaveOpen } from "./session-content.js";

/** Of all events, in each of two long sessions. */
const LONG_SHARE = 1 / 5;
const SHORT_EVENTS = 200;
/** The default of --snapshot-every is one more. */
const TAIL_EVENTS = 255;
const TURN_CALLS = 8;
const WRITERS = 64;

/** A short and a long session of equal open state and with their last snapshot at the like place. */
export interface Pair {
  readonly tail: "after a snapshot" | "before the next";
  readonly short: SessionRef;
  readonly long: SessionRef;
}

/** A store with very many events, and what was put into it to be loaded. */
export interface LargeStore {
  readonly events: number;
  readonly sessions: number;
  readonly shortEvents: number;
  readonly longEvents: number;
  readonly pairs: readonly [Pair, Pair];
}

type Size = Pick<LargeStore, "events" | "sessions">;

/** Fills a store below the folder, unless it holds one of this size already. */
export async function prepareLargeStore(folder: string, size: Size): Promise<LargeStore> {
  const noteFile = join(folder, "large-store.json");
  if (existsSync(noteFile)) return readNote(noteFile, size);
  if (existsSync(storePath(folder))) {
    throw new Error(`${folder} holds a store that is not complete`);
  }
  await mkdir(folder, { recursive: true });
  const startMs = performance.now();
  const filled = await fill(storePath(folder), size);
  await writeFile(noteFile, JSON.stringify(filled));
  const seconds = (performance.now() - startMs) / 1000;
  const { size: bytes } = await stat(storePath(folder));
  print(
    `filled in ${seconds.toFixed(0)} s, ${grouped(size.events / seconds)} events/s, ` +
      `${grouped(bytes / size.events)} bytes an event`,
  );
  return filled;
}

async function readNote(noteFile: string, size: Size): Promise<LargeStore> {
  const kept = JSON.parse(await readFile(noteFile, "utf8")) as LargeStore;
  if (kept.events === size.events && kept.sessions === size.sessions) return kept;
  throw new Error(`${noteFile} is of ${kept.events} events in ${kept.sessions} sessions`);
}

async function fill(path: string, size: Size): Promise<LargeStore> {
  const store = await openStore({ kind: "sqlite", path });
  try {
    return await fillStore(store, size);
  } finally {
    await store.close();
  }
}

async function fillStore(store: Store, { events, sessions }: Size): Promise<LargeStore> {
  const longEvents = Math.floor(events * LONG_SHARE);
  const others = sessions - 4;
  const otherEvents = events - 2 * (longEvents + SHORT_EVENTS);
  const drained = ledgerOn(store);
  const writer = new LedgerWriter(drained, "drained");
  const [after, long] = await Promise.all([
    writePair(store, writer, { short: SHORT_EVENTS, long: longEvents }),
    writeSession(store, writer, longEvents - TAIL_EVENTS),
    writeMany(store, writer, { sessions: others, events: otherEvents }),
  ]);
  // Takes a snapshot of each session.
  await drained.close();
  const short = await writeTails(store, long, longEvents);
  const pairs: LargeStore["pairs"] = [
    { tail: "after a snapshot", ...after },
    { tail: "before the next", short, long },
  ];
  await checkPairs(store, pairs, longEvents);
  return { events, sessions, shortEvents: SHORT_EVENTS, longEvents, pairs };
}

async function writePair(
  store: Store,
  writer: LedgerWriter,
  events: { readonly short: number; readonly long: number },
): Promise<Omit<Pair, "tail">> {
  const short = await writeSession(store, writer, events.short);
  return { short, long: await writeSession(store, writer, events.long) };
}

/** As a service leaves sessions that is killed: a ledger that is never closed. */
async function writeTails(store: Store, long: WrittenRun, longEvents: number): Promise<SessionRef> {
  const writer = new LedgerWriter(ledgerOn(store), "killed");
  const row = await store.findSession(long);
  if (row === undefined) throw new Error("the long session is not there");
  await appendEvents(writer, long, longEvents - Number(row.head.sequence));
  return writeSession(store, writer, SHORT_EVENTS);
}

async function writeMany(store: Store, writer: LedgerWriter, { events, sessions }: Size) {
  let started = 0;
  let left = events;
  const writeNext = async (): Promise<void> => {
    while (started < sessions) {
      const count = Math.floor(left / (sessions - started));
      started += 1;
      left -= count;
      await writeSession(store, writer, count, TURN_CALLS);
    }
  };
  await Promise.all(Array.from({ length: WRITERS }, writeNext));
}

async function writeSession(
  store: Store,
  writer: LedgerWriter,
  events: number,
  callsMax?: number,
): Promise<WrittenRun> {
  const run = await writer.beginRun();
  await leaveOpen(writer, run);
  const row = await store.findSession(run);
  const written = Number(row?.head.sequence ?? 0n);
  if (written > events) throw new Error(`a session has at least ${written} events, not ${events}`);
  await appendEvents(writer, run, events - written, callsMax);
  return run;
}

/** What is measured is what is meant. */
async function checkPairs(store: Store, pairs: readonly Pair[], longEvents: number): Promise<void> {
  for (const { tail, short, long } of pairs) {
    const isAfter = tail === "after a snapshot";
    await checkSession(store, short, SHORT_EVENTS, isAfter ? 0 : SHORT_EVENTS);
    await checkSession(store, long, longEvents, isAfter ? 0 : TAIL_EVENTS);
  }
  const last = await store.lastPosition();
  print(`${grouped(Number(last))} events in the log`);
}

async function checkSession(
  store: Store,
  session: SessionRef,
  events: number,
  tailEvents: number,
): Promise<void> {
  const row = await store.findSession(session);
  const [snapshot] = await store.readSnapshots(session);
  const sequence = Number(row?.head.sequence ?? 0n);
  const tail = sequence - Number(snapshot?.sequence ?? 0n);
  if (sequence === events && tail === tailEvents) return;
  throw new Error(`a session of ${events} events has ${sequence}, ${tail} of them in the tail`);
}
