import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import type {
  AskScope,
  IndexedAsk,
  SessionQuery,
  SessionRow,
  SessionTree,
  Store,
} from "../../src/ledger/store-port.js";
import { overriding, reading, type StoreMutant, writing } from "./broken-store.js";

const STANDING = "where a session stands is read back, with its asks, also after a restart";
const KEEPS = "a session keeps its parent and its root";
const TREE = "a tree's list has its session and those below it at any depth, in order of creation";
const PAGES = "a tree's list goes on page after page";
const NEW = "a session that is made below another is in its trees from then on";
const NARROWED = "subject, owner and state narrow a tree's list, whatever stands between";
const TENANT = "a tree is of its tenant alone";
const ASKS =
  "asks of a tree are listed in the order of opening, page after page, narrowed by filters";
const CHANGES =
  "changes of a tree's asks come in the order of their last event, as its subject may see them";

const UNLIMITED = 1 << 30;

/** Breaks every list of a tree by asking for something else. */
function asking<Query extends Pick<AskScope, "tree">>(
  query: Query,
  change: (tree: SessionTree) => Partial<SessionQuery & AskScope>,
): Query {
  return query.tree === undefined ? query : { ...query, ...change(query.tree) };
}

function everywhere(
  change: (tree: SessionTree) => Partial<SessionQuery & AskScope>,
): StoreMutant["wrap"] {
  return reading((store) => ({
    listSessions: (query) => store.listSessions(asking(query, change)),
    listAsks: (query) => store.listAsks(asking(query, change)),
    listAskChanges: (query) => store.listAskChanges(asking(query, change)),
  }));
}

/** Breaks the answer of a tree's list of sessions. */
function answering(
  change: (
    rows: SessionRow[],
    query: SessionQuery & { readonly tree: SessionTree },
    store: Store,
  ) => SessionRow[] | Promise<SessionRow[]>,
): StoreMutant["wrap"] {
  return reading((store) => ({
    listSessions: async (query) => {
      const rows = await store.listSessions(query);
      return query.tree === undefined ? rows : change(rows, { ...query, tree: query.tree }, store);
    },
  }));
}

/** Breaks what is written of where a session stands. */
function standing(change: (row: SessionRow, known: SessionRow | undefined) => Partial<SessionRow>) {
  return writing(async (write, store) => {
    const known = await store.findSession(write);
    return { ...write, session: { ...write.session, ...change(write.session, known) } };
  });
}

/** Knows where the sessions stand that it wrote itself, and of the others that they stand alone. */
function standingInMemory(store: Store): Store {
  const written = new Set<string>();
  const known = (row: SessionRow): SessionRow =>
    written.has(row.sessionId)
      ? row
      : { ...row, parentSessionId: undefined, rootSessionId: row.sessionId };
  return overriding(store, {
    commit: (writes) => {
      for (const { sessionId } of writes) written.add(sessionId);
      return store.commit(writes);
    },
    findSession: async (session) => {
      const row = await store.findSession(session);
      return row && known(row);
    },
  });
}

/** Gives only what stood in a tree when it was first asked for. */
function rememberingTrees(store: Store): Store {
  const trees = new Map<string, ReadonlySet<string>>();
  return overriding(store, {
    listSessions: async (query) => {
      const rows = await store.listSessions(query);
      if (query.tree === undefined) return rows;
      const key = query.tree.sessionId;
      const known = trees.get(key) ?? new Set(rows.map(({ sessionId }) => sessionId));
      trees.set(key, known);
      return rows.filter(({ sessionId }) => known.has(sessionId));
    },
  });
}

function bySession(asks: IndexedAsk[]): IndexedAsk[] {
  return asks.sort((left, right) => (left.sessionId < right.sessionId ? -1 : 1));
}

const STANDING_MUTANTS: readonly StoreMutant[] = [
  {
    name: "forgets a session's parent",
    kills: [STANDING, TREE],
    wrap: standing(() => ({ parentSessionId: undefined })),
  },
  {
    name: "takes a session's parent for its root",
    kills: [STANDING],
    wrap: standing(({ parentSessionId, sessionId }) => ({
      rootSessionId: parentSessionId ?? sessionId,
    })),
  },
  {
    name: "takes an ask's session for its root",
    kills: [STANDING],
    wrap: reading((store) => ({
      listAskPlaces: async (...page) =>
        (await store.listAskPlaces(...page)).map((ask) => ({
          ...ask,
          rootSessionId: ask.sessionId,
        })),
    })),
  },
  {
    name: "keeps where sessions stand in memory alone",
    kills: [STANDING],
    wrap: standingInMemory,
  },
  ...(["parentSessionId", "rootSessionId"] as const).map((field) => ({
    name: `ignores another ${field} instead of refusing it`,
    kills: [KEEPS],
    wrap: standing((_row, known) => (known === undefined ? {} : { [field]: known[field] })),
  })),
];

