import { copyFile } from "node:fs/promises";
import BetterSqlite from "better-sqlite3";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Store } from "../../src/ledger/store-port.js";
import { findingText } from "../../src/server/verify-finding.js";
import { verifyStore } from "../../src/server/verify-store.js";
import { overriding } from "../mutants/broken-store.js";
import { given, readCall } from "../support/conversation.js";
import { writeForkSource, type ForkSource } from "../support/fork-source.js";
import { fork, forkedOf, readLists, readRecord } from "../support/forking.js";
import { refused } from "../support/refused.js";
import { startTestService, type Clients, type TestService } from "../support/service.js";
import { makeStoreFolder, type StoreFolder } from "../support/store-folder.js";

let made: StoreFolder;
let folder: StoreFolder;
let service: TestService | undefined;
let source: ForkSource;
let forkId: string;
let key: number;
let refs: { readonly base: string; readonly result: string };
let before: Awaited<ReturnType<typeof readLists>>;

beforeAll(async () => {
  made = await makeStoreFolder();
  const writing = await startTestService({ store: made.store });
  const clients = writing.clients();
  source = await writeForkSource(clients);
  forkId = (await fork(clients, source.run.sessionId)).sessionId;
  before = await readLists(clients, forkId, 500);
  const call = await readCall(clients, forkId, source.allowedId);
  const base = given(forkedOf(before.events).base, "base").bodyRef;
  refs = { base, result: given(call.result?.content, "content").bodyRef };
  await writing.stop();
  const database = new BetterSqlite(made.path);
  const find = database.prepare<[string], number>(
    "SELECT session FROM sessions WHERE session_id = ?",
  );
  key = find.pluck().get(forkId) ?? 0;
  database.close();
});

afterAll(() => made.remove());

beforeEach(async () => {
  folder = await makeStoreFolder();
  await copyFile(made.path, folder.path);
});

afterEach(async () => {
  await service?.stop();
  await folder.remove();
});

/** Changes rows of the fork as damage would. */
function damage(sql: string, parameters: Readonly<Record<string, unknown>> = {}): void {
  const database = new BetterSqlite(folder.path);
  const { changes } = database.prepare(sql).run({ key, ...parameters });
  expect(changes).toBe(1);
  database.close();
}

function flip(ref: string): void {
  const database = new BetterSqlite(folder.path);
  const find = "SELECT data FROM bodies WHERE session = ? AND body_ref = ?";
  const data = database.prepare<[number, string], Buffer>(find).pluck().get(key, ref);
  if (data === undefined) throw new Error(`there is no body ${ref}`);
  const at = data.length >> 1;
  data[at] = (data[at] ?? 0) ^ 1;
  database.close();
  damage("UPDATE bodies SET data = @data WHERE session = @key AND body_ref = @ref", { data, ref });
}

async function open(): Promise<Clients> {
  service = await startTestService({ store: folder.store });
  return service.clients();
}

/** What the command and the method say of the fork. The source stays sound. */
async function findings(): Promise<string[]> {
  const report = await verifyStore({ path: folder.path });
  const found = report.findings.map(findingText);
  expect(found.every((text) => text.includes(forkId))).toBe(true);
  const clients = await open();
  const { sessions } = clients;
  const said = await refused(sessions.verifySession({ sessionId: forkId }));
  expect(said.reason).toBe("DATA_DAMAGED");
  await sessions.verifySession({ sessionId: source.run.sessionId });
  return [...found, JSON.stringify(said)];
}

/** Everything that is still served of the fork is as it was written. */
async function expectNothingAltered(clients: Clients): Promise<number> {
  let refusals = 0;
  const records = [
    ...before.calls.map((value) => ({ case: "toolCall" as const, value })),
    ...before.hooks.map((value) => ({ case: "hook" as const, value })),
    ...before.receipts.map((value) => ({ case: "receipt" as const, value })),
    ...before.authorizations.map((value) => ({ case: "authorization" as const, value })),
  ];
  for (const record of records) {
    const read = await readRecord(clients, forkId, record).catch(() => undefined);
    if (read === undefined) refusals += 1;
    else expect(read).toEqual(record);
  }
  const lists = await readLists(clients, forkId, 500).catch(() => undefined);
  if (lists === undefined) refusals += 1;
  else expect(lists).toEqual(before);
  return refusals;
}

