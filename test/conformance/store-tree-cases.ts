import { expect } from "vitest";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { SessionState } from "../../gen/toolmark/v1/session_pb.js";
import type {
  AskChangesQuery,
  AskQuery,
  SessionQuery,
  SessionRow,
  SessionTree,
  Store,
} from "../../src/ledger/store-port.js";
import {
  askEvent,
  type ConformanceCase,
  expectCommitted,
  expectRefused,
  sessionRow,
  write,
} from "./store-fixture.js";

/** Where a session stands, and what is said of it. Its place in the list is its position. */
interface Standing {
  readonly sessionId: string;
  readonly parent?: string;
  readonly root?: string;
  readonly row?: Partial<SessionRow>;
}

const MADE_BY_ME = { createdBySubject: "me" };

/**
 * Two trees, in an order that is neither that of the ids nor that of the depth: below `root` are `z` and `a`, below `z`
 * `leaf`, below it `deep`; below `other` is `far`. Then another tenant's sessions of the same ids.
 */
const SESSIONS: readonly Standing[] = [
  { sessionId: "root" },
  { sessionId: "z", parent: "root" },
  { sessionId: "other", root: "other", row: MADE_BY_ME },
  { sessionId: "leaf", parent: "z", row: MADE_BY_ME },
  { sessionId: "far", parent: "other", root: "other", row: MADE_BY_ME },
  { sessionId: "a", parent: "root", row: { ownerSubject: "me", state: SessionState.ENDED } },
  { sessionId: "deep", parent: "leaf", row: { state: SessionState.ENDED } },
  ...[{}, { parent: "root" }, { parent: "z" }].map((below, depth) => ({
    ...{ sessionId: ["root", "z", "leaf"][depth] ?? "", ...below },
    row: { tenant: "other", ...MADE_BY_ME },
  })),
];

function rowOf({ sessionId, parent, root = "root", row }: Standing): Partial<SessionRow> {
  return { sessionId, parentSessionId: parent, rootSessionId: root, ...row };
}

/** Each session with one open ask, which has its name. */
async function open(store: Store, standing: Standing, position: bigint): Promise<void> {
  const ref = { tenant: standing.row?.tenant ?? "acme", sessionId: standing.sessionId };
  const events = [askEvent(1n, position, `ask_${standing.sessionId}`)];
  const session = sessionRow(ref, events, { ...rowOf(standing), createPosition: position });
  await expectCommitted(store, write(ref, events, { session }));
}

async function openAll(store: Store): Promise<void> {
  for (const [at, standing] of SESSIONS.entries()) await open(store, standing, BigInt(at + 1));
}

/** A second event of the ask of a session, at a position of its own. */
async function settle(store: Store, sessionId: string, position: bigint): Promise<void> {
  const ref = { tenant: "acme", sessionId };
  const before = await store.findSession(ref);
  if (before === undefined) expect.fail(`there is no session ${sessionId}`);
  const ask = askEvent(2n, position, `ask_${sessionId}`, { state: AskState.ANSWERED });
  const { head } = sessionRow(ref, [ask]);
  await expectCommitted(store, write(ref, [ask], { session: { ...before, head } }));
}

function treeOf(sessionId: string, rootSessionId = "root"): SessionTree {
  return { sessionId, rootSessionId };
}

async function listed(
  store: Store,
  tree: SessionTree,
  changes: Partial<SessionQuery> = {},
): Promise<string[]> {
  const rows = await store.listSessions({
    ...{ tenant: "acme", tree, visibleToSubject: undefined, ownerSubject: undefined },
    ...{ state: undefined, afterCreatePosition: 0n, limit: 100, ...changes },
  });
  return rows.map(({ sessionId }) => sessionId);
}

async function asked(
  store: Store,
  tree: SessionTree,
  changes: Partial<AskQuery> = {},
): Promise<string[]> {
  const rows = await store.listAsks({
    ...{ tenant: "acme", sessionId: tree.sessionId, tree, visibleToSubject: undefined },
    ...{ state: AskState.OPEN, ownerSubject: undefined, toolName: undefined },
    ...{ createFromMs: undefined, createBeforeMs: undefined, expireBeforeMs: undefined },
    ...{ afterPosition: 0n, untilPosition: undefined, limit: 100, ...changes },
  });
  return rows.map(({ sessionId }) => sessionId);
}

