import { expect } from "vitest";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import type {
  AskChangesQuery,
  AskEntry,
  AskQuery,
  IndexedAsk,
  NewEvent,
  SessionRow,
  Store,
} from "../../src/ledger/store-port.js";
import {
  A,
  askEvent,
  B,
  type ConformanceCase,
  eventRow,
  expectCommitted,
  expectRefused,
  hook,
  newEvent,
  OTHER_A,
  sessionRow,
  write,
} from "./store-fixture.js";

/** More than any list here has: a store that repeats itself must not run for ever. */
const PAGES_MAX = 10;
const SETTLED = { state: AskState.ANSWERED };

const EVERY_ASK: AskQuery = {
  tenant: "acme",
  visibleToSubject: undefined,
  sessionId: undefined,
  tree: undefined,
  state: AskState.OPEN,
  ownerSubject: undefined,
  toolName: undefined,
  createFromMs: undefined,
  createBeforeMs: undefined,
  expireBeforeMs: undefined,
  afterPosition: 0n,
  untilPosition: undefined,
  limit: 100,
};

async function askIds(store: Store, query: Partial<AskQuery> = {}): Promise<string[]> {
  return (await store.listAsks({ ...EVERY_ASK, ...query })).map(({ askId }) => askId);
}

async function changes(store: Store, query: Partial<AskChangesQuery> = {}): Promise<IndexedAsk[]> {
  const scope = {
    tenant: "acme",
    visibleToSubject: undefined,
    sessionId: undefined,
    tree: undefined,
  };
  return store.listAskChanges({ ...scope, afterPosition: 0n, limit: 100, ...query });
}

async function changedIds(store: Store, query: Partial<AskChangesQuery> = {}): Promise<string[]> {
  return (await changes(store, query)).map(({ askId }) => askId);
}

/** Every page of a list, one ask each. */
async function pagesOfOne(store: Store, query: Partial<AskQuery>): Promise<string[]> {
  const ids: string[] = [];
  let afterPosition = 0n;
  while (ids.length < PAGES_MAX) {
    const [ask] = await store.listAsks({ ...EVERY_ASK, ...query, afterPosition, limit: 1 });
    if (ask === undefined) return ids;
    ids.push(ask.askId);
    afterPosition = ask.position;
  }
  return ids;
}

/** Opens one ask in a session of its own, at a position of its own. */
async function openAsk(
  store: Store,
  position: bigint,
  row: Partial<SessionRow> = {},
  entry: Partial<AskEntry> = {},
): Promise<void> {
  const ref = { tenant: row.tenant ?? "acme", sessionId: `ses_${position}` };
  const events = [askEvent(1n, position, `ask_${position}`, entry)];
  await expectCommitted(store, write(ref, events, { session: sessionRow(ref, events, row) }));
}

function opened(...ids: readonly string[]): NewEvent[] {
  return ids.map((id, n) => askEvent(BigInt(n + 1), BigInt(n + 1), id));
}

/** Asks that differ in all that a list can be filtered by. */
async function openDifferentAsks(store: Store): Promise<void> {
  const mine = { ownerSubject: "me", createdBySubject: "x" };
  const made = { ownerSubject: "x", createdBySubject: "me" };
  const both = { ownerSubject: "me", createdBySubject: "me" };
  const foreign = { ownerSubject: "x", createdBySubject: "y" };
  await openAsk(store, 1n, mine, { toolName: "bash", createTimeMs: 100, expireTimeMs: 500 });
  await openAsk(store, 2n, made, { toolName: "edit", createTimeMs: 200 });
  await openAsk(store, 3n, foreign, { toolName: "bash", createTimeMs: 300, expireTimeMs: 600 });
  await openAsk(store, 4n, both, { toolName: "bash", createTimeMs: 400, expireTimeMs: 700 });
  await openAsk(store, 5n, made, { toolName: "bash", createTimeMs: 500, ...SETTLED });
  await openAsk(store, 6n, { ...both, tenant: "other" }, { toolName: "bash", createTimeMs: 100 });
}

