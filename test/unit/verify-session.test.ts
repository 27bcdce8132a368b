import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  StoreFault,
  type SessionRef,
  type SessionRows,
  type Store,
} from "../../src/ledger/store-port.js";
import type { Verdict } from "../../src/ledger/verify/verdict.js";
import { verifySession, type VerifyOptions } from "../../src/ledger/verify/verify-session.js";
import { ALTERED_ROWS } from "../support/altered-rows.js";
import { AlteredSession, flipped } from "../support/altered-session.js";
import { startHistoryService, writeHistory, type HistoryService } from "../support/rich-history.js";

let service: HistoryService;
let store: Store;
let sessions: SessionRef[];
/** The session in which everything waits. */
let waiting: SessionRef;

beforeAll(async () => {
  service = await startHistoryService({
    flags: ["--snapshot-every", "4"],
    wrapStore: (inner) => (store = inner),
  });
  sessions = await writeHistory(service);
  waiting = sessions[1] ?? { tenant: "", sessionId: "" };
});

afterAll(() => service.stop());

const OPTIONS: VerifyOptions = {
  checkpoints: [],
  generationFloor: 0n,
  pause: () => Promise.resolve(),
  isAborted: () => false,
};

function verify(rows: SessionRows, options: Partial<VerifyOptions> = {}, session = waiting) {
  return verifySession(rows, session, { ...OPTIONS, ...options });
}

function altering(): AlteredSession {
  return new AlteredSession(store, waiting);
}

function damagedAt(verdict: Verdict | undefined) {
  if (verdict?.outcome !== "damaged") throw new Error(`the verdict is ${String(verdict?.outcome)}`);
  return verdict.finding;
}

describe("verifying a session", () => {
  test("finds nothing in rows as they were written", async () => {
    for (const session of sessions) {
      const verdict = await verify(store, {}, session);
      expect(verdict).toMatchObject({ outcome: "sound" });
    }
  });

  test("counts what it went through", async () => {
    const row = await store.findSession(waiting);
    const verdict = await verify(store);
    if (verdict?.outcome !== "sound") throw new Error("not sound");
    expect(verdict.head).toEqual({
      sequence: row?.head.sequence,
      position: row?.head.position,
      chain: row?.head.chain,
    });
    expect(verdict.counts.events).toBe(Number(row?.head.sequence));
    expect(verdict.counts.bodies).toBeGreaterThan(4);
    expect(verdict.counts.bytes).toBeGreaterThan(1000);
  });

  test("knows no session that is not there", async () => {
    expect(await verify(store, {}, { tenant: "other", sessionId: waiting.sessionId })).toBe(
      undefined,
    );
  });

  test.each(ALTERED_ROWS)("finds $rule", async ({ table, fault, change }) => {
    const from = altering();
    const finding = damagedAt(await verify(from.altered(change(from))));
    expect(finding.table).toBe(table);
    expect(finding.fault).toMatch(fault);
    expect(finding.key).not.toBe("");
  });

  test("names the first bad event, not a later one", async () => {
    const rows = altering().altered(
      altering().eventsThrough((all) =>
        all.map((row) => (row.sequence < 5n ? row : { ...row, payload: flipped(row.payload) })),
      ),
    );
    expect(damagedAt(await verify(rows))).toMatchObject({ key: "5", sequence: 5n });
  });

  test("names the row before one that cannot be read", async () => {
    const damaged = new StoreFault("damaged", new Error("malformed"));
    const rows = altering().altered({
      readEvents: async (session, after, limit, maxBytes) => {
        const page = await store.readEvents(session, after, limit, maxBytes);
        if (page.some(({ sequence }) => sequence === 6n)) throw damaged;
        return page;
      },
    });
    const finding = damagedAt(await verify(rows));
    expect(finding).toEqual({
      table: "events",
      key: "5",
      fault: "is followed by a row that cannot be read",
    });
  });

  test("is no verdict if the store cannot be read for another reason than damage", async () => {
    const busy = new StoreFault("busy", new Error("locked"));
    const rows = altering().altered({ listBodyRefs: () => Promise.reject(busy) });
    await expect(verify(rows)).rejects.toBe(busy);
  });

  test("stops once nobody waits any more", async () => {
    let pauses = 0;
    const verdict = await verify(store, {
      isAborted: () => pauses > 1,
      pause: async () => {
        pauses += 1;
      },
    });
    expect(verdict).toEqual({ outcome: "aborted" });
    expect(pauses).toBe(2);
  });

  test("takes a high-water up to the floor of the generation", async () => {
    const floor = 3n << 32n;
    const options = { generationFloor: floor };
    expect(await verify(store, options)).toMatchObject({ outcome: "sound" });
    expect(
      await verify(altering().altered(altering().head({ highWater: floor })), options),
    ).toMatchObject({
      outcome: "sound",
    });
    expect(
      damagedAt(
        await verify(altering().altered(altering().head({ highWater: floor + 1n })), options),
      ),
    ).toMatchObject({ table: "sessions" });
  });
});

describe("a checkpoint", () => {
  async function pointAt(sequence: bigint) {
    const [row] = await store.readEvents(waiting, sequence - 1n, 1, 1);
    if (row === undefined) throw new Error("no such event");
    return { sequence, position: row.position, chain: row.chain };
  }

  test("on the chain passes, wherever it lies", async () => {
    const { sequence = 0n } = (await store.findSession(waiting))?.head ?? {};
    for (let at = 1n; at <= sequence; at += 1n) {
      const checkpoint = await pointAt(at);
      expect(await verify(store, { checkpoints: [checkpoint] })).toMatchObject({
        outcome: "sound",
      });
    }
  });

  test.each([
    ["chain value", { chain: new Uint8Array(32) }],
    ["position", { position: 1n }],
    ["sequence behind the head", { sequence: 4000n }],
  ])("with another %s is missed", async (_, change) => {
    const checkpoint = { ...(await pointAt(5n)), ...change };
    const verdict = await verify(store, { checkpoints: [checkpoint] });
    expect(verdict).toMatchObject({ outcome: "checkpoint_missed", sequence: checkpoint.sequence });
  });
});
