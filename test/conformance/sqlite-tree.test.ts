import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import BetterSqlite from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { SessionState } from "../../gen/toolmark/v1/session_pb.js";
import { openSqliteStore } from "../../src/store/sqlite/sqlite-store.js";
import { READ_SQL } from "../../src/store/sqlite/statements.js";

const PAGE = 100;
/** Sessions of each of three trees, each with one open ask. */
const TREE = 1000;
/** The first of a branch of the first tree: its children follow it, and theirs. */
const MIDDLE = 101;
const BRANCH = 200;

type Name = "listTreeSessions" | "listTreeAsks" | "listTreeAskChanges";
const SEARCHES: Readonly<Record<Name, string>> = {
  listTreeSessions:
    "SEARCH sessions USING INDEX sessions_by_root (tenant=? AND root_session_id=? AND create_position>?)",
  listTreeAsks:
    "SEARCH a USING INDEX asks_by_root (tenant=? AND root_session_id=? AND state=? AND rowid>? AND rowid<?)",
  listTreeAskChanges:
    "SEARCH a USING INDEX asks_by_change_below_root (tenant=? AND root_session_id=? AND last_position>?)",
};
const NAMES = Object.keys(SEARCHES) as readonly Name[];

let folder: string;
let raw: BetterSqlite.Database;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "toolmark-tree-"));
  const path = join(folder, "toolmark.db");
  await (await openSqliteStore({ path, storeId: "store-1" })).close();
  raw = new BetterSqlite(path);
});

afterEach(() => {
  raw.close();
  rmSync(folder, { recursive: true, force: true });
});

/**
 * Three trees, whose sessions were made in turn: session `i` stands in tree `i % 3`, as its `i / 3`th. Of the first
 * tree, those from MIDDLE on form a branch of chains, ten deep; all others stand below their root.
 */
function fill(): void {
  const above = (i: number): number | null => {
    const at = Math.floor(i / 3);
    if (at === 0) return null;
    const isOfBranch = i % 3 === 0 && at > MIDDLE && at < MIDDLE + BRANCH;
    if (!isOfBranch) return i % 3;
    return (at - MIDDLE) % 10 === 1 ? 3 * MIDDLE : i - 3;
  };
  const session = raw.prepare(`INSERT INTO sessions (session, tenant, session_id, owner_subject,
      created_by_subject, parent_session_id, root_session_id, state, create_position, sequence,
      position, high_water, chain, session_sequence, update_time_ms, checksum)
    VALUES (?, 'acme', ?, 'owner', 'creator', ?, ?, ${SessionState.OPEN}, ?, 1, 1, 0, x'', 1, 1, x'')`);
  const ask =
    raw.prepare(`INSERT INTO asks (position, session, ask_id, tool_call_id, tool_name, state,
      create_time_ms, last_position, tenant, owner_subject, created_by_subject, root_session_id,
      last_chain)
    VALUES (?, ?, 'ask', 'tc_1', 'bash', ${AskState.OPEN}, 1, ?, 'acme', 'owner', 'creator', ?, x'')`);
  raw.pragma("synchronous = OFF");
  raw.transaction(() => {
    for (let i = 0; i < 3 * TREE; i += 1) {
      const parent = above(i);
      const root = `ses_${i % 3}`;
      session.run(i + 1, `ses_${i}`, parent === null ? null : `ses_${parent}`, root, i + 1);
      ask.run(i + 1, i + 1, i + 1, root);
    }
  })();
}

const FIRST_PAGE = {
  ...{ tenant: "acme", state: 1, subject: null, owner: null, toolName: null },
  ...{ createFromMs: null, createBeforeMs: null, expireBeforeMs: null },
  ...{ after: 0, until: Number.MAX_SAFE_INTEGER, limit: PAGE, root: "ses_0" },
};

/** The rows that a list of the tree of a session looks at, and those that it goes to below the session. */
function work(name: Name, sessionId: string): { looks: number; steps: number; given: number } {
  let [looks, steps] = [0, 0];
  raw.function("looks", { varargs: true }, () => (looks += 1));
  raw.function("steps", { varargs: true }, () => (steps += 1));
  const counted = READ_SQL[name]
    .replace(" WHERE a.", " WHERE looks(a.session) AND a.")
    .replace("FROM sessions\nWHERE ", "FROM sessions\nWHERE looks(session) AND ")
    .replace(
      "ON s.tenant = @tenant AND s.parent",
      "ON steps(s.session) AND s.tenant = @tenant AND s.parent",
    );
  const given = raw.prepare(counted).all({ ...FIRST_PAGE, sessionId });
  return { looks, steps, given: given.length };
}

function planOf(name: Name): string[] {
  return raw
    .prepare<unknown[], { detail: string }>(`EXPLAIN QUERY PLAN ${READ_SQL[name]}`)
    .all({ ...FIRST_PAGE, sessionId: "ses_0" })
    .map(({ detail }) => detail);
}

describe("a list of a tree", () => {
  test.each(NAMES)(
    "%s searches by its root, goes below a session by its id, and sorts nothing",
    (name) => {
      const plan = planOf(name);
      expect(plan[0]).toBe(SEARCHES[name]);
      expect(plan).toContain(
        "SEARCH s USING INDEX sessions_by_parent (tenant=? AND parent_session_id=?)",
      );
      const ofTables = plan.filter((step) => /SCAN|TEMP B-TREE/.test(step));
      // What was found below, put together by the statement itself.
      expect(ofTables).toEqual(["SCAN b", "SCAN below"]);
    },
  );

  test.each(NAMES)("%s looks at one row of a root's tree for each that it gives", (name) => {
    fill();
    expect(work(name, "ses_0")).toEqual({ looks: PAGE, steps: 0, given: PAGE });
    raw.exec(`DROP INDEX ${/INDEX (\w+)/.exec(SEARCHES[name])?.[1]}`);
    expect(work(name, "ses_0").looks).toBeGreaterThan(2 * PAGE);
  });

  test.each(NAMES)(
    "%s goes through what stands below a session, and through no other tree",
    (name) => {
      fill();
      const middle = `ses_${3 * MIDDLE}`;
      // In the root's tree the branch comes after MIDDLE others.
      expect(work(name, middle)).toEqual({ looks: MIDDLE + PAGE, steps: BRANCH - 1, given: PAGE });
      const leaf = `ses_${3 * (TREE - 1)}`;
      expect(work(name, leaf)).toEqual({ looks: TREE, steps: 0, given: 1 });
      raw.exec("DROP INDEX sessions_by_parent");
      expect(work(name, middle).steps).toBeGreaterThan(10 * BRANCH);
    },
  );
});
