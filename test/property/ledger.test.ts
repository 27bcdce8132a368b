import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { SessionStateSchema } from "../../gen/toolmark/storage/v1/storage_pb.js";
import { EventRecordSchema, EventSchema, type Event } from "../../gen/toolmark/v1/event_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { Ran, ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { CHAIN_START } from "../../src/domain/chain.js";
import { evolve } from "../../src/domain/evolve.js";
import { encodeState, type DraftEvent, type SessionState } from "../../src/domain/session-state.js";
import { followsChain, isIntact } from "../../src/ledger/event-codec.js";
import { restoreState, takeSnapshot } from "../../src/ledger/snapshot.js";
import { DISKS, type MakeDisk } from "../support/disks.js";
import {
  acceptTurnStep,
  beginRunStep,
  LedgerMachine,
  step,
  type Step,
} from "../support/ledger-machine.js";
import { propertyOptions, seededTitle } from "../support/seed.js";
import { testScale } from "../support/scale.js";

/** A run and a turn to begin with, so that most steps find something to act on. */
const histories = fc
  .tuple(beginRunStep, acceptTurnStep, fc.array(step, { minLength: 5, maxLength: 35 }))
  .map(([begin, turn, rest]): Step[] => [begin, turn, ...rest]);
const TIMEOUT_MS = { short: 120_000, ci: 600_000, long: 3_600_000 }[testScale()];

let machines = 0;

/** Plays a history and hands the machine over before it is stopped. */
async function play(
  makeDisk: MakeDisk,
  steps: readonly Step[],
  look: (machine: LedgerMachine) => Promise<void>,
): Promise<void> {
  machines += 1;
  const machine = await LedgerMachine.start(await makeDisk(), `machine ${machines}`, 7);
  try {
    for (const taken of steps) await machine.take(taken);
    await look(machine);
  } finally {
    await machine.stop();
  }
}

function checkNumbers(events: readonly Event[]): void {
  let highWater = 0n;
  let position = 0n;
  for (const [index, event] of events.entries()) {
    if (event.sequence !== BigInt(index + 1)) throw new Error(`hole before ${event.sequence}`);
    if (event.position <= position) throw new Error(`position ${event.position} does not rise`);
    if (event.revision !== undefined && event.revision <= highWater) {
      throw new Error(`revision ${event.revision} does not rise above ${highWater}`);
    }
    highWater = event.revision ?? highWater;
    ({ position } = event);
  }
}

/** Everything that was acknowledged is in the log, byte for byte, once. */
function checkAcknowledged(machine: LedgerMachine, events: readonly Event[]): void {
  const written = new Map<string, number>();
  for (const { record } of events) {
    const key = record === undefined ? "" : keyOf(record);
    written.set(key, (written.get(key) ?? 0) + 1);
  }
  const replied = machine.sent.flatMap(({ reply }) => reply.flat().map(keyOf));
  for (const key of replied) {
    if (written.get(key) !== 1) {
      throw new Error(`an acknowledged record is there ${written.get(key) ?? 0} times`);
    }
  }
}

function keyOf(record: NonNullable<Event["record"]>): string {
  return Buffer.from(toBinary(EventRecordSchema, record)).toString("base64");
}

async function checkChain(machine: LedgerMachine): Promise<void> {
  const session = { tenant: "default", sessionId: machine.sessionId };
  let chain = CHAIN_START;
  for (const row of await machine.store.readEvents(session, 0n, 10_000, 1e9)) {
    if (!isIntact(row) || !followsChain(session.sessionId, chain, row)) {
      throw new Error(`event ${row.sequence} is not on the chain`);
    }
    ({ chain } = row);
  }
}

const ENDS_WITHOUT_RUN: ReadonlySet<ToolCallState> = new Set([
  ToolCallState.BLOCKED,
  ToolCallState.CANCELLED,
]);

async function checkCalls(machine: LedgerMachine): Promise<void> {
  const calls = await machine.calls();
  const ids = new Set(calls.map(({ toolCallId }) => toolCallId));
  if (ids.size !== calls.length) throw new Error("two calls share an id");
  for (const { state, ran, result, endTime } of calls) {
    if (ENDS_WITHOUT_RUN.has(state) && ran !== Ran.NO) throw new Error("an unrun call ran");
    if (state === ToolCallState.COMPLETED && ran !== Ran.YES) throw new Error("a run call did not");
    if ((result === undefined) !== (endTime === undefined)) throw new Error("an end has no result");
  }
}

