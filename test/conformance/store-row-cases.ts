import { expect } from "vitest";
import { SessionState } from "../../gen/toolmark/v1/session_pb.js";
import {
  RecordFamily,
  type CreationRow,
  type EventRow,
  type SessionQuery,
  type SessionRow,
  type Store,
} from "../../src/ledger/store-port.js";
import {
  findRequest,
  A,
  allEvents,
  B,
  bodyRow,
  bytes,
  type ConformanceCase,
  eventRow,
  expectCommitted,
  expectRefused,
  hook,
  newEvent,
  OTHER_A,
  pairingRow,
  requestRow,
  sessionRow,
  snapshotRow,
  write,
} from "./store-fixture.js";

async function commitSession(
  store: Store,
  sessionId: string,
  position: bigint,
  changes: Partial<SessionRow> = {},
): Promise<void> {
  const ref = { tenant: changes.tenant ?? "acme", sessionId };
  const events = [newEvent(1n, position)];
  const session = sessionRow(ref, events, { createPosition: position, ...changes });
  await expectCommitted(store, write(ref, events, { session }));
}

async function listedIds(store: Store, changes: Partial<SessionQuery>): Promise<string[]> {
  const rows = await store.listSessions({
    tenant: "acme",
    tree: undefined,
    visibleToSubject: undefined,
    ownerSubject: undefined,
    state: undefined,
    afterCreatePosition: 0n,
    limit: 100,
    ...changes,
  });
  return rows.map(({ sessionId }) => sessionId);
}