async function changed(
  store: Store,
  tree: SessionTree,
  changes: Partial<AskChangesQuery> = {},
): Promise<string[]> {
  const rows = await store.listAskChanges({
    ...{ tenant: "acme", sessionId: tree.sessionId, tree, visibleToSubject: undefined },
    ...{ afterPosition: 0n, limit: 100, ...changes },
  });
  return rows.map(({ sessionId }) => sessionId);
}

const STANDING: readonly ConformanceCase[] = [
  {
    name: "where a session stands is read back, with its asks, also after a restart",
    catches: "a store that drops parent or root, takes one for the other, or keeps them in memory",
    run: async (store, fixture) => {
      await openAll(store);
      for (const standing of SESSIONS) {
        const tenant = standing.row?.tenant ?? "acme";
        const found = await store.findSession({ tenant, sessionId: standing.sessionId });
        expect(found).toMatchObject(rowOf(standing));
      }
      const again = await fixture.reopen(store);
      const deep = { tenant: "acme", sessionId: "deep" };
      const standing = { parentSessionId: "leaf", rootSessionId: "root" };
      expect(await again.findSession(deep)).toMatchObject(standing);
      expect(await again.listAskPlaces(deep, "", 9)).toMatchObject([{ rootSessionId: "root" }]);
      expect(await listed(again, treeOf("z"))).toEqual(["z", "leaf", "deep"]);
    },
  },
  {
    name: "a session keeps its parent and its root",
    catches: "a store that lets a later command move a session to another tree, or ignores it",
    run: async (store) => {
      await openAll(store);
      const moves = [
        ["leaf", { parentSessionId: "root" }],
        ["leaf", { parentSessionId: undefined }],
        ["leaf", { rootSessionId: "other" }],
        ["root", { parentSessionId: "other" }],
        ["root", { rootSessionId: "other" }],
      ] as const;
      for (const [sessionId, move] of moves) {
        const ref = { tenant: "acme", sessionId };
        const row = await store.findSession(ref);
        if (row === undefined) expect.fail(`there is no session ${sessionId}`);
        const moved = write(ref, [], { session: { ...row, ...move } });
        await expectRefused(store, 0, moved);
        const stays = write(ref, [], { session: row });
        await expectRefused(store, 1, stays, moved, stays);
        expect(await store.findSession(ref)).toEqual(row);
      }
    },
  },
];

const LISTING: readonly ConformanceCase[] = [
  {
    name: "a tree's list has its session and those below it at any depth, in order of creation",
    catches: "a store that lists children alone, the whole tree of the root, or by depth",
    run: async (store) => {
      await openAll(store);
      expect(await listed(store, treeOf("root"))).toEqual(["root", "z", "leaf", "a", "deep"]);
      expect(await listed(store, treeOf("z"))).toEqual(["z", "leaf", "deep"]);
      expect(await listed(store, treeOf("deep"))).toEqual(["deep"]);
      expect(await listed(store, treeOf("other", "other"))).toEqual(["other", "far"]);
      expect(await listed(store, treeOf("none", "none"))).toEqual([]);
    },
  },
  {
    name: "a tree's list goes on page after page",
    catches: "a store that repeats the last one, ignores the limit, or cuts before it picks",
    run: async (store) => {
      await openAll(store);
      expect(await listed(store, treeOf("root"), { limit: 3 })).toEqual(["root", "z", "leaf"]);
      const after = { afterCreatePosition: 4n, limit: 1 };
      expect(await listed(store, treeOf("root"), after)).toEqual(["a"]);
      expect(await listed(store, treeOf("z"), { limit: 2 })).toEqual(["z", "leaf"]);
      expect(await listed(store, treeOf("z"), after)).toEqual(["deep"]);
    },
  },
  {
    name: "a session that is made below another is in its trees from then on",
    catches: "a store that remembers who stands in a tree",
    run: async (store) => {
      await openAll(store);
      expect(await listed(store, treeOf("z"))).toEqual(["z", "leaf", "deep"]);
      await open(store, { sessionId: "new", parent: "deep" }, 20n);
      expect(await listed(store, treeOf("z"))).toEqual(["z", "leaf", "deep", "new"]);
      expect(await asked(store, treeOf("z"))).toEqual(["z", "leaf", "deep", "new"]);
    },
  },
  {
    name: "subject, owner and state narrow a tree's list, whatever stands between",
    catches: "a store that ignores a filter in a tree, or stops at a session that is filtered out",
    run: async (store) => {
      await openAll(store);
      const mine = { visibleToSubject: "me" };
      expect(await listed(store, treeOf("root"), mine)).toEqual(["leaf", "a"]);
      expect(await listed(store, treeOf("root"), { ownerSubject: "me" })).toEqual(["a"]);
      const ended = { state: SessionState.ENDED };
      expect(await listed(store, treeOf("root"), ended)).toEqual(["a", "deep"]);
      expect(await listed(store, treeOf("z"), ended)).toEqual(["deep"]);
      expect(await listed(store, treeOf("z"), mine)).toEqual(["leaf"]);
      const both = { ...mine, ownerSubject: "owner" };
      expect(await listed(store, treeOf("root"), both)).toEqual(["leaf"]);
    },
  },
  {
    name: "a tree is of its tenant alone",
    catches: "a store that finds parents or roots by id alone",
    run: async (store) => {
      await openAll(store);
      const other = { tenant: "other" };
      expect(await listed(store, treeOf("root"), other)).toEqual(["root", "z", "leaf"]);
      expect(await listed(store, treeOf("z"), other)).toEqual(["z", "leaf"]);
      expect(await asked(store, treeOf("z"), other)).toEqual(["z", "leaf"]);
      expect(await changed(store, treeOf("z"), other)).toEqual(["z", "leaf"]);
      expect(await changed(store, treeOf("deep"), other)).toEqual([]);
    },
  },
];

