import { createHash } from "node:crypto";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  BaseRecordSchema,
  BaseStateSchema,
  type BaseRecord,
  type BaseState,
} from "../../gen/toolmark/v1/base_state_pb.js";
import { EventSchema, type Event } from "../../gen/toolmark/v1/event_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { findRecord } from "../../src/ledger/stored-record.js";
import type { CommandWrite, InheritedRecord, Store } from "../../src/ledger/store-port.js";
import { verifySession } from "../../src/ledger/verify/verify-session.js";
import { overriding } from "../mutants/broken-store.js";
import { turned } from "../mutants/inherited-mutants.js";
import { DISKS, memoryDisk, type MakeDisk } from "../support/disks.js";
import { checkFold } from "../support/fold-checks.js";
import {
  baseFaults,
  bodiesIn,
  copiedIn,
  forkedOf,
  highestPoint,
  idOf,
  plain,
  recordsAsOf,
  type SourceLog,
} from "../support/forking.js";
import { accepted, ForkingStore } from "../support/forking-store.js";
import { LedgerMachine } from "../support/ledger-machine.js";
import { histories, ruleStep, type Step } from "../support/ledger-steps.js";
import { TENANT_CALLER } from "../support/outside-world.js";
import { testScale } from "../support/scale.js";
import { propertyOptions, seededTitle } from "../support/seed.js";

const STEPS_MAX = 30;
const TIMEOUT_MS = { short: 120_000, ci: 600_000, long: 3_600_000 }[testScale()];
const { tenant } = TENANT_CALLER;
const PACE = { pause: () => Promise.resolve(), isAborted: () => false };

/** What is tried on a history: where to fork, and the fork again. Shares of the log's length. */
interface Cuts {
  readonly first: number;
  readonly second: number;
}

function textOf(events: readonly Event[]): string {
  return events.map((event) => Buffer.from(toBinary(EventSchema, event)).toString("hex")).join();
}

async function expectSound(store: Store, sessionId: string): Promise<void> {
  const options = { ...PACE, checkpoints: [], generationFloor: 0n };
  const verdict = await verifySession(store, { tenant, sessionId }, options);
  expect(verdict).not.toHaveProperty("finding");
  expect(verdict).toMatchObject({ outcome: "sound" });
}

/** Checks a fork against the source's own events. Gives what it copied. */
async function checkFork(
  forking: ForkingStore,
  source: SourceLog,
  { forkId, through }: { readonly forkId: string; readonly through: bigint },
): Promise<BaseState> {
  const { store } = forking;
  const forked = forkedOf(await forking.events(forkId));
  const { sequence = 0n } = forked.session?.forkedFrom ?? {};
  expect(sequence).toBe(highestPoint(source.events, through, source.base));
  const at = await store.readEvent({ tenant, sessionId: source.sessionId }, sequence);
  expect(hexOf(forked.sourceChain)).toBe(hexOf(at?.chain ?? new Uint8Array()));
  const revisions = source.events.filter((event) => event.sequence <= sequence).map(revisionOf);
  const inherited = source.base === undefined ? 0n : forkedOf(source.events).highWater;
  expect(forked.highWater).toBe([inherited, ...revisions].reduce((a, b) => (a > b ? a : b)));
  const bytesOfBase = await forking.body(forkId, forked.base?.bodyRef ?? "");
  const base = fromBinary(BaseStateSchema, bytesOfBase);
  expect(baseFaults(source, sequence, base)).toEqual([]);
  for (const record of copiedIn(base)) {
    const session = { tenant, sessionId: forkId };
    const found = accepted(await findRecord(store, session, idOf(record) ?? ""));
    expect(plain(found ?? { case: undefined })).toBe(plain(record));
    for (const { bodyRef, sha256 } of bodiesIn(record)) {
      const digest = createHash("sha256")
        .update(await forking.body(forkId, bodyRef))
        .digest();
      expect(hexOf(digest)).toBe(hexOf(sha256));
    }
  }
  return base;
}

function revisionOf({ revision = 0n }: Event): bigint {
  return revision;
}

function hexOf(data: Uint8Array): string {
  return Buffer.from(data).toString("hex");
}

let machines = 0;

async function play(
  makeDisk: MakeDisk,
  steps: readonly Step[],
  cuts: Cuts,
  wrap: (store: Store) => Store = (store) => store,
): Promise<void> {
  machines += 1;
  const machine = await LedgerMachine.start(await makeDisk(), `fork ${machines}`, 7);
  try {
    for (const taken of steps) await machine.take(taken);
    await forkTwice(machine, cuts, wrap);
  } finally {
    await machine.stop();
  }
}

async function forkTwice(
  machine: LedgerMachine,
  cuts: Cuts,
  wrap: (store: Store) => Store,
): Promise<void> {
  const forking = new ForkingStore(wrap(machine.store), `fork ${machines}`);
  const { sessionId: sourceId } = machine;
  const events = await machine.events();
  const through = cutOf(events, cuts.first);
  const forkId = await forking.fork(sourceId, through);
  const base = await checkFork(forking, { sessionId: sourceId, events }, { forkId, through });
  await forking.goOn(forkId);
  const own = await forking.events(forkId);
  checkFold(own.map(draftOf));
  const again = cutOf(own, cuts.second);
  const second = await forking.fork(forkId, again);
  const source = { sessionId: forkId, events: own, base };
  await checkFork(forking, source, { forkId: second, through: again });
  await forking.goOn(second);
  expect(textOf(await forking.events(sourceId))).toBe(textOf(events));
  expect(textOf(await forking.events(forkId))).toBe(textOf(own));
  for (const id of [sourceId, forkId, second]) await expectSound(forking.store, id);
}

