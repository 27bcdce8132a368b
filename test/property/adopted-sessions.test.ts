import * as fc from "fast-check";
import { expect, test } from "vitest";
import { LegacySourceFormat } from "../../gen/toolmark/v1/legacy_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { ToolCallState, type ToolCall } from "../../gen/toolmark/v1/tool_call_pb.js";
import { allCalls, allEvents, given } from "../support/conversation.js";
import { importRequest, type Sources } from "../support/old-fixtures.js";
import { oldHistories } from "../support/old-histories.js";
import { logFile } from "../support/old-log-file.js";
import type { OldModel } from "../support/old-model.js";
import { snapshotFile } from "../support/old-snapshot-file.js";
import { refused } from "../support/refused.js";
import { propertyOptions, seededTitle } from "../support/seed.js";
import { startTestService, type Clients } from "../support/service.js";

const STEPS_MAX = 10;
const FULL_RUNS = 600;

const GIVEN = ["snapshot", "log", "both"] as const;
type Given = (typeof GIVEN)[number];

function sourcesOf(model: OldModel, what: Given): Sources {
  const { SNAPSHOT, EVENT_LOG } = LegacySourceFormat;
  const snapshot = [SNAPSHOT, Buffer.from(snapshotFile(model, "wrapped"))] as const;
  const log = [EVENT_LOG, Buffer.from(logFile(model, "jsonl"))] as const;
  return { snapshot: [snapshot], log: [log], both: [snapshot, log] }[what];
}

function idsOf(calls: readonly ToolCall[]): string[] {
  return calls.map(({ toolCallId }) => toolCallId);
}

/** What a fork copies: calls of turns in which every call has its result. */
function settledIn(calls: readonly ToolCall[]): ToolCall[] {
  const unfinished = new Set(calls.filter(({ result }) => !result).map(({ turnId }) => turnId));
  return calls.filter(({ turnId }) => !unfinished.has(turnId));
}

/** Only what stands beside a call that waits may start without being asked: no old verdict lets anything start. */
async function expectNothingAllowed(clients: Clients, calls: readonly ToolCall[]): Promise<void> {
  const sessionId = calls[0]?.origin?.sessionId;
  if (sessionId === undefined) return;
  const waiting = new Set(
    calls
      .filter(({ state, result }) => result === undefined && state !== ToolCallState.ACCEPTED)
      .map(({ turnId }) => turnId),
  );
  const begin = { sessionId, requestId: "begin", startGate: StartGate.REQUIRED };
  const { runId } = given((await clients.runs.beginRun(begin)).run, "run");
  for (const { toolCallId, turnId, state, effective } of calls) {
    if (state === ToolCallState.ACCEPTED && waiting.has(turnId)) continue;
    const command = { toolCallId, argumentsSha256: given(effective, "arguments").sha256 };
    const start = { sessionId, runId, requestId: `start ${toolCallId}`, command };
    await refused(clients.calls.startToolCall(start));
  }
}

async function live(model: OldModel, what: Given): Promise<void> {
  const service = await startTestService({ flags: ["--snapshot-every", "2"] });
  const clients = service.clients();
  const { sessions } = clients;
  const { id: sessionId } = model;
  await sessions.importSession(importRequest(sessionId, sourcesOf(model, what)));
  const calls = await allCalls(clients, sessionId);
  await sessions.verifySession({ sessionId });

  const { session } = await sessions.forkSession({ sessionId, requestId: "fork" });
  const forkId = given(session, "fork").sessionId;
  expect(idsOf(await allCalls(clients, forkId))).toEqual(idsOf(settledIn(calls)));
  await expectNothingAllowed(clients, calls);
  const through = BigInt((await allEvents(clients, sessionId)).length);
  const archive = { sessionId, requestId: "compact", throughSequence: through, summary: "before" };
  const compacted = await sessions.compactSession(archive).then(() => "archived", String);
  expect(compacted).toMatch(/^archived$|can be archived$/);
  expect(idsOf(await allCalls(clients, sessionId))).toEqual(idsOf(calls));
  for (const each of [sessionId, forkId]) await sessions.verifySession({ sessionId: each });
  await service.stop();
}

test(
  seededTitle(
    "an imported session keeps its ids through fork and compaction, and old verdicts start nothing",
  ),
  async () => {
    const property = fc.asyncProperty(oldHistories(STEPS_MAX), fc.constantFrom(...GIVEN), live);
    await fc.assert(property, propertyOptions(FULL_RUNS));
  },
);