const LISTING: readonly ConformanceCase[] = [
  {
    name: "an ask is listed with its entry, its session and its last event",
    catches: "a store that drops a column, or gives the ask's first event or state",
    run: async (store) => {
      const entry = { toolName: "edit", createTimeMs: 12, expireTimeMs: 34 };
      const events = [newEvent(1n, 3n), askEvent(2n, 4n, "ask_1", entry)];
      const row = { ownerSubject: "olive", createdBySubject: "cleo" };
      const session = sessionRow(A, events, row);
      await expectCommitted(store, write(A, events, { session }));
      const later = [askEvent(3n, 7n, "ask_1", { ...entry, ...SETTLED })];
      await expectCommitted(store, write(A, later, { session: sessionRow(A, later, row) }));
      const of = { ...A, ...row, rootSessionId: A.sessionId, toolCallId: "tc_1" };
      const indexed = { ...of, ...entry, ...SETTLED, askId: "ask_1" };
      const event = eventRow(3n, 7n);
      const places = { position: 4n, lastPosition: 7n, lastChain: event.chain };
      const found = { ...indexed, ...places, event };
      expect(await store.listAsks({ ...EVERY_ASK, ...SETTLED })).toEqual([found]);
      expect(await changes(store)).toEqual([found]);
    },
  },
  {
    name: "an ask that never expires has no time of expiry",
    catches: "a store that takes an absent time for 0",
    run: async (store) => {
      await openAsk(store, 1n);
      const [ask] = await store.listAsks(EVERY_ASK);
      expect(ask).toHaveProperty("expireTimeMs", undefined);
    },
  },
  {
    name: "asks of one state are listed in the order of opening, page after page",
    catches: "a store that lists by id or last event, all states, or a page's last ask again",
    run: async (store) => {
      await expectCommitted(store, write(A, opened("ask_c", "ask_a", "ask_b")));
      await expectCommitted(store, write(B, [askEvent(1n, 4n, "ask_0")]));
      await expectCommitted(store, write(A, [askEvent(4n, 5n, "ask_c")]));
      await expectCommitted(store, write(A, [askEvent(5n, 6n, "ask_s", SETTLED)]));
      expect(await askIds(store)).toEqual(["ask_c", "ask_a", "ask_b", "ask_0"]);
      expect(await askIds(store, SETTLED)).toEqual(["ask_s"]);
      expect(await askIds(store, { limit: 2 })).toEqual(["ask_c", "ask_a"]);
      expect(await askIds(store, { afterPosition: 2n })).toEqual(["ask_b", "ask_0"]);
    },
  },
  {
    name: "asks settled between two pages drop out, without holes or repeats among the others",
    catches: "a store that counts its pages by number, not by position",
    run: async (store) => {
      const ids = ["ask_1", "ask_2", "ask_3", "ask_4", "ask_5"];
      await expectCommitted(store, write(A, opened(...ids)));
      expect(await askIds(store, { limit: 2 })).toEqual(["ask_1", "ask_2"]);
      const settled = [askEvent(6n, 6n, "ask_1", SETTLED), askEvent(7n, 7n, "ask_4", SETTLED)];
      await expectCommitted(store, write(A, settled));
      expect(await askIds(store, { limit: 2, afterPosition: 2n })).toEqual(["ask_3", "ask_5"]);
      expect(await askIds(store, { limit: 2, afterPosition: 5n })).toEqual([]);
    },
  },
  {
    name: "asks opened after a position are left out if it is given",
    catches: "a store that ignores the position, leaves out the ask at it, or goes by last events",
    run: async (store) => {
      await expectCommitted(store, write(A, opened("ask_1", "ask_2", "ask_3")));
      await expectCommitted(store, write(A, [askEvent(4n, 4n, "ask_1")]));
      expect(await askIds(store, { untilPosition: 2n })).toEqual(["ask_1", "ask_2"]);
      const page = { untilPosition: 2n, afterPosition: 1n };
      expect(await askIds(store, page)).toEqual(["ask_2"]);
    },
  },
  {
    name: "each filter narrows a list of asks, and bounds are kept to the millisecond",
    catches: "a store that ignores a filter, is off by one, or takes no expiry for an early one",
    run: async (store) => {
      await openDifferentAsks(store);
      expect(await askIds(store)).toEqual(["ask_1", "ask_2", "ask_3", "ask_4"]);
      expect(await askIds(store, { sessionId: "ses_2" })).toEqual(["ask_2"]);
      expect(await askIds(store, { sessionId: "ses_none" })).toEqual([]);
      expect(await askIds(store, { sessionId: "ses_6" })).toEqual([]);
      expect(await askIds(store, { ownerSubject: "me" })).toEqual(["ask_1", "ask_4"]);
      expect(await askIds(store, { toolName: "bash" })).toEqual(["ask_1", "ask_3", "ask_4"]);
      expect(await askIds(store, { createFromMs: 300 })).toEqual(["ask_3", "ask_4"]);
      expect(await askIds(store, { createBeforeMs: 300 })).toEqual(["ask_1", "ask_2"]);
      expect(await askIds(store, { expireBeforeMs: 600 })).toEqual(["ask_1"]);
      expect(await askIds(store, { expireBeforeMs: 601 })).toEqual(["ask_1", "ask_3"]);
    },
  },
  {
    name: "filters narrow a list of asks together, over all its pages",
    catches: "a store that applies one filter of several, or filters after it cut the page",
    run: async (store) => {
      await openDifferentAsks(store);
      const bash = { toolName: "bash" };
      const late = { ...bash, createFromMs: 101 };
      expect(await pagesOfOne(store, { ...late, createBeforeMs: 400 })).toEqual(["ask_3"]);
      expect(await pagesOfOne(store, { ...late, expireBeforeMs: 700 })).toEqual(["ask_3"]);
      expect(await pagesOfOne(store, { ...bash, ownerSubject: "me" })).toEqual(["ask_1", "ask_4"]);
      const visible = { ...bash, visibleToSubject: "me" };
      expect(await pagesOfOne(store, visible)).toEqual(["ask_1", "ask_4"]);
      expect(await pagesOfOne(store, { ...visible, ...SETTLED })).toEqual(["ask_5"]);
      expect(await pagesOfOne(store, { ...visible, createFromMs: 101 })).toEqual(["ask_4"]);
      expect(await pagesOfOne(store, { ...visible, createFromMs: 400 })).toEqual(["ask_4"]);
      expect(await pagesOfOne(store, { ...visible, untilPosition: 3n })).toEqual(["ask_1"]);
      const ofSession = { sessionId: "ses_4" };
      expect(await pagesOfOne(store, { ...ofSession, ...visible })).toEqual(["ask_4"]);
      expect(await pagesOfOne(store, { ...ofSession, toolName: "edit" })).toEqual([]);
      expect(await pagesOfOne(store, { ...ofSession, ownerSubject: "x" })).toEqual([]);
      expect(await pagesOfOne(store, { ...ofSession, createFromMs: 401 })).toEqual([]);
    },
  },
  {
    name: "a subject's asks are those of the sessions that it owns or created, each once, in order",
    catches: "a store that shows a subject only what it owns, an ask twice, or others' asks",
    run: async (store) => {
      await openDifferentAsks(store);
      const mine = { visibleToSubject: "me" };
      expect(await askIds(store, mine)).toEqual(["ask_1", "ask_2", "ask_4"]);
      expect(await pagesOfOne(store, mine)).toEqual(["ask_1", "ask_2", "ask_4"]);
      expect(await askIds(store, { ...mine, ownerSubject: "x" })).toEqual(["ask_2"]);
      expect(await askIds(store, { ...mine, sessionId: "ses_3" })).toEqual([]);
      expect(await askIds(store, { visibleToSubject: "nobody" })).toEqual([]);
    },
  },
  {
    name: "another tenant's asks are in no list, whoever asks and whatever for",
    catches: "a store that finds asks by subject, tool or session id without the tenant",
    run: async (store) => {
      const row = { ownerSubject: "me", createdBySubject: "me" };
      const events = [askEvent(1n, 1n, "ask_1")];
      const session = sessionRow(OTHER_A, events, row);
      await expectCommitted(store, write(OTHER_A, events, { session }));
      await expectCommitted(store, write(A, [newEvent(1n, 2n)]));
      const scopes = [{}, { visibleToSubject: "me" }, { sessionId: A.sessionId }];
      for (const scope of scopes) {
        expect(await askIds(store, { tenant: "other", ...scope })).toEqual(["ask_1"]);
        expect(await changedIds(store, { tenant: "other", ...scope })).toEqual(["ask_1"]);
        expect(await askIds(store, scope)).toEqual([]);
        expect(await changedIds(store, scope)).toEqual([]);
      }
      expect(await askIds(store, { ownerSubject: "me" })).toEqual([]);
      expect(await askIds(store, { toolName: "bash" })).toEqual([]);
    },
  },
];