const ASKS: readonly ConformanceCase[] = [
  {
    name: "asks of a tree are listed in the order of opening, page after page, narrowed by filters",
    catches: "a store that lists asks of one session, of every tree, or session after session",
    run: async (store) => {
      await openAll(store);
      const late = { tenant: "acme", sessionId: "root" };
      const row = await store.findSession(late);
      if (row === undefined) expect.fail("there is no root");
      const more = [askEvent(2n, 20n, "ask_late", { toolName: "edit" })];
      const { head } = sessionRow(late, more);
      await expectCommitted(store, write(late, more, { session: { ...row, head } }));
      await settle(store, "deep", 21n);
      const root = treeOf("root");
      expect(await asked(store, root)).toEqual(["root", "z", "leaf", "a", "root"]);
      expect(await asked(store, treeOf("z"))).toEqual(["z", "leaf"]);
      expect(await asked(store, treeOf("other", "other"))).toEqual(["other", "far"]);
      expect(await asked(store, root, { state: AskState.ANSWERED })).toEqual(["deep"]);
      expect(await asked(store, root, { limit: 2 })).toEqual(["root", "z"]);
      expect(await asked(store, root, { afterPosition: 4n })).toEqual(["a", "root"]);
      expect(await asked(store, root, { afterPosition: 1n, untilPosition: 4n })).toEqual([
        ...["z", "leaf"],
      ]);
      expect(await asked(store, root, { toolName: "edit" })).toEqual(["root"]);
      expect(await asked(store, root, { visibleToSubject: "me" })).toEqual(["leaf", "a"]);
      expect(await asked(store, root, { ownerSubject: "me" })).toEqual(["a"]);
    },
  },
  {
    name: "changes of a tree's asks come in the order of their last event, as its subject may see them",
    catches: "a store that tells of one session's changes, or of every tree's",
    run: async (store) => {
      await openAll(store);
      await settle(store, "z", 20n);
      await settle(store, "far", 21n);
      await settle(store, "leaf", 22n);
      const root = treeOf("root");
      expect(await changed(store, root)).toEqual(["root", "a", "deep", "z", "leaf"]);
      expect(await changed(store, treeOf("z"))).toEqual(["deep", "z", "leaf"]);
      expect(await changed(store, treeOf("other", "other"))).toEqual(["other", "far"]);
      expect(await changed(store, root, { afterPosition: 6n, limit: 2 })).toEqual(["deep", "z"]);
      expect(await changed(store, root, { visibleToSubject: "me" })).toEqual(["a", "leaf"]);
    },
  },
];

export const TREE_CASES: readonly ConformanceCase[] = [...STANDING, ...LISTING, ...ASKS];