const SESSIONS: readonly ConformanceCase[] = [
  {
    name: "a session's row is read back as last written",
    catches: "a store that drops a column of the row or keeps an old head",
    run: async (store) => {
      const events = [newEvent(1n, 1n)];
      const created = sessionRow(A, events, {
        ownerSubject: "olive",
        createdBySubject: "cleo",
        head: { ...sessionRow(A, events).head, activeRunId: "run_1", highWater: 2n ** 60n },
      });
      await expectCommitted(store, write(A, events, { session: created }));
      expect(await store.findSession(A)).toEqual(created);
      const later = [newEvent(2n, 2n)];
      const { head } = sessionRow(A, later);
      const ended = { ...created, state: SessionState.ENDED, head: { ...head, updateTimeMs: 9 } };
      await expectCommitted(store, write(A, later, { session: ended }));
      expect(await store.findSession(A)).toEqual(ended);
    },
  },
  {
    name: "of several commands of a session in one group the last one's row stays",
    catches: "a store that writes a session's head once per group, but the first one",
    run: async (store) => {
      const rows = [1n, 2n, 3n].map((n) => write(A, [newEvent(n, n)]));
      await expectCommitted(store, ...rows, write(B, [newEvent(1n, 4n)]));
      expect((await store.findSession(A))?.head).toEqual(rows[2]?.session.head);
      expect((await store.findSession(B))?.head.position).toBe(4n);
    },
  },
  {
    name: "a command without events still writes the session's row",
    catches: "a store that takes the head from the events",
    run: async (store) => {
      const first = write(A, [newEvent(1n, 1n)]);
      await expectCommitted(store, first);
      const head = { ...first.session.head, updateTimeMs: 77 };
      await expectCommitted(store, write(A, [], { session: { ...first.session, head } }));
      expect((await store.findSession(A))?.head.updateTimeMs).toBe(77);
    },
  },
  {
    name: "a session keeps its owner, its creator and its place in the order of creation",
    catches: "a store that lets a later command move a session to another owner",
    run: async (store) => {
      const first = write(A, [newEvent(1n, 1n)]);
      await expectCommitted(store, first);
      const moves = [{ ownerSubject: "x" }, { createdBySubject: "x" }, { createPosition: 9n }];
      for (const change of moves) {
        const moved = write(A, [newEvent(2n, 2n)], { session: { ...first.session, ...change } });
        await expectRefused(store, 0, moved);
        const back = write(A, [newEvent(3n, 3n)], { session: first.session });
        await expectRefused(store, 1, write(A, [], { session: first.session }), moved, back);
      }
      expect(await store.findSession(A)).toEqual(first.session);
    },
  },
  {
    name: "sessions of one tenant are listed in order of creation, page after page",
    catches: "a store that lists by id or by last change, repeats the last one, or mixes tenants",
    run: async (store) => {
      await commitSession(store, "ses_c", 1n);
      await commitSession(store, "ses_other", 2n, { tenant: "other" });
      await commitSession(store, "ses_b", 3n);
      await commitSession(store, "ses_a", 4n);
      const again = { tenant: "acme", sessionId: "ses_c" };
      await expectCommitted(store, write(again, [newEvent(2n, 5n)]));
      expect(await listedIds(store, {})).toEqual(["ses_c", "ses_b", "ses_a"]);
      expect(await listedIds(store, { limit: 2 })).toEqual(["ses_c", "ses_b"]);
      expect(await listedIds(store, { afterCreatePosition: 3n })).toEqual(["ses_a"]);
    },
  },
  {
    name: "a subject's list has what it owns or created, each once, in order of creation",
    catches: "a store that shows only owned sessions, shows one twice, or lists by kind of access",
    run: async (store) => {
      await commitSession(store, "ses_1", 1n, { ownerSubject: "x", createdBySubject: "me" });
      await commitSession(store, "ses_2", 2n, { ownerSubject: "me", createdBySubject: "x" });
      await commitSession(store, "ses_3", 3n, { ownerSubject: "me", createdBySubject: "me" });
      await commitSession(store, "ses_4", 4n, { ownerSubject: "x", createdBySubject: "y" });
      await commitSession(store, "ses_5", 5n, { ownerSubject: "x", createdBySubject: "me" });
      const mine = { visibleToSubject: "me" };
      expect(await listedIds(store, mine)).toEqual(["ses_1", "ses_2", "ses_3", "ses_5"]);
      expect(await listedIds(store, { ...mine, limit: 2 })).toEqual(["ses_1", "ses_2"]);
      expect(await listedIds(store, { ...mine, afterCreatePosition: 2n })).toEqual([
        "ses_3",
        "ses_5",
      ]);
    },
  },
  {
    name: "filters by owner and state narrow a list, together with what is visible",
    catches: "a store that ignores a filter, or lets the owner filter widen what is visible",
    run: async (store) => {
      const ended = { state: SessionState.ENDED };
      await commitSession(store, "ses_1", 1n, { ownerSubject: "x", createdBySubject: "me" });
      await commitSession(store, "ses_2", 2n, { ownerSubject: "x", createdBySubject: "y" });
      await commitSession(store, "ses_3", 3n, { ...ended, ownerSubject: "x" });
      await commitSession(store, "ses_4", 4n, { ...ended, ownerSubject: "me" });
      expect(await listedIds(store, { ownerSubject: "x" })).toEqual(["ses_1", "ses_2", "ses_3"]);
      expect(await listedIds(store, ended)).toEqual(["ses_3", "ses_4"]);
      expect(await listedIds(store, { ...ended, visibleToSubject: "me" })).toEqual(["ses_4"]);
      expect(await listedIds(store, { ownerSubject: "x", visibleToSubject: "me" })).toEqual([
        "ses_1",
      ]);
    },
  },
];