describe("of a fork, what is damaged is not served, and named by its verification:", () => {
  test("the base state", async () => {
    flip(refs.base);
    const said = await findings();
    expect(said.length).toBeGreaterThan(1);
    const clients = given(service, "service").clients();
    expect(await expectNothingAltered(clients)).toBeGreaterThan(10);
    const { history } = clients;
    const reading = history.getToolCall({ sessionId: forkId, toolCallId: source.allowedId });
    expect((await refused(reading)).reason).toBe("DATA_DAMAGED");
    expect((await refused(fork(clients, forkId))).reason).toBe("DATA_DAMAGED");
  });

  test("the base state, gone", async () => {
    damage("DELETE FROM bodies WHERE session = @key AND body_ref = @ref", { ref: refs.base });
    await findings();
    const clients = given(service, "service").clients();
    expect(await expectNothingAltered(clients)).toBeGreaterThan(10);
    expect((await refused(fork(clients, forkId))).reason).toBe("DATA_DAMAGED");
  });

  test("a copied body", async () => {
    flip(refs.result);
    expect((await findings()).join()).toContain(refs.result);
    expect(await expectNothingAltered(given(service, "service").clients())).toBe(2);
  });

  test.each([
    ["a pairing", "UPDATE pairings SET pairing = zeroblob(length(pairing))"],
    ["a pairing's salt", "UPDATE pairings SET salt = zeroblob(16)"],
    ["a pairing, gone", "DELETE FROM pairings"],
  ])("%s", async (_what, sql) => {
    damage(`${sql} WHERE session = @key AND record_id = @id`, { id: source.allowedId });
    expect((await findings()).join()).toContain(source.allowedId);
    expect(await expectNothingAltered(given(service, "service").clients())).toBe(0);
  });

  test.each([
    ["under another record's place", "UPDATE records SET first_sequence = -1000", 2],
    ["that names another event", "UPDATE records SET last_sequence = 2", 2],
    ["with another chain value", "UPDATE records SET last_chain = zeroblob(32)", 2],
    ["of another call", "UPDATE records SET tool_call_id = 'tc_other'", 2],
    ["as if an event of the fork had written it", "UPDATE records SET first_sequence = 1000", 2],
  ])("a place in the index %s", async (_what, sql, refusals) => {
    damage(`${sql} WHERE session = @key AND record_id = @id`, { id: source.hookId });
    expect((await findings()).join()).toContain(source.hookId);
    const clients = given(service, "service").clients();
    expect(await expectNothingAltered(clients)).toBe(refusals);
    const getting = clients.history.getHook({ sessionId: forkId, hookId: source.hookId });
    expect((await refused(getting)).reason).toBe("DATA_DAMAGED");
  });

  test("a place in the index, gone", async () => {
    const sql = "DELETE FROM records WHERE session = @key AND record_id = @id";
    damage(sql, { id: source.hookId });
    expect((await findings()).join()).toContain(source.hookId);
  });

  test("a place in the index, of a copied record that the base state does not have", async () => {
    const sql = `INSERT INTO records (session, family, first_sequence, last_sequence, record_id, last_chain)
      SELECT session, family, -1000, last_sequence, 'hk_other', last_chain FROM records
      WHERE session = @key AND record_id = @id`;
    damage(sql, { id: source.hookId });
    expect((await findings()).join()).toContain("hk_other");
  });
});

test("a base state that was read before its bytes changed is still named", async () => {
  let isDamaged = false;
  const flipping = (store: Store): Store =>
    overriding(store, {
      readBody: async (session, ref) => {
        const body = await store.readBody(session, ref);
        return isDamaged && body !== undefined && ref === refs.base
          ? { ...body, data: body.data.toReversed() }
          : body;
      },
    });
  service = await startTestService({ store: folder.store, wrapStore: flipping });
  const clients = service.clients();
  expect(await expectNothingAltered(clients)).toBe(0);
  isDamaged = true;
  expect(await expectNothingAltered(clients)).toBe(0);
  const verifying = clients.sessions.verifySession({ sessionId: forkId });
  expect(await refused(verifying)).toMatchObject({ reason: "DATA_DAMAGED" });
});

describe("damage of a source", () => {
  test("in a body that is to be copied does not become the fork's truth", async () => {
    const database = new BetterSqlite(folder.path);
    const sql = `UPDATE bodies SET data = zeroblob(length(data)) WHERE session =
      (SELECT session FROM sessions WHERE session_id = ?) AND size_bytes > 10000`;
    expect(database.prepare(sql).run(source.run.sessionId).changes).toBe(1);
    database.close();
    const clients = await open();
    const { sessionId } = source.run;
    expect((await refused(fork(clients, sessionId))).reason).toBe("DATA_DAMAGED");
  });

  test("that lacks a body to be copied is told as such", async () => {
    const database = new BetterSqlite(folder.path);
    const sql = `DELETE FROM bodies WHERE session =
      (SELECT session FROM sessions WHERE session_id = ?) AND size_bytes > 10000`;
    expect(database.prepare(sql).run(source.run.sessionId).changes).toBe(1);
    database.close();
    const clients = await open();
    const { sessionId } = source.run;
    expect((await refused(fork(clients, sessionId))).reason).toBe("DATA_DAMAGED");
  });

  test("in a pairing that is to be copied is told as such", async () => {
    const database = new BetterSqlite(folder.path);
    const sql = `UPDATE pairings SET salt = zeroblob(16) WHERE session =
      (SELECT session FROM sessions WHERE session_id = ?) AND record_id = ?`;
    const { sessionId } = source.run;
    expect(database.prepare(sql).run(sessionId, source.allowedId).changes).toBe(1);
    database.close();
    const clients = await open();
    expect((await refused(fork(clients, sessionId))).reason).toBe("DATA_DAMAGED");
  });
});
