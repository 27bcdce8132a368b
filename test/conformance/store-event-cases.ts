import { expect } from "vitest";
import type { CreationRow } from "../../src/ledger/store-port.js";
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
  NO_BYTE_LIMIT,
  OTHER_A,
  pairingRow,
  requestRow,
  sequencesOf,
  sessionRow,
  snapshotRow,
  write,
} from "./store-fixture.js";

const PAST_DOUBLE = 2n ** 53n + 1n;
const LARGEST = 2n ** 63n - 1n;

/** Reading events back. */
const READING: readonly ConformanceCase[] = [
  {
    name: "an event is read back to the byte in every column",
    catches: "a store that drops or defaults a column",
    run: async (store) => {
      const full = eventRow(1n, 1n, { revision: 7n, privateCommitment: bytes("private") });
      const sparse = eventRow(2n, 2n);
      const erased = eventRow(3n, 3n, { payload: undefined, salt: undefined });
      await expectCommitted(
        store,
        write(
          A,
          [full, sparse, erased].map((row) => ({ ...newEvent(1n, 1n), row })),
        ),
      );
      expect(await allEvents(store, A)).toEqual([full, sparse, erased]);
      expect(await store.readEvent(A, 1n)).toEqual(full);
    },
  },
  {
    name: "empty bytes are bytes, not absence",
    catches: "a store that turns an empty payload into an erased one",
    run: async (store) => {
      await expectCommitted(store, write(A, [newEvent(1n, 1n, { payload: new Uint8Array(0) })]));
      expect((await store.readEvent(A, 1n))?.payload).toHaveLength(0);
    },
  },
  {
    name: "bytes that are part of a larger buffer are stored without the rest",
    catches: "a store that keeps the buffer behind a view",
    run: async (store) => {
      const payload = bytes("before|payload|after").subarray(7, 14);
      await expectCommitted(store, write(A, [newEvent(1n, 1n, { payload })]));
      const found = (await store.readEvent(A, 1n))?.payload ?? new Uint8Array(0);
      expect(new TextDecoder().decode(found)).toBe("payload");
    },
  },
  {
    name: "positions, sequences and revisions survive beyond 2^53, up to 2^63 - 1",
    catches: "a store that passes 64-bit integers through doubles",
    run: async (store) => {
      const row = eventRow(PAST_DOUBLE, PAST_DOUBLE + 2n, { revision: LARGEST });
      await expectCommitted(store, write(A, [{ ...newEvent(1n, 1n, {}, hook("hk_1")), row }]));
      expect(await allEvents(store, A)).toEqual([row]);
      expect(await store.lastPosition()).toBe(PAST_DOUBLE + 2n);
      expect(await store.findRecord(A, "hk_1")).toMatchObject({ firstSequence: PAST_DOUBLE });
      expect((await store.findSession(A))?.head).toMatchObject({ highWater: LARGEST });
    },
  },
  {
    name: "an integer of more than 64 bits is refused",
    catches: "a store that cuts a number to 64 bits",
    run: async (store) => {
      const session = sessionRow(A, []);
      const tooLarge = newEvent(1n, 1n, { revision: LARGEST + 1n });
      await expectRefused(store, 0, write(A, [tooLarge], { session }));
    },
  },
  {
    name: "events come in order, after the sequence given, at most as many as the limit",
    catches: "a store that includes the sequence given, ignores the limit or changes the order",
    run: async (store) => {
      const events = [1n, 2n, 3n, 4n, 5n].map((n) => newEvent(n, n));
      await expectCommitted(store, write(A, events));
      const page = await store.readEvents(A, 1n, 3, NO_BYTE_LIMIT);
      expect(page.map(({ sequence }) => sequence)).toEqual([2n, 3n, 4n]);
      expect(await store.readEvents(A, 5n, 3, NO_BYTE_LIMIT)).toEqual([]);
    },
  },
  {
    name: "a page ends with the event that brings the payloads to the byte limit",
    catches: "a store that ignores the byte limit, or that stops one event early or late",
    run: async (store) => {
      const payload = new Uint8Array(10);
      await expectCommitted(
        store,
        write(
          A,
          [1n, 2n, 3n].map((n) => newEvent(n, n, { payload })),
        ),
      );
      expect(await store.readEvents(A, 0n, 9, 19)).toHaveLength(2);
      expect(await store.readEvents(A, 0n, 9, 20)).toHaveLength(2);
      expect(await store.readEvents(A, 0n, 9, 21)).toHaveLength(3);
    },
  },
  {
    name: "an event larger than the byte limit is still given",
    catches: "a store that gives an empty page for ever, which readers take for the end",
    run: async (store) => {
      const payload = new Uint8Array(1000);
      await expectCommitted(
        store,
        write(
          A,
          [1n, 2n].map((n) => newEvent(n, n, { payload })),
        ),
      );
      expect(await store.readEvents(A, 0n, 9, 10)).toHaveLength(1);
    },
  },
  {
    name: "a session's events are its own, also where another tenant uses its id",
    catches: "a store that finds sessions by id alone",
    run: async (store) => {
      await expectCommitted(
        store,
        write(A, [newEvent(1n, 1n)]),
        write(B, [newEvent(1n, 2n), newEvent(2n, 3n)]),
        write(OTHER_A, [newEvent(1n, 4n)]),
      );
      expect((await allEvents(store, A)).map(({ position }) => position)).toEqual([1n]);
      expect((await allEvents(store, B)).map(({ position }) => position)).toEqual([2n, 3n]);
      expect((await allEvents(store, OTHER_A)).map(({ position }) => position)).toEqual([4n]);
    },
  },
  {
    name: "what is not there is absent, not an error",
    catches: "a store that throws, or answers null, for what it does not know",
    run: async (store) => {
      await expectCommitted(store, write(B, [newEvent(1n, 1n)]));
      for (const session of [A, B]) {
        expect(await store.readEvent(session, 9n)).toBeUndefined();
        expect(await store.findRecord(session, "hk_none")).toBeUndefined();
        expect(await store.readBody(session, "body_none")).toBeUndefined();
        expect(await findRequest(store, session, "none")).toBeUndefined();
        expect(await store.readPairings(session, ["tc_none"])).toEqual([]);
        expect(await store.readSnapshots(session)).toEqual([]);
      }
      expect(await allEvents(store, A)).toEqual([]);
      expect(await store.findSession(A)).toBeUndefined();
      expect(await store.findCreation("acme", "creator", "none")).toBeUndefined();
    },
  },
  {
    name: "the last position is 0 in an empty store, then the highest committed one",
    catches: "a store that counts positions per session, or has none for an empty one",
    run: async (store) => {
      expect(await store.lastPosition()).toBe(0n);
      await expectCommitted(store, write(A, [newEvent(1n, 4n)]), write(B, [newEvent(1n, 9n)]));
      expect(await store.lastPosition()).toBe(9n);
    },
  },
  {
    name: "text is data: quotes, semicolons and any script are kept",
    catches: "a store that puts values into its statements",
    run: async (store) => {
      const odd = { tenant: "a'; DROP TABLE events; --", sessionId: 'ses_"ü漢😀\\%_' };
      await expectCommitted(store, write(odd, [newEvent(1n, 1n, { kind: "x' OR 1=1 --" })]));
      expect((await store.findSession(odd))?.sessionId).toBe(odd.sessionId);
      expect((await store.readEvent(odd, 1n))?.kind).toBe("x' OR 1=1 --");
    },
  },
];