const RECORDS: readonly ConformanceCase[] = [
  {
    name: "a record is found with its last event and the sequence of its first",
    catches: "an index that stays at the first event or moves the record's place in the order",
    run: async (store) => {
      const call = { recordId: "tc_1", family: RecordFamily.toolCall, toolCallId: undefined };
      const review = hook("rv_1", "tc_1");
      await expectCommitted(
        store,
        write(A, [newEvent(1n, 1n, {}, call), newEvent(2n, 2n, {}, review)]),
        write(A, [newEvent(3n, 3n, {}, call)]),
      );
      await expectCommitted(store, write(A, [newEvent(4n, 4n, {}, review)]));
      const last = (event: EventRow) => ({
        lastSequence: event.sequence,
        lastChain: event.chain,
        event,
      });
      const found = { ...call, firstSequence: 1n, ...last(eventRow(3n, 3n)) };
      expect(await store.findRecord(A, "tc_1")).toEqual(found);
      const foundReview = { ...review, firstSequence: 2n, ...last(eventRow(4n, 4n)) };
      expect(await store.findRecord(A, "rv_1")).toEqual(foundReview);
    },
  },
  {
    name: "records are listed by family in order of their first event, page after page",
    catches: "an index that lists by id, by last event, or all families",
    run: async (store) => {
      const ask = { recordId: "ask_1", family: RecordFamily.ask, toolCallId: "tc_1" };
      const keys = [
        hook("hk_c", "tc_1"),
        ask,
        hook("hk_b"),
        hook("hk_a", "tc_1"),
        hook("hk_c", "tc_1"),
      ];
      const events = keys.map((key, n) => newEvent(BigInt(n + 1), BigInt(n + 1), {}, key));
      await expectCommitted(store, write(A, events));
      const query = { family: RecordFamily.hook, toolCallId: undefined, limit: 9 };
      const all = await store.listRecords(A, { ...query, afterFirstSequence: 0n });
      expect(all.map(({ recordId }) => recordId)).toEqual(["hk_c", "hk_b", "hk_a"]);
      expect(all[0]?.event?.sequence).toBe(5n);
      const page = await store.listRecords(A, { ...query, afterFirstSequence: 1n, limit: 1 });
      expect(page.map(({ recordId }) => recordId)).toEqual(["hk_b"]);
    },
  },
  {
    name: "a call's records are those that name it",
    catches: "an index that ignores the call, or takes records without one for everybody's",
    run: async (store) => {
      const ask = { recordId: "ask_1", family: RecordFamily.ask, toolCallId: "tc_1" };
      const keys = [
        hook("hk_1", "tc_1"),
        hook("hk_2", "tc_2"),
        hook("hk_3"),
        ask,
        hook("hk_4", "tc_1"),
      ];
      const events = keys.map((key, n) => newEvent(BigInt(n + 1), BigInt(n + 1), {}, key));
      await expectCommitted(store, write(A, events));
      const query = { family: RecordFamily.hook, toolCallId: "tc_1", limit: 9 };
      const all = await store.listRecords(A, { ...query, afterFirstSequence: 0n });
      expect(all.map(({ recordId }) => recordId)).toEqual(["hk_1", "hk_4"]);
      const page = await store.listRecords(A, { ...query, afterFirstSequence: 1n });
      expect(page.map(({ recordId }) => recordId)).toEqual(["hk_4"]);
    },
  },
  {
    name: "a record keeps its family and its call",
    catches: "an index that lets evidence be moved to another call",
    run: async (store) => {
      await expectCommitted(store, write(A, [newEvent(1n, 1n, {}, hook("hk_1", "tc_1"))]));
      const ask = { ...hook("hk_1", "tc_1"), family: RecordFamily.ask };
      for (const key of [ask, hook("hk_1", "tc_2"), hook("hk_1")]) {
        await expectRefused(store, 0, write(A, [newEvent(2n, 2n, {}, key)]));
      }
      expect(await store.findRecord(A, "hk_1")).toMatchObject({ toolCallId: "tc_1" });
    },
  },
  {
    name: "sessions that share a record's id have records of their own",
    catches: "an index by record id alone, in which a fork changes its source",
    run: async (store) => {
      const key = hook("hk_1", "tc_1");
      await expectCommitted(
        store,
        write(A, [newEvent(1n, 1n, {}, key)]),
        write(B, [newEvent(1n, 2n), newEvent(2n, 3n, {}, key)]),
      );
      expect((await store.findRecord(A, "hk_1"))?.event?.position).toBe(1n);
      expect((await store.findRecord(B, "hk_1"))?.event?.position).toBe(3n);
      const query = { family: RecordFamily.hook, toolCallId: "tc_1", limit: 9 };
      expect(await store.listRecords(B, { ...query, afterFirstSequence: 0n })).toHaveLength(1);
    },
  },
];

const CREATION: CreationRow = {
  tenant: "acme",
  subject: "creator",
  requestId: "c1",
  digest: bytes("digest"),
  sessionId: "ses_a",
  checksum: bytes("checksum"),
};

