import { verifyStore } from "../src/server/verify-store.js";
import { threadsFor, verifyInThreads } from "../src/server/verify-threads.js";
import { atLeast, barColumns, type Bar, column, grouped, median, print } from "./report.js";

const EVENTS_PER_SECOND_MIN = 100_000;

/** How many events a second the `verify` command checks: the logs alone, and with every row that follows from them. */
export async function measureVerify(rounds: number, path: string): Promise<readonly Bar[]> {
  print(`\nverifying the file, medians of ${rounds} passes`);
  print(`${"".padEnd(28)}${["events/s", "at least"].map(column).join("")}`);
  const logs = await rates(rounds, path, true);
  const bar = atLeast("verifying logs", median(logs), EVENTS_PER_SECOND_MIN);
  print(`${"logs alone".padEnd(28)}${barColumns(bar, grouped)}   rounds: ${listed(logs)}`);
  const all = await rates(rounds, path, false);
  const figures = column(grouped(median(all))) + column("");
  print(`${"every row".padEnd(28)}${figures}   rounds: ${listed(all)}`);
  return [bar];
}

async function rates(rounds: number, path: string, logOnly: boolean): Promise<number[]> {
  const found: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const verifySessions = verifyInThreads(threadsFor(path));
    const report = await verifyStore({ path, logOnly, verifySessions });
    if (!report.isSound) throw new Error(`${path} is not sound`);
    found.push(report.eventsPerSecond);
  }
  return found;
}

function listed(values: readonly number[]): string {
  return values.map((each) => each.toFixed(0)).join(" ");
}
