import { create, fromBinary, toJsonString } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { BaseStateSchema, type BaseState } from "../../gen/toolmark/v1/base_state_pb.js";
import type { Event } from "../../gen/toolmark/v1/event_pb.js";
import {
  GetTranscriptRequestSchema,
  TranscriptEntrySchema,
  type TranscriptEntry,
} from "../../gen/toolmark/v1/history_service_pb.js";
import { baseBodyOf } from "../../src/domain/session-record.js";
import { DISKS } from "../support/disks.js";
import { accepted } from "../support/forking-store.js";
import { TENANT_CALLER } from "../support/outside-world.js";
import { testScale } from "../support/scale.js";
import { propertyOptions, seededTitle } from "../support/seed.js";
import { accountByLog, accountOf, allEntries } from "../support/transcript-account.js";
import type { TreeLife } from "../support/tree-life.js";
import { TreeMachine } from "../support/tree-machine.js";
import { treeHistories } from "../support/tree-steps.js";

const STEPS_MAX = 35;
const TIMEOUT_MS = { short: 120_000, ci: 600_000, long: 3_600_000 }[testScale()];

let machines = 0;

async function baseOf(life: TreeLife, events: readonly Event[]): Promise<BaseState | undefined> {
  const [first] = events;
  const body = first && baseBodyOf(first.record?.record ?? { case: undefined });
  if (first === undefined || body === undefined) return undefined;
  return fromBinary(BaseStateSchema, await life.body(first.sessionId, body.bodyRef));
}

async function entriesOf(
  { reader }: TreeLife,
  sessionId: string,
  pageSize: number,
): Promise<TranscriptEntry[]> {
  return allEntries(async (pageToken) => {
    const request = create(GetTranscriptRequestSchema, { sessionId, pageSize, pageToken });
    const { items, nextPageToken } = accepted(
      await reader.transcripts.page(TENANT_CALLER, request),
    );
    expect(items.length).toBeLessThanOrEqual(pageSize);
    return { entries: items, nextPageToken };
  });
}

function textsOf(entries: readonly TranscriptEntry[]): string[] {
  return entries.map((entry) => toJsonString(TranscriptEntrySchema, entry));
}

describe.each(DISKS)("on %s", (name, makeDisk) => {
  test(
    seededTitle("random sessions are told whole, each record once, whatever the size of a page"),
    async () => {
      await fc.assert(
        fc.asyncProperty(
          treeHistories(STEPS_MAX),
          fc.integer({ min: 1, max: 7 }),
          async (steps, pageSize) => {
            machines += 1;
            const machine = await TreeMachine.start(await makeDisk(), `transcript ${machines}`);
            const { life, model } = machine;
            try {
              for (const taken of steps) await machine.take(taken);
              for (const { sessionId } of model.sessions) {
                const events = await life.events(sessionId);
                const whole = await entriesOf(life, sessionId, 500);
                const told = accountByLog(events, await baseOf(life, events));
                expect(accountOf(whole)).toEqual(told);
                const paged = await entriesOf(life, sessionId, pageSize);
                expect(textsOf(paged)).toEqual(textsOf(whole));
              }
            } finally {
              await machine.stop();
            }
          },
        ),
        propertyOptions(name === "SQLite" ? 200 : 1_000),
      );
    },
    TIMEOUT_MS,
  );
});
