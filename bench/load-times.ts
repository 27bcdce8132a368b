import { loadSession } from "../src/ledger/load-session.js";
import type { SessionRef } from "../src/ledger/store-port.js";
import { openStore } from "../src/server/service.js";
import type { LargeStore, Pair } from "./large-store.js";
import { atMost, barColumns, type Bar, column, grouped, median, print } from "./report.js";

const LOAD_RATIO_MAX = 3;
const LOADS_PER_ROUND = 10;
const WARM_UP_LOADS = 10;

/** The time to load a session before its first command, by its length. */
export async function measureLoads(
  rounds: number,
  path: string,
  store: LargeStore,
): Promise<readonly Bar[]> {
  const loads = rounds * LOADS_PER_ROUND;
  const sizes = [store.shortEvents, store.longEvents].map((events) => `${grouped(events)} ev.`);
  print(`\nloading a session, medians of ${loads} loads each in ms, each by a store just opened`);
  print(`${"".padEnd(28)}${[...sizes, "ratio", "at most"].map(column).join("")}`);
  const bars: Bar[] = [];
  for (const pair of store.pairs) bars.push(await compare(path, pair, loads));
  return bars;
}

async function compare(path: string, { tail, short, long }: Pair, loads: number): Promise<Bar> {
  const times: { readonly short: number[]; readonly long: number[] } = { short: [], long: [] };
  for (let load = -WARM_UP_LOADS; load < loads; load += 1) {
    const shortMs = await loadMs(path, short);
    const longMs = await loadMs(path, long);
    if (load < 0) continue;
    times.short.push(shortMs);
    times.long.push(longMs);
  }
  const [shortMs, longMs] = [median(times.short), median(times.long)];
  const bar = atMost(`loading, ${tail}`, longMs / shortMs, LOAD_RATIO_MAX);
  const columns = [shortMs, longMs].map((time) => column(time.toFixed(2)));
  print(`${tail.padEnd(28)}${columns.join("")}${barColumns(bar)}`);
  return bar;
}

/** Of a store that has read nothing yet. */
async function loadMs(path: string, session: SessionRef): Promise<number> {
  const store = await openStore({ kind: "sqlite", path });
  try {
    const startMs = performance.now();
    const row = await store.findSession(session);
    if (row === undefined) throw new Error(`session ${session.sessionId} is not there`);
    const loaded = await loadSession(store, row, ({ cause }) => {
      throw new Error(cause);
    });
    const timeMs = performance.now() - startMs;
    if (loaded.kind === "read-only") throw new Error(loaded.cause);
    return timeMs;
  } finally {
    await store.close();
  }
}