const KEPT_ROWS: readonly ConformanceCase[] = [
  {
    name: "a body is read back to the byte",
    catches: "a store that parses bodies",
    run: async (store) => {
      const json = bodyRow("body_1", '{ "a" : 1e400 }');
      const empty = { ...bodyRow("body_2", ""), isJsonObject: false };
      await expectCommitted(store, write(A, [newEvent(1n, 1n)], { bodies: [json, empty] }));
      expect(await store.readBody(A, "body_1")).toEqual(json);
      expect(await store.readBody(A, "body_2")).toEqual(empty);
    },
  },
  {
    name: "an equal body may come again; a reference never changes its bytes",
    catches: "a store that refuses a repeated body, or overwrites one",
    run: async (store) => {
      const body = bodyRow("body_1", "first");
      await expectCommitted(store, write(A, [newEvent(1n, 1n)], { bodies: [body, body] }));
      await expectCommitted(store, write(A, [newEvent(2n, 2n)], { bodies: [body] }));
      const other = bodyRow("body_1", "second");
      await expectRefused(store, 0, write(A, [newEvent(3n, 3n)], { bodies: [other] }));
      expect(await store.readBody(A, "body_1")).toEqual(body);
    },
  },
  {
    name: "a body is known in its session alone",
    catches: "a store that shares bodies between sessions, so that a digest reads a foreign one",
    run: async (store) => {
      const bodies = [bodyRow("body_1", "secret")];
      await expectCommitted(
        store,
        write(A, [newEvent(1n, 1n)], { bodies }),
        write(B, [newEvent(1n, 2n)]),
        write(OTHER_A, [newEvent(1n, 3n)]),
      );
      expect(await store.readBody(B, "body_1")).toBeUndefined();
      expect(await store.readBody(OTHER_A, "body_1")).toBeUndefined();
    },
  },
  {
    name: "pairings of the named calls are given, each once, in the order of the names",
    catches: "a store that gives all pairings, or a hole for a call without one",
    run: async (store) => {
      const erased = pairingRow("tc_2", { salt: undefined, pairing: undefined });
      const pairings = [pairingRow("tc_1"), erased, pairingRow("tc_3", { sequence: 2n ** 60n })];
      await expectCommitted(
        store,
        write(A, [newEvent(1n, 1n)], { pairings }),
        write(B, [newEvent(1n, 2n)], { pairings: [pairingRow("tc_1", { salt: bytes("b") })] }),
      );
      const named = await store.readPairings(A, ["tc_3", "tc_none", "tc_2", "tc_3"]);
      expect(named).toEqual([pairings[2], pairings[1]]);
      expect(await store.readPairings(A, ["tc_1"])).toEqual([pairings[0]]);
    },
  },
  {
    name: "a call's pairing is written once",
    catches: "a store that overwrites a pairing whose commitment is in the log",
    run: async (store) => {
      const pairings = [pairingRow("tc_1")];
      await expectCommitted(store, write(A, [newEvent(1n, 1n)], { pairings }));
      await expectRefused(store, 0, write(A, [newEvent(2n, 2n)], { pairings }));
      await expectCommitted(store, write(B, [newEvent(1n, 2n)], { pairings }));
    },
  },
  {
    name: "a request is remembered once in its session",
    catches: "a store that forgets digest or outcome, overwrites them, or shares them",
    run: async (store) => {
      const request = requestRow("r1");
      await expectCommitted(store, write(A, [newEvent(1n, 1n)], { request }));
      expect(await findRequest(store, A, "r1")).toEqual(request);
      expect(await findRequest(store, B, "r1")).toBeUndefined();
      await expectRefused(store, 0, write(A, [newEvent(2n, 2n)], { request }));
      await expectCommitted(store, write(B, [newEvent(1n, 2n)], { request }));
    },
  },
  {
    name: "a creation is remembered once for its tenant and principal",
    catches: "a store that keys creations by request id alone, or overwrites one",
    run: async (store) => {
      await expectCommitted(store, write(A, [newEvent(1n, 1n)], { creation: CREATION }));
      expect(await store.findCreation("acme", "creator", "c1")).toEqual(CREATION);
      expect(await store.findCreation("other", "creator", "c1")).toBeUndefined();
      expect(await store.findCreation("acme", "another", "c1")).toBeUndefined();
      const again = { ...CREATION, sessionId: "ses_b" };
      await expectRefused(store, 0, write(B, [newEvent(1n, 2n)], { creation: again }));
      const others = { ...again, subject: "another" };
      await expectCommitted(store, write(B, [newEvent(1n, 2n)], { creation: others }));
    },
  },
  {
    name: "the last two snapshots are kept, newest first",
    catches: "a store that keeps one or all, gives the oldest first, or drops other sessions' ones",
    run: async (store) => {
      await expectCommitted(store, write(B, [newEvent(1n, 1n)], { snapshot: snapshotRow(1n) }));
      for (const n of [1n, 2n, 3n]) {
        const snapshot = snapshotRow(n);
        await expectCommitted(store, write(A, [newEvent(n, n + 1n)], { snapshot }));
      }
      expect(await store.readSnapshots(A)).toEqual([snapshotRow(3n), snapshotRow(2n)]);
      expect(await store.readSnapshots(B)).toEqual([snapshotRow(1n)]);
    },
  },
  {
    name: "a snapshot of the same sequence replaces the one before",
    catches: "a store that refuses to mend a damaged snapshot, or counts it twice",
    run: async (store) => {
      const first = write(A, [newEvent(1n, 1n)], { snapshot: snapshotRow(1n) });
      await expectCommitted(store, first);
      const next = write(A, [newEvent(2n, 2n)], { snapshot: snapshotRow(2n, "damaged") });
      await expectCommitted(store, next);
      await expectCommitted(store, { ...next, events: [], snapshot: snapshotRow(2n) });
      expect(await store.readSnapshots(A)).toEqual([snapshotRow(2n), snapshotRow(1n)]);
    },
  },
];

