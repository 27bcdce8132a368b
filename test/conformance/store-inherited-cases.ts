import { expect } from "vitest";
import { AskState } from "../../gen/toolmark/v1/ask_pb.js";
import {
  RecordFamily,
  type BodyCopy,
  type InheritedRecord,
  type NewEvent,
  type RecordKey,
  type Store,
} from "../../src/ledger/store-port.js";
import {
  A,
  askEvent,
  B,
  bodyRow,
  type ConformanceCase,
  expectCommitted,
  expectRefused,
  hook,
  newEvent,
  OTHER_A,
  write,
} from "./store-fixture.js";

const FIRST_PLACE = -(2n ** 63n);
const COPIED = bodyRow("body_a", '{"a":1}');
const COPY: BodyCopy = { from: A, bodyRef: "body_a", newBodyRef: "body_b" };

function brought(key: RecordKey, firstSequence: bigint): InheritedRecord {
  return { ...key, firstSequence, ask: undefined, deadline: undefined };
}

/** A session's first event that brings three records besides its own. */
function bringing(position: bigint): NewEvent {
  const turn = { recordId: "trn_1", family: RecordFamily.turn, toolCallId: undefined };
  const keys = [hook("hk_2", "tc_1"), turn, hook("hk_1")];
  const inherited = keys.map((key, index) => brought(key, BigInt(index - 3)));
  return { ...newEvent(1n, position, {}, hook("hk_own", "tc_1")), inherited };
}

/** An event that brings an ask and a record that waits. */
function waitingBrought(
  sequence: bigint,
  position: bigint,
  state: AskState,
  timeMs: number | undefined,
): NewEvent {
  const { record, ask } = askEvent(sequence, position, "ask_old", { state });
  if (record === undefined) throw new Error("an ask is a record");
  const inherited = [
    { ...brought(record, -2n), ask },
    { ...brought(hook("hk_waits"), -1n), deadline: { timeMs } },
  ];
  return { ...newEvent(sequence, position), inherited };
}

const ASKS_OF_B = {
  ...{ ...B, visibleToSubject: undefined, tree: undefined, ownerSubject: undefined },
  ...{ toolName: undefined, createFromMs: undefined, createBeforeMs: undefined },
  ...{ expireBeforeMs: undefined, afterPosition: 0n, untilPosition: undefined, limit: 9 },
};

async function hooksOf(
  store: Store,
  { after = FIRST_PLACE, limit = 9, toolCallId }: HookQuery = {},
): Promise<[string, bigint][]> {
  const query = { family: RecordFamily.hook, toolCallId, afterFirstSequence: after, limit };
  const rows = await store.listRecords(B, query);
  return rows.map(({ recordId, firstSequence }) => [recordId, firstSequence]);
}

interface HookQuery {
  readonly after?: bigint;
  readonly limit?: number;
  readonly toolCallId?: string;
}

