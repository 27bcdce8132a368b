import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import type {
  AskEntry,
  AskQuery,
  IndexedAsk,
  NewEvent,
  RecordKey,
  SessionRef,
  Store,
} from "../../src/ledger/store-port.js";
import {
  overriding,
  reading,
  type StoreMutant,
  type WriteChange,
  writing,
  writingEvents,
} from "./broken-store.js";

const UNLIMITED = 1 << 30;

/** Breaks the list of asks by asking for something else. */
function asking(change: (query: AskQuery) => AskQuery): StoreMutant["wrap"] {
  return reading((store) => ({ listAsks: (query) => store.listAsks(change(query)) }));
}

/** Breaks the answer of the list of asks. */
function answering(
  change: (
    asks: IndexedAsk[],
    store: Store,
    query: AskQuery,
  ) => IndexedAsk[] | Promise<IndexedAsk[]>,
): StoreMutant["wrap"] {
  return reading((store) => ({
    listAsks: async (query) => change(await store.listAsks(query), store, query),
  }));
}

const ALL = { sessionId: undefined, visibleToSubject: undefined, tree: undefined };

async function withFirstEvent(ask: IndexedAsk, store: Store): Promise<IndexedAsk> {
  const record = await store.findRecord(ask, ask.askId);
  const event = record && (await store.readEvent(ask, record.firstSequence));
  return { ...ask, event };
}

async function knownAsk(
  store: Store,
  { tenant, sessionId }: SessionRef,
  askId: string | undefined,
): Promise<IndexedAsk | undefined> {
  const scope = { tenant, ...ALL, sessionId };
  const all = await store.listAskChanges({ ...scope, afterPosition: 0n, limit: UNLIMITED });
  return all.find((ask) => ask.askId === askId);
}

/** Takes back what a later event of an ask changes, and says nothing. */
function keepingAsks(
  keep: (event: NewEvent, known: IndexedAsk) => Partial<NewEvent>,
): StoreMutant["wrap"] {
  return writingEvents(async (event, write, store) => {
    const known = await knownAsk(store, write, event.record?.recordId);
    return known === undefined ? event : { ...event, ...keep(event, known) };
  });
}

function keepingEntry(keep: (known: IndexedAsk) => Partial<AskEntry>): StoreMutant["wrap"] {
  return keepingAsks(({ ask }, known) => ({ ask: ask && { ...ask, ...keep(known) } }));
}

function recordOfCall(record: RecordKey | undefined, toolCallId: string): RecordKey | undefined {
  return record && { ...record, toolCallId };
}

/** Skips as many asks as it has given since the first page. */
function pagesByNumber(store: Store): Store {
  let given = 0;
  return overriding(store, {
    listAsks: async (query) => {
      if (query.afterPosition === 0n) given = 0;
      const all = await store.listAsks({ ...query, afterPosition: 0n, limit: UNLIMITED });
      const page = all.slice(given, given + query.limit);
      given += page.length;
      return page;
    },
  });
}

/** Knows the asks that it wrote itself, and no other. */
function inboxInMemory(store: Store): Store {
  const written = new Set<bigint>();
  return overriding(store, {
    commit: (writes) => {
      for (const { events } of writes) for (const { row } of events) written.add(row.position);
      return store.commit(writes);
    },
    listAsks: async (query) =>
      (await store.listAsks(query)).filter(({ position }) => written.has(position)),
  });
}

/** Of the events of an ask in one command, the first alone reaches the inbox. */
const firstOfCommand: WriteChange = (write) => {
  const seen = new Set<string>();
  const events = write.events.map((event) => {
    const id = event.record?.recordId ?? "";
    const known = event.ask !== undefined && seen.has(id);
    seen.add(id);
    return known ? { ...event, ask: undefined } : event;
  });
  return { ...write, events };
};

