import { join, resolve } from "node:path";
import { LoadGenerator } from "./generator.js";
import type { Options } from "./options.js";
import type { Bar } from "./report.js";
import { measureBroadcast } from "./watch-broadcast.js";
import { WatchClient } from "./watch-client.js";
import { measureIdle } from "./watch-memory.js";
import { measureReplay } from "./watch-replay.js";
import { startSubjects } from "./watch-subjects.js";

const SOURCES = resolve(import.meta.dirname, "../../bench");
const IDLE_TIMES = 2;

/** What watching costs: memory while nothing happens, one event to many watchers, and many events to one. */
export async function measureWatch(options: Options, folder: string): Promise<readonly Bar[]> {
  const { rounds, seconds, watchers } = options;
  const generator = await LoadGenerator.compile(join(SOURCES, "load.c"), folder);
  const client = await WatchClient.compile(join(SOURCES, "watch.c"), folder);
  const subjects = await startSubjects(options, folder);
  try {
    return [
      ...(await measureIdle(subjects, client, IDLE_TIMES * watchers)),
      ...(await measureBroadcast({ subjects, client, generator, watchers, rounds, seconds })),
      ...(await measureReplay(subjects, client, rounds)),
    ];
  } finally {
    await subjects.stop();
  }
}
