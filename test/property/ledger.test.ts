import { create, toBinary } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import { ErrorReason } from "../../gen/toolmark/v1/errors_pb.js";
import { EventRecordSchema, EventSchema, type Event } from "../../gen/toolmark/v1/event_pb.js";
import { ActorKind } from "../../gen/toolmark/v1/origin_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { ToolCallState } from "../../gen/toolmark/v1/tool_call_pb.js";
import { CHAIN_START } from "../../src/domain/chain.js";
import { refuse } from "../../src/domain/refusal.js";
import type { DraftEvent } from "../../src/domain/session-state.js";
import { followsChain, isIntact } from "../../src/ledger/event-codec.js";
import { restoreState } from "../../src/ledger/snapshot.js";
import { recordResult } from "../fault/results.js";
import { consentFaults } from "../support/consent-checks.js";
import { DISKS, type MakeDisk } from "../support/disks.js";
import { checkFold } from "../support/fold-checks.js";
import { LedgerMachine, refusalFaults } from "../support/ledger-machine.js";
import { histories, step, type Step } from "../support/ledger-steps.js";
import { propertyOptions, seededTitle } from "../support/seed.js";
import { scaled, testScale } from "../support/scale.js";

const STEPS_MAX = 30;
const TIMEOUT_MS = { short: 120_000, ci: 600_000, long: 3_600_000 }[testScale()];

let machines = 0;

/** Histories that were played without a fault, by promise and disk. */
const runs = new Map<string, number>();

/** How often each planted fault was seen. */
const caught = new Map<string, number>();

function catches(fault: string, run: () => void, message: string): void {
  expect(run).toThrow(message);
  caught.set(fault, (caught.get(fault) ?? 0) + 1);
}

function plantedFaults(...names: readonly string[]): { name: string; caught: number }[] {
  return names.map((name) => ({ name, caught: caught.get(name) ?? 0 }));
}

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

/** Every call has an id of its own and ends with a result, unless an ask ended it. */
function callFaults(events: readonly Event[]): string[] {
  const accepted = events.flatMap(({ kind, record }) =>
    kind === "TOOL_CALL_ACCEPTED" && record?.record.case === "toolCall"
      ? [record.record.value.toolCallId]
      : [],
  );
  const doubled = accepted.filter((id, place) => accepted.indexOf(id) !== place);
  const halfEnded = events.flatMap(({ record }) => {
    if (record?.record.case !== "toolCall") return [];
    const { toolCallId, state, result, endTime } = record.record.value;
    const mayLackResult = state === ToolCallState.DENIED || state === ToolCallState.EXPIRED;
    const fits = (result !== undefined) === (endTime !== undefined);
    return fits || (mayLackResult && result === undefined) ? [] : [toolCallId];
  });
  return [...doubled, ...halfEnded];
}

function draftOf({ kind, revision, record }: Event): DraftEvent {
  return { kind, revision, record: record ?? create(EventRecordSchema), pairing: undefined };
}

describe.each(DISKS)("on %s", (name, makeDisk) => {
  const fullRuns = name === "SQLite" ? 3_000 : 10_000;

  test(
    seededTitle("P8 P11 P12 P13: random histories with restarts keep every promise of the log"),
    async () => {
      await fc.assert(
        fc.asyncProperty(histories(step, STEPS_MAX), (steps) =>
          play(makeDisk, steps, async (machine) => {
            const events = await machine.events();
            checkNumbers(events);
            checkAcknowledged(machine, events);
            await checkChain(machine);
            expect(callFaults(events)).toEqual([]);
            expect(consentFaults(events)).toEqual([]);
          }),
        ),
        propertyOptions(fullRuns),
      );
      runs.set(`P8 ${name}`, scaled(fullRuns));
    },
    TIMEOUT_MS,
  );

  test(
    seededTitle("P15: the fold of all events equals every snapshot and its tail"),
    async () => {
      await fc.assert(
        fc.asyncProperty(histories(step, STEPS_MAX), (steps) =>
          play(makeDisk, steps, async (machine) => {
            checkFold((await machine.events()).map(draftOf));
          }),
        ),
        propertyOptions(2_000),
      );
      runs.set(`P15 ${name}`, scaled(2_000));
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
    const check = (): void => {
      checkNumbers([...events, again]);
    };
    catches("a revision that is used again", check, "revision 1 does not rise");
  });

  test("a lost event", async () => {
    const events = await someEvents();
    const check = (): void => {
      checkNumbers(events.filter((_event, index) => index !== 2));
    };
    catches("a lost event", check, "hole");
  });

  test("a snapshot that forgets a call", async () => {
    const events = await someEvents();
    checkFold(events.map(draftOf));
    const check = (): void => {
      checkFold(events.map(draftOf), (row, stored) =>
        restoreState(row, { ...stored, openCalls: stored.openCalls.slice(1) }),
      );
    };
    catches("a snapshot that forgets a call", check, "another state");
  });

  test("a snapshot with a stale high-water", async () => {
    const events = await someEvents();
    const check = (): void => {
      checkFold(events.map(draftOf), (row, stored) => {
        const restored = restoreState(row, stored);
        return restored && { ...restored, highWater: 0n };
      });
    };
    catches("a snapshot with a stale high-water", check, "high-water");
  });

  test("a refused command that wrote, unless nobody knows what became of it", async () => {
    const [last = create(EventSchema)] = (await someEvents()).slice(-1);
    const kind = "ASK_EXPIRED";
    const expired = create(EventSchema, { kind, actor: { kind: ActorKind.SYSTEM } });
    const refused = refuse(ErrorReason.ASK_NOT_OPEN, "the ask is settled");
    const uncertain = refuse(ErrorReason.COMMIT_UNCERTAIN, "the commit failed");
    expect(refusalFaults(refused, [expired])).toEqual([]);
    expect(refusalFaults(uncertain, [expired, last])).toEqual([]);
    expect(refusalFaults(refused, [expired, last])).toEqual([
      "MESSAGE_RECORDED was written by what was refused or by time",
    ]);
  });
});

afterAll(() => {
  recordResult({
    ...{ promise: 8, part: "revisions over restarts", counted: "histories", wanted: 10_000 },
    ...{ count: runs.get("P8 memory") ?? 0, violations: 0 },
    planted: plantedFaults("a revision that is used again", "a lost event"),
    figures: { historiesOnSqlite: runs.get("P8 SQLite") ?? 0 },
  });
  recordResult({
    ...{ promise: 15, part: "fold equals snapshot and tail", counted: "histories", wanted: 2_000 },
    ...{ count: runs.get("P15 SQLite") ?? 0, violations: 0 },
    planted: plantedFaults("a snapshot that forgets a call", "a snapshot with a stale high-water"),
  });
});
