import { copyFile } from "node:fs/promises";
import BetterSqlite from "better-sqlite3";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { SessionKind } from "../../gen/toolmark/v1/session_pb.js";
import { askAbout } from "../support/asking.js";
import {
  acceptCall,
  bytes,
  complete,
  createSession,
  given,
  of,
  openRun,
  publishHook,
  type OpenRun,
} from "../support/conversation.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";
import { withoutTriggers } from "../support/without-triggers.js";

let made: StoreFolder;
let folder: StoreFolder;
let service: TestService;
let run: OpenRun;
let toolCallId: string;
let hookId: string;
let askId: string;

/** A store with one record of each kind that an index row or a checksum stands for, closed. */
beforeAll(async () => {
  made = await makeStoreFolder();
  service = await startTestService({ store: made.store });
  const clients = service.clients();
  run = await openRun(clients);
  ({ toolCallId } = await acceptCall(clients, run));
  await complete(clients, run, toolCallId);
  ({ hookId } = await publishHook(clients, run, toolCallId, "hook 1"));
  await publishHook(clients, run, toolCallId, "hook 2");
  ({ askId } = await askAbout(clients, run));
  await service.stop();
});

afterAll(async () => {
  await made.remove();
});

beforeEach(async () => {
  folder = await makeStoreFolder();
  await copyFile(made.path, folder.path);
});

afterEach(async () => {
  await service.stop();
  await folder.remove();
});

/** Changes rows as damage would: past the store, its triggers and its checksums. */
function damage(sql: string, ...parameters: unknown[]): void {
  const database = new BetterSqlite(folder.path);
  database.pragma("foreign_keys = OFF");
  withoutTriggers(database, () => {
    expect(database.prepare(sql).run(...parameters).changes).toBeGreaterThan(0);
  });
  database.close();
}

async function reopen(): Promise<Clients> {
  service = await startTestService({ store: folder.store });
  return service.clients();
}

describe("a changed row of a session is not served", () => {
  test.each([
    ["owner_subject", "'somebody'"],
    ["created_by_subject", "'somebody'"],
    ["state", "2"],
    ["create_position", "create_position + 1"],
    ["sequence", "sequence - 1"],
    ["position", "position + 1"],
    ["high_water", "high_water + 1"],
    ["chain", "zeroblob(32)"],
    ["session_sequence", "session_sequence + 1"],
    ["active_run_id", "NULL"],
    ["update_time_ms", "update_time_ms + 1"],
    ["checksum", "zeroblob(32)"],
  ])("by its %s", async (column, value) => {
    damage(`UPDATE sessions SET ${column} = ${value}`);
    const clients = await reopen();
    const { sessionId } = run;
    expect((await refused(clients.sessions.getSession({ sessionId }))).reason).toBe("DATA_DAMAGED");
    expect((await refused(clients.history.listEvents({ sessionId }))).reason).toBe("DATA_DAMAGED");
    const publishing = publishHook(clients, run, toolCallId);
    expect((await refused(publishing)).reason).toBe("HIGH_WATER_UNAVAILABLE");
    const other = await createSession(clients);
    const { sessions } = await clients.sessions.listSessions({});
    expect(sessions.map((session) => session.sessionId)).toEqual([other]);
  });
});

describe("a changed column of an event is not served", () => {
  test.each([
    ["kind", "'OTHER'"],
    ["time_ms", "time_ms + 1"],
    ["revision", "revision + 100"],
    ["commitment", "zeroblob(32)"],
    ["chain", "zeroblob(32)"],
    ["salt", "zeroblob(16)"],
    ["payload", "zeroblob(length(payload))"],
  ])("by its %s", async (column, value) => {
    damage(`UPDATE events SET ${column} = ${value} WHERE kind LIKE 'HOOK%' AND sequence =
      (SELECT min(sequence) FROM events WHERE kind LIKE 'HOOK%')`);
    const clients = await reopen();
    const told = await refused(clients.history.listEvents({ sessionId: run.sessionId }));
    expect(told.reason).toBe("DATA_DAMAGED");
  });
});