function draftOf({ kind, revision, record }: Event): DraftEvent {
  return { kind, revision, record: record ?? create(EventRecordSchema), pairing: undefined };
}

/** The state by each snapshot point and the tail after it equals the state by all events. */
function checkFold(events: readonly Event[], restore = restoreState): void {
  const drafts = events.map(draftOf);
  const whole = Buffer.from(encodeState(evolve(undefined, drafts)));
  let state: SessionState | undefined;
  for (const [index, draft] of drafts.entries()) {
    state = evolve(state, [draft]);
    const snapshot = takeSnapshot(state, CHAIN_START);
    const restored = restore(snapshot, fromBinary(SessionStateSchema, snapshot.state));
    const tail = drafts.slice(index + 1);
    const refolded = tail.length === 0 ? restored : evolve(restored, tail);
    if (refolded === undefined || !whole.equals(encodeState(refolded))) {
      throw new Error(`snapshot ${index + 1} + tail is another state`);
    }
    if (refolded.highWater !== evolve(undefined, drafts).highWater) {
      throw new Error(`snapshot ${index + 1} + tail has another high-water`);
    }
  }
}

describe.each(DISKS)("on %s", (name, makeDisk) => {
  const fullRuns = name === "SQLite" ? 3_000 : 10_000;

  test(
    seededTitle("P8 P11 P13: random histories with restarts keep every promise of the log"),
    async () => {
      await fc.assert(
        fc.asyncProperty(histories, (steps) =>
          play(makeDisk, steps, async (machine) => {
            const events = await machine.events();
            checkNumbers(events);
            checkAcknowledged(machine, events);
            await checkChain(machine);
            await checkCalls(machine);
          }),
        ),
        propertyOptions(fullRuns),
      );
    },
    TIMEOUT_MS,
  );

  test(
    seededTitle("P15: the fold of all events equals every snapshot and its tail"),
    async () => {
      await fc.assert(
        fc.asyncProperty(histories, (steps) =>
          play(makeDisk, steps, async (machine) => {
            checkFold(await machine.events());
          }),
        ),
        propertyOptions(2_000),
      );
    },
    TIMEOUT_MS,
  );
});

describe("the checks catch", () => {
  async function someEvents(): Promise<Event[]> {
    const steps: Step[] = [
      { kind: "beginRun", gate: StartGate.OFF, takeOver: undefined },
      { kind: "acceptTurn", providerIds: ["a", "b"] },
      { kind: "hook", pick: 0 },
      { kind: "result", pick: 0, end: ToolCallState.UNSPECIFIED, bare: false },
      { kind: "message" },
    ];
    let events: Event[] = [];
    await play(DISKS[0]?.[1] ?? (() => Promise.reject(new Error("no disk"))), steps, async (m) => {
      events = await m.events();
    });
    return events;
  }

  test("a revision that is used again", async () => {
    const events = await someEvents();
    checkNumbers(events);
    const last = events.at(-1) ?? create(EventSchema);
    const again: Event = { ...last, sequence: 1n + BigInt(events.length) };
    again.position += 1n;
    again.revision = 1n;
    expect(() => {
      checkNumbers([...events, again]);
    }).toThrow("revision 1 does not rise");
  });

  test("a lost event", async () => {
    const events = await someEvents();
    expect(() => {
      checkNumbers(events.filter((_event, index) => index !== 2));
    }).toThrow("hole");
  });

  test("a snapshot that forgets a call", async () => {
    const events = await someEvents();
    checkFold(events);
    expect(() => {
      checkFold(events, (row, stored) =>
        restoreState(row, { ...stored, openCalls: stored.openCalls.slice(1) }),
      );
    }).toThrow("another state");
  });

  test("a snapshot with a stale high-water", async () => {
    const events = await someEvents();
    expect(() => {
      checkFold(events, (row, stored) => {
        const restored = restoreState(row, stored);
        return restored && { ...restored, highWater: 0n };
      });
    }).toThrow("high-water");
  });
});
