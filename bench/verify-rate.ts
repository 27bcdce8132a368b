import { setImmediate as nextTurn } from "node:timers/promises";
import { highWaterFloor } from "../src/ledger/load-session.js";
import type { SessionRef, Store } from "../src/ledger/store-port.js";
import { verifySession } from "../src/ledger/verify/verify-session.js";
import { openStore } from "../src/server/service.js";
import type { LargeStore } from "./large-store.js";
import { atLeast, barColumns, type Bar, column, grouped, median, print } from "./report.js";

const EVENTS_PER_SECOND_MIN = 100_000;
const SESSIONS = 500;

interface Verified {
  readonly events: number;
  readonly seconds: number;
}

/** How many events a second are verified, with every row that belongs to them: of one long session, and of many. */
export async function measureVerify(
  rounds: number,
  path: string,
  { longEvents, pairs }: LargeStore,
): Promise<readonly Bar[]> {
  const [{ long }] = pairs;
  const store = await openStore({ kind: "sqlite", path });
  try {
    print(`\nverifying, medians of ${rounds} passes`);
    print(`${"".padEnd(28)}${["events/s", "at least"].map(column).join("")}`);
    const ofLong = () => verifyAll(store, [long]);
    const one = await rate(`session of ${grouped(longEvents)}`, rounds, ofLong);
    const sessions = await usualSessions(store, pairs);
    const name = `${grouped(sessions.length)} usual sessions`;
    return [one, await rate(name, rounds, () => verifyAll(store, sessions))];
  } finally {
    await store.close();
  }
}

async function rate(name: string, rounds: number, verify: () => Promise<Verified>): Promise<Bar> {
  const rates: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const { events, seconds } = await verify();
    rates.push(events / seconds);
  }
  const bar = atLeast(`verifying, ${name}`, median(rates), EVENTS_PER_SECOND_MIN);
  const all = rates.map((each) => each.toFixed(0)).join(" ");
  print(`${name.padEnd(28)}${barColumns(bar, grouped)}   rounds: ${all}`);
  return bar;
}

async function verifyAll(store: Store, sessions: readonly SessionRef[]): Promise<Verified> {
  const startMs = performance.now();
  let events = 0;
  for (const session of sessions) {
    const verdict = await verifySession(store, session, {
      checkpoints: [],
      generationFloor: highWaterFloor(store),
      pause: nextTurn,
      isAborted: () => false,
    });
    if (verdict?.outcome !== "sound") throw new Error(`${session.sessionId} is not sound`);
    events += verdict.counts.events;
  }
  return { events, seconds: (performance.now() - startMs) / 1000 };
}

/** Sessions of the usual length. */
async function usualSessions(store: Store, pairs: LargeStore["pairs"]): Promise<SessionRef[]> {
  const page = await store.listSessions({
    ...{ tenant: "default", visibleToSubject: undefined, ownerSubject: undefined },
    ...{ state: undefined, afterCreatePosition: 0n, limit: SESSIONS },
  });
  const measured = new Set(pairs.flatMap(({ short, long }) => [short.sessionId, long.sessionId]));
  return page.filter(({ sessionId }) => !measured.has(sessionId));
}