const LIST_MUTANTS: readonly StoreMutant[] = [
  {
    name: "lists every session for a tree",
    kills: [TREE, ASKS, CHANGES],
    wrap: everywhere(() => ({ tree: undefined, sessionId: undefined })),
  },
  {
    name: "lists the whole tree of the root for one below it",
    kills: [TREE, PAGES, ASKS, CHANGES],
    wrap: everywhere(({ rootSessionId }) => ({
      tree: { sessionId: rootSessionId, rootSessionId },
    })),
  },
  {
    name: "lists the children of a session alone",
    kills: [TREE, NEW],
    wrap: answering((rows, { tree }) =>
      rows.filter(({ sessionId, parentSessionId }) =>
        [sessionId, parentSessionId].includes(tree.sessionId),
      ),
    ),
  },
  {
    name: "leaves a tree's own session out",
    kills: [TREE, PAGES],
    wrap: answering((rows, { tree }) =>
      rows.filter(({ sessionId }) => sessionId !== tree.sessionId),
    ),
  },
  {
    name: "lists a tree by the ids",
    kills: [TREE],
    wrap: answering((rows) =>
      rows.sort((left, right) => (left.sessionId < right.sessionId ? -1 : 1)),
    ),
  },
  {
    name: "ignores the limit of a tree's list",
    kills: [PAGES],
    wrap: reading((store) => ({
      listSessions: (query) => store.listSessions({ ...query, limit: UNLIMITED }),
    })),
  },
  {
    name: "begins every page of a tree anew",
    kills: [PAGES],
    wrap: everywhere(() => ({ afterCreatePosition: 0n })),
  },
  {
    name: "cuts a page before it picks a tree's sessions",
    kills: [PAGES],
    wrap: answering(async (rows, query, store) => {
      const page = await store.listSessions({ ...query, tree: undefined });
      const cut = new Set(page.map(({ sessionId }) => sessionId));
      return rows.filter(({ sessionId }) => cut.has(sessionId));
    }),
  },
  {
    name: "remembers who stands in a tree",
    kills: [NEW],
    wrap: rememberingTrees,
  },
  ...(["visibleToSubject", "ownerSubject", "state"] as const).map((filter) => ({
    name: `ignores ${filter} in a tree's list`,
    kills: [NARROWED],
    wrap: everywhere(() => ({ [filter]: undefined })),
  })),
  {
    name: "stops at a session that is filtered out",
    kills: [NARROWED],
    wrap: answering((rows, { tree }) => {
      const ids = new Set([tree.sessionId, ...rows.map(({ sessionId }) => sessionId)]);
      return rows.filter(({ parentSessionId: parent }) => parent === undefined || ids.has(parent));
    }),
  },
  {
    name: "gives sessions of another tenant's tree",
    kills: [TENANT],
    wrap: answering(async (rows, query, store) => [
      ...rows,
      ...(query.tenant === "acme" ? [] : await store.listSessions({ ...query, tenant: "acme" })),
    ]),
  },
  {
    name: "gives asks of another tenant's tree",
    kills: [TENANT],
    wrap: reading((store) => ({
      listAskChanges: async (query) => [
        ...(await store.listAskChanges(query)),
        ...(query.tenant === "acme"
          ? []
          : await store.listAskChanges({ ...query, tenant: "acme" })),
      ],
    })),
  },
];

const ASK_MUTANTS: readonly StoreMutant[] = [
  {
    name: "lists the asks of a tree's own session alone",
    kills: [ASKS, NEW],
    wrap: reading((store) => ({
      listAsks: (query) => store.listAsks({ ...query, tree: undefined }),
    })),
  },
  {
    name: "lists a tree's asks session after session",
    kills: [ASKS],
    wrap: reading((store) => ({
      listAsks: async (query) => bySession(await store.listAsks(query)),
    })),
  },
  {
    name: "lists a tree's asks of every state",
    kills: [ASKS],
    wrap: reading((store) => ({
      listAsks: async (query) => [
        ...(await store.listAsks(query)),
        ...(query.state === AskState.OPEN
          ? await store.listAsks({ ...query, state: AskState.ANSWERED })
          : []),
      ],
    })),
  },
  ...(["visibleToSubject", "ownerSubject", "toolName", "untilPosition"] as const).map((filter) => ({
    name: `ignores ${filter} in a list of a tree's asks`,
    kills: [ASKS],
    wrap: reading((store) => ({
      listAsks: (query) => store.listAsks({ ...query, [filter]: undefined }),
    })),
  })),
  {
    name: "tells of the changes of a tree's own session alone",
    kills: [CHANGES],
    wrap: reading((store) => ({
      listAskChanges: (query) => store.listAskChanges({ ...query, tree: undefined }),
    })),
  },
  {
    name: "tells whoever asks of every change in a tree",
    kills: [CHANGES],
    wrap: reading((store) => ({
      listAskChanges: (query) => store.listAskChanges({ ...query, visibleToSubject: undefined }),
    })),
  },
];

/** Faults in what a store knows of sessions that work for others. */
export const TREE_MUTANTS: readonly StoreMutant[] = [
  ...STANDING_MUTANTS,
  ...LIST_MUTANTS,
  ...ASK_MUTANTS,
];
