import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import BetterSqlite from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { openSqliteStore } from "../../src/store/sqlite/sqlite-store.js";
import { READ_SQL, WRITE_SQL } from "../../src/store/sqlite/statements.js";
import { A, askEvent, B, expectCommitted, newEvent, write } from "./store-fixture.js";
import { withoutTriggers } from "../support/without-triggers.js";

const OPEN_ASKS = 10_000;
const PAGE = 100;

let folder: string;
let path: string;
let raw: BetterSqlite.Database;

/** A file as a store left it, then opened past the store. */
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "toolmark-inbox-"));
  path = join(folder, "toolmark.db");
  const store = await openSqliteStore({ path, storeId: "store-1" });
  await expectCommitted(
    store,
    write(A, [askEvent(1n, 1n, "ask_1"), newEvent(2n, 2n)]),
    write(B, [newEvent(1n, 3n)]),
  );
  await store.close();
  raw = new BetterSqlite(path);
});

afterEach(() => {
  raw.close();
  rmSync(folder, { recursive: true, force: true });
});

const OPENED = "state=? AND rowid>? AND rowid<?";
const OWNED = `SEARCH a USING INDEX asks_by_owner (tenant=? AND owner_subject=? AND ${OPENED})`;
const CREATED = `SEARCH a USING INDEX asks_by_creator (tenant=? AND created_by_subject=? AND ${OPENED})`;

/** How the sessions of a tree are found, if it is not that of a root. What is scanned is what was found. */
const BELOW = [
  "LIST SUBQUERY 3",
  "MATERIALIZE below",
  "SETUP",
  "SEARCH sessions USING COVERING INDEX sqlite_autoindex_sessions_1 (tenant=? AND session_id=?)",
  "RECURSIVE STEP",
  "SCAN b",
  "SEARCH s USING INDEX sessions_by_parent (tenant=? AND parent_session_id=?)",
  "SCAN below",
  "CREATE BLOOM FILTER",
];

/** The search of each statement that everything else it reads follows from. */
const SEARCHES: Partial<Record<keyof typeof READ_SQL, readonly string[]>> = {
  listAsks: [`SEARCH a USING INDEX asks_by_tenant (tenant=? AND ${OPENED})`],
  listSessionAsks: [`SEARCH a USING INDEX asks_by_session (session=? AND ${OPENED})`],
  listOwnedAsks: [OWNED],
  listVisibleAsks: [OWNED, CREATED],
  listToolAsks: [`SEARCH a USING INDEX asks_by_tool (tenant=? AND tool_name=? AND ${OPENED})`],
  listAskChanges: ["SEARCH a USING INDEX asks_by_change (tenant=? AND last_position>?)"],
  listVisibleAskChanges: [
    "SEARCH a USING INDEX asks_by_change_and_owner (tenant=? AND owner_subject=? AND last_position>?)",
    "SEARCH a USING INDEX asks_by_change_and_creator (tenant=? AND created_by_subject=? AND last_position>?)",
  ],
  listSessionAskChanges: [
    "SEARCH a USING INDEX asks_by_change_in_session (session=? AND last_position>?)",
  ],
  listTreeAsks: [
    `SEARCH a USING INDEX asks_by_root (tenant=? AND root_session_id=? AND ${OPENED})`,
    ...BELOW,
  ],
  listTreeAskChanges: [
    "SEARCH a USING INDEX asks_by_change_below_root (tenant=? AND root_session_id=? AND last_position>?)",
    ...BELOW,
  ],
  listAskPlaces: ["SEARCH a USING INDEX sqlite_autoindex_asks_1 (session=? AND ask_id>?)"],
  listDeadlines: ["SEARCH d USING PRIMARY KEY (session=? AND record_id>?)"],
  listDue: ["SEARCH d USING INDEX deadlines_by_time ((time_ms,position)>(?,?) AND time_ms<?)"],
  listDueSetAfter: ["SEARCH d USING INDEX deadlines_by_set_time (set_time_ms>?)"],
  nextDeadline: ["SEARCH deadlines USING COVERING INDEX deadlines_by_time"],
};

const OF_INBOX = /\b(asks|deadlines)\b/;
const ROW_BY_KEY = /^SEARCH [se] USING INTEGER PRIMARY KEY \(rowid=\?\)( LEFT-JOIN)?$/;
const STRUCTURE = /^(MERGE \(UNION ALL\)|LEFT|RIGHT)$/;

function planOf(sql: string): string[] {
  const names = [...sql.matchAll(/@(\w+)/g)].map(([, name = ""]) => [name, 1] as const);
  const marks = [...sql.matchAll(/\?/g)].map(() => 1);
  const named: Record<string, number> = Object.fromEntries(names);
  const parameters = names.length > 0 ? [named] : marks;
  return raw
    .prepare<unknown[], { detail: string }>(`EXPLAIN QUERY PLAN ${sql}`)
    .all(...parameters)
    .map(({ detail }) => detail);
}

describe("plans", () => {
  test("the statements of the inbox, its changes and deadlines are those listed here", () => {
    const found = Object.entries(READ_SQL).filter(([, sql]) => OF_INBOX.test(sql));
    expect(found.map(([name]) => name).sort()).toEqual(Object.keys(SEARCHES).sort());
  });

  test.each(Object.entries(READ_SQL).filter(([, sql]) => OF_INBOX.test(sql)))(
    "%s searches by its own index, and reads the rest by key, unsorted",
    (name, sql) => {
      const rest = planOf(sql).filter((step) => !ROW_BY_KEY.test(step) && !STRUCTURE.test(step));
      expect({ [name]: rest }).toEqual({ [name]: new Map(Object.entries(SEARCHES)).get(name) });
    },
  );

  test("a deadline is dropped by its key", () => {
    expect(planOf(WRITE_SQL.dropDeadline)).toEqual([
      "SEARCH deadlines USING PRIMARY KEY (session=? AND record_id=?)",
    ]);
  });
});