const CHANGES: readonly ConformanceCase[] = [
  {
    name: "changed asks come in the order of their last event, each once, as they are now",
    catches: "a store that lists changes by opening, repeats an ask, or gives an earlier state",
    run: async (store) => {
      await expectCommitted(store, write(A, opened("ask_1", "ask_2", "ask_3")));
      await expectCommitted(store, write(A, [askEvent(4n, 4n, "ask_2")]));
      await expectCommitted(store, write(A, [askEvent(5n, 5n, "ask_1", SETTLED)]));
      const all = await changes(store);
      expect(all.map(({ askId }) => askId)).toEqual(["ask_3", "ask_2", "ask_1"]);
      expect(all.map(({ lastPosition }) => lastPosition)).toEqual([3n, 4n, 5n]);
      expect(all.map(({ state }) => state)).toEqual([
        AskState.OPEN,
        AskState.OPEN,
        AskState.ANSWERED,
      ]);
      expect(all[2]?.event).toEqual(eventRow(5n, 5n));
      expect(await changedIds(store, { limit: 2 })).toEqual(["ask_3", "ask_2"]);
      expect(await changedIds(store, { afterPosition: 4n })).toEqual(["ask_1"]);
      expect(await changedIds(store, { afterPosition: 5n })).toEqual([]);
    },
  },
  {
    name: "changes are of the scope alone: its session, and what its subject owns or created",
    catches: "a store that watches a session or a subject and tells of others",
    run: async (store) => {
      await openDifferentAsks(store);
      expect(await changedIds(store, { sessionId: "ses_3" })).toEqual(["ask_3"]);
      expect(await changedIds(store, { sessionId: "ses_none" })).toEqual([]);
      const mine = { visibleToSubject: "me" };
      expect(await changedIds(store, mine)).toEqual(["ask_1", "ask_2", "ask_4", "ask_5"]);
      const page = { ...mine, afterPosition: 2n, limit: 1 };
      expect(await changedIds(store, page)).toEqual(["ask_4"]);
      expect(await changedIds(store, { ...mine, sessionId: "ses_3" })).toEqual([]);
    },
  },
];