describe("a changed place of a record", () => {
  test("does not bring an older state of it back", async () => {
    damage(
      "UPDATE records SET last_sequence = first_sequence WHERE record_id = ? AND last_sequence > first_sequence",
      toolCallId,
    );
    const { history } = await reopen();
    const { sessionId } = run;
    const reading = history.getToolCall({ sessionId, toolCallId });
    expect((await refused(reading)).reason).toBe("DATA_DAMAGED");
    expect((await refused(history.listToolCalls({ sessionId }))).reason).toBe("DATA_DAMAGED");
  });

  test("does not put it on another call, or among records of another kind", async () => {
    damage("UPDATE records SET tool_call_id = ? WHERE record_id = ?", "tc_other", hookId);
    const { history } = await reopen();
    const { sessionId } = run;
    expect((await refused(history.getHook({ sessionId, hookId }))).reason).toBe("DATA_DAMAGED");
    expect((await refused(history.listHooks({ sessionId }))).reason).toBe("DATA_DAMAGED");
    await service.stop();
    damage("UPDATE records SET family = 8 WHERE record_id = ?", hookId);
    const again = await reopen();
    const listing = again.approvals.listReceipts({ sessionId });
    expect((await refused(listing)).reason).toBe("DATA_DAMAGED");
  });
});

describe("a changed place of an ask", () => {
  test.each([
    ["tool_name", "'other'"],
    ["create_time_ms", "create_time_ms + 1"],
    ["expire_time_ms", "1"],
    ["last_position", "last_position - 1"],
    ["last_chain", "zeroblob(32)"],
    ["tool_call_id", "'tc_other'"],
  ])("is not listed by its %s", async (column, value) => {
    damage(`UPDATE asks SET ${column} = ${value} WHERE ask_id = ?`, askId);
    const { approvals } = await reopen();
    const listing = approvals.listAsks({ sessionId: run.sessionId });
    expect((await refused(listing)).reason).toBe("DATA_DAMAGED");
    // Among those of several sessions it is shown bare: without what could be wrong, and without a token.
    const { asks } = await approvals.listAsks({});
    expect(asks).toMatchObject([{ answerToken: "" }]);
    expect([undefined, askId]).toContain(asks[0]?.ask?.askId);
    expect(asks[0]?.ask?.toolName ?? "").toBe("");
  });

  test("does not give it to another owner", async () => {
    damage("UPDATE asks SET owner_subject = 'somebody' WHERE ask_id = ?", askId);
    const { approvals } = await reopen();
    expect((await approvals.listAsks({ ownerSubject: "somebody" })).asks).toEqual([]);
  });
});

describe("a changed row of a request", () => {
  test.each([
    ["digest", "zeroblob(32)"],
    ["outcome", "zeroblob(length(outcome))"],
    ["checksum", "zeroblob(32)"],
  ])(
    "by its %s is neither answered with another outcome nor carried out again",
    async (column, value) => {
      damage(`UPDATE requests SET ${column} = ${value} WHERE request_id = 'hook 1'`);
      const clients = await reopen();
      const told = await refused(publishHook(clients, run, toolCallId, "hook 1"));
      expect(told.reason).toBe("DATA_DAMAGED");
      expect(given(told.metadata, "metadata")).toMatchObject({ id: "hook 1" });
    },
  );

  test("of a creation is not answered with another session", async () => {
    damage("UPDATE creations SET session_id = 'ses_other'");
    const clients = await reopen();
    const database = new BetterSqlite(folder.path, { readonly: true });
    const requestId = database
      .prepare<[], string>("SELECT request_id FROM creations")
      .pluck()
      .get();
    database.close();
    const creating = clients.sessions.createSession({
      requestId: given(requestId, "id"),
      kind: SessionKind.MAIN,
    });
    expect((await refused(creating)).reason).toBe("DATA_DAMAGED");
  });
});

describe("changed bytes of a body", () => {
  test.each([
    ["data", "zeroblob(length(data))"],
    ["sha256", "zeroblob(32)"],
    ["size_bytes", "size_bytes + 1"],
  ])("by its %s are neither served nor taken into a new record", async (column, value) => {
    damage(`UPDATE bodies SET ${column} = ${value}`);
    const clients = await reopen();
    const { sessionId } = run;
    const database = new BetterSqlite(folder.path, { readonly: true });
    const bodyRef = given(
      database.prepare<[], string>("SELECT body_ref FROM bodies").pluck().get(),
      "reference",
    );
    database.close();
    const stream = clients.history.readBody({ sessionId, bodyRef });
    const reading = stream[Symbol.asyncIterator]().next();
    expect((await refused(reading)).reason).toBe("DATA_DAMAGED");
    const command = { role: 1, content: { bodyRef, sha256: bytes("") } };
    const recording = clients.evidence.recordMessage({ ...of(run), command });
    expect((await refused(recording)).reason).toBe("DATA_DAMAGED");
  });
});

test("a damaged row of the store itself stops the start", async () => {
  damage("UPDATE meta SET generation = generation + 1");
  await expect(startTestService({ store: folder.store })).rejects.toMatchObject({
    reason: "unreadable",
  });
});
