import { copyFileSync, writeFileSync } from "node:fs";
import BetterSqlite from "better-sqlite3";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type * as EventCodec from "../../src/ledger/event-codec.js";
import type { SessionRef } from "../../src/ledger/store-port.js";
import { verifyStore } from "../../src/server/verify-store.js";
import type { KeptCheckpoint } from "../../src/server/verify-task.js";
import { editText, FORGERIES, type Forger } from "../support/forged-log.js";
import { startHistoryService, writeHistory } from "../support/rich-history.js";
import { scaled } from "../support/scale.js";
import { seededRandom, seededTitle } from "../support/seed.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { recordResult } from "./results.js";
import { withoutTriggers } from "../support/without-triggers.js";

const FORGED_LOGS = 1000;

const checks = vi.hoisted(() => ({ commitments: true }));

vi.mock("../../src/ledger/event-codec.js", async (original) => {
  const actual: typeof EventCodec = await original();
  const isIntact: typeof actual.isIntact = (row) => !checks.commitments || actual.isIntact(row);
  return { ...actual, isIntact };
});

let folder: StoreFolder;
let forged: string;
let sessions: SessionRef[];
/** Each session's checkpoint as it was when the log was as written. */
let kept: KeptCheckpoint[];

beforeAll(async () => {
  folder = await makeStoreFolder();
  forged = `${folder.path}.forged`;
  const flags = ["--snapshot-every", "4"];
  const service = await startHistoryService({ store: folder.store, flags });
  sessions = await writeHistory(service);
  await service.stop();
  const database = new BetterSqlite(folder.path);
  database.pragma("wal_checkpoint(TRUNCATE)");
  kept = database
    .prepare<[], { session_id: string; sequence: bigint; position: bigint; chain: Buffer }>(
      "SELECT session_id, sequence, position, chain FROM sessions",
    )
    .safeIntegers()
    .all()
    .map(({ session_id: sessionId, ...point }) => ({ sessionId, ...point }));
  database.close();
  expect(await isRefused(folder.path)).toBe(false);
  expect(await isRefused(folder.path, kept, true)).toBe(false);
}, 60_000);

afterAll(() => folder.remove());

/** Forges the log of one session in a copy of the file; the triggers are there again afterwards. */
function forge(forgery: Forger, session: SessionRef, random: () => number): void {
  copyFileSync(folder.path, forged);
  for (const suffix of ["-wal", "-shm"]) writeFileSync(`${forged}${suffix}`, "");
  const database = new BetterSqlite(forged);
  try {
    database.pragma("foreign_keys = OFF");
    withoutTriggers(database, () => {
      forgery(database, session, random);
    });
    database.pragma("wal_checkpoint(TRUNCATE)");
  } finally {
    database.close();
  }
}

/** Whether verifying the file against checkpoints says that it is not as it was. */
async function isRefused(path: string, checkpoints = kept, logOnly = false): Promise<boolean> {
  return !(await verifyStore({ path, checkpoints, logOnly })).isSound;
}

describe("a forged log is refused by whoever kept a checkpoint", () => {
  const names = Object.keys(FORGERIES) as (keyof typeof FORGERIES)[];
  const tally = { count: 0, passed: [] as string[], passedWithoutCheckpoint: 0 };

  test.each(names)(seededTitle("%s"), async (name) => {
    const random = seededRandom(name);
    const rounds = Math.ceil(scaled(FORGED_LOGS) / names.length);
    for (let round = 0; round < rounds; round += 1) {
      const session = sessions[Math.floor(random() * sessions.length)] ?? {
        tenant: "",
        sessionId: "",
      };
      forge(FORGERIES[name], session, random);
      tally.count += 1;
      for (const logOnly of [false, true]) {
        const refused = await isRefused(forged, kept, logOnly);
        if (!refused) tally.passed.push(`${name} of ${session.sessionId}, log alone: ${logOnly}`);
      }
      if (name === "rewrite" && !(await isRefused(forged, []))) tally.passedWithoutCheckpoint += 1;
    }
    expect(tally.passed).toEqual([]);
  });

  test(seededTitle("and would pass if less were looked at"), async () => {
    const random = seededRandom("unchecked");
    let passedUnchecked = 0;
    for (let round = 0; round < 5; round += 1) {
      forge(editText, sessions[0] ?? { tenant: "", sessionId: "" }, random);
      expect(await isRefused(forged)).toBe(true);
      checks.commitments = false;
      if (!(await isRefused(forged))) passedUnchecked += 1;
      checks.commitments = true;
    }
    const planted = [
      { name: "no checkpoint kept", caught: tally.passedWithoutCheckpoint },
      { name: "commitments not checked", caught: passedUnchecked },
    ];
    recordResult({
      ...{ promise: 7, part: "forged logs", counted: "logs", wanted: FORGED_LOGS, planted },
      count: tally.count,
      violations: tally.passed.length,
    });
    for (const { caught } of planted) expect(caught).toBeGreaterThan(0);
  });
});