/** What the database itself refuses. */
const APPEND_ONLY: readonly ConformanceCase[] = [
  {
    name: "a position is taken once in the whole store",
    catches: "a store that keeps positions per session, or replaces the event in the way",
    run: async (store) => {
      await expectCommitted(store, write(A, [newEvent(1n, 1n)]));
      await expectRefused(store, 0, write(B, [newEvent(1n, 1n)]));
      expect(await sequencesOf(store, A)).toEqual([1n]);
      expect(await sequencesOf(store, B)).toEqual([]);
    },
  },
  {
    name: "a position is higher than every earlier one",
    catches: "a store that fills a gap behind watchers that have passed it",
    run: async (store) => {
      await expectCommitted(store, write(A, [newEvent(1n, 5n)]));
      await expectRefused(store, 0, write(B, [newEvent(1n, 4n)]));
      expect(await store.lastPosition()).toBe(5n);
    },
  },
  {
    name: "a sequence is taken once in a session",
    catches: "a store that overwrites the event of the same sequence",
    run: async (store) => {
      await expectCommitted(store, write(A, [newEvent(1n, 1n), newEvent(2n, 2n)]));
      await expectRefused(store, 0, write(A, [newEvent(2n, 3n)]));
      await expectRefused(store, 0, write(A, [newEvent(1n, 3n)]));
      expect((await store.readEvent(A, 2n))?.position).toBe(2n);
    },
  },
  {
    name: "a revision is taken once in a session",
    catches: "a store that lets a revision be published twice",
    run: async (store) => {
      await expectCommitted(store, write(A, [newEvent(1n, 1n, { revision: 5n })]));
      await expectRefused(store, 0, write(A, [newEvent(2n, 2n, { revision: 5n })]));
      await expectRefused(store, 0, write(A, [newEvent(2n, 2n, { revision: 4n })]));
      expect(await sequencesOf(store, A)).toEqual([1n]);
    },
  },
  {
    name: "events without a revision never collide, and sessions count apart",
    catches: "a store whose revisions are unique over all sessions, or whose absent ones are equal",
    run: async (store) => {
      await expectCommitted(
        store,
        write(A, [newEvent(1n, 1n, { revision: 1n }), newEvent(2n, 2n), newEvent(3n, 3n)]),
        write(B, [newEvent(1n, 4n, { revision: 1n }), newEvent(2n, 5n)]),
      );
      await expectRefused(store, 0, write(A, [newEvent(4n, 6n, { revision: 1n })]));
      await expectCommitted(store, write(A, [newEvent(4n, 6n, { revision: 2n })]));
    },
  },
  {
    name: "payload and salt are there together or not at all",
    catches: "a store that takes half an erasure, so that a guess of the payload can be checked",
    run: async (store) => {
      await expectRefused(store, 0, write(A, [newEvent(1n, 1n, { payload: undefined })]));
      await expectRefused(store, 0, write(A, [newEvent(1n, 1n, { salt: undefined })]));
    },
  },
];