function draftOf({ kind, revision, record }: Event) {
  if (record === undefined) throw new Error("an event has a record");
  return { kind, revision, record, pairing: undefined };
}

function cutOf(events: readonly Event[], share: number): bigint {
  return BigInt(1 + Math.floor(share * (events.length - 1)));
}

const share = fc.double({ min: 0, max: 1, noNaN: true });
const cuts = fc.record({ first: fc.oneof(share, fc.constant(1)), second: share });

describe.each(DISKS)("on %s", (name, makeDisk) => {
  test(
    seededTitle("a fork of any history is the source as it stood, and neither changes the other"),
    async () => {
      await fc.assert(
        fc.asyncProperty(histories(ruleStep, STEPS_MAX), cuts, (steps, at) =>
          play(makeDisk, steps, at),
        ),
        propertyOptions(name === "SQLite" ? 100 : 400),
      );
    },
    TIMEOUT_MS,
  );
});

describe("the checks catch", () => {
  const HISTORY: readonly Step[] = [
    { kind: "beginRun", gate: StartGate.OFF, takeOver: undefined },
    { kind: "acceptTurn", providerIds: ["call_0"] },
    { kind: "hook", pick: 0 },
    { kind: "result", pick: 0, end: ToolCallState.UNSPECIFIED, bare: true },
    { kind: "message" },
  ];
  const WHOLE: Cuts = { first: 1, second: 1 };

  test("nothing in a fork without a fault", async () => {
    await play(memoryDisk, HISTORY, WHOLE);
  });

  const changing = (change: (write: CommandWrite) => Partial<CommandWrite>) => (store: Store) =>
    overriding(store, {
      commit: (writes) =>
        store.commit(
          writes.map((write) =>
            write.bodyCopies === undefined ? write : { ...write, ...change(write) },
          ),
        ),
    });
  const places = (change: (keys: readonly InheritedRecord[]) => readonly InheritedRecord[]) =>
    changing(({ events }) => ({
      events: events.map((event) => ({ ...event, inherited: change(event.inherited ?? []) })),
    }));
  const mutants: readonly (readonly [string, (store: Store) => Store])[] = [
    ["forgets a copied record", places((keys) => keys.slice(1))],
    ["takes copied records for each other", places(turned)],
    ["leaves bodies behind", changing(() => ({ bodyCopies: [] }))],
    ["leaves pairings behind", changing(() => ({ pairings: [] }))],
    [
      "counts again from the beginning",
      changing(({ session }) => ({
        session: { ...session, head: { ...session.head, highWater: 0n } },
      })),
    ],
    [
      "lets the source move with its fork",
      (store) =>
        overriding(store, {
          commit: (writes) => store.commit(writes),
          readEvent: async (session, sequence) => {
            const row = await store.readEvent(session, sequence);
            return row && { ...row, chain: row.chain.toReversed() };
          },
        }),
    ],
  ];

  test.each(mutants)("a store that %s", async (_what, wrap) => {
    await expect(play(memoryDisk, HISTORY, WHOLE, wrap)).rejects.toThrow();
  });

  test("a base state with another record, one too few or too many, or without a mark", async () => {
    machines += 1;
    const machine = await LedgerMachine.start(await memoryDisk(), `altered ${machines}`, 7);
    for (const taken of HISTORY) await machine.take(taken);
    const forking = new ForkingStore(machine.store, "altered");
    const { sessionId } = machine;
    const events = await machine.events();
    const source = { sessionId, events };
    const through = BigInt(events.length);
    const forkId = await forking.fork(sessionId, through);
    const faultsOf = async (alter: (records: BaseRecord[]) => BaseRecord[]): Promise<string[]> => {
      const base = await checkFork(forking, source, { forkId, through });
      return baseFaults(source, through, { ...base, records: alter(base.records) });
    };
    expect(await faultsOf((records) => records)).toEqual([]);
    const [run] = recordsAsOf(events, through).values();
    const tooMany = create(BaseRecordSchema, { record: { record: run ?? { case: undefined } } });
    const unmarked = (record: BaseRecord): BaseRecord => {
      const { record: inner } = record.record ?? {};
      if (inner?.case !== "toolCall") return record;
      const { inheritedFromSessionId: _mark, ...value } = inner.value;
      return create(BaseRecordSchema, { record: { record: { case: "toolCall", value } } });
    };
    const alterations: ((records: BaseRecord[]) => BaseRecord[])[] = [
      (records) => records.slice(0, -1),
      (records) => [tooMany, ...records],
      (records) => records.toReversed(),
      (records) => records.map(unmarked),
    ];
    for (const alter of alterations) expect((await faultsOf(alter)).length).toBe(1);
    await machine.stop();
  });
});