const REOPENING: readonly ConformanceCase[] = [
  {
    name: "everything committed is there after a restart",
    catches: "a store that keeps a kind of row in memory alone",
    run: async (store, fixture) => {
      const rich = write(A, [newEvent(1n, 3n, { revision: 2n }, hook("hk_1", "tc_1"))], {
        bodies: [bodyRow("body_1", "{}")],
        pairings: [pairingRow("tc_1")],
        request: requestRow("r1"),
        creation: CREATION,
        snapshot: snapshotRow(1n),
      });
      await expectCommitted(store, rich);
      const again = await fixture.reopen(store);
      expect([again.storeId, again.generation]).toEqual([store.storeId, store.generation]);
      expect(await again.lastPosition()).toBe(3n);
      expect(await again.findSession(A)).toEqual(rich.session);
      expect(await allEvents(again, A)).toEqual([rich.events[0]?.row]);
      expect((await again.findRecord(A, "hk_1"))?.event).toEqual(rich.events[0]?.row);
      expect(await again.readBody(A, "body_1")).toEqual(rich.bodies[0]);
      expect(await again.readPairings(A, ["tc_1"])).toEqual(rich.pairings);
      expect(await findRequest(again, A, "r1")).toEqual(rich.request);
      expect(await again.findCreation("acme", "creator", "c1")).toEqual(CREATION);
      expect(await again.readSnapshots(A)).toEqual([snapshotRow(1n)]);
    },
  },
  {
    name: "after a restart the same things are refused as before it",
    catches: "a store that keeps what is taken in memory alone",
    run: async (store, fixture) => {
      const request = requestRow("r1");
      await expectCommitted(store, write(A, [newEvent(1n, 5n, { revision: 9n })], { request }));
      const again = await fixture.reopen(store);
      await expectRefused(again, 0, write(B, [newEvent(1n, 5n)]));
      await expectRefused(again, 0, write(A, [newEvent(1n, 6n)]));
      await expectRefused(again, 0, write(A, [newEvent(2n, 6n, { revision: 9n })]));
      await expectRefused(again, 0, write(A, [newEvent(2n, 6n)], { request }));
      await expectCommitted(again, write(A, [newEvent(2n, 6n, { revision: 10n })]));
    },
  },
  {
    name: "nothing of a refused group is there after a restart",
    catches: "a store that rolls back in memory alone",
    run: async (store, fixture) => {
      await expectCommitted(store, write(A, [newEvent(1n, 1n)]));
      await expectRefused(store, 1, write(B, [newEvent(1n, 2n)]), write(A, [newEvent(1n, 3n)]));
      const again = await fixture.reopen(store);
      expect(await again.lastPosition()).toBe(1n);
      expect(await again.findSession(B)).toBeUndefined();
    },
  },
];

export const ROW_CASES: readonly ConformanceCase[] = [
  ...SESSIONS,
  ...RECORDS,
  ...KEPT_ROWS,
  ...REOPENING,
];