/** Groups of commands. */
const CREATED: CreationRow = {
  tenant: "acme",
  subject: "creator",
  requestId: "c1",
  digest: bytes("digest"),
  sessionId: "ses_b",
  checksum: bytes("checksum"),
};

const COMMITTING: readonly ConformanceCase[] = [
  {
    name: "a refused command takes its whole group with it, and is named by its index",
    catches: "a store that keeps the writes before the refused one, or names another",
    run: async (store) => {
      await expectCommitted(store, write(A, [newEvent(1n, 1n)], { snapshot: snapshotRow(1n) }));
      const rich = write(B, [newEvent(1n, 2n, {}, hook("hk_1"))], {
        bodies: [bodyRow("body_1", "{}")],
        pairings: [pairingRow("tc_1")],
        request: requestRow("r1"),
        creation: CREATED,
        snapshot: snapshotRow(1n),
      });
      const good = write(A, [newEvent(2n, 3n)], { snapshot: snapshotRow(2n) });
      const bad = write(B, [newEvent(2n, 2n)]);
      await expectRefused(store, 2, rich, good, bad, write(A, [newEvent(3n, 5n)]));
      expect(await store.findSession(B)).toBeUndefined();
      expect(await allEvents(store, B)).toEqual([]);
      expect(await store.findRecord(B, "hk_1")).toBeUndefined();
      expect(await store.readBody(B, "body_1")).toBeUndefined();
      expect(await store.readPairings(B, ["tc_1"])).toEqual([]);
      expect(await findRequest(store, B, "r1")).toBeUndefined();
      expect(await store.findCreation("acme", "creator", "c1")).toBeUndefined();
      expect(await sequencesOf(store, A)).toEqual([1n]);
      expect(await store.readSnapshots(A)).toEqual([snapshotRow(1n)]);
      expect((await store.findSession(A))?.head.sequence).toBe(1n);
      expect(await store.lastPosition()).toBe(1n);
    },
  },
  {
    name: "what was refused can be written again without the command in the way",
    catches: "a store that remembers something of a group that was rolled back",
    run: async (store) => {
      const good = write(B, [newEvent(1n, 1n)], { request: requestRow("r1") });
      await expectRefused(store, 1, good, write(A, [newEvent(1n, 1n)]));
      await expectCommitted(store, write(A, [newEvent(1n, 1n)]));
      await expectCommitted(store, write(B, [newEvent(1n, 2n)], { request: requestRow("r1") }));
      expect((await allEvents(store, A)).map(({ position }) => position)).toEqual([1n]);
      expect((await allEvents(store, B)).map(({ position }) => position)).toEqual([2n]);
    },
  },
  {
    name: "commands of a group see the ones before them",
    catches: "a store that checks each write of a group against the state before the group",
    run: async (store) => {
      const first = write(A, [newEvent(1n, 1n)]);
      await expectRefused(store, 1, first, write(A, [newEvent(1n, 2n)]));
      await expectCommitted(store, first, write(A, [newEvent(2n, 2n)]));
      expect((await store.findSession(A))?.head.sequence).toBe(2n);
    },
  },
  {
    name: "an empty group is committed and changes nothing",
    catches: "a store that fails without work",
    run: async (store) => {
      await expectCommitted(store);
      expect(await store.lastPosition()).toBe(0n);
    },
  },
  {
    name: "a read sees a group whole or not at all",
    catches: "a store that shows the first rows of a group while it writes the others",
    run: async (store) => {
      const pending = store.commit([
        write(A, [newEvent(1n, 1n)]),
        write(A, [newEvent(2n, 2n)]),
        write(A, [newEvent(3n, 3n)]),
      ]);
      const seen: number[] = [];
      for (let turn = 0; turn < 10; turn += 1) seen.push((await allEvents(store, A)).length);
      expect(await pending).toEqual({ outcome: "committed" });
      expect(seen.filter((count) => count !== 0 && count !== 3)).toEqual([]);
      expect(await sequencesOf(store, A)).toEqual([1n, 2n, 3n]);
    },
  },
];

export const EVENT_CASES: readonly ConformanceCase[] = [...READING, ...APPEND_ONLY, ...COMMITTING];
