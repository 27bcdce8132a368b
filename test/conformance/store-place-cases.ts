import { expect } from "vitest";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import { RecordFamily, type Store } from "../../src/ledger/store-port.js";
import {
  A,
  askEvent,
  B,
  bodyRow,
  type ConformanceCase,
  deadlineEvent,
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

const PAGE = 2;

/** Every row of a list, page after page. */
async function allRows<Row>(
  page: (after: string) => Promise<readonly Row[]>,
  keyOf: (row: Row) => string,
): Promise<Row[]> {
  const rows: Row[] = [];
  for (;;) {
    const last = rows.at(-1);
    const next = await page(last === undefined ? "" : keyOf(last));
    expect(next.length).toBeLessThanOrEqual(PAGE);
    if (next.length === 0) return rows;
    rows.push(...next);
  }
}

/** Three of everything in A, in an order that is none of its keys', and one of everything in two others. */
async function fill(store: Store): Promise<void> {
  const names = ["3", "1", "é"];
  const events = names.flatMap((name, at) => {
    const first = BigInt(3 * at + 1);
    return [
      newEvent(first, first, {}, hook(`hk_${name}`, "tc_1")),
      askEvent(first + 1n, first + 1n, `ask_${name}`),
      deadlineEvent(first + 2n, first + 2n, `hk_due_${name}`, 100 + at),
    ];
  });
  const rowsOf = (of: readonly string[]) => ({
    bodies: of.map((name) => bodyRow(`body_${name}`, `{"${name}":1}`)),
    pairings: of.map((name) => pairingRow(`tc_${name}`)),
    request: requestRow(of[0] ?? ""),
  });
  const others = [B, OTHER_A].map((session, at) => {
    const position = 20n + BigInt(3 * at);
    return write(
      session,
      [
        newEvent(1n, position, {}, hook("hk_other")),
        askEvent(2n, position + 1n, "ask_other"),
        deadlineEvent(3n, position + 2n, "hk_due_other", 1),
      ],
      rowsOf(["other"]),
    );
  });
  const later = ["1", "é"].map((name) => write(A, [], { request: requestRow(name) }));
  const session = sessionRow(A, events);
  await expectCommitted(
    store,
    write(A, events, { session, ...rowsOf(names) }),
    ...later.map((next) => ({ ...next, session })),
    ...others,
  );
}

const CHECKING: readonly ConformanceCase[] = [
  {
    name: "the places of a session's records are listed by family, with the chain value of their last event",
    catches: "a store that leaves records out, or keeps the chain value of another event",
    run: async (store) => {
      await fill(store);
      const again = newEvent(10n, 40n, {}, hook("hk_1", "tc_1"));
      await expectCommitted(store, write(A, [again]));
      const query = { family: RecordFamily.hook, limit: 9 };
      const places = await store.listRecordPlaces(A, { ...query, afterFirstSequence: 1n });
      expect(places.map(({ recordId }) => recordId)).toEqual([
        ...["hk_due_3", "hk_1", "hk_due_1", "hk_é", "hk_due_é"],
      ]);
      const { row } = again;
      const last = { lastSequence: row.sequence, lastChain: row.chain };
      expect(places[1]).toEqual({ ...hook("hk_1", "tc_1"), firstSequence: 4n, ...last });
      const page = { family: RecordFamily.hook, afterFirstSequence: 4n, limit: 1 };
      expect(await store.listRecordPlaces(A, page)).toEqual([places[2]]);
    },
  },
  {
    name: "a session's asks are listed by id with the chain value of their last event",
    catches: "a store that leaves asks out, or keeps the chain value of the first event",
    run: async (store) => {
      await fill(store);
      const settled = askEvent(10n, 40n, "ask_1", { state: AskState.ANSWERED });
      await expectCommitted(store, write(A, [settled]));
      const asks = await allRows(
        (after) => store.listAskPlaces(A, after, PAGE),
        ({ askId }) => askId,
      );
      expect(asks.map(({ askId, lastPosition }) => [askId, lastPosition])).toEqual([
        ["ask_1", 40n],
        ["ask_3", 2n],
        ["ask_é", 8n],
      ]);
      expect(asks[0]?.lastChain).toEqual(settled.row.chain);
      expect(asks[0]).not.toHaveProperty("event");
    },
  },
  {
    name: "a session's deadlines, bodies, pairings and requests are listed by their keys, page after page",
    catches: "a store that lists by another order than the keys', or rows of another session",
    run: async (store) => {
      await fill(store);
      const due = await allRows(
        (after) => store.listDeadlines(A, after, PAGE),
        ({ recordId }) => recordId,
      );
      expect(due.map(({ recordId, timeMs }) => [recordId, timeMs])).toEqual([
        ["hk_due_1", 101],
        ["hk_due_3", 100],
        ["hk_due_é", 102],
      ]);
      const refs = await allRows(
        (after) => store.listBodyRefs(A, after, PAGE),
        (ref) => ref,
      );
      expect(refs).toEqual(["body_1", "body_3", "body_é"]);
      const pairings = await allRows(
        (after) => store.listPairings(A, after, PAGE),
        ({ recordId }) => recordId,
      );
      expect(pairings).toEqual([pairingRow("tc_1"), pairingRow("tc_3"), pairingRow("tc_é")]);
      const requests = await allRows(
        (after) => store.listRequests(A, after, PAGE),
        ({ requestId }) => requestId,
      );
      expect(requests).toEqual([requestRow("1"), requestRow("3"), requestRow("é")]);
    },
  },
];

const GOING_ON: readonly ConformanceCase[] = [
  {
    name: "the time of the last event is that of the highest position",
    catches: "a store that gives the highest time, or that of a session's last event",
    run: async (store) => {
      expect(await store.lastEventTimeMs()).toBeUndefined();
      await expectCommitted(store, write(A, [newEvent(1n, 1n, { timeMs: 9000 })]));
      await expectCommitted(store, write(B, [newEvent(1n, 2n, { timeMs: 7000 })]));
      await expectCommitted(store, write(A, [newEvent(2n, 3n, { timeMs: 8000 })]));
      expect(await store.lastEventTimeMs()).toBe(8000);
    },
  },
  {
    name: "a session's head never goes back, whatever snapshot comes with it",
    catches: "a store that lets a writer that lags behind put an old state over a newer one",
    run: async (store) => {
      const early = sessionRow(A, [newEvent(1n, 1n)]);
      const events = [newEvent(1n, 1n), newEvent(2n, 2n)];
      await expectCommitted(store, write(A, events, { snapshot: snapshotRow(2n) }));
      await expectRefused(store, 0, write(A, [], { session: early, snapshot: snapshotRow(1n) }));
      expect(await store.readSnapshots(A)).toEqual([snapshotRow(2n)]);
      expect((await store.findSession(A))?.head.sequence).toBe(2n);
      await expectCommitted(store, write(A, [], { session: sessionRow(A, events) }));
    },
  },
];

export const PLACE_CASES: readonly ConformanceCase[] = [...CHECKING, ...GOING_ON];
