import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Caller } from "../src/domain/principal.js";
import { isRefusal } from "../src/domain/refusal.js";
import { DEFAULT_LIMITS } from "../src/domain/limits.js";
import { SessionImport } from "../src/ledger/session-import.js";
import type { CommandWrite, Store } from "../src/ledger/store-port.js";
import { readSources } from "../src/legacy/read-sources.js";
import { openStore } from "../src/server/service.js";
import { nowMs, randomBytes } from "../src/server/system.js";
import { timeBareInserts } from "./bare-inserts.js";
import { ledgerOn } from "./ledger-writer.js";
import { oldSessionImport } from "./old-sessions.js";
import { atLeast, barColumns, type Bar, column, grouped, median, print } from "./report.js";
import { storePath } from "./service-process.js";

const SHARE_MIN = 0.25;
const IN_FLIGHT = 256;
const CALLER: Caller = { tenant: "default", subject: "loopback", scope: "tenant" };
const WAITING = { aborted: undefined };

/** Sessions a second that are imported, beside a bare loop that inserts the same rows in commits as large. */
export async function measureImport(
  rounds: number,
  sessions: number,
  folder: string,
): Promise<readonly Bar[]> {
  print(
    `\nimporting ${grouped(sessions)} sessions, ${IN_FLIGHT} at a time, medians of ${rounds} rounds`,
  );
  print(`${"".padEnd(28)}${["sessions/s", "share", "at least"].map(column).join("")}`);
  const imported: number[] = [];
  const bare: number[] = [];
  const writes: CommandWrite[] = [];
  for (let round = 0; round <= rounds; round += 1) {
    const isWarmUp = round === 0;
    const from = join(folder, `imported-${round}`);
    const to = join(folder, `bare-${round}`);
    const importMs = await timeImport(from, sessions, isWarmUp ? writes : undefined);
    await (await emptyStore(to)).close();
    const bareMs = timeBareInserts(writes, storePath(to), IN_FLIGHT);
    if (isWarmUp) continue;
    imported.push(sessions / (importMs / 1000));
    bare.push(sessions / (bareMs / 1000));
  }
  const bar = atLeast("importing", median(imported) / median(bare), SHARE_MIN);
  print(`${"bare inserts".padEnd(28)}${column(grouped(median(bare)))}`);
  print(`${"imports".padEnd(28)}${column(grouped(median(imported)))}${barColumns(bar)}`);
  return [bar];
}

/** Milliseconds that it takes. What is written is added to `written`. */
async function timeImport(
  folder: string,
  sessions: number,
  written: CommandWrite[] | undefined,
): Promise<number> {
  const requests = Array.from({ length: sessions }, (_, index) => oldSessionImport(index));
  const store = await emptyStore(folder);
  if (written !== undefined) keepWrites(store, written);
  const ledger = ledgerOn(store);
  const limits = DEFAULT_LIMITS;
  const importing = new SessionImport({ ledger, store, limits, readSources, randomBytes, nowMs });
  const startMs = performance.now();
  const work = async (): Promise<void> => {
    for (let next = requests.pop(); next !== undefined; next = requests.pop()) {
      const outcome = await importing.import(CALLER, next, WAITING);
      if (isRefusal(outcome) || !outcome.isNew) throw new Error("an import was refused");
    }
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, work));
  const tookMs = performance.now() - startMs;
  await ledger.close();
  await store.close();
  return tookMs;
}

function keepWrites(store: Store, written: CommandWrite[]): void {
  const commit = store.commit.bind(store);
  store.commit = (writes) => {
    written.push(...writes.filter(({ events }) => events.length > 0));
    return commit(writes);
  };
}

async function emptyStore(folder: string): Promise<Store> {
  await mkdir(folder, { recursive: true });
  return openStore({ kind: "sqlite", path: storePath(folder) });
}
