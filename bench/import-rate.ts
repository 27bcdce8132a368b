import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Caller } from "../src/domain/principal.js";
import { isRefusal } from "../src/domain/refusal.js";
import { DEFAULT_LIMITS } from "../src/domain/limits.js";
import { SessionImport } from "../src/ledger/session-import.js";
import type { Store } from "../src/ledger/store-port.js";
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

/** Sessions a second that are imported, beside a bare loop that inserts the same rows in commits of as many sessions. */
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
  for (let round = 0; round < rounds; round += 1) {
    const from = join(folder, `imported-${round}`);
    const to = join(folder, `bare-${round}`);
    imported.push(sessions / ((await timeImport(from, sessions)) / 1000));
    await (await emptyStore(to)).close();
    const bareMs = timeBareInserts(storePath(from), storePath(to), IN_FLIGHT);
    bare.push(sessions / (bareMs / 1000));
  }
  const bar = atLeast("importing", median(imported) / median(bare), SHARE_MIN);
  print(`${"bare inserts".padEnd(28)}${column(grouped(median(bare)))}`);
  print(`${"imports".padEnd(28)}${column(grouped(median(imported)))}${barColumns(bar)}`);
  return [bar];
}

async function timeImport(folder: string, sessions: number): Promise<number> {
  const requests = Array.from({ length: sessions }, (_, index) => oldSessionImport(index));
  const store = await emptyStore(folder);
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

async function emptyStore(folder: string): Promise<Store> {
  await mkdir(folder, { recursive: true });
  return openStore({ kind: "sqlite", path: storePath(folder) });
}