export const INHERITED_CASES: readonly ConformanceCase[] = [
  {
    name: "records that an event brings besides its own are placed before every event, in their order",
    catches: "a store that drops, turns or renumbers them, counts per family, or forgets them",
    run: async (store, fixture) => {
      const first = bringing(1n);
      const next = newEvent(2n, 2n, {}, hook("hk_later", "tc_1"));
      await expectCommitted(store, write(B, [first]), write(B, [next]));
      const opened = await fixture.reopen(store);
      expect(await hooksOf(opened)).toEqual([
        ["hk_2", -3n],
        ["hk_1", -1n],
        ["hk_own", 1n],
        ["hk_later", 2n],
      ]);
      const { chain } = first.row;
      const place = { firstSequence: -3n, lastSequence: 1n, lastChain: chain };
      const found = { ...hook("hk_2", "tc_1"), ...place };
      expect(await opened.findRecord(B, "hk_2")).toEqual({ ...found, event: first.row });
      expect(await opened.findRecord(B, "trn_1")).toMatchObject({ firstSequence: -2n });
      const places = { family: RecordFamily.hook, afterFirstSequence: FIRST_PLACE, limit: 1 };
      expect(await opened.listRecordPlaces(B, places)).toEqual([found]);
    },
  },
  {
    name: "records that an event brought are listed page after page and by call, with the others",
    catches: "a store that begins each list at the first event, or takes a place below 0 for none",
    run: async (store) => {
      const next = newEvent(2n, 2n, {}, hook("hk_later", "tc_1"));
      await expectCommitted(store, write(B, [bringing(1n)]), write(B, [next]));
      expect(await hooksOf(store, { limit: 1 })).toEqual([["hk_2", -3n]]);
      expect(await hooksOf(store, { after: -3n, limit: 1 })).toEqual([["hk_1", -1n]]);
      expect(await hooksOf(store, { after: -1n, limit: 1 })).toEqual([["hk_own", 1n]]);
      expect(await hooksOf(store, { after: 0n })).toEqual([
        ["hk_own", 1n],
        ["hk_later", 2n],
      ]);
      const ofCall = await hooksOf(store, { toolCallId: "tc_1" });
      expect(ofCall.map(([id]) => id)).toEqual(["hk_2", "hk_own", "hk_later"]);
    },
  },
  {
    name: "a body is copied to another session under a reference of its own",
    catches: "a store that moves the body, keeps the old reference, or copies none of this batch",
    run: async (store, fixture) => {
      await expectCommitted(
        store,
        write(A, [newEvent(1n, 1n)], { bodies: [COPIED] }),
        write(B, [newEvent(1n, 2n)], { bodyCopies: [COPY] }),
      );
      const opened = await fixture.reopen(store);
      expect(await opened.readBody(A, "body_a")).toEqual(COPIED);
      expect(await opened.readBody(B, "body_b")).toEqual({ ...COPIED, bodyRef: "body_b" });
      expect(await opened.readBody(B, "body_a")).toBeUndefined();
      expect(await opened.listBodyRefs(A, "", 9)).toEqual(["body_a"]);
      expect(await opened.listBodyRefs(B, "", 9)).toEqual(["body_b"]);
    },
  },
  {
    name: "a copy of a body that the named session does not have is refused with all of its batch",
    catches: "a store that skips such a copy, or takes the body of another session or tenant",
    run: async (store) => {
      const mine = write(A, [newEvent(1n, 1n)], { bodies: [COPIED] });
      await expectCommitted(store, mine, write(OTHER_A, [newEvent(1n, 2n)]));
      const wrong: BodyCopy[] = [
        { ...COPY, bodyRef: "body_none" },
        { ...COPY, from: { tenant: "acme", sessionId: "ses_none" } },
        { ...COPY, from: OTHER_A },
      ];
      for (const copy of wrong) {
        const forked = write(B, [newEvent(1n, 4n)], { bodyCopies: [COPY, copy] });
        await expectRefused(store, 1, write(A, [newEvent(2n, 3n)]), forked);
        expect(await store.findSession(B)).toBeUndefined();
        expect(await store.readBody(B, "body_b")).toBeUndefined();
        expect((await store.findSession(A))?.head.sequence).toBe(1n);
      }
    },
  },
  {
    name: "what an event brings and what is copied with it is undone if a later write is refused",
    catches: "a store that leaves copied bodies or places of a batch that was not stored",
    run: async (store) => {
      await expectCommitted(store, write(A, [newEvent(1n, 1n)], { bodies: [COPIED] }));
      const forked = write(B, [bringing(2n)], { bodyCopies: [COPY] });
      await expectRefused(store, 1, forked, write(A, [newEvent(3n, 1n)]));
      expect(await hooksOf(store)).toEqual([]);
      expect(await store.findRecord(B, "hk_1")).toBeUndefined();
      expect(await store.readBody(B, "body_b")).toBeUndefined();
      const other = { ...newEvent(1n, 2n), inherited: [brought(hook("hk_1"), -1n)] };
      await expectCommitted(store, write(B, [other]));
      expect(await hooksOf(store)).toEqual([["hk_1", -1n]]);
      expect(await store.readBody(B, "body_b")).toBeUndefined();
    },
  },
  {
    name: "an ask and a deadline that an event brings are found as if they had events, and change with a later one",
    catches:
      "a store that keeps brought records out of the inbox or the deadlines, or lists them twice",
    run: async (store, fixture) => {
      const first = waitingBrought(1n, 4n, AskState.OPEN, 90);
      await expectCommitted(store, write(B, [first]));
      const opened = await fixture.reopen(store);
      expect(await opened.listAsks({ ...ASKS_OF_B, state: AskState.OPEN })).toMatchObject([
        { askId: "ask_old", toolCallId: "tc_1", position: 4n, lastPosition: 4n, event: first.row },
      ]);
      expect(await opened.nextDeadlineMs()).toBe(90);
      const again = waitingBrought(2n, 5n, AskState.WITHDRAWN, undefined);
      await expectCommitted(opened, write(B, [again]));
      expect(await opened.listAsks({ ...ASKS_OF_B, state: AskState.OPEN })).toEqual([]);
      expect(await opened.listAsks({ ...ASKS_OF_B, state: AskState.WITHDRAWN })).toMatchObject([
        { askId: "ask_old", position: 4n, lastPosition: 5n, event: again.row },
      ]);
      expect(await opened.nextDeadlineMs()).toBeUndefined();
      expect(await opened.findRecord(B, "hk_waits")).toMatchObject({ firstSequence: -1n });
    },
  },
];
