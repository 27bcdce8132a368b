import { atLeast, barColumns, type Bar, column, grouped, median, print } from "./report.js";
import type { Watch, WatchClient } from "./watch-client.js";
import { LISTENERS, placeOf, watchOfBare, type WatchSubjects } from "./watch-subjects.js";

const SHARE_MIN = 0.5;

/** Events a second of one replay, beside a stream that encodes and sends equal messages. */
export async function measureReplay(
  subjects: WatchSubjects,
  client: WatchClient,
  rounds: number,
): Promise<readonly Bar[]> {
  const { sessionId, events } = subjects.replayed;
  print(`\nreplay of ${grouped(events)} events, medians of ${rounds} rounds`);
  print(`${"".padEnd(28)}${["events/s", "share", "at least"].map(column).join("")}`);
  const bars: Bar[] = [];
  for (const listener of LISTENERS) {
    const rates: { readonly bare: number[]; readonly service: number[] } = {
      bare: [],
      service: [],
    };
    for (let round = 0; round <= rounds; round += 1) {
      const bare = await replayRate(client, watchOfBare(subjects, listener, events), events);
      const watch = { ...placeOf(subjects.service, listener), sessionId };
      const service = await replayRate(client, watch, events);
      // The first round warms up.
      if (round === 0) continue;
      rates.bare.push(bare);
      rates.service.push(service);
    }
    const name = `replay, ${listener.name}`;
    const bar = atLeast(name, median(rates.service) / median(rates.bare), SHARE_MIN);
    const rate = (values: readonly number[]) => column(grouped(median(values)));
    print(`${`bare, ${listener.name}`.padEnd(28)}${rate(rates.bare)}`);
    print(`${name.padEnd(28)}${rate(rates.service)}${barColumns(bar)}`);
    bars.push(bar);
  }
  return bars;
}

async function replayRate(client: WatchClient, watch: Watch, events: number): Promise<number> {
  // The message after the last event says that it was the last.
  const watchers = await client.open(watch, 1, events + 1);
  const { startMs, lastMs } = await watchers.received();
  await watchers.close();
  return events / ((lastMs - startMs) / 1000);
}
