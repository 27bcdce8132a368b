import { expect } from "vitest";
import type { DueQuery, DueRecord, Store } from "../../src/ledger/store-port.js";
import {
  A,
  B,
  type ConformanceCase,
  deadlineEvent,
  eventRow,
  expectCommitted,
  expectRefused,
  hook,
  newEvent,
  OTHER_A,
  write,
} from "./store-fixture.js";

async function due(store: Store, changes: Partial<DueQuery> = {}): Promise<DueRecord[]> {
  const query = { untilMs: 1e15, untilPosition: undefined, after: undefined, limit: 100 };
  return store.listDue({ ...query, ...changes });
}

async function dueIds(store: Store, changes: Partial<DueQuery> = {}): Promise<string[]> {
  return (await due(store, changes)).map(({ recordId }) => recordId);
}

const setTimeMs = eventRow(1n, 1n).timeMs;

export const DEADLINE_CASES: readonly ConformanceCase[] = [
  {
    name: "without a deadline nothing is due and none comes next",
    catches: "a store that gives 0 for no deadline, which is due at once",
    run: async (store) => {
      await expectCommitted(store, write(A, [newEvent(1n, 1n, {}, hook("hk_1"))]));
      expect(await due(store)).toEqual([]);
      expect(await store.nextDeadlineMs()).toBeUndefined();
    },
  },
  {
    name: "a record is due from its deadline on, with its session and the position that set it",
    catches: "a store that is late by one, or keeps deadlines by record alone",
    run: async (store) => {
      await expectCommitted(
        store,
        write(A, [deadlineEvent(1n, 1n, "hk_1", 500)]),
        write(OTHER_A, [deadlineEvent(1n, 2n, "hk_1", 700)]),
      );
      const ofA = { session: A, recordId: "hk_1", timeMs: 500, position: 1n, setTimeMs };
      const ofOther = { session: OTHER_A, recordId: "hk_1", timeMs: 700, position: 2n, setTimeMs };
      expect(await due(store, { untilMs: 499 })).toEqual([]);
      expect(await due(store, { untilMs: 500 })).toEqual([ofA]);
      expect(await due(store, { untilMs: 700 })).toEqual([ofA, ofOther]);
      expect(await store.nextDeadlineMs()).toBe(500);
    },
  },
  {
    name: "a later deadline of a record replaces the earlier one",
    catches: "a store that keeps both deadlines, or the first, or the first one's position",
    run: async (store) => {
      await expectCommitted(store, write(A, [deadlineEvent(1n, 1n, "hk_1", 500)]));
      await expectCommitted(store, write(A, [deadlineEvent(2n, 2n, "hk_1", 900)]));
      expect(await due(store)).toEqual([
        { session: A, recordId: "hk_1", timeMs: 900, position: 2n, setTimeMs },
      ]);
      expect(await store.nextDeadlineMs()).toBe(900);
    },
  },
  {
    name: "a record that waits no longer is not due, until it waits again",
    catches: "a store that keeps the deadline of a settled record, or clears other records' ones",
    run: async (store) => {
      await expectCommitted(
        store,
        write(A, [deadlineEvent(1n, 1n, "hk_1", 500), deadlineEvent(2n, 2n, "hk_2", 600)]),
        write(B, [deadlineEvent(1n, 3n, "hk_1", 700)]),
      );
      await expectCommitted(store, write(A, [deadlineEvent(3n, 4n, "hk_1")]));
      expect((await due(store)).map(({ position }) => position)).toEqual([2n, 3n]);
      expect(await store.nextDeadlineMs()).toBe(600);
      await expectCommitted(store, write(A, [deadlineEvent(4n, 5n, "hk_1", 100)]));
      expect((await due(store)).map(({ position }) => position)).toEqual([5n, 2n, 3n]);
    },
  },
  {
    name: "an event that says nothing of a deadline leaves the record's deadline as it is",
    catches: "a store that takes an absent deadline for a cleared one",
    run: async (store) => {
      await expectCommitted(store, write(A, [deadlineEvent(1n, 1n, "hk_1", 500)]));
      await expectCommitted(store, write(A, [newEvent(2n, 2n, {}, hook("hk_1"))]));
      expect(await due(store)).toMatchObject([{ timeMs: 500, position: 1n }]);
    },
  },
  {
    name: "a deadline set and cleared in one group leaves none",
    catches: "a store that writes a group's deadlines after it cleared them",
    run: async (store) => {
      await expectCommitted(
        store,
        write(A, [deadlineEvent(1n, 1n, "hk_1", 500), deadlineEvent(2n, 2n, "hk_1")]),
        write(A, [deadlineEvent(3n, 3n, "hk_2", 500)]),
        write(A, [deadlineEvent(4n, 4n, "hk_2")]),
      );
      expect(await due(store)).toEqual([]);
    },
  },
  {
    name: "due records come by deadline, then position, page after page, equal times included",
    catches: "a store that pages by time alone, and so repeats or loses records of equal times",
    run: async (store) => {
      const times = [900, 500, 500, 100, 500];
      const events = times.map((timeMs, n) =>
        deadlineEvent(BigInt(n + 1), BigInt(n + 1), `hk_${n + 1}`, timeMs),
      );
      await expectCommitted(store, write(A, events));
      expect(await dueIds(store)).toEqual(["hk_4", "hk_2", "hk_3", "hk_5", "hk_1"]);
      const pages: string[][] = [];
      let after: DueRecord | undefined;
      for (let page = 0; page < 4; page += 1) {
        const found = await due(store, { after, limit: 2 });
        pages.push(found.map(({ recordId }) => recordId));
        after = found.at(-1);
      }
      expect(pages).toEqual([["hk_4", "hk_2"], ["hk_3", "hk_5"], ["hk_1"], []]);
      const beyond = { after: { timeMs: 500, position: 4n } };
      expect(await dueIds(store, beyond)).toEqual(["hk_5", "hk_1"]);
    },
  },
  {
    name: "deadlines set after a position are left out if it is given",
    catches: "a store that ignores the position, or leaves out the deadline set at it",
    run: async (store) => {
      const events = [1n, 2n, 3n].map((n) => deadlineEvent(n, n, `hk_${n}`, 500));
      await expectCommitted(store, write(A, events));
      expect(await dueIds(store, { untilPosition: 2n })).toEqual(["hk_1", "hk_2"]);
      await expectCommitted(store, write(A, [deadlineEvent(4n, 4n, "hk_1", 500)]));
      expect(await dueIds(store, { untilPosition: 2n })).toEqual(["hk_2"]);
    },
  },
  {
    name: "a deadline of no record is refused",
    catches: "a store that drops a deadline without a word",
    run: async (store) => {
      const event = { ...newEvent(1n, 1n), deadline: { timeMs: 500 } };
      await expectRefused(store, 0, write(A, [event]));
      const cleared = { ...newEvent(1n, 1n), deadline: { timeMs: undefined } };
      await expectRefused(store, 0, write(A, [cleared]));
    },
  },
  {
    name: "a refused group sets, moves and clears no deadline",
    catches: "a store that keeps deadlines beside the transaction",
    run: async (store) => {
      const waiting = [deadlineEvent(1n, 1n, "hk_1", 500), deadlineEvent(2n, 2n, "hk_2", 600)];
      await expectCommitted(store, write(A, waiting));
      const before = await due(store);
      await expectRefused(
        store,
        1,
        write(A, [
          deadlineEvent(3n, 3n, "hk_1", 100),
          deadlineEvent(4n, 4n, "hk_2"),
          deadlineEvent(5n, 5n, "hk_3", 200),
        ]),
        write(B, [newEvent(1n, 1n)]),
      );
      expect(await due(store)).toEqual(before);
      expect(await store.nextDeadlineMs()).toBe(500);
    },
  },
  {
    name: "deadlines are there after a restart, and cleared ones are not",
    catches: "a store that keeps deadlines in memory alone",
    run: async (store, fixture) => {
      const events = [deadlineEvent(1n, 1n, "hk_1", 500), deadlineEvent(2n, 2n, "hk_2", 600)];
      await expectCommitted(store, write(A, [...events, deadlineEvent(3n, 3n, "hk_1")]));
      const again = await fixture.reopen(store);
      expect(await dueIds(again)).toEqual(["hk_2"]);
      expect(await again.nextDeadlineMs()).toBe(600);
    },
  },
  {
    name: "deadlines that were set after a time are found, the latest set first",
    catches: "a store that goes by the deadline, or keeps the time of the first setting",
    run: async (store) => {
      const set = (sequence: bigint, recordId: string, atMs: number, timeMs?: number) => {
        const event = deadlineEvent(sequence, sequence, recordId, timeMs);
        return { ...event, row: { ...event.row, timeMs: atMs } };
      };
      await expectCommitted(
        store,
        write(A, [
          set(1n, "hk_1", 100, 9000),
          set(2n, "hk_2", 300, 8000),
          set(3n, "hk_3", 200, 7000),
          set(4n, "hk_4", 400, 1),
          set(5n, "hk_4", 400),
          set(6n, "hk_1", 250, 9000),
        ]),
      );
      const found = async (afterMs: number, limit = 9) =>
        (await store.listDueSetAfter(afterMs, limit)).map(({ recordId }) => recordId);
      expect(await found(0)).toEqual(["hk_2", "hk_1", "hk_3"]);
      expect(await found(200)).toEqual(["hk_2", "hk_1"]);
      expect(await found(0, 1)).toEqual(["hk_2"]);
      expect(await found(300)).toEqual([]);
    },
  },
];