describe("work", () => {
  const FIRST_PAGE = {
    tenant: "acme",
    session: 1,
    state: AskState.OPEN,
    subject: null,
    owner: null,
    toolName: "bash",
    createFromMs: null,
    createBeforeMs: null,
    expireBeforeMs: null,
    after: 0,
    until: Number.MAX_SAFE_INTEGER,
    limit: PAGE,
    sessionId: A.sessionId,
    root: A.sessionId,
  };
  const LISTS = [
    ["listAsks", {}],
    ["listSessionAsks", {}],
    ["listOwnedAsks", { owner: "owner" }],
    ["listVisibleAsks", { subject: "owner" }],
    ["listVisibleAsks", { subject: "creator" }],
    ["listToolAsks", {}],
    ["listTreeAsks", {}],
  ] as const;
  const INDEXES_BY_STATE = [
    "asks_by_tenant",
    "asks_by_session",
    "asks_by_owner",
    "asks_by_creator",
    "asks_by_tool",
    "asks_by_root",
  ];

  /** Every sixth ask is open. Those between them are missing, settled, or open and another's. */
  function fill(between: "missing" | "settled" | "foreign"): void {
    const rows = (session: number, tool: string, state: AskState, subjects: string) =>
      `INSERT INTO asks (position, session, ask_id, tool_call_id, tool_name, state, create_time_ms,
         last_position, tenant, owner_subject, created_by_subject, root_session_id, last_chain)
       SELECT i, ${session}, 'ask_' || i, 'tc_1', '${tool}', ${state}, i, i,
         'acme', ${subjects}, '${session === 1 ? A.sessionId : B.sessionId}', x'' FROM n`;
    raw.pragma("synchronous = OFF");
    raw.exec(`DELETE FROM asks;
      CREATE TEMP TABLE IF NOT EXISTS n AS
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${6 * OPEN_ASKS})
        SELECT i FROM n;
      ${rows(1, "bash", AskState.OPEN, "'owner', 'creator'")} WHERE i % 6 = 0`);
    if (between === "settled") {
      raw.exec(`${rows(1, "bash", AskState.ANSWERED, "'owner', 'creator'")} WHERE i % 6 <> 0`);
    }
    if (between === "foreign") {
      raw.exec(`${rows(2, "edit", AskState.OPEN, "'x', 'y'")} WHERE i % 6 <> 0`);
    }
  }

  /** How many asks the statement looks at for the page that it gives. */
  function countLooks(name: keyof typeof READ_SQL, parameters: Record<string, unknown>) {
    let looks = 0;
    raw.function("looks_at", { varargs: true }, () => (looks += 1));
    const counted = READ_SQL[name].replaceAll(" WHERE a.", " WHERE looks_at(a.position) AND a.");
    const given = raw
      .prepare<unknown[], { first_position: number }>(counted)
      .all({ ...FIRST_PAGE, ...parameters });
    return { looks, given: given.map(({ first_position: position }) => position) };
  }

  const firstPages = (lists: readonly (typeof LISTS)[number][] = LISTS) =>
    lists.map(([name, parameters]) => countLooks(name, parameters));

  test("a first page of 10,000 open asks looks at as many with 50,000 settled ones as with none", () => {
    fill("missing");
    const without = firstPages();
    for (const { looks, given } of without) {
      expect(given).toEqual(Array.from({ length: PAGE }, (_, n) => 6 * (n + 1)));
      expect(looks).toBeLessThanOrEqual(PAGE + 1);
    }
    fill("settled");
    expect(firstPages()).toEqual(without);
    raw.exec(INDEXES_BY_STATE.map((index) => `DROP INDEX ${index};`).join(""));
    for (const { looks } of firstPages()) expect(looks).toBeGreaterThan(5 * PAGE);
  });

  test("the first page of one session, tree, subject or tool looks at no ask of another's", () => {
    const [ofTenant, ...narrower] = LISTS;
    fill("missing");
    const without = firstPages(narrower);
    fill("foreign");
    expect(firstPages(narrower)).toEqual(without);
    expect(firstPages([ofTenant])[0]?.looks).toBeGreaterThan(5 * PAGE);
  });

  test("a page of changes looks at no ask that changed before", () => {
    fill("settled");
    const after = 6 * OPEN_ASKS - 7;
    expect(countLooks("listAskChanges", { after }).looks).toBe(7);
    expect(countLooks("listSessionAskChanges", { after }).looks).toBe(7);
    expect(countLooks("listTreeAskChanges", { after }).looks).toBe(7);
  });
});

const ALL = { sessionId: undefined, visibleToSubject: undefined, tree: undefined };

describe("damage", () => {
  test("an ask whose last event is missing is listed without one", async () => {
    withoutTriggers(raw, () => {
      raw.exec("DELETE FROM events WHERE position = 1");
    });
    const store = await openSqliteStore({ path, storeId: "x" });
    const scope = { tenant: "acme", ...ALL };
    const [found] = await store.listAskChanges({ ...scope, afterPosition: 0n, limit: 9 });
    await store.close();
    expect(found).toMatchObject({ askId: "ask_1", lastPosition: 1n });
    expect(found).toHaveProperty("event", undefined);
  });

  test("an ask in a state that none has is no answer", async () => {
    raw.exec("UPDATE asks SET state = 99");
    const store = await openSqliteStore({ path, storeId: "x" });
    const scope = { tenant: "acme", ...ALL };
    const reading = store.listAskChanges({ ...scope, afterPosition: 0n, limit: 9 });
    await expect(reading).rejects.toThrow(/no state of an ask/);
    await store.close();
  });
});