const LIST_MUTANTS: readonly StoreMutant[] = [
  {
    name: "leaves an ask at its first event",
    kills: ["an ask is listed with its entry, its session and its last event"],
    wrap: answering((asks, store) => Promise.all(asks.map((ask) => withFirstEvent(ask, store)))),
  },
  {
    name: "takes the owner of an ask for its creator",
    kills: ["an ask is listed with its entry, its session and its last event"],
    wrap: answering((asks) => asks.map((ask) => ({ ...ask, createdBySubject: ask.ownerSubject }))),
  },
  {
    name: "takes no expiry for one at 0",
    kills: ["an ask that never expires has no time of expiry"],
    wrap: answering((asks) => asks.map((ask) => ({ ...ask, expireTimeMs: ask.expireTimeMs ?? 0 }))),
  },
  {
    name: "lists asks by their last event",
    kills: ["asks of one state are listed in the order of opening, page after page"],
    wrap: answering((asks) =>
      asks.sort((left, right) => Number(left.lastPosition - right.lastPosition)),
    ),
  },
  {
    name: "lists asks of every state",
    kills: ["asks of one state are listed in the order of opening, page after page"],
    wrap: answering(async (asks, store, query) => [
      ...asks,
      ...(await store.listAsks({ ...query, state: AskState.ANSWERED })),
    ]),
  },
  {
    name: "repeats the last ask of the page before",
    kills: [
      "asks of one state are listed in the order of opening, page after page",
      "asks opened after a position are left out if it is given",
    ],
    wrap: asking((query) => ({ ...query, afterPosition: query.afterPosition - 1n })),
  },
  {
    name: "ignores the limit of a list of asks",
    kills: ["asks of one state are listed in the order of opening, page after page"],
    wrap: asking((query) => ({ ...query, limit: UNLIMITED })),
  },
  {
    name: "counts pages of asks by number",
    kills: ["asks settled between two pages drop out, without holes or repeats among the others"],
    wrap: pagesByNumber,
  },
  {
    name: "ignores until which position asks were opened",
    kills: [
      "asks opened after a position are left out if it is given",
      "filters narrow a list of asks together, over all its pages",
    ],
    wrap: asking((query) => ({ ...query, untilPosition: undefined })),
  },
  {
    name: "leaves out the ask opened at the position given",
    kills: ["asks opened after a position are left out if it is given"],
    wrap: asking(({ untilPosition, ...query }) => ({
      ...query,
      untilPosition: untilPosition && untilPosition - 1n,
    })),
  },
  {
    name: "holds the last event of an ask against the position given",
    kills: ["asks opened after a position are left out if it is given"],
    wrap: answering((asks, _store, { untilPosition }) =>
      asks.filter((ask) => untilPosition === undefined || ask.lastPosition <= untilPosition),
    ),
  },
];

const EACH_FILTER = "each filter narrows a list of asks, and bounds are kept to the millisecond";
const TOGETHER = "filters narrow a list of asks together, over all its pages";
const VISIBLE =
  "a subject's asks are those of the sessions that it owns or created, each once, in order";

const FILTER_MUTANTS: readonly StoreMutant[] = [
  ...(
    [
      "sessionId",
      "ownerSubject",
      "toolName",
      "createFromMs",
      "createBeforeMs",
      "expireBeforeMs",
    ] as const
  ).map((filter) => ({
    name: `ignores ${filter} in a list of asks`,
    kills: [EACH_FILTER, TOGETHER],
    wrap: asking((query) => ({ ...query, [filter]: undefined })),
  })),
  {
    name: "leaves out the first moment of a span of creation",
    kills: [EACH_FILTER, TOGETHER],
    wrap: asking(({ createFromMs, ...query }) => ({
      ...query,
      createFromMs: createFromMs && createFromMs + 1,
    })),
  },
  {
    name: "includes the end of a span of creation",
    kills: [EACH_FILTER, TOGETHER],
    wrap: asking(({ createBeforeMs, ...query }) => ({
      ...query,
      createBeforeMs: createBeforeMs && createBeforeMs + 1,
    })),
  },
  {
    name: "includes the end of a span of expiry",
    kills: [EACH_FILTER],
    wrap: asking(({ expireBeforeMs, ...query }) => ({
      ...query,
      expireBeforeMs: expireBeforeMs && expireBeforeMs + 1,
    })),
  },
  {
    name: "takes an ask that never expires for one that expires early",
    kills: [EACH_FILTER],
    wrap: answering(async (asks, store, query) => {
      if (query.expireBeforeMs === undefined) return asks;
      const all = await store.listAsks({ ...query, expireBeforeMs: undefined });
      return all.filter(
        ({ askId, expireTimeMs }) =>
          expireTimeMs === undefined || asks.some((ask) => ask.askId === askId),
      );
    }),
  },
  {
    name: "filters by tool after it cut the page",
    kills: [TOGETHER],
    wrap: reading((store) => ({
      listAsks: async (query) =>
        (await store.listAsks({ ...query, toolName: undefined })).filter(
          ({ toolName }) => query.toolName === undefined || toolName === query.toolName,
        ),
    })),
  },
  {
    name: "lists a session's asks without the other filters",
    kills: [TOGETHER],
    wrap: asking((query) =>
      query.sessionId === undefined
        ? query
        : { ...query, toolName: undefined, ownerSubject: undefined, createFromMs: undefined },
    ),
  },
  {
    name: "shows a subject only the asks of what it owns",
    kills: [VISIBLE],
    wrap: asking((query) => ({
      ...query,
      ownerSubject: query.ownerSubject ?? query.visibleToSubject,
    })),
  },
  {
    name: "shows a subject an ask twice if it owns and created the session",
    kills: [VISIBLE],
    wrap: answering((asks, _store, { visibleToSubject: subject }) =>
      asks.flatMap((ask) =>
        ask.ownerSubject === subject && ask.createdBySubject === subject ? [ask, ask] : [ask],
      ),
    ),
  },
  {
    name: "lets a subject see a session's asks by naming it",
    kills: [VISIBLE],
    wrap: asking((query) =>
      query.sessionId === undefined ? query : { ...query, visibleToSubject: undefined },
    ),
  },
  {
    name: "gives asks of every tenant",
    kills: ["another tenant's asks are in no list, whoever asks and whatever for"],
    wrap: answering(async (asks, store, query) => [
      ...asks,
      ...(query.tenant === "other" ? [] : await store.listAsks({ ...query, tenant: "other" })),
    ]),
  },
  {
    name: "watches asks of every tenant",
    kills: ["another tenant's asks are in no list, whoever asks and whatever for"],
    wrap: reading((store) => ({
      listAskChanges: async (query) => [
        ...(await store.listAskChanges(query)),
        ...(query.tenant === "other"
          ? []
          : await store.listAskChanges({ ...query, tenant: "other" })),
      ],
    })),
  },
];

