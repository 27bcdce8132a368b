import type { Memory } from "./answer-questions.js";
import type { ServerProcess } from "./child-process.js";
import { atMost, barColumns, type Bar, column, grouped, print } from "./report.js";
import type { Watch, WatchClient } from "./watch-client.js";
import { LISTENERS, watchOfBare, watchOfService, type WatchSubjects } from "./watch-subjects.js";

const MEMORY_RATIO_MAX = 2;
const WARM_UP_WATCHERS = 100;
const SETTLED_SHARE = 0.001;

/** Bytes for each of the watchers. */
interface PerWatcher {
  /** On the heap, and outside it for what is on it. */
  readonly heldBytes: number;
  readonly residentBytes: number;
}

/** What each idle watcher takes of the server's memory, beside an idle stream with nothing behind it. */
export async function measureIdle(
  subjects: WatchSubjects,
  client: WatchClient,
  watchers: number,
): Promise<readonly Bar[]> {
  print(`\nmemory of each of ${grouped(watchers)} idle watchers`);
  const titles = ["bytes", "resident", "ratio", "at most"];
  print(`${"".padEnd(28)}${titles.map(column).join("")}`);
  const bars: Bar[] = [];
  for (const listener of LISTENERS) {
    const bareWatch = watchOfBare(subjects, listener);
    const watch = await watchOfService(subjects, listener);
    const bare = await idleBytes(subjects.bare, client, bareWatch, watchers);
    const service = await idleBytes(subjects.service, client, watch, watchers);
    const name = `idle, ${listener.name}`;
    const bar = atMost(name, service.heldBytes / bare.heldBytes, MEMORY_RATIO_MAX);
    print(`${`bare, ${listener.name}`.padEnd(28)}${columnsOf(bare)}`);
    print(`${name.padEnd(28)}${columnsOf(service)}${barColumns(bar)}`);
    bars.push(bar);
  }
  return bars;
}

function columnsOf({ heldBytes, residentBytes }: PerWatcher): string {
  return [heldBytes, residentBytes].map((bytes) => column(grouped(bytes))).join("");
}

async function idleBytes(
  server: ServerProcess,
  client: WatchClient,
  watch: Watch,
  watchers: number,
): Promise<PerWatcher> {
  const warmUp = await client.open(watch, WARM_UP_WATCHERS);
  await warmUp.received();
  await warmUp.close();
  const before = await settledMemory(server);
  const idle = await client.open(watch, watchers);
  await idle.received();
  const after = await settledMemory(server);
  await idle.close();
  await settledMemory(server);
  return {
    heldBytes: (heldOf(after) - heldOf(before)) / watchers,
    residentBytes: (after.residentBytes - before.residentBytes) / watchers,
  };
}

/** Once streams that were closed are gone, and new ones have come to rest. */
async function settledMemory(server: ServerProcess): Promise<Memory> {
  let last = (await server.ask("memory")) as Memory;
  for (;;) {
    const memory = (await server.ask("memory")) as Memory;
    if (Math.abs(heldOf(memory) / heldOf(last) - 1) < SETTLED_SHARE) return memory;
    last = memory;
  }
}

function heldOf({ heapBytes, externalBytes }: Memory): number {
  return heapBytes + externalBytes;
}
