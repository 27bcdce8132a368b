import { toJsonString } from "@bufbuild/protobuf";
import { expect } from "vitest";
import { AskSchema } from "../../gen/toolmark/v1/ask_pb.js";
import { ReceiptSchema } from "../../gen/toolmark/v1/receipt_pb.js";
import { StartGate } from "../../gen/toolmark/v1/run_pb.js";
import { SessionSchema } from "../../gen/toolmark/v1/session_pb.js";
import { ToolCallSchema } from "../../gen/toolmark/v1/tool_call_pb.js";
import { allAsks, allReceipts } from "./asking.js";
import { allCalls, allEvents, freshRequestId, readSession, recordMessage } from "./conversation.js";
import { refused, type Refused } from "./refused.js";
import type { Clients, TestService } from "./service.js";
import { tableContents } from "./store-folder.js";

/** Sends a request under an id. */
export type Send = (requestId: string) => Promise<unknown>;

/** Everything that a write to a session would change. */
export async function writtenTo(service: TestService, clients: Clients, sessionId: string) {
  const { store } = service.config;
  const calls = await allCalls(clients, sessionId);
  const asks = await allAsks(clients, sessionId);
  const receipts = await allReceipts(clients, sessionId);
  return {
    events: (await allEvents(clients, sessionId)).length,
    session: toJsonString(SessionSchema, await readSession(clients, sessionId)),
    toolCalls: calls.map((call) => toJsonString(ToolCallSchema, call)),
    asks: asks.map((ask) => toJsonString(AskSchema, ask)),
    receipts: receipts.map((receipt) => toJsonString(ReceiptSchema, receipt)),
    tables: store.kind === "sqlite" ? tableContents(store.path) : {},
  };
}

/**
 * Sends a request that must be refused, and shows that it left no trace: no event, no row in any table, the head of the
 * log, every call, ask and receipt as before, and its request id free for another request, which is then accepted and
 * written. `reuse` is that other request; by default a message, or the beginning of a run if none is active.
 */
export async function expectNothingWritten(
  service: TestService,
  sessionId: string,
  send: Send,
  reuse?: Send,
): Promise<Refused> {
  const clients = service.clients();
  const requestId = freshRequestId();
  const before = await writtenTo(service, clients, sessionId);
  const refusal = await refused(send(requestId));
  expect(await writtenTo(service, clients, sessionId)).toEqual(before);
  await (reuse ?? anythingElse(clients, sessionId))(requestId);
  return refusal;
}

/** A request that an open session accepts. It throws if it was not carried out. */
export function anythingElse(clients: Clients, sessionId: string): Send {
  return async (requestId) => {
    const { activeRunId: runId, checkpoint } = await readSession(clients, sessionId);
    if (runId !== undefined) await recordMessage(clients, { sessionId, runId }, requestId);
    else await clients.runs.beginRun({ sessionId, requestId, startGate: StartGate.OFF });
    const after = await readSession(clients, sessionId);
    expect(after.checkpoint?.sequence).toBe((checkpoint?.sequence ?? 0n) + 1n);
  };
}