const CHANGED = "changed asks come in the order of their last event, each once, as they are now";
const SCOPE = "changes are of the scope alone: its session, and what its subject owns or created";

const CHANGE_MUTANTS: readonly StoreMutant[] = [
  {
    name: "lists changed asks by opening",
    kills: [CHANGED],
    wrap: reading((store) => ({
      listAskChanges: async (query) =>
        (await store.listAskChanges(query)).sort((left, right) =>
          Number(left.position - right.position),
        ),
    })),
  },
  {
    name: "tells of open asks alone",
    kills: [CHANGED, SCOPE],
    wrap: reading((store) => ({
      listAskChanges: async (query) =>
        (await store.listAskChanges(query)).filter(({ state }) => state === AskState.OPEN),
    })),
  },
  {
    name: "repeats the change at the position given",
    kills: [CHANGED],
    wrap: reading((store) => ({
      listAskChanges: (query) =>
        store.listAskChanges({ ...query, afterPosition: query.afterPosition - 1n }),
    })),
  },
  {
    name: "ignores the limit of a list of changes",
    kills: [CHANGED, SCOPE],
    wrap: reading((store) => ({
      listAskChanges: (query) => store.listAskChanges({ ...query, limit: UNLIMITED }),
    })),
  },
  {
    name: "tells a subject of every change",
    kills: [SCOPE],
    wrap: reading((store) => ({
      listAskChanges: (query) => store.listAskChanges({ ...query, visibleToSubject: undefined }),
    })),
  },
  {
    name: "tells of every session's changes",
    kills: [SCOPE],
    wrap: reading((store) => ({
      listAskChanges: (query) => store.listAskChanges({ ...query, sessionId: undefined }),
    })),
  },
];

const IN_ONE_GROUP =
  "an ask opened and settled in one group is settled, and stands where it was opened";
const KEEPS = "an ask keeps its tool, its call and its times";

const WRITE_MUTANTS: readonly StoreMutant[] = [
  {
    name: "keeps the first of a command's events of an ask",
    kills: [IN_ONE_GROUP],
    wrap: writing(firstOfCommand),
  },
  {
    name: "moves an ask to its last event",
    kills: [IN_ONE_GROUP, "an ask is listed with its entry, its session and its last event"],
    wrap: answering((asks) => asks.map((ask) => ({ ...ask, position: ask.lastPosition }))),
  },
  {
    name: "keeps an ask's tool silently",
    kills: [KEEPS],
    wrap: keepingEntry(({ toolName }) => ({ toolName })),
  },
  {
    name: "keeps an ask's time of creation silently",
    kills: [KEEPS],
    wrap: keepingEntry(({ createTimeMs }) => ({ createTimeMs })),
  },
  {
    name: "keeps an ask's time of expiry silently",
    kills: [KEEPS],
    wrap: keepingEntry(({ expireTimeMs }) => ({ expireTimeMs })),
  },
  {
    name: "keeps an ask's call silently",
    kills: [KEEPS],
    wrap: keepingAsks(({ record }, { toolCallId }) => ({
      record: recordOfCall(record, toolCallId),
    })),
  },
  {
    name: "leaves an ask of no call out of the inbox",
    kills: ["an ask that is no record of a call is refused"],
    wrap: writingEvents((event) =>
      event.record?.toolCallId === undefined ? { ...event, ask: undefined } : event,
    ),
  },
  {
    name: "keeps asks by id alone",
    kills: ["sessions that share an ask's id have asks of their own"],
    wrap: answering(async (asks, store, query) => {
      const scope = { tenant: query.tenant, ...ALL };
      const all = await store.listAskChanges({ ...scope, afterPosition: 0n, limit: UNLIMITED });
      const last = new Map(all.map((ask) => [ask.askId, ask.sessionId]));
      return asks.filter((ask) => last.get(ask.askId) === ask.sessionId);
    }),
  },
  {
    name: "keeps its inbox in memory alone",
    kills: ["asks are there after a restart, as they were last"],
    wrap: inboxInMemory,
  },
];

export const ASK_MUTANTS: readonly StoreMutant[] = [
  ...LIST_MUTANTS,
  ...FILTER_MUTANTS,
  ...CHANGE_MUTANTS,
  ...WRITE_MUTANTS,
];