const WRITING: readonly ConformanceCase[] = [
  {
    name: "an ask opened and settled in one group is settled, and stands where it was opened",
    catches: "a store that writes a group's asks as they came first, or inserts them twice",
    run: async (store) => {
      const inOne = [askEvent(1n, 1n, "ask_1"), askEvent(2n, 2n, "ask_1", SETTLED)];
      await expectCommitted(store, write(A, inOne));
      await expectCommitted(
        store,
        write(B, [askEvent(1n, 3n, "ask_2")]),
        write(B, [askEvent(2n, 4n, "ask_2", SETTLED)]),
      );
      expect(await askIds(store)).toEqual([]);
      const settled = await store.listAsks({ ...EVERY_ASK, ...SETTLED });
      expect(settled.map(({ position, lastPosition }) => [position, lastPosition])).toEqual([
        [1n, 2n],
        [3n, 4n],
      ]);
    },
  },
  {
    name: "an ask keeps its tool, its call and its times",
    catches: "a store that lets a later event move an ask to another tool, call or time",
    run: async (store) => {
      const entry = { toolName: "edit", createTimeMs: 12, expireTimeMs: 34 };
      await expectCommitted(store, write(A, [askEvent(1n, 1n, "ask_1", entry)]));
      await expectCommitted(store, write(A, [askEvent(2n, 2n, "ask_2")]));
      const otherCall = askEvent(3n, 3n, "ask_1", entry);
      const wrong = [
        askEvent(3n, 3n, "ask_1", { ...entry, toolName: "bash" }),
        askEvent(3n, 3n, "ask_1", { ...entry, createTimeMs: 13 }),
        askEvent(3n, 3n, "ask_1", { ...entry, expireTimeMs: 35 }),
        askEvent(3n, 3n, "ask_1", { ...entry, expireTimeMs: undefined }),
        askEvent(3n, 3n, "ask_2", { expireTimeMs: 34 }),
        { ...otherCall, record: { ...otherCall.record!, toolCallId: "tc_2" } },
      ];
      for (const event of wrong) await expectRefused(store, 0, write(A, [event]));
      await expectCommitted(store, write(A, [askEvent(3n, 3n, "ask_1", entry)]));
    },
  },
  {
    name: "an ask that is no record of a call is refused",
    catches: "a store that lists an ask which nothing leads back to",
    run: async (store) => {
      const event = askEvent(1n, 1n, "ask_1");
      const ofNoCall = { ...event, record: { ...event.record!, toolCallId: undefined } };
      await expectRefused(store, 0, write(A, [{ ...event, record: undefined }]));
      await expectRefused(store, 0, write(A, [ofNoCall]));
    },
  },
  {
    name: "sessions that share an ask's id have asks of their own",
    catches: "a store that keeps asks by id alone, in which a fork settles its source's ask",
    run: async (store) => {
      await expectCommitted(
        store,
        write(A, [askEvent(1n, 1n, "ask_1")]),
        write(B, [askEvent(1n, 2n, "ask_1"), askEvent(2n, 3n, "ask_1", SETTLED)]),
      );
      expect(await store.listAsks(EVERY_ASK)).toMatchObject([{ ...A, lastPosition: 1n }]);
      const settled = await store.listAsks({ ...EVERY_ASK, ...SETTLED });
      expect(settled).toMatchObject([{ ...B, position: 2n }]);
    },
  },
  {
    name: "a refused group opens and settles no ask",
    catches: "a store that keeps asks beside the transaction",
    run: async (store) => {
      await expectCommitted(store, write(A, [askEvent(1n, 1n, "ask_1")]));
      const before = await store.listAsks(EVERY_ASK);
      await expectRefused(
        store,
        1,
        write(A, [askEvent(2n, 2n, "ask_1", SETTLED), askEvent(3n, 3n, "ask_2")]),
        write(B, [newEvent(1n, 1n)]),
      );
      expect(await store.listAsks(EVERY_ASK)).toEqual(before);
      expect(await askIds(store, SETTLED)).toEqual([]);
      expect(await changes(store)).toEqual(before);
      await expectCommitted(store, write(A, [newEvent(2n, 2n, {}, hook("hk_1"))]));
    },
  },
  {
    name: "asks are there after a restart, as they were last",
    catches: "a store that keeps its inbox in memory alone",
    run: async (store, fixture) => {
      await expectCommitted(store, write(A, opened("ask_1", "ask_2")));
      await expectCommitted(store, write(A, [askEvent(3n, 3n, "ask_1", SETTLED)]));
      const again = await fixture.reopen(store);
      expect(await askIds(again)).toEqual(["ask_2"]);
      expect(await askIds(again, SETTLED)).toEqual(["ask_1"]);
      expect(await changedIds(again)).toEqual(["ask_2", "ask_1"]);
    },
  },
];

export const ASK_CASES: readonly ConformanceCase[] = [...LISTING, ...CHANGES, ...WRITING];
